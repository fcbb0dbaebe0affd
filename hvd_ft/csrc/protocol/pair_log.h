// The pair log: how far each edge between members has come. Both ends keep a record of it, two
// words in the arena of the member, which outlives the process: nothing is appended, so a log
// neither grows nor is truncated. A member takes the messages of all its edges in one order, so one
// record serves its ends of all of them.
//
// The receiver's record is the truth. It is published when the effect of a segment has been
// written. So a segment that it counts need not be sent again, whether or not the sender lived to
// record the sending. A segment that it does not count has to be sent again, whatever the sender
// recorded, because it may have been lost on the way. The sender's record only informs readers;
// nothing depends on it.
#ifndef HVD_FT_PAIR_LOG_H
#define HVD_FT_PAIR_LOG_H

#include <cstdint>

#include "base/shared.h"

namespace hvdft {

// An edge's progress: all ops before `op`, and `position` positions of `op`. Packed, it is one
// word, which one store publishes and one comparison orders.
struct EdgePosition {
  uint64_t op = 0, position = 0;
};

constexpr uint64_t kPositionBits = 28;  // that leaves 2^36 ops: two years of 1000 a second
constexpr uint64_t kMaxPositions = uint64_t{1} << kPositionBits;  // of an op, on an edge

constexpr uint64_t pack(EdgePosition at) { return at.op << kPositionBits | at.position; }
constexpr EdgePosition unpack(uint64_t word) {
  return {word >> kPositionBits, word & (kMaxPositions - 1)};
}
constexpr bool operator==(EdgePosition a, EdgePosition b) { return pack(a) == pack(b); }
constexpr bool operator<(EdgePosition a, EdgePosition b) { return pack(a) < pack(b); }

// One end's record. Progress only grows, over all generations, so the two words need not be read
// together: `generation` tells in which one the edge was made last.
class PairRecord {
 public:
  EdgePosition at() const { return unpack(at_.load(std::memory_order_acquire)); }
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

  // Everything written before is visible to a reader that sees the progress.
  void publish(EdgePosition at) { at_.store(pack(at), std::memory_order_release); }
  void made_in(uint64_t generation) { generation_.store(generation, std::memory_order_release); }

 private:
  Shared<uint64_t> at_{0}, generation_{0};
};

// A member's ends of its edges. Each is written by the thread that drives that half.
struct PairLog {
  alignas(64) PairRecord received;  // of the ring and of gathered ops, from all who send to it
  alignas(64) PairRecord sent;      // of the ring, to its successor, …
  alignas(64) PairRecord gathered;  // … and of gathered ops, to all to whom it sends

  // For readers: what it has sent last.
  EdgePosition latest_sent() const {
    EdgePosition ring = sent.at(), gather = gathered.at();
    return ring < gather ? gather : ring;
  }
};

}  // namespace hvdft

#endif  // HVD_FT_PAIR_LOG_H
