// A word in the arena that several processes read and write: an atomic. Tests that step through the
// core's code are compiled with another definition, in which every access is a step
// (tests/core/stepped).
#ifndef HVD_FT_SHARED_H
#define HVD_FT_SHARED_H

#include <atomic>
#include <cstdint>
#include <cstring>

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

// Withdraws what `word` publishes before it is overwritten: who sees any of what is stored after
// this sees `value` in the word, too. A store alone, of whatever order, does not hold back the
// stores that follow it.
inline void withdraw(Shared<uint64_t>& word, uint64_t value = 0) {
  word.store(value, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_release);
}

// Copies memory that another process may be overwriting, so that a sequence counter has to tell
// whether the copy is torn; and writes memory that another process may be copying so. (H.-J. Boehm,
// Can Seqlocks Get Along With Programming Language Memory Models?, MSPC 2012.)
inline void copy_torn(char* to, const char* from, uint64_t bytes) {
  uint64_t at = 0, word;
  for (; at + sizeof word <= bytes; at += sizeof word) {
#ifdef HVDFT_STEPPED
    step(false);
#endif
    word = __atomic_load_n(reinterpret_cast<const uint64_t*>(from + at), __ATOMIC_RELAXED);
    std::memcpy(to + at, &word, sizeof word);
  }
  for (; at < bytes; ++at) to[at] = __atomic_load_n(from + at, __ATOMIC_RELAXED);
}
inline void write_torn(char* to, const char* from, uint64_t bytes) {
  uint64_t at = 0, word;
#ifdef HVDFT_STEPPED
  step(true);
#endif
  for (; at + sizeof word <= bytes; at += sizeof word) {
    std::memcpy(&word, from + at, sizeof word);
    __atomic_store_n(reinterpret_cast<uint64_t*>(to + at), word, __ATOMIC_RELAXED);
  }
  for (; at < bytes; ++at) __atomic_store_n(to + at, from[at], __ATOMIC_RELAXED);
}

}  // namespace hvdft

#endif  // HVD_FT_SHARED_H
