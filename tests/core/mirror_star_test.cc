// The mirror of rank 0's node, joined to many others: what one node has told goes to the others,
// and an end of an edge looks at what has changed, not at all ranks.
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "fresh_directory.h"
#include "replication/mirror.h"

using namespace hvdft;

namespace {

constexpr int kSize = 1024, kOfNode = 2, kNodes = kSize / kOfNode;
uint64_t now = 1000000000;

// Rank 0's node, and its ends of the edges to the first few others.
struct Centre {
  Centre() : dir(fresh_directory()) {
    CHECK(Node::create(dir, "star", kSize, kNodes, 0, 0, kOfNode, uint64_t{1} << 28) == HVDFT_OK);
    node = Node::open(dir, "star", Node::kAgent);
    news = std::make_unique<MirrorNews>(*node);
    for (int first : {2, 4, 6}) {
      MirrorEdge edge{first / kOfNode, true, first, first + kOfNode, kSize, kOfNode};
      senders.push_back(std::make_unique<MirrorSender>(*node, *news, edge));
      receivers.push_back(std::make_unique<MirrorReceiver>(*node, *news, nullptr, edge));
    }
    for (size_t end = 0; end < senders.size(); ++end) collect(end);
  }
  ~Centre() { remove_directory(dir); }

  // The ranks whose state an end sends now.
  std::vector<int> collect(size_t end, uint64_t later_ns = 1000000000) {
    std::string stream;
    now += later_ns;
    news->look();
    senders[end]->collect(now, &stream);
    std::vector<int> ranks;
    for (size_t at = 0; at < stream.size();) {
      auto head = get<FrameHead>(stream.data() + at);
      const char* change = stream.data() + (at += sizeof head);
      at += head.bytes;
      while (head.kind == FrameKind::kFacts && change < stream.data() + at) {
        ranks.push_back(FactsChange(change).rank);
        change = FactsChange(change).end();
      }
    }
    return ranks;
  }
  void hear(size_t end, int rank, const RankFacts& facts) {
    std::string stream, change;
    put_changes(rank, heard[rank], facts, &change);
    heard[rank] = facts;
    put_frame(&stream, FrameKind::kNow, 0, now);
    put_frame(&stream, FrameKind::kFacts, 0, change.data(), change.size());
    receivers[end]->feed(now, stream.data(), stream.size());
  }
  uint64_t looks() const { return node->header().looks.load(); }

  std::string dir;
  std::unique_ptr<Node> node;
  std::unique_ptr<MirrorNews> news;
  std::map<int, RankFacts> heard;
  std::vector<std::unique_ptr<MirrorSender>> senders;
  std::vector<std::unique_ptr<MirrorReceiver>> receivers;
};

using Ranks = std::vector<int>;

RankFacts running(uint64_t step) {
  RankFacts facts{};
  facts.state = HVDFT_RUNNING;
  facts.step = step;
  return facts;
}

void news_goes_to_the_other_ends() {
  Centre centre;
  centre.hear(0, 3, running(1));
  CHECK(centre.collect(0).empty());  // it comes from there
  CHECK(centre.collect(1) == Ranks{3});
  CHECK(centre.collect(1).empty());
  CHECK(centre.collect(2) == Ranks{3});
  centre.node->rank(1).step = 7;  // without a word
  for (size_t end : {0, 1, 2}) CHECK(centre.collect(end) == Ranks{1});
}

// A counter that has just been told waits, and is told later without another change.
void what_waits_is_not_forgotten() {
  Centre centre;
  centre.hear(0, 3, running(1));
  CHECK(centre.collect(1) == Ranks{3});
  centre.hear(0, 3, running(2));
  for (int i = 0; i < 3; ++i) CHECK(centre.collect(1, 1000).empty());
  centre.hear(0, 2, running(0));
  CHECK(centre.collect(1, 1000) == Ranks{2});  // urgent
  CHECK(centre.collect(1) == Ranks{3});
  CHECK(centre.collect(1).empty());
}

void looks_are_at_what_has_changed() {
  Centre centre;
  uint64_t before = centre.looks();
  for (int i = 0; i < 10; ++i) CHECK(centre.collect(1).empty());
  CHECK(centre.looks() - before == 10 * kOfNode);
  centre.hear(0, 3, running(1));
  before = centre.looks();
  CHECK(centre.collect(1) == Ranks{3});
  CHECK(centre.looks() - before == kOfNode + 1);
  // Counters are not looked at before their time, …
  centre.hear(0, 3, running(2));
  before = centre.looks();
  for (int i = 0; i < 10; ++i) CHECK(centre.collect(1, 1000).empty());
  CHECK(centre.looks() - before == 10 * kOfNode);
  // … and then as they are.
  centre.hear(0, 3, running(3));
  CHECK(centre.collect(1) == Ranks{3});
  CHECK(centre.looks() - before == 11 * kOfNode + 1);
}

// Only the words that have changed go over the wire, and make the same facts of those before.
void changes_are_words() {
  RankFacts before = running(5), now = before, made = before;
  now.contributed = 9;
  now.incarnation = 2;  // shares a word with the state
  now.ring_sent = 77;   // the last one
  std::string wire;
  put_changes(3, before, now, &wire);
  CHECK(wire.size() == 8 + 3 * 8);
  put_changes(900, now, before, &wire);
  put_changes(4, now, now, &wire);  // nothing
  CHECK(wire.size() == 2 * (8 + 3 * 8));
  FactsChange first(wire.data()), second(first.end());
  CHECK(first.rank == 3 && second.rank == 900 && second.end() == wire.data() + wire.size());
  first.apply(&made);
  CHECK(std::memcmp(&made, &now, sizeof now) == 0);
  second.apply(&made);
  CHECK(std::memcmp(&made, &before, sizeof before) == 0);
}

}  // namespace

int main() {
  news_goes_to_the_other_ends();
  what_waits_is_not_forgotten();
  looks_are_at_what_has_changed();
  changes_are_words();
}
