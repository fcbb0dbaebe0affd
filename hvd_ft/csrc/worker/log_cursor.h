// This worker's progress in the op log.
#ifndef HVD_FT_LOG_CURSOR_H
#define HVD_FT_LOG_CURSOR_H

#include <atomic>

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
  // Whether replay is over.
  bool caught_up() const { return caught_up_.load(); }
  void catch_up();

  void executed(uint64_t id);
  void passed(uint64_t id);
  // The script continues from a snapshot.
  void jump(uint64_t position);

 private:
  RankBlock& block_;
  const uint32_t incarnation_;
  RankState& state_;
  std::atomic<uint64_t> cursor_{0}, next_{0};
  std::atomic<uint64_t> replayed_{0};  // ops executed before catching up
  std::atomic<bool> caught_up_{false};
};

}  // namespace hvdft

#endif  // HVD_FT_LOG_CURSOR_H
