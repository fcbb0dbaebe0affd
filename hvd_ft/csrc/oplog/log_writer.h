// The log writer of the op log, in rank 0's agent. It drives the sequencer with the workers'
// requests in shared memory. With one node it has its own thread; with several it is part of the
// leader, which can then mirror new ops at once.
#ifndef HVD_FT_LOG_WRITER_H
#define HVD_FT_LOG_WRITER_H

#include <atomic>
#include <thread>
#include <vector>

#include "arena/arena.h"
#include "oplog/log_store.h"
#include "protocol/sequencer.h"

namespace hvdft {

// HVDFT_EINVAL, with a text: an op cannot be done so.
int check_rules(const hvdft_op_rules& rules, uint64_t window);

class LogWriter {
 public:
  LogWriter(Node& node, const hvdft_op_rules& rules);
  ~LogWriter();
  void start();  // with a thread; else:
  void open();
  bool step();  // after every notification of log_writer_doorbell; whether there was work

 private:
  // A set of ranks, in the words of a roster.
  struct Ranks {
    uint64_t words[kMaxRanks / 64] = {};
    void add(int r) { words[r / 64] |= uint64_t{1} << r % 64; }
    bool has(int r) const { return (words[r / 64] >> r % 64 & 1) != 0; }
  };

  void run();
  bool answer_enter_requests();
  bool answer_proposal();
  bool answer_mark_requests();
  bool answer_leave_requests();
  bool answer_returns();
  uint64_t next_roster();
  bool announce(uint64_t latest, const Ranks& ranks, int loop);
  uint64_t restart_of(const Loop& loop, int rank) const;
  void publish_oldest();
  bool truncate();
  int append(uint64_t count);

  Node& node_;
  const hvdft_op_rules rules_;
  LogStore store_;
  Sequencer sequencer_;
  std::vector<uint64_t> seen_;  // per rank: the join request answered last
  std::vector<uint64_t> positions_;
  bool begun_ = false;  // a roster has, since workers were notified
  std::atomic<bool> closing_{false};
  std::thread thread_;
};

}  // namespace hvdft

#endif  // HVD_FT_LOG_WRITER_H
