// How a thread waits for MPI. MPI has to be polled, and transfers make progress only when it is;
// but a thread that polls all the time takes a core from the threads it waits for.
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
  // For `yield_ns` it only yields; longer waits may end a bit late.
  Backoff(uint64_t limit_ns, uint64_t yield_ns) : limit_ns_(limit_ns), yield_ns_(yield_ns) {}

  // There was progress.
  void reset() { since_ns_ = 0; }

  // There was no progress: yields or sleeps, longer each time. False: there was none for the whole
  // limit.
  bool pause() {
    // The kernel's buffers hold many times what a link carries in the longest sleep.
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
