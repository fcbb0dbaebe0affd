// Messages between ranks of three nodes in a row, whose agents die again and again in the middle of
// what they bring: each message arrives once, in order, whatever a node on the way had of it, and
// what both ends have snapshots behind is dropped from all copies.
#include <cstdio>
#include <cstring>
#include <random>

#include "check.h"
#include "joined_nodes.h"
#include "worker/messages.h"

using namespace hvdft;

namespace {

constexpr int kNodes = 3;
constexpr uint64_t kMessages = 12;  // of each pair

std::string message(int source, int dest, uint64_t number) {
  size_t bytes =
      number % 5 == 3 ? 120000 : 20 + number;  // in several pieces, or with others in one
  return std::string(bytes, static_cast<char>('a' + 3 * source + dest)) + std::to_string(number);
}

// A rank: it sends to both others, receives from them, and takes snapshots. Unlike agents it lives
// on, unless it is started again from its snapshot.
class Rank {
 public:
  Rank(Node& node, int number) : node_(node), number_(number), messages_(start()) {}

  void send(int dest) {
    uint64_t& sent = now_.sent[dest];
    if (sent == kMessages) return;
    std::string data = message(number_, dest, sent++);
    MessageHead head{};
    head.bytes = data.size();
    std::strcpy(head.form, "uint8");
    CHECK(messages_->send(dest, head, data.data()) >= 0);
  }
  void receive(int source) {
    hvdft_message found;
    int code = messages_->find(source, 0, &found);
    CHECK(code == HVDFT_OK || code == HVDFT_AGAIN);
    if (code != HVDFT_OK) return;
    uint64_t& received = now_.received[source];
    CHECK(received < kMessages);
    std::string data(found.bytes, '\0');
    CHECK(messages_->take(source, found.number, data.data()) == HVDFT_OK);
    CHECK(data == message(source, number_, received++));
  }
  void take_snapshot() {
    slot_ = 1 - slot_;
    messages_->snapshot_begins(0, slot_);
    messages_->snapshot_published(0, slot_);
    snapshot_ = now_;
  }
  void die() {
    messages_ = start();
    messages_->go_back(0, slot_);
    now_ = snapshot_;
  }
  bool is_done() const {
    uint64_t all = 0;
    for (int r = 0; r < kNodes; ++r) all += now_.sent[r] + now_.received[r];
    return all == 2 * (kNodes - 1) * kMessages;
  }

 private:
  struct Place {
    uint64_t sent[kNodes] = {}, received[kNodes] = {};
  };

  std::unique_ptr<Messages> start() {
    node_.rank(number_).loops[0].begin = 1;
    auto messages = std::make_unique<Messages>(node_, number_);
    for (int peer = 0; peer < kNodes; ++peer) {
      hvdft_message none;
      if (peer != number_) messages->find(peer, 0, &none);
    }
    CHECK(messages->loop_begins(0) == HVDFT_OK);
    return messages;
  }

  Node& node_;
  const int number_;
  int slot_ = 0;
  Place now_, snapshot_;
  std::unique_ptr<Messages> messages_;
};

void check_copies(JoinedNodes& job) {
  for (int source = 0; source < kNodes; ++source) {
    for (int dest = 0; dest < kNodes; ++dest) {
      if (source == dest) continue;
      for (int n = std::min(source, dest); n <= std::max(source, dest); ++n) {
        auto file = PairFile::open(job.node(n), source, dest, true);
        CHECK(file && file->sent() == kMessages);
        bool on_the_way = n != source && n != dest;  // others look when they next add something
        CHECK(!on_the_way || file->header().decided_before == kMessages);
      }
    }
  }
}

// `die`: otherwise what is new on the way has to be found in the same generation.
int agents_die_again_and_again(unsigned seed, bool die) {
  std::mt19937 random(seed);
  auto below = [&](uint32_t end) { return static_cast<int>(random() % end); };
  JoinedNodes job(kNodes, 1, 1);
  job.renew();
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int r = 0; r < kNodes; ++r) ranks.push_back(std::make_unique<Rank>(job.node(r), r));
  auto other = [&](int r) { return (r + 1 + below(kNodes - 1)) % kNodes; };
  auto is_done = [](auto& rank) { return rank->is_done(); };
  int generations = 0;
  for (int moves = 0; !std::all_of(ranks.begin(), ranks.end(), is_done); ++moves) {
    CHECK(moves < 20000);
    int r = below(kNodes), from = below(kNodes - 1), to = from + 1;
    if (below(2) == 0) std::swap(from, to);
    switch (below(16)) {
      case 0:
        ranks[static_cast<size_t>(r)]->take_snapshot();
        break;
      case 1:
        if (below(4) == 0) ranks[static_cast<size_t>(r)]->die();
        break;
      case 2:
        if (!die) break;
        job.pass(from, to, random() % 100000);
        job.renew();
        ++generations;
        break;
      case 3:
      case 4:
      case 5:
        ranks[static_cast<size_t>(r)]->send(other(r));
        break;
      case 6:
      case 7:
      case 8:
        ranks[static_cast<size_t>(r)]->receive(other(r));
        break;
      default:
        job.pass(from, to);
    }
  }
  for (auto& rank : ranks) rank->take_snapshot();
  job.carry();
  check_copies(job);
  for (int n = 0; n < kNodes; ++n) CHECK(job.node(n).header().stop == 0);
  return generations;
}

}  // namespace

int main(int argc, char**) {
  unsigned seeds = argc > 1 ? 12 : 40;
  int generations = 0;
  for (unsigned seed = 0; seed < seeds; ++seed)
    generations += agents_die_again_and_again(seed, true);
  CHECK(agents_die_again_and_again(seeds, false) == 0);
  CHECK(generations > static_cast<int>(10 * seeds));
  std::printf("%d generations\n", generations);
}
