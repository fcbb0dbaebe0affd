// Doorbells, by which one process notifies another: an eventcount over a futex.
//
// A doorbell is a counter in shared memory. A waiter reads the counter (its ticket), looks at the
// state, and sleeps only if the counter has not moved since. So no notification is lost, and a
// superfluous one costs one check.
#ifndef HVD_FT_DOORBELL_H
#define HVD_FT_DOORBELL_H

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>
#include <cstdint>

#include "base/shared.h"

namespace hvdft {

inline uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

inline void notify(Shared<uint32_t>& doorbell) {
  doorbell.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&doorbell), FUTEX_WAKE, INT_MAX, nullptr, nullptr,
          0);
}

// The same for a waiter that stores a value in `asleep` before it sleeps: saves a system call when
// it does not sleep. Wakes the waiters that nap in one of these `roles`.
inline void notify(Shared<uint32_t>& doorbell, const Shared<uint64_t>& asleep,
                   uint32_t roles = FUTEX_BITSET_MATCH_ANY) {
  doorbell.fetch_add(1, std::memory_order_seq_cst);
  if (asleep.load(std::memory_order_seq_cst) == 0) return;
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&doorbell), FUTEX_WAKE_BITSET, INT_MAX, nullptr,
          nullptr, roles);
}

// Sleeps until the doorbell has moved on from `ticket`, or until timeout_ms (negative: no limit)
// has passed.
inline bool wait_doorbell(Shared<uint32_t>& doorbell, uint32_t ticket, int timeout_ms) {
  timespec limit{timeout_ms / 1000, (timeout_ms % 1000) * 1000000L};
  if (doorbell.load(std::memory_order_seq_cst) == ticket) {
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&doorbell), FUTEX_WAIT, ticket,
            timeout_ms < 0 ? nullptr : &limit, nullptr, 0);
  }
  return doorbell.load(std::memory_order_seq_cst) != ticket;
}

// The same for a short time, and for notifications of one of these `roles`.
inline void wait_doorbell_ns(Shared<uint32_t>& doorbell, uint32_t ticket, uint64_t ns,
                             uint32_t roles = FUTEX_BITSET_MATCH_ANY) {
  uint64_t end = now_ns() + ns;
  timespec limit{static_cast<time_t>(end / 1000000000u), static_cast<long>(end % 1000000000u)};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&doorbell), FUTEX_WAIT_BITSET, ticket, &limit,
          nullptr, roles);
}

// Most waits of collectives end within microseconds. Meanwhile other threads may use the CPU, but
// it does not go idle: waking an idle CPU costs more than all the rest of a small op
// (docs/performance.md has figures). True if the doorbell has moved on.
inline bool yield_for_doorbell(Shared<uint32_t>& doorbell, uint32_t ticket) {
  constexpr uint64_t kYieldNs = 8000;
  uint64_t end = now_ns() + kYieldNs;
  while (doorbell.load(std::memory_order_seq_cst) == ticket) {
    if (now_ns() > end) return false;
    sched_yield();
  }
  return true;
}

}  // namespace hvdft

#endif  // HVD_FT_DOORBELL_H
