// Two nodes' arenas in one process, joined by the mirror's streams, which are cut anywhere: what is
// published in one is found in the other, and never in an order that would mislead.
#include "mirror.h"

#include <cstring>
#include <functional>
#include <memory>

#include "check.h"
#include "fresh_directory.h"

using namespace hvdft;

namespace {

constexpr uint64_t kLimit = 64 << 20;

struct Side {
  Side(int first, int locals, int peer_first, int peer_end) : dir(fresh_directory()) {
    CHECK(Node::create(dir, "mirror", 3, 2, first, locals, kLimit) == HVDFT_OK);
    node = Node::open(dir, "mirror", Node::kAgent);
    CHECK(node != nullptr);
    store = std::make_unique<LogStore>(*node);
    sender = std::make_unique<MirrorSender>(*node, peer_first, peer_end);
    receiver = std::make_unique<MirrorReceiver>(*node, first == 0 ? nullptr : store.get());
  }
  ~Side() {
    std::remove((dir + "/node.arena").c_str());
    std::remove(dir.c_str());
  }
  NodeHeader& header() { return node->header(); }

  std::string dir;
  std::unique_ptr<Node> node;
  std::unique_ptr<LogStore> store;
  std::unique_ptr<MirrorSender> sender;
  std::unique_ptr<MirrorReceiver> receiver;
};

uint64_t now = 1000000000;

// Everything new goes over, a byte at a time.
void carry(Side& from, Side& to, const std::function<void()>& at_every_byte = [] {}) {
  std::string stream;
  from.sender->collect(now += 1000000000, &stream);
  for (char byte : stream) {
    to.receiver->feed(now + 7, &byte, 1);
    at_every_byte();
  }
}

void how_ranks_fare(Side& zero, Side& one) {
  RankBlock &theirs = one.node->rank(2), &seen = zero.node->rank(2);
  theirs.contributed = place(5, 3);
  theirs.pending = -1;
  theirs.step = 4;
  theirs.since_ns = now;
  theirs.state = HVDFT_DONE;
  carry(one, zero, [&] { CHECK(seen.state != HVDFT_DONE || seen.contributed == place(5, 3)); });
  CHECK(seen.state == HVDFT_DONE && seen.pending == -1 && seen.step == 4);
  CHECK(seen.since_ns == theirs.since_ns + 7);  // on this node's clock
  zero.node->rank(1).state = HVDFT_RESTARTING;
  carry(zero, one);
  CHECK(one.node->rank(1).state == HVDFT_RESTARTING);
  std::string nothing;
  one.sender->collect(now, &nothing);
  zero.sender->collect(now, &nothing);
  CHECK(nothing.empty());
}

void announcements(Side& zero, Side& one) {
  RankBlock &theirs = one.node->rank(2), &seen = zero.node->rank(2);
  theirs.mail_sequence = 1;  // being written
  carry(one, zero);
  CHECK(seen.mail_sequence == 0);
  theirs.mail_term = 9;
  theirs.mail_bytes = 6;
  std::memcpy(one.node->mail(2), "tensor", 6);
  theirs.mail_sequence = 2;
  carry(one, zero);
  CHECK(seen.mail_sequence == 2 && seen.mail_term == 9 && seen.mail_bytes == 6);
  CHECK(std::memcmp(zero.node->mail(2), "tensor", 6) == 0);
  seen.mail_taken = 2;
  carry(zero, one);
  CHECK(theirs.mail_taken == 2);
}

void the_log(Side& zero, Side& one) {
  for (uint64_t bytes : {100, 0, 200000}) {
    OpHead op{HVDFT_REDUCE, HVDFT_FLOAT32, HVDFT_SUM, 0, bytes, 4, 4, 0};
    CHECK(zero.store->append(op, "respsig") == HVDFT_OK);
  }
  zero.store->publish();
  zero.node->rank(2).joined = 77;
  zero.header().term = 3;
  carry(zero, one, [&] {
    if (one.header().term != 3) return;
    CHECK(one.header().log_length == 3 && one.node->rank(2).joined == 77);
  });
  CHECK(one.header().term == 3);
  for (uint64_t id = 0; id < 3; ++id) {
    const Record &mine = *zero.node->record(id), &copy = *one.node->record(id);
    CHECK(copy.first_segment == mine.first_segment && copy.op.result_bytes == mine.op.result_bytes);
    CHECK(std::memcmp(&copy + 1, "respsig", 8) == 0);
    CHECK(copy.partial_offset != copy.result_offset);
  }
  CHECK(zero.store->keep(0) == HVDFT_OK);
  zero.store->drop(1);
  zero.store->drop(2);
  carry(zero, one);
  CHECK(one.node->record(2) != nullptr);  // not before it is settled
  zero.store->settled(3);
  carry(zero, one);
  CHECK(one.node->record(0) != nullptr && one.node->record(1) == nullptr);
  CHECK(one.header().kept == 1 && one.header().cut == 2);
}

void snapshots(Side& zero, Side& one) {
  Loop &theirs = one.node->rank(2).loops[0], &seen = zero.node->rank(2).loops[0];
  theirs.begin = 4;
  theirs.published = 20;
  carry(one, zero, [&] { CHECK(seen.begin == 0 || seen.published == 20); });
  CHECK(seen.begin == 4 && seen.published == 20);
}

void events_and_the_end(Side& zero, Side& one) {
  one.node->push_event({now, HVDFT_EV_FAILED, 2, 0, 0, 9});
  zero.node->push_event({now, HVDFT_EV_DONE, 1, 0, 0, 0});
  carry(one, zero);
  carry(zero, one);
  carry(one, zero);
  hvdft_event at_zero[4], at_one[4];
  CHECK(zero.node->read_events(0, at_zero, 4) == 2 && one.node->read_events(0, at_one, 4) == 2);
  CHECK(at_zero[1].type == HVDFT_EV_FAILED && at_zero[1].rank == 2 && at_zero[1].detail == 9);
  CHECK(at_one[1].type == HVDFT_EV_DONE && at_one[1].rank == 1);

  one.node->stop(2, 5, "enough");
  carry(one, zero);
  CHECK(zero.header().stop == 1 && zero.header().stop_rank == 2 && zero.header().stop_code == 5);
  CHECK(std::strcmp(zero.header().stop_text, "enough") == 0);
  std::string bye;
  one.sender->bye(&bye);
  CHECK(!zero.receiver->bye());
  zero.receiver->feed(now, bye.data(), bye.size());
  CHECK(zero.receiver->bye());
}

}  // namespace

int main() {
  Side zero(0, 2, 2, 3), one(2, 1, 0, 2);
  how_ranks_fare(zero, one);
  announcements(zero, one);
  the_log(zero, one);
  snapshots(zero, one);
  events_and_the_end(zero, one);
  return 0;
}
