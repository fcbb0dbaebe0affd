// How long a leader's thread naps between two polls of MPI, which cannot notify it.
#ifndef HVD_FT_NAP_H
#define HVD_FT_NAP_H

#include <algorithm>
#include <cstdint>

#include "hvd_ft_limits.h"

namespace hvdft {

// How long a thread only yields, before the first nap: data from another core comes within this
// time; a longer wait is for a link, or for a process without a CPU. On a busy machine a thread
// that only yields has to wait for the time slices of all others.
constexpr uint64_t kYieldNs = HVDFT_YIELD_NS;
constexpr uint64_t kBusyNs = HVDFT_NAP_NS, kIdleNs = HVDFT_MOST_NAP_NS;

// `idle_ns`: how long nothing has moved. `waits`: something may come over MPI; otherwise only a
// doorbell matters, which ends the nap. `busy_ns`: the longest nap of an ordinary wait, up to
// kIdleNs.
//
// What comes is seen late by half a nap. So naps grow with the time that is lost anyway: they are
// an eighth of the wait at most, as what passes several nodes is late at each of them; and of a
// wait of more than a quarter of a second they are 1/256, so that what comes then is late by 0.2 %
// of it.
constexpr uint64_t nap_ns(uint64_t idle_ns, bool waits, uint64_t busy_ns = kBusyNs) {
  uint64_t longest = waits ? std::clamp(idle_ns / 256, busy_ns, kIdleNs) : kIdleNs;
  return std::min(idle_ns / 8, longest);
}

}  // namespace hvdft

#endif  // HVD_FT_NAP_H
