// When a rank came to each of its latest ops. Its worker writes, and any process of its node may
// read meanwhile: the moments are those of one clock, so the ranks of a node can be compared.
#ifndef HVD_FT_OP_TIMES_H
#define HVD_FT_OP_TIMES_H

#include <cstdint>

#include "base/shared.h"
#include "hvd_ft_limits.h"

namespace hvdft {

constexpr uint64_t kOpTimes = HVDFT_OPS_KEPT;

// Nanoseconds; 0: not yet.
struct OpMoments {
  uint64_t op, handed, begun, contributed, done;
};

class OpTimes {
 public:
  // An op begins; its rank's script has handed tensors over last at `handed`.
  void begin(uint64_t op, uint64_t handed, uint64_t now) {
    Entry& entry = at(op);
    withdraw(entry.published);
    entry.handed.store(handed < now ? handed : now, std::memory_order_relaxed);
    entry.begun.store(now, std::memory_order_relaxed);
    entry.contributed.store(0, std::memory_order_relaxed);
    entry.done.store(0, std::memory_order_relaxed);
    entry.published.store(op + 1, std::memory_order_release);
  }
  // The rank has contributed all of its input, or taken the result, of an op that has begun. Its
  // entry may be a later op's by now, if very many are under way.
  void contributed(uint64_t op, uint64_t now) {
    if (has(op)) at(op).contributed.store(now, std::memory_order_relaxed);
  }
  void done(uint64_t op, uint64_t now) {
    if (has(op)) at(op).done.store(now, std::memory_order_relaxed);
  }

  // Reads the moments of the op at a place below kOpTimes; false if there is none, or it changes.
  bool read(uint64_t place, OpMoments* out) const {
    const Entry& entry = entries_[place];
    uint64_t published = entry.published.load(std::memory_order_acquire);
    if (published == 0) return false;
    *out = {published - 1, entry.handed.load(std::memory_order_acquire),
            entry.begun.load(std::memory_order_acquire),
            entry.contributed.load(std::memory_order_acquire),
            entry.done.load(std::memory_order_acquire)};
    return entry.published.load(std::memory_order_relaxed) == published;
  }

 private:
  struct Entry {
    Shared<uint64_t> published;  // the op + 1; 0: none, or it is being written
    Shared<uint64_t> handed, begun, contributed, done;
  };
  Entry& at(uint64_t op) { return entries_[op % kOpTimes]; }
  bool has(uint64_t op) { return at(op).published.load(std::memory_order_relaxed) == op + 1; }

  Entry entries_[kOpTimes];
};

}  // namespace hvdft

#endif  // HVD_FT_OP_TIMES_H
