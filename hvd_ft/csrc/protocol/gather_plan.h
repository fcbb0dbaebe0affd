// The arithmetic of a gathered op: who sends what to whom, in which order.
//
// In a small op, hops cost more than bytes. So it does not go round the ring: every member gets the
// whole input of every other member and adds them all up, in the order of the ring's sums, so the
// results have the same bits as the ring's. This takes ceil(log2 N) rounds. In round k a member
// sends all the inputs that it has, or those that the receiver lacks, to the member 2^k places
// further on (Bruck's algorithm): that is N - 1 inputs over all rounds, for any N.
//
// A member keeps the inputs in *slots*: slot j holds the input of the member j places before it, so
// its own is in slot 0. It always sends its first slots, and they land 2^k slots further on.
#ifndef HVD_FT_GATHER_PLAN_H
#define HVD_FT_GATHER_PLAN_H

#include <algorithm>
#include <cstdint>

#include "protocol/byte_range.h"

namespace hvdft {

// All slots of an op may take so much memory, on every node, as long as the log has it.
constexpr uint64_t kMostGatheredBytes = 4 << 20;

// The rule: whether an op of so many bytes is gathered. `most_bytes` is what was measured, for all
// numbers of members: the extra bytes of a gathered op and the hops that it saves grow alike with
// them (hops_test.cc).
constexpr bool is_gathered(uint64_t members, uint64_t bytes, uint64_t most_bytes) {
  return members > 1 && bytes > 0 && bytes <= most_bytes && bytes <= kMostGatheredBytes / members;
}

class GatherPlan {
 public:
  GatherPlan(uint64_t members, uint64_t bytes)
      : members_(members), slot_bytes_((bytes + kLargestElement - 1) & ~(kLargestElement - 1)) {}

  uint64_t rounds() const { return rounds_for(members_); }
  // The memory of all slots.
  uint64_t bytes() const { return members_ * slot_bytes_; }

  // In a round a member sends to the one that is so much further on, …
  static uint64_t distance(uint64_t round) { return uint64_t{1} << round; }
  // … these bytes of its slots, …
  ByteRange sent(uint64_t round) const { return {0, slots(round) * slot_bytes_}; }
  // … which become these of the other's.
  ByteRange received(uint64_t round) const {
    uint64_t from = distance(round) * slot_bytes_;
    return {from, from + slots(round) * slot_bytes_};
  }
  // It can do so when it has received all of this many rounds.
  uint64_t needs(uint64_t round) const { return rounds_for(slots(round)); }

  // The first byte of the slot whose input is added to the ring's chunk `chunk`, i-th (from 0 on):
  // the i-th member in whose hands the ring would have that chunk.
  uint64_t added(uint64_t member, uint64_t chunk, uint64_t i) const {
    return (member + chunk + members_ - i) % members_ * slot_bytes_;
  }

 private:
  static constexpr uint64_t kLargestElement = 16;

  // The number of rounds after which a member has so many slots.
  static uint64_t rounds_for(uint64_t slots) {
    uint64_t rounds = 0;
    while (distance(rounds) < slots) ++rounds;
    return rounds;
  }
  uint64_t slots(uint64_t round) const {
    return std::min(distance(round), members_ - distance(round));
  }

  uint64_t members_, slot_bytes_;
};

}  // namespace hvdft

#endif  // HVD_FT_GATHER_PLAN_H
