// The ring's arithmetic, and whole allreduces of members whose actions are done in turn: sizes that
// do not divide, fewer elements than members, none at all, one member, counts beyond 2^31.
#include "ring.h"

#include <cstdio>
#include <deque>
#include <vector>

#include "check.h"

using namespace hvdft;

namespace {

void check_plan(uint64_t members, uint64_t bytes, uint64_t segment_bytes) {
  RingPlan plan(members, bytes, segment_bytes);
  uint64_t at = 0;
  for (uint64_t c = 0; c < members; ++c) {  // the chunks are the data, without a gap
    Stretch chunk = plan.chunk(c);
    CHECK(chunk.from == at && chunk.to >= at);
    CHECK(chunk.from % kCacheLine == 0 || chunk.bytes() == 0);
    CHECK(chunk.bytes() <= plan.segments() * plan.segment_bytes());
    at = chunk.to;
  }
  CHECK(at == bytes && plan.positions() < kMaxPositions);
  for (uint64_t p = 0; p < plan.positions(); p += 1 + plan.positions() / 100) {
    RingStep step = plan.step_at(p);
    CHECK(plan.position_of(step) == p && step.step < members - 1);
    for (uint64_t m = 0; m < members; ++m) {  // what is received in a step is sent in the next
      Stretch in = plan.on_edge(plan.edge_to(m), p), out = plan.on_edge(m, p + plan.segments());
      CHECK(in.from == out.from && in.to == out.to && in.bytes() <= plan.segment_bytes());
    }
  }
  for (uint64_t m = 0; m < members; ++m) {  // inputs and results are the data too
    uint64_t in = 0, out = 0;
    if (plan.inputs() > 10000) break;
    for (uint64_t i = 0; i < plan.inputs(); ++i) in += plan.input(m, i).bytes();
    for (uint64_t i = 0; i < plan.results(plan.positions()); ++i) out += plan.result(m, i).bytes();
    CHECK(in == bytes && out == bytes);
  }
}

// Member m's input is 2^m, plus what tells elements and ops apart.
uint64_t value(uint64_t op, uint64_t m, uint64_t i) { return (op * 1000003 + i) << 8 | 1ull << m; }

constexpr uint64_t kOps = 2;

struct Member {
  Member(uint64_t number, uint64_t members, uint64_t elements)
      : sender(number), receiver(number, members, {}) {
    for (uint64_t op = 0; op < kOps; ++op) {
      for (uint64_t i = 0; i < elements; ++i) input[op].push_back(value(op, number, i));
      result[op].resize(elements);
    }
    sender.resume(1, {});
    receiver.remade(1);
  }
  PairLog log;
  RingSender sender;
  RingReceiver receiver;
  std::vector<uint64_t> input[kOps], result[kOps];
};

struct Message {
  EdgePlace place;
  std::vector<uint64_t> data;
};

// True: a segment was sent, or received.
bool send(Member& member, const RingPlan& plan, std::deque<Message>& wire) {
  RingSender& half = member.sender;
  while (!half.begun() && half.op() < kOps) half.begin(plan);
  Outgoing out;
  if (!half.next(member.log.received.place(), plan.inputs(), &out)) return false;
  auto& from = out.from_input ? member.input[half.op()] : member.result[half.op()];
  wire.push_back({out.place, {&from[out.bytes.from / 8], &from[0] + out.bytes.to / 8}});
  member.log.sent.publish(half.sent());
  return true;
}

bool receive(Member& member, const RingPlan& plan, std::deque<Message>& wire) {
  RingReceiver& half = member.receiver;
  while (!half.begun() && half.op() < kOps) {
    half.begin(plan);
    member.log.received.publish(half.place());
  }
  Incoming in;
  if (wire.empty() || !half.next(&in)) return false;
  CHECK(half.accepts(1, wire[0].place) && !half.accepts(0, wire[0].place));
  CHECK(wire[0].data.size() * 8 == in.bytes.bytes() && in.bytes.bytes() > 0);
  for (uint64_t i = in.bytes.from / 8, j = 0; i < in.bytes.to / 8; ++i, ++j) {
    member.result[half.op()][i] = wire[0].data[j] + (in.adds ? member.input[half.op()][i] : 0);
  }
  wire.pop_front();
  member.log.received.publish(half.received());
  return true;
}

void check_allreduce(uint64_t members, uint64_t elements, uint64_t segment_bytes) {
  RingPlan plan(members, elements * 8, segment_bytes);
  std::vector<std::deque<Message>> wires(members);  // one an edge
  std::deque<Member> ring;
  for (uint64_t m = 0; m < members; ++m) ring.emplace_back(m, members, elements);
  for (bool moved = true; moved;) {
    moved = false;
    for (uint64_t m = 0; m < members; ++m) {
      moved |= send(ring[m], plan, wires[m]);
      moved |= receive(ring[m], plan, wires[plan.edge_to(m)]);
    }
  }
  for (Member& member : ring) {
    CHECK(member.log.received.place() == (EdgePlace{kOps, 0}));
    for (uint64_t op = 0; op < kOps; ++op) {
      auto& out = members == 1 ? member.input[op] : member.result[op];
      for (uint64_t i = 0; i < elements; ++i) {
        uint64_t sum = 0;
        for (uint64_t m = 0; m < members; ++m) sum += value(op, m, i);
        CHECK(out[i] == sum);
      }
    }
  }
}

}  // namespace

int main() {
  for (uint64_t members : {1, 2, 3, 4, 5, 8, 256}) {
    for (uint64_t bytes : {0, 1, 4, 64, 65, 8 * 7, 1000, 4096, 100004}) {
      for (uint64_t segment : {1, 64, 100, 4096}) check_plan(members, bytes, segment);
    }
    check_plan(members, (uint64_t{1} << 33) + 12, 512 << 10);
    check_plan(members, uint64_t{3} << 40, 4 << 20);
  }
  for (uint64_t members : {1, 2, 3, 5, 8}) {
    for (uint64_t elements : {0, 1, 7, 8, 9, 40, 41, 1000}) {
      for (uint64_t segment : {1, 128, 100000}) check_allreduce(members, elements, segment);
    }
  }
}
