// The ring's arithmetic, and whole allreduces of members whose actions are done in turn: sizes that
// do not divide, fewer elements than members, none at all, one member, counts beyond 2^31.
#include "protocol/ring.h"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <set>
#include <vector>

#include "check.h"

using namespace hvdft;

namespace {

void check_plan(uint64_t members, uint64_t bytes, uint64_t segment_bytes) {
  RingPlan plan(members, bytes, segment_bytes);
  uint64_t at = 0;
  for (uint64_t c = 0; c < members; ++c) {  // the chunks are the data, without a gap
    ByteRange chunk = plan.chunk(c);
    CHECK(chunk.from == at && chunk.to >= at);
    CHECK(chunk.from % kCacheLine == 0 || chunk.bytes() == 0);
    CHECK(chunk.bytes() <= plan.segments() * plan.segment_bytes());
    at = chunk.to;
  }
  CHECK(at == bytes && plan.positions() < kMaxPositions);
  for (uint64_t p = 0; p < plan.positions(); p += 1 + plan.positions() / 100) {
    RingStep step = plan.step_at(p);
    uint64_t before = step.phase == Phase::kAllgather ? members - 1 : 0;
    CHECK((before + step.step) * plan.segments() + step.segment == p && step.step < members - 1);
    for (uint64_t m = 0; m < members; ++m) {  // what is received in a step is sent in the next
      ByteRange in = plan.on_edge(plan.edge_to(m), p), out = plan.on_edge(m, p + plan.segments());
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

// Rings side by side carry together what one ring carries, in the same step, so every sum begins at
// the same member; and alike much, but for a segment.
void check_shares(uint64_t members, uint64_t bytes, uint64_t segment_bytes, uint64_t of) {
  RingPlan whole(members, bytes, segment_bytes);
  uint64_t most = 0, least = UINT64_MAX;
  std::vector<uint64_t> carried(of);
  for (uint64_t edge = 0; edge < members; ++edge) {
    for (uint64_t step = 0; step < 2 * (members - 1); ++step) {
      std::set<std::pair<uint64_t, uint64_t>> all, parts;
      for (uint64_t i = 0; i < whole.segments(); ++i) {
        ByteRange range = whole.on_edge(edge, step * whole.segments() + i);
        if (range.bytes() > 0) all.insert({range.from, range.to});
      }
      for (uint64_t number = 0; number < of; ++number) {
        RingPlan plan(members, bytes, segment_bytes, false, {number, of});
        for (uint64_t i = 0; i < plan.segments(); ++i) {
          ByteRange range = plan.on_edge(edge, step * plan.segments() + i);
          if (range.bytes() == 0) continue;
          CHECK(parts.insert({range.from, range.to}).second);
          ++carried[number];
        }
      }
      CHECK(parts == all);
    }
  }
  for (uint64_t segments : carried) {
    most = std::max(most, segments);
    least = std::min(least, segments);
  }
  CHECK(most - least <= members * 2 * (members - 1));
}

// Backwards a member sends to the one before, and the ring closes all the same.
void check_places() {
  for (int members = 1; members <= 9; ++members) {
    for (int m = 0; m < members; ++m) {
      CHECK(ring_place(m, members, false).successor == (m + 1) % members);
      CHECK(ring_place(m, members, true).successor == (m + members - 1) % members);
      for (bool backwards : {false, true}) {
        RingPlace mine = ring_place(m, members, backwards);
        RingPlace next = ring_place(mine.successor, members, backwards);
        CHECK(next.predecessor == m);
        CHECK(next.number == (mine.number + 1) % static_cast<uint64_t>(members));
      }
    }
  }
}

// Every member gets every other's input once, in whatever it sends having got it before; and adds
// them up in the order in which the ring would.
void check_gathered(uint64_t members, uint64_t bytes) {
  RingPlan plan(members, bytes, 4096, true);
  GatherPlan gather = plan.gather();
  uint64_t slot = gather.bytes() / members;
  CHECK(plan.gathered() && plan.positions() == gather.rounds() && slot >= bytes && slot % 16 == 0);
  CHECK(slot < bytes + 16 && plan.inputs() == 1);
  std::vector<std::vector<uint64_t>> has(members);  // whose input is in each slot
  for (uint64_t m = 0; m < members; ++m) has[m] = {m};
  for (uint64_t round = 0; round < gather.rounds(); ++round) {
    uint64_t distance = GatherPlan::distance(round);
    ByteRange sent = gather.sent(round), received = gather.received(round);
    CHECK(sent.from == 0 && sent.bytes() == received.bytes() && sent.bytes() > 0);
    CHECK(received.from == has[0].size() * slot && received.to <= gather.bytes());
    // It has what it sends when the rounds before have come that it needs, and not earlier.
    uint64_t needs = gather.needs(round), count = sent.to / slot;
    CHECK(needs <= round && count <= uint64_t{1} << needs);
    CHECK(needs == 0 || count > uint64_t{1} << (needs - 1));
    CHECK(plan.results(round) == 0 && plan.step_at(round).phase == Phase::kGather);
    CHECK(plan.step_at(round).step == round && plan.next_on_edge(0, round) == plan.positions());
    auto before = has;
    for (uint64_t m = 0; m < members; ++m) {
      const auto& from = before[(m + members - distance) % members];
      has[m].insert(has[m].end(), from.begin(), from.begin() + static_cast<int64_t>(count));
    }
  }
  CHECK(plan.results(plan.positions()) == 1);
  RingPlan ring(members, bytes, 4096);
  for (uint64_t m = 0; m < members; ++m) {
    CHECK(has[m].size() == members && std::set(has[m].begin(), has[m].end()).size() == members);
    CHECK(plan.input(m, 0).bytes() == bytes && plan.result(m, 0).bytes() == bytes);
    for (uint64_t c = 0; c < members; ++c) {
      CHECK(plan.chunk(c).from == ring.chunk(c).from && plan.chunk(c).to == ring.chunk(c).to);
      for (uint64_t i = 0; i < members; ++i) {  // in step i the ring has the chunk at this member
        uint64_t added = has[m][gather.added(m, c, i) / slot];
        ByteRange passes = ring.on_edge(added, i * ring.segments());
        CHECK(i + 1 == members || passes.from == ring.chunk(c).from);
      }
    }
  }
}

void check_what_is_gathered() {
  CHECK(!RingPlan(1, 64, 4096, true).gathered() && !RingPlan(3, 0, 4096, true).gathered());
  for (uint64_t members : {2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 33, 64}) {
    for (uint64_t bytes : {1, 4, 64, 65, 1000, 4096}) check_gathered(members, bytes);
  }
  CHECK(!is_gathered(1, 64, 4096) && !is_gathered(2, 0, 4096));
  CHECK(is_gathered(2, 4096, 4096) && !is_gathered(2, 4097, 4096) && !is_gathered(9, 1, 0));
  uint64_t most = 16 << 10, members = kMostGatheredBytes / most;  // all slots together are bounded
  CHECK(is_gathered(members, most, most) && !is_gathered(members + 1, most, most));
  CHECK(is_gathered(members + 1, most - 64, most));
}

// What is shown of two senders is what has been sent last.
void check_latest_sent() {
  PairLog log;
  log.sent.publish({3, 5});
  CHECK(log.latest_sent() == (EdgePosition{3, 5}));
  log.gathered.publish({4, 1});
  CHECK(log.latest_sent() == (EdgePosition{4, 1}));
  log.sent.publish({5, 0});
  CHECK(log.latest_sent() == (EdgePosition{5, 0}));
}

void check_colours() {
  for (int members = 2; members <= 9; ++members) {
    for (int e = 0; e < members; ++e) {  // a member needs different endpoints for its two edges
      int colour = colour_of_edge(e, members);
      CHECK(colour >= 0 && colour < edge_colours(members));
      CHECK(colour != colour_of_edge((e + 1) % members, members));
    }
  }
}

// Member m's input is 2^m, plus bits that distinguish elements and ops.
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
    CHECK(receiver.remade(1) == EdgePosition{});
  }

  PairLog log;
  RingSender sender;
  RingReceiver receiver;
  std::vector<uint64_t> input[kOps], result[kOps];
};

struct Message {
  EdgePosition at;
  std::vector<uint64_t> data;
};

// True: a segment was sent, or received.
bool send(Member& member, const RingPlan& plan, std::deque<Message>& wire) {
  RingSender& half = member.sender;
  while (!half.begun() && half.op() < kOps) half.begin(plan);
  Outgoing out;
  if (!half.next(member.log.received.at(), plan.inputs(), &out)) return false;
  const uint64_t* data = (out.from_input ? member.input : member.result)[half.op()].data();
  wire.push_back({out.at, {data + out.bytes.from / 8, data + out.bytes.to / 8}});
  member.log.sent.publish(half.sent());
  return true;
}

bool receive(Member& member, const RingPlan& plan, std::deque<Message>& wire) {
  RingReceiver& half = member.receiver;
  while (!half.begun() && half.op() < kOps) {
    half.begin(plan);
    member.log.received.publish(half.at());
  }
  Incoming in;
  if (wire.empty() || !half.next(&in)) return false;
  CHECK(half.accepts(1, wire[0].at) && !half.accepts(0, wire[0].at));
  CHECK(wire[0].data.size() * 8 == in.bytes.bytes() && in.bytes.bytes() > 0);
  CHECK(!in.adds || in.input < plan.inputs());
  auto &input = member.input[half.op()], &result = member.result[half.op()];
  for (uint64_t i = in.bytes.from / 8, j = 0; i < in.bytes.to / 8; ++i, ++j) {
    result[i] = wire[0].data[j] + (in.adds ? input[i] : 0);
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
      moved |= receive(ring[m], plan, wires[(m + members - 1) % members]);
    }
  }
  for (Member& member : ring) {
    CHECK(member.log.received.at() == (EdgePosition{kOps, 0}));
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
  check_colours();
  check_places();
  for (uint64_t members : {2, 3, 4, 5}) {
    for (uint64_t bytes : {1, 64, 1000, 4096, 100004}) {
      for (uint64_t of : {1, 2, 3, 8}) check_shares(members, bytes, 256, of);
    }
  }
  check_latest_sent();
  check_what_is_gathered();
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
