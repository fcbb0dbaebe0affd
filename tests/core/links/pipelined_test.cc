// The ring in segments, as members drive it, on wires in the place of MPI: how many transfers are
// under way in a direction, and what comes of them.
#include "mpi/pipelined.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "../check.h"
#include "hvd_ft.h"
#include "on_wires.h"

using namespace hvdft;

namespace {

constexpr int kMembers = 3;
constexpr uint64_t kSegment = 64;

struct Message {
  int from;
  const char* data;
  uint64_t bytes;
  uint64_t number;  // on its wire
  bool complete;    // for its sender
};
struct Receive {
  char* data;
  uint64_t bytes;
  bool arrived;
};
// From a member to its successor. As MPI may, it reads and writes the memory of a message at any
// time from when both its transfers have been begun: as early as possible, or as late. Or it keeps
// copies of what does not fit into the network, which is complete for its sender; only a call that
// has to wait, or a poke, sends it on.
struct Wire {
  std::deque<Message*> on_the_way;
  std::deque<Receive*> posted;
  uint64_t sent = 0, taken = 0, most = 0;

  void carry() {
    const Message& message = *on_the_way.front();
    CHECK(message.bytes == posted.front()->bytes);
    std::memcpy(posted.front()->data, message.data, message.bytes);
    posted.front()->arrived = true;
    on_the_way.pop_front(), posted.pop_front();
    ++taken;
  }
  bool can_carry() const { return !on_the_way.empty() && !posted.empty(); }
  void carry_early() {
    while (early && can_carry()) carry();
  }

  static bool early, keeps_copies;
  std::deque<Message*> held;
  std::deque<std::vector<char>> copies;
};
bool Wire::early = false, Wire::keeps_copies = false;
std::map<int, Wire> wires;  // by sender
std::deque<Message> messages;
std::deque<Receive> receives;
// Receives that have been begun and are not complete, by member, and the most there were.
std::map<int, uint64_t> awaited, most_awaited;

// MPI makes progress on an endpoint of a member, who sends over the one of its own number.
void progress(int endpoint, int member) {
  if (endpoint != member) return;
  Wire& wire = wires[member];
  if (wire.held.empty() || !wire.on_the_way.empty()) return;
  wire.on_the_way.push_back(wire.held.front());
  wire.held.pop_front();
  wire.carry_early();
}

}  // namespace

const int members_on_wires = kMembers;

namespace hvdft {

Transfer Endpoint::begin_send(const void* data, uint64_t bytes, int to) {
  CHECK(to == (member_ + 1) % kMembers);
  Wire& wire = wires[member_];
  const char* from = static_cast<const char*>(data);
  if (Wire::keeps_copies) from = wire.copies.emplace_back(from, from + bytes).data();
  messages.push_back({member_, from, bytes, ++wire.sent, Wire::keeps_copies});
  bool holds = Wire::keeps_copies && (!wire.held.empty() || !wire.on_the_way.empty());
  (holds ? wire.held : wire.on_the_way).push_back(&messages.back());
  wire.most = std::max(wire.most, wire.sent - wire.taken);
  wire.carry_early();
  return {static_cast<int>(messages.size()) - 1, bytes, kSent};
}

Transfer Endpoint::begin_receive(void* data, uint64_t bytes, int from) {
  char* to = static_cast<char*>(data);
  for (const Message& message : messages) {  // MPI forbids it
    bool sending = message.from == member_ && !message.complete;
    CHECK(!sending || to + bytes <= message.data || message.data + message.bytes <= to);
  }
  receives.push_back({to, bytes, false});
  wires[from].posted.push_back(&receives.back());
  wires[from].carry_early();
  most_awaited[member_] = std::max(most_awaited[member_], ++awaited[member_]);
  return {static_cast<int>(receives.size()) - 1, bytes, from};
}

bool Endpoint::complete(Transfer* transfer) {
  auto at = static_cast<size_t>(transfer->request);
  if (transfer->source == kSent) {
    if (!messages[at].complete) progress(thread_id_, member_);
    return messages[at].complete |= wires[member_].taken >= messages[at].number;
  }
  Wire& wire = wires[transfer->source];
  if (!receives[at].arrived && wire.can_carry()) wire.carry();
  if (!receives[at].arrived) progress(thread_id_, member_);
  if (!receives[at].arrived) return false;
  --awaited[member_];
  return true;
}

void Endpoint::poke() { progress(thread_id_, member_); }

}  // namespace hvdft

namespace {

struct Member {
  Member(int number, uint64_t elements, uint64_t transfers)
      : out(number, number),
        in(number, (number + kMembers - 1) % kMembers),
        array(elements),
        op({reinterpret_cast<char*>(array.data()), elements * sizeof(float), HVDFT_FLOAT32,
            HVDFT_SUM},
           RingPlan(kMembers, elements * sizeof(float), kSegment)),
        place(ring_place(number, kMembers, false)),
        sending(out, place, op, transfers),
        receiving(in, place, op, transfers, room) {
    for (uint64_t i = 0; i < elements; ++i) {
      array[i] = static_cast<float>((number + 1) * static_cast<int>(i));
    }
  }
  bool done() const { return sending.done() && receiving.done(); }

  Endpoint out, in;
  std::vector<float> array;
  std::vector<char> room;
  RingOp op;
  RingPlace place;
  SendingHalf sending;
  ReceivingHalf receiving;
};

struct Ring {
  Ring(uint64_t segments, uint64_t transfers) {
    uint64_t elements = kMembers * segments * kSegment / sizeof(float);
    wires.clear(), messages.clear(), receives.clear(), awaited.clear(), most_awaited.clear();
    for (int n = 0; n < kMembers; ++n)
      members.push_back(std::make_unique<Member>(n, elements, transfers));
  }
  bool done() const {
    return std::all_of(members.begin(), members.end(), [](auto& each) { return each->done(); });
  }
  bool right() const {
    for (auto& member : members) {
      for (uint64_t i = 0; i < member->array.size(); ++i) {
        if (member->array[i] != static_cast<float>(6 * i)) return false;
      }
    }
    return true;
  }

  std::vector<std::unique_ptr<Member>> members;
};

// As many as are allowed are under way, and no more: senders run as far as they can before anybody
// receives, and receivers before anything comes.
void check_transfers(uint64_t transfers) {
  Wire::early = Wire::keeps_copies = false;
  Ring ring(40, transfers);
  for (int round = 0; round < 100000 && !ring.done(); ++round) {
    for (auto& member : ring.members) {
      while (!member->sending.done() && member->sending.step()) {
      }
    }
    for (auto& member : ring.members) {
      while (!member->receiving.done() && member->receiving.step()) {
      }
    }
  }
  CHECK(ring.done() && ring.right());
  for (int n = 0; n < kMembers; ++n) {
    CHECK(wires[n].most == transfers);
    CHECK(most_awaited[n] == transfers);
  }
}

// Whoever is fast and whoever is slow.
void check_any_order(uint64_t segments, uint64_t transfers, unsigned seed) {
  Wire::early = seed % 2 == 0;
  Wire::keeps_copies = seed % 4 >= 2;
  std::mt19937 chance(seed);
  Ring ring(segments, transfers);
  for (int step = 0; step < 1000000 && !ring.done(); ++step) {
    Member& member = *ring.members[chance() % kMembers];
    if (chance() % 2 == 0) {
      if (member.sending.done()) {
        member.out.poke();  // as ring_driver.h does
      } else {
        member.sending.step();
      }
    } else {
      if (!member.receiving.done()) member.receiving.step();
    }
  }
  CHECK(ring.done() && ring.right());
}

}  // namespace

int main() {
  for (uint64_t transfers : {1, 2, 4, 16}) {
    check_transfers(transfers);
    for (unsigned seed = 0; seed < 20; ++seed) {
      for (uint64_t segments : {1, 2, 40}) check_any_order(segments, transfers, seed);
    }
  }
  std::puts("ok");
}
