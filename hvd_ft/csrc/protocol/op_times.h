// When a rank came to each of its latest ops, or a node's member of the ring to each of these. It
// writes, and any process of its node may read meanwhile: the moments are those of one clock, so
// the ranks of a node can be compared. The mirror copies them to rank 0's node, by its clock, if
// the job's ops are traced.
#ifndef HVD_FT_OP_TIMES_H
#define HVD_FT_OP_TIMES_H

#include <cstdint>

#include "base/shared.h"
#include "hvd_ft_limits.h"

namespace hvdft {

constexpr uint64_t kOpTimes = HVDFT_OPS_KEPT;

// Nanoseconds; 0: not yet. Of the ring: its first message had come, the last one to which the node
// adds its own sum, and the last one.
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
    if (has(op)) at(op).done.store(now, std::memory_order_release);
  }

  void forget() {
    for (Entry& entry : entries_) withdraw(entry.published);
  }

  // What another node's are.
  void copy(const OpMoments& from) {
    begin(from.op, from.handed, from.begun);
    contributed(from.op, from.contributed);
    done(from.op, from.done);
  }

  // Reads the moments of the op at a place below kOpTimes; false if there is none, or it changes.
  bool read(uint64_t place, OpMoments* out) const {
    const Entry& entry = entries_[place];
    uint64_t published = entry.published.load(std::memory_order_acquire);
    if (published == 0) return false;
    uint64_t done = entry.done.load(std::memory_order_acquire);  // first: it is written last
    *out = {published - 1, entry.handed.load(std::memory_order_acquire),
            entry.begun.load(std::memory_order_acquire),
            entry.contributed.load(std::memory_order_acquire), done};
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

// What a reader has told of: which ops have begun, and which have ended.
class ToldOps {
 public:
  // Calls `tell` for each op that has begun or ended since the last call. No earlier op of the rank
  // begins afterwards.
  template <typename Tell>
  void each_new(const OpTimes& times, Tell tell) {
    OpMoments at;
    uint64_t end = 0;  // a reading is no moment: it may have an op, and not yet the one before
    for (uint64_t place = 0; place < kOpTimes; ++place) {
      if (times.read(place, &at) && at.op >= end) end = at.op + 1;
    }
    for (uint64_t place = 0; place < kOpTimes; ++place) {
      if (!times.read(place, &at) || at.op >= end) continue;
      uint64_t word = 2 * at.op + (at.done != 0 ? 2 : 1);
      if (told_[place] == word) continue;
      told_[place] = word;
      tell(at);
    }
  }

 private:
  uint64_t told_[kOpTimes] = {};  // 0: nothing
};

}  // namespace hvdft

#endif  // HVD_FT_OP_TIMES_H
