// The order in which a node's workers contribute an op's segments, and take them.
//
// The ring between nodes needs a member's inputs in cyclic order from a certain chunk on, and its
// results become final in cyclic order from another chunk on. Workers follow these orders, so the
// ring can start with the first reduced segments, and little is left to copy when its last ones
// arrive. With one node both orders begin at segment 0.
//
// Arithmetic only; node_order_test.cc follows it through whole rings.
#ifndef HVD_FT_NODE_ORDER_H
#define HVD_FT_NODE_ORDER_H

#include "protocol/ring_plan.h"
#include "protocol/segments.h"

namespace hvdft {

struct NodeOrder {
  uint64_t segment_bytes, segments;
  uint64_t first_given, first_taken;  // segments, …

  NodeOrder(const RingPlan& plan, uint64_t member, uint64_t of_bytes)
      : segment_bytes(of_bytes),
        segments(segments_of(plan.bytes(), of_bytes)),
        // … the segment where the first input begins, …
        first_given(plan.input(member, 0).from / segment_bytes % segments),
        // … and the first segment that has results of the first chunk only: the one before it also
        // has some of the last chunk.
        first_taken(whole_after(plan.result(member, 0).from) % segments) {}

  // The number of segments, in the order of contributing, that this stretch of the input needs.
  uint64_t given_for(ByteRange input) const {
    if (input.bytes() == 0) return 0;
    uint64_t first = index_of(input.from / segment_bytes, first_given);
    uint64_t last = index_of((input.to - 1) / segment_bytes, first_given);
    return first <= last ? last + 1 : segments;
  }

  // The number of final segments, in the order of taking, when `member` has received up to
  // `position`.
  uint64_t final_at(const RingPlan& plan, uint64_t member, uint64_t position) const {
    uint64_t results = plan.results(position);
    if (results == 0) return 0;
    if (results == plan.inputs()) return segments;
    uint64_t begin = plan.result(member, 0).from, end = plan.result(member, results - 1).to;
    uint64_t before = whole_after(begin);
    uint64_t after = end == plan.bytes() ? segments : end / segment_bytes;
    uint64_t first_chunk = plan.members() - 1 - member;
    bool round = first_chunk + (results - 1) / plan.segments() >= plan.members();
    if (round) return segments - before + after;
    return after - std::min(before, after);
  }

 private:
  uint64_t index_of(uint64_t segment, uint64_t first) const {
    return (segment + segments - first) % segments;
  }
  uint64_t whole_after(uint64_t byte) const {
    return byte / segment_bytes + (byte % segment_bytes != 0);
  }
};

}  // namespace hvdft

#endif  // HVD_FT_NODE_ORDER_H
