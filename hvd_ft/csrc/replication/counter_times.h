// When an end of one of the mirror's edges sends counters: they change all the time, and nothing
// waits for them.
//
// All nodes get the counters of all ranks, so their number per second grows with ranks times nodes.
// With more nodes they are sent less often. But an agent takes a rank for stuck if its counters do
// not change (hang_rule.py), so there is a bound.
#ifndef HVD_FT_COUNTER_TIMES_H
#define HVD_FT_COUNTER_TIMES_H

#include <algorithm>
#include <cstdint>

namespace hvdft {

constexpr uint64_t counters_interval_ns(uint64_t nodes) {
  constexpr uint64_t kFewNodes = 8, kOfFewNs = 20000000, kLongestNs = 250000000;
  return std::clamp(kOfFewNs * nodes / kFewNodes, kOfFewNs, kLongestNs);
}

// The next time after `now_ns`. Ends take turns, so that they do not all fill the network at once:
// this is the `turn`-th of `turns`.
constexpr uint64_t next_counters_ns(uint64_t now_ns, uint64_t nodes, uint64_t turn,
                                    uint64_t turns) {
  uint64_t interval = counters_interval_ns(nodes), offset = interval * turn / turns;
  return now_ns + interval - (now_ns + interval - offset) % interval;
}

}  // namespace hvdft

#endif  // HVD_FT_COUNTER_TIMES_H
