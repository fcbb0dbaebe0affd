// Failpoints: a worker dies at a named point in its life, as `hvdft run --inject` orders (a drill).
#ifndef HVD_FT_FAILPOINT_H
#define HVD_FT_FAILPOINT_H

#include <atomic>
#include <cstdint>

namespace hvdft {

// How many drills this process has; -1 until the environment has been read.
extern std::atomic<int> drills;

// The training step that the process has reached: a drill may wait for one.
void set_failpoint_step(uint64_t step);

bool strike(int point, uint64_t op);

// Passes a point. Without drills it is this load and a branch that is always predicted.
// True if the caller is to raise an exception.
inline bool failpoint(int point, uint64_t op) {
  return __builtin_expect(drills.load(std::memory_order_relaxed) != 0, 0) && strike(point, op);
}

}  // namespace hvdft

#endif  // HVD_FT_FAILPOINT_H
