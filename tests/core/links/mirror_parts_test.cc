// The mirrors of a chain of nodes, as leaders drive them, on wires in the place of MPI: how they
// greet and part, whichever of them comes late.
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../check.h"
#include "../fresh_directory.h"
#include "hvd_ft_checkpoints.h"
#include "mpi/leader_part.h"
#include "on_wires.h"

using namespace hvdft;

namespace {

constexpr uint64_t kStepNs = 700;
constexpr int kNodes = 4, kLast = kNodes - 1;
const std::vector<int> kFirsts = {0, 1, 2, 3, 4};

// What is on its way from a node to another one. A send is complete at once, but not of this node.
std::map<std::pair<int, int>, std::deque<std::string>> wires;
int slow = -1;
std::vector<char*> rooms;  // of receives, by the transfer's request

}  // namespace

const int members_on_wires = kNodes;

namespace hvdft {

Transfer Endpoint::begin_send(const void* data, uint64_t bytes, int to) {
  wires[{member_, to}].emplace_back(static_cast<const char*>(data), bytes);
  return {-1, bytes, kSent};
}

Transfer Endpoint::begin_receive(void* data, uint64_t bytes, int from) {
  rooms.push_back(static_cast<char*>(data));
  return {static_cast<int>(rooms.size()) - 1, bytes, from};
}

bool Endpoint::complete(Transfer* transfer) {
  if (transfer->source == kSent) return member_ != slow;
  auto& wire = wires[{transfer->source, member_}];
  if (wire.empty()) return false;
  std::memcpy(rooms[static_cast<size_t>(transfer->request)], wire.front().data(),
              wire.front().size());
  wire.pop_front();
  return true;
}
void Endpoint::poke() {}

}  // namespace hvdft

namespace {

struct Place {
  explicit Place(int number) : number(number), dir(fresh_directory()) {
    CHECK(Node::create(dir, "parts", kNodes, kNodes, number, number, 1, 64 << 20) == HVDFT_OK);
    node = Node::open(dir, "parts", Node::kAgent);
    renew();
  }
  ~Place() { remove_directory(dir); }

  // A new agent leads the node.
  void renew() {
    part.reset();
    store.reset();
    if (number > 0) store.emplace(*node);
    endpoint = std::make_unique<Endpoint>(number, 0);
    part = std::make_unique<MirrorPart>(*node, store ? &*store : nullptr, *endpoint, kFirsts,
                                        mirror_edges(MirrorTree(kNodes, 1), number, kFirsts),
                                        [this] { return now_ns; });
  }

  const int number;
  uint64_t now_ns = 0;  // of its clock, when a message is there
  const std::string dir;
  std::unique_ptr<Node> node;
  std::optional<LogStore> store;
  std::unique_ptr<Endpoint> endpoint;
  std::unique_ptr<MirrorPart> part;
};

class Chain {
 public:
  Chain() {
    for (int n = 0; n < kNodes; ++n) places_.push_back(std::make_unique<Place>(n));
  }

  // Until these nodes have nothing to do any more.
  void run(const std::vector<int>& numbers = {0, 1, 2, 3}) {
    for (int quiet = 0; quiet < 3;) {
      now_ += 1000000000;
      bool moved = false;
      for (int n : numbers) moved |= step(n);
      quiet = moved ? 0 : quiet + 1;
    }
  }
  // Each so often, from the last one, before anybody looks without having been notified.
  void step_all(int times) {
    for (; times > 0; --times) {
      for (int n = kLast; n >= 0; --n) step(n);
    }
  }
  // What is there by then has come later than the step began.
  bool step(int number) {
    place(number).now_ns = now_ + kStepNs;
    return place(number).part->step(now_);
  }
  // All agents die, with what is on its way.
  void renew() {
    wires.clear();
    for (auto& place : places_) {
      place->node->header().generation.fetch_add(1);
      place->renew();
    }
  }
  void tell(int rank, uint64_t detail) {
    place(rank).node->push_event({1, HVDFT_EV_SHARE, static_cast<uint32_t>(rank), 0, 0, detail});
  }
  // The details that rank 0's node has in its report.
  std::vector<uint64_t> report() {
    const Node& zero = *place(0).node;
    std::vector<uint64_t> details;
    for (uint64_t i = 0; i < zero.header().report_count; ++i) {
      hvdft_event event;
      CHECK(zero.report().read(i, &event, 1) == 1);
      details.push_back(event.detail);
    }
    return details;
  }
  Place& place(int number) { return *places_[static_cast<size_t>(number)]; }

 private:
  std::vector<std::unique_ptr<Place>> places_;
  uint64_t now_ = 1000000000;
};

// By how much the clocks of nodes that are on one machine seem to differ: never less than nothing,
// as if messages had come before they were sent.
void clocks() {
  Chain chain;
  chain.run();
  chain.tell(kLast, 1);
  chain.tell(1, 2);
  chain.run({3, 2, 1, 0});  // within one step of each
  for (int n : {1, kLast}) {
    CHECK(chain.place(0).node->rank(n).clock_ahead_ns == static_cast<int64_t>(kStepNs));
  }
}

using Details = std::vector<uint64_t>;

// Agents die when a node on the way has heard what rank 0's node has not: it is told again, as rank
// 0's node says what it knows before anybody tells it more.
void what_was_on_its_way() {
  Chain chain;
  chain.run();
  chain.tell(kLast, 1);
  chain.run();
  chain.tell(kLast, 2);
  chain.run({kLast, 2});
  CHECK(chain.report() == Details{1} && chain.place(2).node->header().event_count == 2);
  chain.renew();
  chain.run({kLast});
  chain.run({2, 1});  // rank 0's node comes late
  CHECK(wires[std::pair(2, kLast)].empty());
  chain.run({kLast, 2, 1});
  CHECK(chain.report() == Details{1});
  chain.run();
  CHECK((chain.report() == Details{1, 2}));
  for (int n = 0; n < kNodes; ++n) CHECK(chain.place(n).node->header().event_count == 2);
}

void what_is_truncated() {
  Chain chain;
  chain.run();
  LogStore log(*chain.place(0).node);
  OpHead op{HVDFT_REDUCE, HVDFT_FLOAT32, HVDFT_SUM, 0, 100, 4, 4, 0};
  for (int i = 0; i < 2; ++i) CHECK(log.append(op, "respsig") == HVDFT_OK);
  log.publish();
  chain.run();
  log.drop(0);
  log.decided(1);
  chain.run();
  for (int n = 0; n < kNodes; ++n) {
    const Node& node = *chain.place(n).node;
    CHECK(node.header().log_length == 2 && node.header().decided_before == 1);
    CHECK(node.record(0) == nullptr && node.record(1) != nullptr);
  }
}

// Nobody is gone before all have everything, whoever leaves first.
void what_is_told_last() {
  Chain chain;
  chain.run();
  for (int n = 0; n < kLast; ++n) chain.place(n).part->leave();
  chain.run({0, 1, 2});
  chain.tell(kLast, 7);
  chain.place(0).node->rank(0).step = 9;
  chain.place(kLast).part->leave();
  chain.run({kLast});
  for (int n = 0; n < kNodes; ++n) CHECK(!chain.place(n).part->all_said());
  chain.run();
  for (int n = 0; n < kNodes; ++n) {
    CHECK(chain.place(n).part->all_said());
    CHECK(chain.place(n).node->rank(0).step == 9);
  }
  CHECK(chain.report() == Details{7});
}

// What changes without a notification just before a node leaves goes with its goodbye, and nothing
// goes behind that.
void what_changes_last() {
  Chain chain;
  chain.run();
  RankBlock& mine = chain.place(kLast).node->rank(kLast);
  mine.left_at = 9;
  for (int n = 0; n < kNodes; ++n) chain.place(n).part->leave();
  chain.step_all(10 * kNodes);
  for (int n = 0; n < kNodes; ++n) CHECK(chain.place(n).part->all_said());
  CHECK(chain.place(0).node->rank(kLast).left_at == 9);
  mine.left_at = 10;
  chain.run();
  for (auto& [ends, wire] : wires) CHECK(wire.empty());
}

// What comes from below is not even received while too much waits to go up.
void a_slow_edge_upwards() {
  constexpr uint64_t kAnnounced = kMailBytes / 2, kTimes = 12;
  Chain chain;
  chain.run();
  slow = 2;
  RankBlock& mine = chain.place(kLast).node->rank(kLast);
  for (uint64_t i = 1; i <= kTimes; ++i) {
    mine.mail_bytes = kAnnounced;
    mine.mail_sequence = 2 * i;
    chain.run({kLast});
  }
  chain.run({2});
  uint64_t left = 0;
  for (const std::string& message : wires[std::pair(kLast, 2)]) left += message.size();
  CHECK(left > kTimes * kAnnounced - 3 * MirrorNews::kMostWaiting);
  slow = -1;
  chain.run();
  CHECK(chain.place(0).node->rank(kLast).mail_sequence == 2 * kTimes);
}

}  // namespace

int main() {
  clocks();
  what_was_on_its_way();
  what_is_truncated();
  what_is_told_last();
  what_changes_last();
  a_slow_edge_upwards();
}
