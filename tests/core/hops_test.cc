// What gathering buys: hops, messages and bytes of an op, as the state machines send them, and from
// how many bytes on the ring is faster. In virtual time: a message takes the time of a hop, and its
// bytes take time at the sender and at the receiver, one message after the other.
//
// `hops_test table` prints the counts for 2 to 64 members.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <queue>
#include <vector>

#include "check.h"
#include "protocol/gather.h"

using namespace hvdft;

namespace {

struct Link {
  double hop, byte;  // times
};
constexpr Link kHopsOnly{1, 0};

struct Cost {
  double time = 0;
  uint64_t messages = 0, bytes = 0;  // of all members
};

class Members {
 public:
  Members(const RingPlan& plan, Link link) : plan_(plan), link_(link) {
    for (uint64_t m = 0; m < plan.members(); ++m) members_.emplace_back(m, plan.members());
    for (Member& member : members_) {
      member.sender.resume(1, {});
      member.gatherer.resume(1, std::vector<EdgePosition>(member.gatherer.edges()));
      member.receiver.begin(plan_);
    }
  }

  Cost run() {
    for (uint64_t m = 0; m < members_.size(); ++m) send_all(m, 0);
    while (!arrivals_.empty()) {
      Arrival next = arrivals_.top();
      arrivals_.pop();
      if (next.takes > 0) {  // its first byte
        double& until = members_[next.to].receives_until;
        until = std::max(until, next.time) + next.takes;
        arrivals_.push({until, next.from, next.to, next.position, 0});
        continue;
      }
      cost_.time = next.time;
      take(next);
      send_all(next.to, next.time);
    }
    for (Member& member : members_) CHECK(member.receiver.at() == (EdgePosition{1, 0}));
    return cost_;
  }

 private:
  struct Member {
    Member(uint64_t number, uint64_t members)
        : sender(number), gatherer(members), receiver(number, members, {}) {}
    RingSender sender;
    GatherSender gatherer;
    RingReceiver receiver;
    double sends_until = 0, receives_until = 0;
    std::map<uint64_t, uint64_t> arrived;  // positions whose turn has not come, and who sent them
  };
  struct Arrival {
    double time;
    uint64_t from, to, position;
    double takes;  // from its first byte to its last; 0: that has come
    bool operator<(const Arrival& other) const { return time > other.time; }  // earliest on top
  };

  void take(const Arrival& arrival) {
    Member& member = members_[arrival.to];
    member.arrived[arrival.position] = arrival.from;
    Incoming next;
    while (member.receiver.next(&next) && member.arrived.count(next.at.position) > 0) {
      CHECK((member.arrived[next.at.position] + next.distance) % members_.size() == arrival.to);
      member.receiver.received();
    }
  }

  void send_all(uint64_t m, double now) {
    Member& member = members_[m];
    if (member.sender.op() == 0 && !member.sender.begun()) member.sender.begin(plan_);
    if (member.gatherer.op() == 0 && !member.gatherer.begun()) member.gatherer.begin(plan_);
    Outgoing out;
    while (member.sender.next(member.receiver.at(), plan_.inputs(), &out)) {
      send(m, 1, out.at.position, out.bytes.bytes(), now);
      member.sender.sent();
    }
    GatherMessage message;
    while (member.gatherer.next(member.receiver.at(), 1, &message)) {
      send(m, message.distance, message.at.position, message.bytes.bytes(), now);
      member.gatherer.sent();
    }
  }

  void send(uint64_t m, uint64_t distance, uint64_t position, uint64_t bytes, double now) {
    double takes = static_cast<double>(bytes) * link_.byte;
    double begins = std::max(now, members_[m].sends_until);
    members_[m].sends_until = begins + takes;
    uint64_t to = (m + distance) % members_.size();
    arrivals_.push({begins + link_.hop, m, to, position, takes});
    ++cost_.messages;
    cost_.bytes += bytes;
  }

  const RingPlan plan_;
  const Link link_;
  std::vector<Member> members_;
  std::priority_queue<Arrival> arrivals_;
  Cost cost_;
};

Cost cost(uint64_t members, uint64_t bytes, bool gathered, Link link) {
  return Members({members, bytes, kRingSegmentBytes, gathered}, link).run();
}

uint64_t log2_up(uint64_t members) {
  return static_cast<uint64_t>(std::ceil(std::log2(static_cast<double>(members))));
}

void check_counts() {
  for (uint64_t members = 2; members <= 64; ++members) {
    uint64_t bytes = 16 << 10, n = members;
    Cost gather = cost(n, bytes, true, kHopsOnly), ring = cost(n, bytes, false, kHopsOnly);
    CHECK(gather.messages == n * log2_up(n) && gather.bytes == n * (n - 1) * bytes);
    CHECK(gather.time <= static_cast<double>(log2_up(n)));
    CHECK(ring.time == 2 * static_cast<double>(n - 1) && ring.bytes == 2 * (n - 1) * bytes);
    CHECK(ring.messages == 2 * n * (n - 1));
  }
  // The last round of 3 or 5 members needs nothing of the rounds before.
  CHECK(cost(3, 64, true, kHopsOnly).time == 1 && cost(5, 64, true, kHopsOnly).time == 2);
}

// The largest op that is not slower when it is gathered.
uint64_t bound(uint64_t members, Link link) {
  uint64_t least = 0, most = 1 << 14;  // cache lines
  while (least < most) {
    uint64_t lines = (least + most + 1) / 2;
    uint64_t bytes = lines * kCacheLine;
    bool gathers = cost(members, bytes, true, link).time <= cost(members, bytes, false, link).time;
    (gathers ? least : most) = gathers ? lines : lines - 1;
  }
  return least * kCacheLine;
}

// Why the rule needs one bound for all numbers of members: from 4 on it hardly depends on them.
// Given in bytes that a link carries in the time of a hop.
void check_bound() {
  constexpr uint64_t kHopBytes = 8192;
  constexpr Link kLink{kHopBytes, 1};
  for (uint64_t members : {4, 5, 6, 8, 12, 16, 24, 32, 48, 64}) {
    double hops = static_cast<double>(bound(members, kLink)) / kHopBytes;
    CHECK(hops > 1.5 && hops < 4);
  }
  CHECK(bound(2, kLink) == uint64_t{1 << 14} * kCacheLine);  // as many bytes, and half of the hops
  CHECK(bound(3, kLink) > 4 * kHopBytes);
}

void print_table() {
  std::printf("%7s %12s %16s %22s %14s\n", "members", "hops: ring", "round (before)",
              "gathered now", "bound, hops");
  constexpr uint64_t kHopBytes = 8192;
  for (uint64_t n : {2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64}) {
    Cost gather = cost(n, 64, true, kHopsOnly), ring = cost(n, 64 * n, false, kHopsOnly);
    std::printf("%7lu %12.0f %16lu %6.0f, %4lu messages %13.2f\n", n, ring.time, n - 1, gather.time,
                gather.messages, static_cast<double>(bound(n, {kHopBytes, 1})) / kHopBytes);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "table") == 0) {
    print_table();
    return 0;
  }
  check_counts();
  check_bound();
  return 0;
}
