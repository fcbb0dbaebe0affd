// Two nodes' arenas in one process, entered by the mirror's streams, which are cut anywhere: what
// is published in one is found in the other, and never in an order that would mislead.
#include <cstring>

#include "protocol/roster.h"
#include "worker/messages.h"
#include "mirror_sides.h"

using namespace hvdft;

namespace {

// Exactly the possible waiters are woken.
void doorbells(Side& zero, Side& one) {
  constexpr Rung nobody{false, false, false}, coordinator{true, false, false};
  RankBlock& theirs = one.node->rank(2);
  theirs.state = HVDFT_RUNNING;
  CHECK((rung_by(one, zero) == Rung{true, true, true}));
  theirs.step = 7;  // who follows it looks now and then
  theirs.contributed = position(1, 0);
  CHECK(rung_by(one, zero) == nobody && zero.node->rank(2).step == 7);
  CHECK(zero.node->rank(2).state == HVDFT_RUNNING);  // which was not sent again
  theirs.mail_sequence = 2;
  CHECK(rung_by(one, zero) == coordinator);
  theirs.loops[0].published = 20;
  theirs.loops[0].begin = 4;
  CHECK(rung_by(one, zero) == nobody);
  theirs.state = HVDFT_DONE;  // perhaps the last one: agents go home
  CHECK((rung_by(one, zero) == Rung{true, true, true}));

  uint32_t doorbell = theirs.worker_doorbell;
  zero.node->rank(2).mail_taken = 2;
  carry(zero, one);
  CHECK(theirs.worker_doorbell == doorbell);
  theirs.mail_awaited = 1;  // it has more to say
  zero.node->rank(2).mail_taken = 4;
  carry(zero, one);
  CHECK(theirs.worker_doorbell != doorbell && theirs.mail_awaited == 0);
  doorbell = theirs.worker_doorbell;
  zero.node->rank(2).entered = 5;
  carry(zero, one);
  CHECK(theirs.worker_doorbell != doorbell);
  doorbell = theirs.worker_doorbell;
  zero.header().term = 2;
  carry(zero, one);
  CHECK(theirs.worker_doorbell != doorbell);
  doorbell = theirs.worker_doorbell;
  OpHead op{HVDFT_REDUCE, HVDFT_FLOAT32, HVDFT_SUM, 0, 100, 4, 4, 0};
  CHECK(zero.store->append(op, "respsig") == HVDFT_OK);
  zero.store->publish();
  carry(zero, one);
  CHECK(theirs.worker_doorbell != doorbell);
}

void how_ranks_fare(Side& zero, Side& one) {
  RankBlock &theirs = one.node->rank(2), &seen = zero.node->rank(2);
  theirs.contributed = position(5, 3);
  theirs.pending = -1;
  theirs.step = 4;
  theirs.since_ns = now;
  theirs.state = HVDFT_DONE;
  carry(one, zero, [&] { CHECK(seen.state != HVDFT_DONE || seen.contributed == position(5, 3)); });
  CHECK(seen.state == HVDFT_DONE && seen.pending == -1 && seen.step == 4);
  CHECK(seen.since_ns == theirs.since_ns + 7);  // on this node's clock
  zero.node->rank(1).state = HVDFT_RESTARTING;
  carry(zero, one);
  CHECK(one.node->rank(1).state == HVDFT_RESTARTING);
  std::string nothing;
  one.collect(now, &nothing);
  zero.collect(now, &nothing);
  CHECK(nothing.empty());
}

// Rank 0 compares those of all ranks, and waits for them.
void fingerprints(Side& zero, Side& one) {
  auto rung = [&] {
    uint32_t before = zero.header().snapshot_doorbell;
    carry(one, zero);
    return zero.header().snapshot_doorbell != before;
  };
  Fingerprints* seen = zero.node->fingerprints(2);
  publish_fingerprints(one.node->fingerprints(2), cut_key(0, 9), "ninth!", 6);
  publish_fingerprints(one.node->fingerprints(2), cut_key(0, 11), "eleven", 6);
  CHECK(rung());
  CHECK(seen[0].cut == cut_key(0, 9) && std::memcmp(seen[0].data, "ninth!", 6) == 0);
  CHECK(seen[1].cut == cut_key(0, 11) && std::memcmp(seen[1].data, "eleven", 6) == 0);
  publish_fingerprints(one.node->fingerprints(2), cut_key(0, 15), "latest", 6);
  publish_fingerprints(one.node->fingerprints(2), cut_key(0, 17), "newest", 6);
  publish_fingerprints(one.node->fingerprints(2), cut_key(0, 19), "beyond", 6);
  CHECK(rung());  // the slots are no longer in order: the older one goes first all the same
  CHECK(seen[0].cut == cut_key(0, 17) && seen[1].cut == cut_key(0, 19));
  one.node->rank(2).loops[0].begin = 4;
  one.node->rank(2).loops[0].ended = 1;
  CHECK(rung() && zero.node->rank(2).loops[0].ended == 1);
  CHECK(!rung());
}

// What rank 0 has found goes to all nodes, with the names.
void divergences(Side& zero, Side& one) {
  auto tell = [&](uint64_t number) {
    hvdft_divergence found{30, 20, 1, {4}, "dense/kernel:0"};
    found.step += number;
    zero.node->put_divergence(number, found);
    zero.node->push_event({now, HVDFT_EV_DIVERGED, 0, 0, 0, number});
  };
  uint64_t before = one.header().event_count;
  tell(0);
  carry(zero, one);
  hvdft_divergence seen{};
  CHECK(one.node->read_divergence(0, &seen) == HVDFT_OK && one.header().divergence_count == 1);
  CHECK(seen.step == 30 && seen.equal_step == 20 && seen.variables == 1 && seen.ranks[0] == 4);
  CHECK(std::strcmp(seen.variable, "dense/kernel:0") == 0);
  CHECK(one.header().event_count == before + 1);
  for (uint64_t number = 1; number <= kDivergences; ++number) tell(number);
  CHECK(zero.node->read_divergence(0, &seen) == HVDFT_EINVAL);  // overwritten
  carry(zero, one);
  CHECK(one.node->read_divergence(0, &seen) == HVDFT_EINVAL);
  CHECK(one.node->read_divergence(kDivergences, &seen) == HVDFT_OK);
  CHECK(seen.step == 30 + kDivergences && one.header().divergence_count == kDivergences + 1);
  CHECK(one.node->read_divergence(kDivergences + 1, &seen) == HVDFT_EINVAL);
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
  CHECK(seen.mail_backed == kPage);
  seen.mail_taken = 2;
  carry(zero, one);
  CHECK(theirs.mail_taken == 2);
  // A long one gets memory where it is read, and gives it back when it has been taken.
  constexpr uint64_t kLong = kKeptMailBytes + 3 * kPage;
  std::memset(one.node->mail(2), 'x', kLong);
  theirs.mail_bytes = kLong;
  theirs.mail_sequence = 4;
  carry(one, zero);
  CHECK(seen.mail_bytes == kLong && zero.node->mail(2)[kLong - 1] == 'x');
  CHECK(seen.mail_backed == kLong);
  seen.mail_taken = 3;  // of an older one
  carry(zero, one);
  CHECK(seen.mail_backed == kLong);
  seen.mail_taken = 4;
  carry(zero, one);
  CHECK(seen.mail_backed == kKeptMailBytes && zero.node->mail(2)[0] == 'x');
}

void the_log(Side& zero, Side& one) {
  for (uint64_t bytes : {100, 0, 200000}) {
    OpHead op{HVDFT_REDUCE, HVDFT_FLOAT32, HVDFT_SUM, 0, bytes, 4, 4, 0};
    op.gathered = bytes < 1000;
    CHECK(zero.store->append(op, "respsig") == HVDFT_OK);
  }
  zero.store->publish();
  zero.node->rank(2).entered = 77;
  zero.header().term = 3;
  carry(zero, one, [&] {
    if (one.header().term != 3) return;
    CHECK(one.header().log_length == 3 && one.node->rank(2).entered == 77);
  });
  CHECK(one.header().term == 3);
  for (uint64_t id = 0; id < 3; ++id) {
    const Record &mine = *zero.node->record(id), &copy = *one.node->record(id);
    CHECK(copy.first_segment == mine.first_segment && copy.op.result_bytes == mine.op.result_bytes);
    CHECK(std::memcmp(&copy + 1, "respsig", 8) == 0);
    CHECK(copy.partial_offset != copy.result_offset && copy.op.gathered == (id < 2));
  }
  CHECK(zero.store->keep(0) == HVDFT_OK);
  zero.store->drop(1);
  zero.store->drop(2);
  carry(zero, one);
  CHECK(one.node->record(2) != nullptr);  // not before it is decided
  zero.store->decided(3);
  carry(zero, one);
  CHECK(one.node->record(0) != nullptr && one.node->record(1) == nullptr);
  CHECK(one.header().kept == 1 && one.header().truncated == 2);
}

// Everything new goes over; what it says that is decided: all before the first word, and which of
// these are kept.
std::vector<uint64_t> decided_told(Side& from, Side& to) {
  std::string stream;
  from.collect(now += 1000000000, &stream);
  to.feed(stream);
  std::vector<uint64_t> words;
  for (size_t at = 0; at < stream.size();) {
    auto head = get<FrameHead>(stream.data() + at);
    at += sizeof head;
    for (uint64_t i = 0; head.kind == FrameKind::kDecided && i < head.bytes; i += sizeof i) {
      words.push_back(get<uint64_t>(stream.data() + at + i));
    }
    at += head.bytes;
  }
  return words;
}

// The agents of both are killed, and new ones carry on; it does not matter when.
void a_new_generation(Side& zero, Side& one) {
  OpHead op{HVDFT_REDUCE, HVDFT_FLOAT32, HVDFT_SUM, 0, 300, 4, 4, 0};
  zero.node->push_event({now, HVDFT_EV_FAILED, 0, 0, 0, 1});
  one.node->push_event({now, HVDFT_EV_STARTED, 2, 0, 0, 2});
  for (int i = 0; i < 3; ++i) CHECK(zero.store->append(op, "respsig") == HVDFT_OK);  // 3, 4, 5
  zero.store->publish();
  carry(zero, one);
  carry(one, zero);
  zero.store->drop(3);
  CHECK(zero.store->keep(4) == HVDFT_OK);
  one.store->drop(3);  // as if it was killed before finishing an order
  renew(zero, one);
  CHECK(zero.store->length() == 6 && zero.store->gone() == 5 && one.store->gone() == 4);
  zero.store->decided(5);
  CHECK(zero.store->append(op, "respsig") == HVDFT_OK);  // 6
  zero.store->publish();
  zero.node->push_event({now, HVDFT_EV_JOINED, 0, 1, 0, 1});
  CHECK(decided_told(zero, one) == std::vector<uint64_t>({5, 4}));  // not 0 once more
  carry(one, zero);
  CHECK(one.header().log_length == 7 && one.store->gone() == 5);
  CHECK(one.node->record(3) == nullptr && one.node->record(4) != nullptr);
  CHECK(one.header().kept == 2 && zero.header().kept == 2);
  CHECK(zero.header().report_count == 3 && one.header().event_count == 3);  // none came twice
  std::string wrong;
  one.header().generation = 2;
  one.receiver->say_hello(&wrong);
  zero.renew();
  zero.receiver->feed(now, wrong.data(), wrong.size());
  CHECK(!zero.receiver->hello() && zero.node->stopped() != nullptr);
  zero.header().stop = 0;
}

// The log's node has been replaced by one that knew less of what is truncated.
void one_that_has_decided_more(Side& zero, Side& one) {
  OpHead op{HVDFT_REDUCE, HVDFT_FLOAT32, HVDFT_SUM, 0, 300, 4, 4, 0};
  for (Side* side : {&zero, &one}) {
    for (int i = 0; i < 5; ++i) CHECK(side->store->append(op, "respsig") == HVDFT_OK);
    side->store->publish();
  }
  for (uint64_t id : {0, 1}) CHECK(one.store->keep(id) == HVDFT_OK);
  one.store->decided(2);
  renew(zero, one);
  for (uint64_t id : {0, 1}) CHECK(zero.store->keep(id) == HVDFT_OK);
  zero.store->drop(2);
  CHECK(zero.store->keep(3) == HVDFT_OK);
  zero.store->decided(4);
  carry(zero, one);
  CHECK(one.header().kept == 3 && one.store->gone() == 4 && one.header().stop == 0);
  CHECK(one.node->record(2) == nullptr && one.node->record(3) != nullptr);
}

void snapshots(Side& zero, Side& one) {
  Loop &theirs = one.node->rank(2).loops[0], &seen = zero.node->rank(2).loops[0];
  theirs.begin = 4;
  theirs.published = 20;
  carry(one, zero, [&] { CHECK(seen.begin == 0 || seen.published == 20); });
  CHECK(seen.begin == 4 && seen.published == 20);
}

// Rank 2 sends to rank 0, in a loop with a snapshot at both ends: it arrives once, and all copies
// of the log are truncated.
void messages(Side& zero, Side& one) {
  Messages sender(*one.node, 2), receiver(*zero.node, 0);
  MessageHead head{};
  std::strcpy(head.form, "uint8 [100000]");
  head.bytes = 100000;
  std::string data(head.bytes, 'x');
  CHECK(sender.loop_begins(0) == HVDFT_OK && receiver.loop_begins(0) == HVDFT_OK);
  one.node->rank(2).loops[0].begin = 1;
  zero.node->rank(0).loops[0].begin = 1;
  CHECK(sender.send(0, head, data.data()) == 1);
  hvdft_message found;
  CHECK(receiver.find(2, 0, &found) == HVDFT_AGAIN);
  one.node->rank(2).state = HVDFT_DONE;  // reported only when everything it sent has gone
  one.node->rank(2).step = 99;
  for (int pieces = 0; pieces < 3; ++pieces) {
    CHECK(zero.node->rank(2).step != 99);
    CHECK(receiver.find(2, 0, &found) == HVDFT_AGAIN);
    carry(one, zero);
  }
  CHECK(receiver.find(2, 0, &found) == HVDFT_OK && found.bytes == head.bytes);
  CHECK(std::strcmp(found.form, head.form) == 0);
  carry(one, zero);
  CHECK(zero.node->rank(2).step == 99);
  std::string got(head.bytes, ' ');
  CHECK(receiver.take(2, found.number, got.data()) == HVDFT_OK && got == data);
  CHECK(receiver.find(2, 0, &found) == HVDFT_AGAIN);

  receiver.snapshot_begins(0, 0);
  receiver.snapshot_published(0, 0);
  carry(zero, one);
  sender.snapshot_begins(0, 0);
  sender.snapshot_published(0, 0);
  carry(one, zero);
  auto copy = PairFile::open(*zero.node, 2, 0, false),
       origin = PairFile::open(*one.node, 2, 0, false);
  CHECK(origin->header().receiver.count == 1 && origin->header().receiver.marks(0).past == 1);
  CHECK(copy->header().decided_before == 1 && copy->header().data_hole > 0);
  sender.snapshot_begins(0, 1);  // its owner cuts the origin the next time
  CHECK(origin->header().decided_before == 1);
  sender.snapshot_published(0, 1);

  Messages again(*one.node, 2);  // restarted: its first message is a new one
  CHECK(again.loop_begins(0) == HVDFT_OK);
  again.go_back(0, 1);
  CHECK(again.send(0, head, data.data()) == 1);
}

// One that never begins makes room for another, which goes over, too.
void rosters(Side& zero, Side& one) {
  Roster &ours = zero.header().rosters[0], &theirs = one.header().rosters[0];
  auto announce = [&](uint64_t present, uint64_t mark) {
    ours.mark = 0;
    carry(zero, one);
    ours.present[0] = present;
    ours.mark = mark;
    carry(zero, one);
    CHECK(theirs.mark == mark && theirs.present[0] == present);
  };
  announce(5, pack_mark(7, 0));
  announce(3, pack_mark(9, -1));

  // One that never begins is withdrawn there too, and those before it stay as they are.
  Roster &second = zero.header().rosters[1], &their_second = one.header().rosters[1];
  second.present[0] = 7;
  second.mark = pack_mark(12, 0);
  carry(zero, one);
  CHECK(their_second.mark == second.mark && their_second.present[0] == 7);
  second.mark = 0;
  theirs.present[0] = 99;  // would be overwritten if it were told once more
  carry(zero, one);
  carry(zero, one);
  CHECK(their_second.mark == 0 && theirs.mark == ours.mark && theirs.present[0] == 99);
  ours.mark = 0;
  carry(zero, one);
  CHECK(theirs.mark == 0);
}

// Who waits to return, and where, and that loops have ended.
void ranks_that_return(Side& zero, Side& one) {
  auto rung = [](Shared<uint32_t>& doorbell, Side& from, Side& to) {
    uint32_t before = doorbell;
    carry(from, to);
    return doorbell != before;
  };
  one.node->rank(2).returns = waits_in(3);
  CHECK(rung(zero.header().log_writer_doorbell, one, zero));
  CHECK(zero.node->rank(2).returns == waits_in(3));
  zero.node->rank(0).loops_done = loops_ended(3);
  CHECK(rung(one.header().snapshot_doorbell, zero, one));
  CHECK(one.node->rank(0).loops_done == loops_ended(3));
}

void events_and_the_end(Side& zero, Side& one) {
  one.node->push_event({now, HVDFT_EV_FAILED, 2, 0, 0, 9});
  zero.node->push_event({now, HVDFT_EV_JOINED, 1, 1, 0, 0});
  carry(one, zero);
  carry(zero, one);
  carry(one, zero);
  hvdft_event at_zero[4], at_one[4];
  CHECK(zero.node->events().read(0, at_zero, 4) == 2 && one.node->events().read(0, at_one, 4) == 2);
  CHECK(at_zero[1].type == HVDFT_EV_FAILED && at_zero[1].rank == 2 && at_zero[1].detail == 9);
  CHECK(at_one[1].type == HVDFT_EV_JOINED && at_one[1].rank == 1);

  one.node->stop(2, 5, "enough");
  carry(one, zero);
  const StopText* why = zero.node->stopped();
  CHECK(why != nullptr && why->rank == 2 && why->code == 5);
  CHECK(std::strcmp(why->text, "enough") == 0);
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
  rosters(zero, one);
  ranks_that_return(zero, one);
  the_log(zero, one);
  snapshots(zero, one);
  messages(zero, one);
  events_and_the_end(zero, one);

  Side again_zero(0, 2, 2, 3), again_one(2, 1, 0, 2);
  the_log(again_zero, again_one);
  a_new_generation(again_zero, again_one);

  Side less(0, 2, 2, 3), more(2, 1, 0, 2);
  one_that_has_decided_more(less, more);

  Side zero_rung(0, 2, 2, 3), one_rung(2, 1, 0, 2);
  doorbells(zero_rung, one_rung);

  Side zero_differs(0, 2, 2, 3), one_differs(2, 1, 0, 2);
  fingerprints(zero_differs, one_differs);
  divergences(zero_differs, one_differs);
  return 0;
}
