// The mirror: what it brings is looked at between any two of its stores, what it reads changes
// between any two of its loads, and it is killed at every store.
#include <cstring>
#include <vector>

#include "../mirror_sides.h"
#include "steps.h"

using namespace hvdft;

namespace {

constexpr uint64_t kJoined = 77, kTerm = 3;
const uint64_t kGiven = position(5, 0);

struct Nodes {
  Side zero{0, 2, 2, 3}, one{2, 1, 0, 2};
  RankBlock& theirs() { return one.node->rank(2); }  // of node one's rank, there and …
  RankBlock& seen() { return zero.node->rank(2); }   // … as the other node sees it
};

void append(Side& zero, std::vector<uint64_t> ops) {
  for (uint64_t bytes : ops) {
    OpHead op{HVDFT_REDUCE, HVDFT_FLOAT32, HVDFT_SUM, 0, bytes, 4, 4, 0};
    CHECK(zero.store->append(op, "respsig") == HVDFT_OK);
  }
  zero.store->publish();
}

// What the log writer does when a rank joins.
void grant(Side& zero) {
  append(zero, {100});
  zero.node->rank(2).entered = kJoined;
  zero.header().term = kTerm;
}
void check_granted(Side& one) {
  if (one.header().term != kTerm) return;
  CHECK(one.header().log_length == 1 && one.node->rank(2).entered == kJoined);
}

// What a worker does, last of all.
void finish(Nodes& nodes) {
  publish_fingerprints(nodes.one.node->fingerprints(2), cut_key(0, 5), "prints", 6);
  nodes.theirs().loops[0].ended = 1;
  nodes.theirs().loops[0].published = 20;
  nodes.theirs().loops[0].begin = 4;
  nodes.theirs().contributed = kGiven;
  nodes.theirs().state = HVDFT_DONE;
}
void check_finished(Nodes& nodes) {
  CHECK(nodes.seen().state != HVDFT_DONE || nodes.seen().contributed == kGiven);
  CHECK(nodes.seen().loops[0].begin == 0 || nodes.seen().loops[0].published == 20);
  bool come = nodes.zero.node->fingerprints(2)[0].cut == cut_key(0, 5);
  CHECK(come || (nodes.seen().loops[0].ended == 0 && nodes.seen().state != HVDFT_DONE));
}

std::string collected(Side& side) {
  std::string stream;
  side.collect(now += 1000000000, &stream);
  return stream;
}

bool the_log_writer_acts_at(uint64_t at) {
  Nodes nodes;
  nodes.zero.node->rank(1).state = HVDFT_RUNNING;  // something to send, whenever it acts
  std::string stream;
  bool acted =
      interrupted_at(at, [&] { stream = collected(nodes.zero); }, [&] { grant(nodes.zero); });
  watched([&] { nodes.one.feed(stream); }, [&] { check_granted(nodes.one); });
  if (!acted) grant(nodes.zero);
  watched([&] { carry(nodes.zero, nodes.one); }, [&] { check_granted(nodes.one); });
  CHECK(nodes.one.header().term == kTerm);
  return acted;
}

bool the_worker_acts_at(uint64_t at) {
  Nodes nodes;
  nodes.theirs().state = HVDFT_RUNNING;
  std::string stream;
  bool acted = interrupted_at(at, [&] { stream = collected(nodes.one); }, [&] { finish(nodes); });
  watched([&] { nodes.zero.feed(stream); }, [&] { check_finished(nodes); });
  if (!acted) finish(nodes);
  watched([&] { carry(nodes.one, nodes.zero); }, [&] { check_finished(nodes); });
  CHECK(nodes.seen().state == HVDFT_DONE && nodes.seen().loops[0].begin == 4);
  return acted;
}

void write_mail(Node& node, uint64_t term, uint64_t sequence, const std::string& what) {
  RankBlock& block = node.rank(2);
  block.mail_sequence = sequence - 1;
  block.mail_term = term;
  block.mail_bytes = what.size();
  write_torn(node.mail(2), what.data(), what.size());
  block.mail_sequence = sequence;
}

// In a new term a rank may overwrite what was not taken: it goes over as a whole, or not at all.
bool an_announcement_is_overwritten_at(uint64_t at) {
  Nodes nodes;
  std::string before(200, 'b'), after(300, 'a'), stream;
  write_mail(*nodes.one.node, 1, 2, before);
  bool acted = interrupted_at(
      at, [&] { stream = collected(nodes.one); },
      [&] { write_mail(*nodes.one.node, 2, 4, after); });
  auto check = [&](uint64_t term, uint64_t sequence, const std::string& what) {
    CHECK(nodes.seen().mail_term == term && nodes.seen().mail_sequence == sequence);
    CHECK(std::string(nodes.zero.node->mail(2), nodes.seen().mail_bytes) == what);
  };
  nodes.zero.feed(stream);
  uint64_t sequence = nodes.seen().mail_sequence;
  if (sequence == 2) check(1, 2, before);
  if (sequence == 4) check(2, 4, after);
  CHECK(sequence == 0 || sequence == 2 || sequence == 4);
  if (!acted) write_mail(*nodes.one.node, 2, 4, after);
  carry(nodes.one, nodes.zero);
  check(2, 4, after);
  return acted;
}

// ---------------------------------------------------------------- kills

void check_events(const Node& node, const std::vector<uint64_t>& expected) {
  std::vector<uint64_t> details;  // one may be sent twice, torn the first time
  for (uint64_t n = 0; n < node.header().event_count; ++n) {
    const Event& slot = node.event_slots()[n];
    if (slot.published != n + 1) continue;
    if (details.empty() || details.back() != slot.event.detail)
      details.push_back(slot.event.detail);
  }
  CHECK(details == expected);
}

void check_log(Side& zero, Side& one) {
  CHECK(one.header().log_length == 5 && one.store->length() == 5 && one.store->gone() == 2);
  CHECK(one.header().kept == 1 && one.header().truncated == 1 && one.header().decided_before == 2);
  CHECK(one.node->record(1) == nullptr);
  for (uint64_t id : {0, 2, 3, 4}) {
    const Record &mine = *zero.node->record(id), *copy = one.node->record(id);
    CHECK(copy != nullptr && copy->first_segment == mine.first_segment);
    CHECK(copy->op.result_bytes == mine.op.result_bytes &&
          std::memcmp(copy + 1, "respsig", 8) == 0);
  }
}

// The agents of both nodes are killed while one applies what the other has sent: the log's
// beginning, or its continuation. (What is truncated has arrived: the other node's ranks have
// snapshots behind it.)
bool killed_while_it_applies(bool beginning, uint64_t at) {
  Nodes nodes;
  Side &zero = nodes.zero, &one = nodes.one;
  bool killed = false;
  auto go_over = [&](bool disturbed) {
    std::string stream = collected(zero);
    if (!disturbed) return one.feed(stream);
    killed = killed_at(at, [&] { one.feed(stream); });
    renew(zero, one);
    carry(zero, one);
  };
  append(zero, {100, 0, 200000});
  zero.node->push_event({now, HVDFT_EV_FAILED, 0, 0, 0, 1});
  go_over(beginning);
  CHECK(zero.store->keep(0) == HVDFT_OK);
  zero.store->drop(1);
  zero.store->decided(2);
  append(zero, {300, 70});
  zero.node->rank(2).entered = kJoined;
  zero.header().term = kTerm;
  zero.node->push_event({now, HVDFT_EV_JOINED, 0, 1, 0, 2});
  go_over(!beginning);
  check_log(zero, one);
  CHECK(one.header().term == kTerm && one.node->rank(2).entered == kJoined);
  check_events(*one.node, {1, 2});
  append(zero, {50});
  carry(zero, one);
  CHECK(one.header().log_length == 6 && one.header().stop == 0);
  return killed;
}

// A rank comes to a step boundary with its op 7, and no tensor is pending then: it never seems to
// be beyond it.
void who_comes_to_a_boundary_is_not_seen_beyond_it() {
  Nodes nodes;
  RankBlock &theirs = nodes.theirs(), &seen = nodes.seen();
  theirs.executed = 6;
  theirs.pending = 1;
  carry(nodes.one, nodes.zero);
  CHECK(seen.executed == 6 && seen.pending == 1);
  theirs.pending = 0;
  theirs.executed = 7;
  std::string stream = collected(nodes.one);
  watched([&] { nodes.zero.feed(stream); }, [&] { CHECK(seen.executed < 7 || seen.pending == 0); });
  CHECK(seen.executed == 7);
}

}  // namespace

int main() {
  who_comes_to_a_boundary_is_not_seen_beyond_it();
  uint64_t kills = 0;
  uint64_t log_writer = through(the_log_writer_acts_at);
  uint64_t worker = through(the_worker_acts_at);
  CHECK(through(an_announcement_is_overwritten_at) > 30);
  for (bool beginning : {true, false}) {
    kills += through([&](uint64_t at) { return killed_while_it_applies(beginning, at); });
  }
  CHECK(log_writer > 30 && worker > 30 && kills > 60);
  std::printf("others acted at %lu and %lu steps, killed at each of %lu stores\n", log_writer,
              worker, kills);
}
