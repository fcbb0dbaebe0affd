// The agent's thread: drives the sequencer (rank 0's agent) and reduces this agent's slices
// of every op, straight out of the arenas of all ranks into one result.
#ifndef HVD_FT_ENGINE_H
#define HVD_FT_ENGINE_H

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "arena.h"
#include "heap.h"
#include "sequencer.h"

namespace hvdft {

// Rank 0's agent alone: it owns the log and the heap.
class LogKeeper {
 public:
  explicit LogKeeper(Node& node) : node_(node), heap_(node.limit()), seen_(node.size()) {}
  // Looks at what workers ask for; true if there was something.
  bool step();

 private:
  bool answer_joins();
  bool answer_proposal();
  bool cut();
  int append(uint64_t count);
  int append_one(uint64_t id, const OpHead& op, const char* tail);
  int grown(uint64_t offset, uint64_t bytes, const char* what, uint64_t* place);
  uint64_t heap_bytes(uint64_t offset) const;
  void publish_room();
  void drop(uint64_t id);

  Node& node_;
  Heap heap_;
  Sequencer sequencer_;
  std::vector<uint64_t> seen_;  // per rank: the join request answered last
  uint64_t backed_ = 0;         // bytes of the heap that have memory
  uint64_t kept_bytes_ = 0;     // bytes of the heap that nothing will free
  std::vector<uint64_t> positions_;
};

class Engine {
 public:
  // Empty, with an error set, if a file is missing or not of this job.
  static std::unique_ptr<Engine> open(const std::string& dir, const char* job, int rank);
  ~Engine();
  void start();
  Node& node() { return *node_; }
  int rank() const { return rank_; }

 private:
  void run();
  bool reduce_next();
  bool all_contributed(uint64_t at) const;
  void work_on(const Record& record, uint64_t segment, Range slice);

  int rank_ = 0;
  std::unique_ptr<Node> node_;
  std::vector<std::unique_ptr<RankFile>> files_;
  std::unique_ptr<LogKeeper> keeper_;
  std::atomic<bool> closing_{false};
  bool passed_by_ = false;  // ops in which this agent had nothing to do
  std::thread thread_;
};

}  // namespace hvdft

#endif  // HVD_FT_ENGINE_H
