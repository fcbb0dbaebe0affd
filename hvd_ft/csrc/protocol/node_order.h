// In which order a node's workers give an op's segments, and take them.
//
// The ring between nodes wants a member's inputs from some chunk of its own on and round, and its
// results become final from another chunk on and round. Workers follow it: so the ring starts with
// the first segments that are reduced, and when its last ones come there is little left to copy.
// With one node both orders begin at segment 0.
//
// Arithmetic only; node_order_test.cc follows it through whole rings.
#ifndef HVD_FT_NODE_ORDER_H
#define HVD_FT_NODE_ORDER_H

#include "protocol/ring_plan.h"
#include "protocol/segments.h"

namespace hvdft {

struct NodeOrder {
  uint64_t segments;
  uint64_t first_given, first_taken;  // segments, …

  NodeOrder(const RingPlan& plan, uint64_t member)
      : segments(segments_of(plan.bytes())),
        // … the one where the first input begins, …
        first_given(plan.input(member, 0).from / kSegmentBytes % segments),
        // … and the first one that has results of the first chunk only: in what lies before it
        // are some of the last chunk, too.
        first_taken(whole_after(plan.result(member, 0).from) % segments) {}

  // So many segments have to be there, in the order of giving, for this stretch of the input.
  uint64_t given_for(ByteRange input) const {
    if (input.bytes() == 0) return 0;
    uint64_t first = place_of(input.from / kSegmentBytes, first_given);
    uint64_t last = place_of((input.to - 1) / kSegmentBytes, first_given);
    return first <= last ? last + 1 : segments;
  }

  // So many segments are final, in the order of taking, when `member` has received up to
  // `position`.
  uint64_t final_at(const RingPlan& plan, uint64_t member, uint64_t position) const {
    uint64_t results = plan.results(position);
    if (results == 0) return 0;
    if (results == plan.inputs()) return segments;
    uint64_t begin = plan.result(member, 0).from, end = plan.result(member, results - 1).to;
    uint64_t before = whole_after(begin);
    uint64_t after = end == plan.bytes() ? segments : end / kSegmentBytes;
    uint64_t first_chunk = plan.members() - 1 - member;
    bool round = first_chunk + (results - 1) / plan.segments() >= plan.members();
    if (round) return segments - before + after;
    return after - std::min(before, after);
  }

 private:
  uint64_t place_of(uint64_t segment, uint64_t first) const {
    return (segment + segments - first) % segments;
  }
  static uint64_t whole_after(uint64_t byte) {
    return byte / kSegmentBytes + (byte % kSegmentBytes != 0);
  }
};

}  // namespace hvdft

#endif  // HVD_FT_NODE_ORDER_H
