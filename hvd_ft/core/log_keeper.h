// The keeper of the op log: one thread, in rank 0's agent. It drives the sequencer with what
// workers ask for in shared memory, and owns the log and the heap.
#ifndef HVD_FT_LOG_KEEPER_H
#define HVD_FT_LOG_KEEPER_H

#include <atomic>
#include <thread>
#include <vector>

#include "arena.h"
#include "heap.h"
#include "sequencer.h"

namespace hvdft {

class LogKeeper {
 public:
  explicit LogKeeper(Node& node) : node_(node), heap_(node.limit()), seen_(node.size()) {}
  ~LogKeeper();
  void start();

 private:
  void run();
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
  uint64_t segments_ = 0;       // of all ops so far
  uint64_t backed_ = 0;         // bytes of the heap that have memory
  uint64_t kept_bytes_ = 0;     // bytes of the heap that nothing will free
  std::vector<uint64_t> positions_;
  std::atomic<bool> closing_{false};
  std::thread thread_;
};

}  // namespace hvdft

#endif  // HVD_FT_LOG_KEEPER_H
