// This worker's progress in the op log.
#ifndef HVD_FT_LOG_CURSOR_H
#define HVD_FT_LOG_CURSOR_H

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "worker/rank_state.h"

namespace hvdft {

class LogCursor {
 public:
  LogCursor(RankBlock& block, uint32_t incarnation, RankState& state)
      : block_(block), incarnation_(incarnation), state_(state) {}

  // The position of its script: after the last op that this rank took part in.
  uint64_t cursor() const { return cursor_.load(); }
  // The next op to execute or pass.
  uint64_t next() const { return next_.load(); }
  // The position after the last op that it has executed with all present ranks; 0: there was none
  // since its script continued from a snapshot.
  uint64_t common() const { return common_.load(); }
  // Whether replay is over.
  bool caught_up() const { return caught_up_.load(); }
  void catch_up();

  void executed(uint64_t id, bool common);
  // Whether op `id`, which is one of other ranks, may be begun to be passed: not while the script
  // jumps, nor if it has.
  bool may_pass(uint64_t id);
  void passed(uint64_t id);
  // The script continues from a snapshot, once no op is being passed any more. False, and nothing
  // has changed, if `given_up` comes true before.
  template <typename GivenUp>
  bool jump(uint64_t position, GivenUp given_up) {
    std::unique_lock<std::mutex> lock(mutex_);
    jumping_ = true;
    while (passing_ > 0 && !given_up()) changed_.wait_for(lock, std::chrono::milliseconds(100));
    bool may = passing_ == 0;
    if (may) go_to(position);
    jumping_ = false;
    return may;
  }

 private:
  void go_to(uint64_t position);
  void go_on(uint64_t id);

  RankBlock& block_;
  const uint32_t incarnation_;
  RankState& state_;
  std::atomic<uint64_t> cursor_{0}, next_{0}, common_{0};
  std::atomic<uint64_t> replayed_{0};  // ops executed before catching up
  std::atomic<bool> caught_up_{false};

  // Ops are passed by Horovod's thread, and the script's thread jumps.
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t passing_ = 0;
  bool jumping_ = false;
};

}  // namespace hvdft

#endif  // HVD_FT_LOG_CURSOR_H
