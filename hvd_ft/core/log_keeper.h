// The keeper of the op log, in rank 0's agent. It drives the sequencer with what workers ask for in
// shared memory. With one node it has a thread; with several it is a part of what the leader does,
// which so passes on at once what was agreed.
#ifndef HVD_FT_LOG_KEEPER_H
#define HVD_FT_LOG_KEEPER_H

#include <atomic>
#include <thread>
#include <vector>

#include "arena.h"
#include "log_store.h"
#include "sequencer.h"

namespace hvdft {

class LogKeeper {
 public:
  explicit LogKeeper(Node& node);
  ~LogKeeper();
  void start();  // with a thread; else:
  void open();
  bool step();  // after every ring of keeper_bell; returns whether there was anything

 private:
  void run();
  bool answer_joins();
  bool answer_proposal();
  bool cut();
  int append(uint64_t count);

  Node& node_;
  LogStore store_;
  Sequencer sequencer_;
  std::vector<uint64_t> seen_;  // per rank: the join request answered last
  std::vector<uint64_t> positions_;
  std::atomic<bool> closing_{false};
  std::thread thread_;
};

}  // namespace hvdft

#endif  // HVD_FT_LOG_KEEPER_H
