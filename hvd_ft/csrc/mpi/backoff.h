// How a thread waits for MPI. MPI can only be asked, and what is under way moves on only when
// somebody asks; but a thread that asks all the time takes a core from those it waits for.
#ifndef HVD_FT_BACKOFF_H
#define HVD_FT_BACKOFF_H

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cstdint>

#include "base/doorbell.h"

namespace hvdft {

class Backoff {
 public:
  // For `yield_ns` it only yields; what it waits for longer than that may be found a bit late.
  Backoff(uint64_t limit_ns, uint64_t yield_ns) : limit_ns_(limit_ns), yield_ns_(yield_ns) {}

  // Something has moved.
  void reset() { since_ns_ = 0; }

  // Nothing has moved: lets others run for a moment, the longer the longer nothing moves.
  // False: nothing has moved for the limit.
  bool pause() {
    // The kernel's buffers hold what a link carries in the longest sleep many times.
    constexpr uint64_t kMostNs = 200000;
    uint64_t now = now_ns();
    if (since_ns_ == 0) since_ns_ = now;
    uint64_t idle = now - since_ns_;
    if (idle < yield_ns_) {
      sched_yield();
    } else {
      timespec nap{0, static_cast<long>(std::min(idle / 2, kMostNs))};
      nanosleep(&nap, nullptr);
    }
    return idle < limit_ns_;
  }

 private:
  uint64_t limit_ns_, yield_ns_, since_ns_ = 0;
};

}  // namespace hvdft

#endif  // HVD_FT_BACKOFF_H
