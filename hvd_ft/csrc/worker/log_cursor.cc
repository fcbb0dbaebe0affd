#include "worker/log_cursor.h"

#include "base/failpoint.h"

namespace hvdft {

void LogCursor::catch_up() {
  if (caught_up_.exchange(true)) return;
  state_.set(HVDFT_RUNNING);
  state_.event(HVDFT_EV_JOINED, replayed_.load());
}

void LogCursor::executed(uint64_t id, bool common) {
  state_.progressed(state_.collectives());
  if (!caught_up()) {
    replayed_.fetch_add(1);
    if (incarnation_ > 0) failpoint(HVDFT_AT_REPLAY, id);
  }
  block_.executed.store(id + 1);
  failpoint(HVDFT_AT_EXECUTED, id);
  if (common) common_.store(id + 1);
  cursor_.store(id + 1);
  next_.store(id + 1);
}

bool LogCursor::may_pass(uint64_t id) {
  std::lock_guard<std::mutex> guard(mutex_);
  if (jumping_ || id < next()) return false;
  ++passing_;
  return true;
}

void LogCursor::passed(uint64_t id) {
  std::lock_guard<std::mutex> guard(mutex_);
  go_on(id);
  --passing_;
  if (passing_ == 0) changed_.notify_all();
}

void LogCursor::go_on(uint64_t id) {
  state_.progressed(state_.collectives());
  block_.executed.store(id + 1);
  next_.store(id + 1);
}

void LogCursor::go_to(uint64_t position) {
  cursor_.store(position);
  common_.store(0);
  // It may be ahead: then only ops of other ranks have followed the snapshot.
  if (next() < position) go_on(position - 1);
}

}  // namespace hvdft
