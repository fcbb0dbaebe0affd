// A word in the arena that several processes read and write: an atomic. Tests that step through the
// core's code are compiled with another one, every access to which is a step (tests/core/steps).
#ifndef HVD_FT_SHARED_H
#define HVD_FT_SHARED_H

#include <atomic>
#include <cstdint>

#ifdef HVDFT_STEPPED
#include "stepped.h"
#endif

namespace hvdft {

static_assert(std::atomic<uint64_t>::is_always_lock_free, "the arena needs lock-free atomics");

#ifdef HVDFT_STEPPED
template <typename T>
using Shared = Stepped<T>;
#else
template <typename T>
using Shared = std::atomic<T>;
#endif

}  // namespace hvdft

#endif  // HVD_FT_SHARED_H
