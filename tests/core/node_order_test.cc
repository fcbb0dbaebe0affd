// The order of giving and taking segments, against what the ring wants and has, byte by byte.
#include "protocol/node_order.h"

#include <vector>

#include "check.h"

using namespace hvdft;

namespace {

// The complete part of segment `number` in `bytes`; `done` has one flag per cache line.
bool whole(const NodeOrder& order, uint64_t number, uint64_t bytes, const std::vector<bool>& done) {
  ByteRange range = segment_range(number, bytes, order.segment_bytes);
  for (uint64_t at = range.from; at < range.to; at += kCacheLine) {
    if (!done[at / kCacheLine]) return false;
  }
  return true;
}

void mark(ByteRange part, std::vector<bool>* done) {
  for (uint64_t at = part.from; at < part.to; at += kCacheLine) (*done)[at / kCacheLine] = true;
}

// With so many segments given there is all of the ring's next input, and with one less there is
// not.
void check_giving(const RingPlan& plan, uint64_t member, const NodeOrder& order) {
  std::vector<uint64_t> turn(order.segments);  // of each segment, in the order of giving
  for (uint64_t p = 0; p < order.segments; ++p) {
    turn[(order.first_given + p) % order.segments] = p;
  }
  for (uint64_t i = 0; i < plan.inputs(); ++i) {
    ByteRange input = plan.input(member, i);
    uint64_t needed = 0;
    for (uint64_t at = input.from; at < input.to; at += kCacheLine) {
      needed = std::max(needed, turn[at / order.segment_bytes] + 1);
    }
    CHECK(order.given_for(input) == needed);
  }
}

// What counts as final is, and the next segment is not.
void check_taking(const RingPlan& plan, uint64_t member, const NodeOrder& order) {
  std::vector<bool> final(plan.bytes() / kCacheLine + 1);
  uint64_t counted = 0, before = 0;
  for (uint64_t position = 0; position <= plan.positions(); ++position) {
    uint64_t results = plan.results(position);
    for (; counted < results; ++counted) mark(plan.result(member, counted), &final);
    uint64_t count = order.final_at(plan, member, position);
    CHECK(count >= before && count <= order.segments);
    auto is_final = [&](uint64_t p) {
      return whole(order, (order.first_taken + p) % order.segments, plan.bytes(), final);
    };
    for (uint64_t p = before; p < count; ++p) CHECK(is_final(p));
    bool more = false;  // empty results do not travel, so the ring does not stop between them
    for (uint64_t i = results; i < plan.inputs(); ++i) more |= plan.result(member, i).bytes() > 0;
    if (more) CHECK(count < order.segments && !is_final(count));
    before = count;
  }
  CHECK(before == order.segments);
}

void check(const RingPlan& plan) {
  for (uint64_t member = 0; member < plan.members(); ++member) {
    for (uint64_t bytes : {kLeastNodeSegment, kNodeSegmentBytes}) {
      NodeOrder order(plan, member, bytes);
      CHECK(order.first_given < order.segments && order.first_taken < order.segments);
      CHECK(plan.members() > 1 || (order.first_given == 0 && order.first_taken == 0));
      check_giving(plan, member, order);
      check_taking(plan, member, order);
    }
  }
}

}  // namespace

int main() {
  const uint64_t s = kNodeSegmentBytes;
  for (uint64_t members = 1; members <= 5; ++members) {
    for (uint64_t bytes : {kCacheLine, 3 * kCacheLine, s - 8, s, s + 8, 3 * s, 7 * s + 200, 16 * s,
                           20 * s + kCacheLine, 33 * s + 4}) {
      for (uint64_t segment : {kLeastRingSegment, s / 2, kRingSegmentBytes, kMostRingSegment}) {
        check({members, bytes, segment});
        check({members, bytes, segment, true});
      }
    }
  }
  return 0;
}
