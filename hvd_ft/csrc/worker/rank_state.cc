#include "worker/rank_state.h"

#include "arena/rosters.h"
#include "base/doorbell.h"

namespace hvdft {

void RankState::set(uint32_t state) const {
  block_.since_ns.store(now_ns());
  block_.state.store(state, std::memory_order_release);
}

void RankState::event(uint32_t type, uint64_t detail) const {
  node_.push_event({now_ns(), type, static_cast<uint32_t>(rank_), incarnation_, 0, detail});
}

bool RankState::sleep(uint32_t ticket, int timeout_ms) {
  if (yield_for_doorbell(block_.worker_doorbell, ticket)) return true;
  block_.asleep.store(uint64_t{1} << 32 | ticket);
  bool notified = wait_doorbell(block_.worker_doorbell, ticket, timeout_ms);
  block_.asleep.store(0);
  return notified;
}

void RankState::about_to_wait(Wait& wait) {
  std::lock_guard<std::mutex> guard(watch_);
  if (!wait.blocked && ++blocked_ == 1) blocked_since_ = now_ns();
  wait.blocked = true;
  if (waiting_ || block_.state.load() != HVDFT_RUNNING) return;
  for (int r = 0; r < node_.size(); ++r) {
    if (is_away(node_, r)) {
      waiting_ = true;
      set(HVDFT_WAITING);
      return;
    }
  }
}

void RankState::progressed(Wait& wait) {
  std::lock_guard<std::mutex> guard(watch_);
  if (!wait.blocked) return;
  wait.blocked = false;
  if (--blocked_ > 0 || !waiting_) return;
  event(HVDFT_EV_WAITED, now_ns() - blocked_since_);
  set(HVDFT_RUNNING);
  waiting_ = false;
}

}  // namespace hvdft
