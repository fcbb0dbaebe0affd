// The arithmetic of a ring allreduce: who sends what to whom, in which order.
//
// N members stand in a ring. An op's data is cut into N chunks and each chunk into segments. In
// REDUCE_SCATTER, steps 0 to N-2, a chunk travels from member to member and each adds its own
// input; then one member has the whole sum, and in ALLGATHER, steps 0 to N-2, it travels on to all
// others. An *edge* joins a member to its successor and has the number of the sending member. The
// messages of an op over an edge are one ordered stream: step by step, and segment by segment
// within a step. So the progress of an edge is one integer, the *position*; counted through both
// phases, the step is position / segments.
//
// Over edge e, chunk (step - e) mod N passes in a step. So a member sends in each step the chunk
// that it received in the previous one. It needs its inputs, and gets its results, in ascending
// cyclic order from a chunk that depends on the member: the ring can start on the first of them.
//
// Several rings may carry an op side by side (RingShare): with k rings, each has every k-th segment
// of every chunk. So a chunk and its sum begin at the same member whatever the number of rings.
//
// A small op may be *gathered* instead (gather_plan.h): nothing of it passes over the ring's edges,
// and its positions are the rounds of the gather.
//
// Numbers only, all 64 bits wide: bytes, not elements. Cuts are made at cache lines, which
// elements of 1, 2, 4, 8 or 16 bytes do not straddle.
#ifndef HVD_FT_RING_PLAN_H
#define HVD_FT_RING_PLAN_H

#include <algorithm>
#include <cstdint>

#include "hvd_ft_limits.h"
#include "protocol/byte_range.h"
#include "protocol/gather_plan.h"

namespace hvdft {

constexpr uint64_t kCacheLine = 64;
constexpr uint64_t kRingSegmentBytes = HVDFT_RING_SEGMENT;
constexpr uint64_t kLeastRingSegment = HVDFT_LEAST_RING_SEGMENT;
constexpr uint64_t kMostRingSegment = HVDFT_MOST_RING_SEGMENT;

enum class Phase { kReduceScatter, kAllgather, kGather };

// A position, readable.
struct RingStep {
  Phase phase;
  uint64_t step, segment;
};

// One of the rings that carry an op side by side.
struct RingShare {
  uint64_t number = 0, of = 1;
};

class RingPlan {
 public:
  RingPlan() : RingPlan(1, 0, kCacheLine) {}

  // `segment_bytes`, the largest message of the ring, is rounded up to cache lines.
  RingPlan(uint64_t members, uint64_t bytes, uint64_t segment_bytes, bool gathered = false,
           RingShare share = {})
      : members_(std::max(members, uint64_t{1})),
        bytes_(bytes),
        segment_bytes_(std::max(lines(segment_bytes), uint64_t{1}) * kCacheLine),
        gathered_(gathered && members_ > 1 && bytes > 0),
        share_(share),
        segments_((chunk(0).bytes() + share.of * segment_bytes_ - 1) /
                  (share.of * segment_bytes_)) {}

  uint64_t members() const { return members_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t segment_bytes() const { return segment_bytes_; }
  uint64_t segments() const { return segments_; }  // of a step, of this ring; some may be empty

  bool gathered() const { return gathered_; }
  GatherPlan gather() const { return {members_, bytes_}; }

  // Positions of an edge; 0 with one member, or without data.
  uint64_t positions() const {
    return gathered_ ? gather().rounds() : 2 * (members_ - 1) * segments_;
  }

  // The data in as many parts as there are members. Their sizes differ by at most one cache line;
  // with little data the last ones are empty.
  ByteRange chunk(uint64_t number) const {
    uint64_t all = lines(bytes_), each = all / members_, longer = all % members_;
    auto begin = [&](uint64_t c) {
      return std::min((each * c + std::min(c, longer)) * kCacheLine, bytes_);
    };
    return {begin(number), begin(number + 1)};
  }

  RingStep step_at(uint64_t position) const {
    if (gathered_) return {Phase::kGather, position, 0};
    uint64_t step = position / segments_, half = members_ - 1;
    return step < half ? RingStep{Phase::kReduceScatter, step, position % segments_}
                       : RingStep{Phase::kAllgather, step - half, position % segments_};
  }

  // What passes over an edge at a position; not of a gathered op.
  ByteRange on_edge(uint64_t edge, uint64_t position) const {
    ByteRange all = chunk((position / segments_ + members_ - edge) % members_);
    auto begin = [&](uint64_t segment) {
      return std::min(all.from + segment * segment_bytes_, all.to);
    };
    uint64_t segment = position % segments_ * share_.of + share_.number;
    return {begin(segment), begin(segment + 1)};
  }

  // The first position, from this one on, at which data passes; empty segments are not sent.
  uint64_t next_on_edge(uint64_t edge, uint64_t position) const {
    if (gathered_) return positions();
    while (position < positions() && on_edge(edge, position).bytes() == 0) ++position;
    return position;
  }

  // The edge over which a member receives.
  uint64_t edge_to(uint64_t member) const { return (member + members_ - 1) % members_; }

  // A member's inputs in the order in which it needs them: first those that it sends at position i,
  // then, from i = segments() on, those that it adds to the data received at position i -
  // segments(). A gathered op has one input and one result.
  uint64_t inputs() const { return gathered_ ? 1 : members_ * segments_; }
  ByteRange input(uint64_t member, uint64_t i) const {
    return gathered_ ? ByteRange{0, bytes_} : on_edge(member, i);
  }

  // Its results in the order in which they become final, and their number when it has received up
  // to `position`. With one member nothing is received: its input is the result.
  uint64_t results(uint64_t position) const {
    if (gathered_) return position == positions() ? 1 : 0;
    uint64_t before = (members_ - 2) * segments_;
    return members_ == 1 ? inputs() : position - std::min(position, before);
  }
  ByteRange result(uint64_t member, uint64_t i) const {
    if (gathered_) return {0, bytes_};
    return members_ == 1 ? on_edge(0, i) : on_edge(edge_to(member), (members_ - 2) * segments_ + i);
  }

 private:
  static uint64_t lines(uint64_t bytes) { return bytes / kCacheLine + (bytes % kCacheLine != 0); }

  uint64_t members_, bytes_, segment_bytes_;
  bool gathered_;
  RingShare share_;
  uint64_t segments_;
};

// An endpoint reaches only the one of the same number on another member, and a member needs
// different ones for its two edges. So edges are coloured: those of even and of odd members, and
// in an odd ring the last one, which has an edge of each colour beside it. Edge e leads from member
// e to its successor.
constexpr int edge_colours(int members) { return members % 2 == 0 ? 2 : 3; }
constexpr int colour_of_edge(int edge, int members) {
  return members % 2 == 1 && edge == members - 1 ? 2 : edge % 2;
}

// A member's place in a ring: its number there, and its neighbours. The members of a ring that goes
// backwards are numbered the other way round.
struct RingPlace {
  uint64_t number;
  int successor, predecessor;
};
constexpr RingPlace ring_place(int member, int members, bool backwards) {
  int after = (member + 1) % members, before = (member + members - 1) % members;
  if (!backwards) return {static_cast<uint64_t>(member), after, before};
  return {static_cast<uint64_t>((members - member) % members), before, after};
}

}  // namespace hvdft

#endif  // HVD_FT_RING_PLAN_H
