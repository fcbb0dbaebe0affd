// A roster is asked for, announced and begun by a log writer that is checked between any two
// stores, and killed at each: the next one goes on.
#include <algorithm>
#include <cstring>

#include "../op_rules.h"
#include "arena/node_arenas.h"
#include "arena/rosters.h"
#include "oplog/log_writer.h"
#include "protocol/roster.h"
#include "steps.h"

using namespace hvdft;

namespace {

constexpr int kRanks = 3;
constexpr char kTail[] = "respsig";
constexpr uint64_t kOfRank1 = 1 << 1, kOfRank2 = 1 << 2;

void ask_to_leave(Node& node, uint64_t ranks) {
  uint64_t words[kMaxRanks / 64] = {ranks};
  write_leave_request(node.header().leave_requests[0], words);
}

void propose(Node& node, uint32_t kind, uint32_t root) {
  OpHead head{kind, HVDFT_UINT8, HVDFT_SUM, root, 0, 4, 4, 0};
  std::memcpy(node.proposal(), &head, sizeof head);
  std::memcpy(node.proposal() + sizeof head, kTail, head.tail_bytes());
  NodeHeader& h = node.header();
  h.proposal_term = h.term.load();
  h.proposal_count = 1;
  h.proposed.fetch_add(1);
}

void propose_roster(Node& node, uint32_t number) { propose(node, HVDFT_ROSTER, number); }

void work(LogWriter& log_writer) {
  while (log_writer.step()) {
  }
}

// A rank that sees a roster sees all of it, and no rank sees it in force before its op is there.
void check_whole(const Node& node) {
  if (latest_roster(node) > 0) {
    CHECK(is_in_roster(node, 1, 0) && !is_in_roster(node, 1, 1) && is_in_roster(node, 1, 2));
  }
  uint64_t length = node.header().log_length.load();
  CHECK(roster_at(node, length) == 0 || node.record(length - 1)->op.kind == HVDFT_ROSTER);
}

void what_is_seen_is_whole() {
  Job job(kRanks);
  Node& node = *job.node;
  LogWriter log_writer(node, kOpRules);
  log_writer.open();
  uint64_t term = node.header().term;
  watched(
      [&] {
        ask_to_leave(node, kOfRank1);
        work(log_writer);
        propose_roster(node, 1);
        work(log_writer);
      },
      [&] {
        check_whole(node);
        // What was announced before is void once the op is there.
        CHECK(node.header().term == term || node.header().log_length == 1);
      });
  CHECK(roster_at(node, 1) == 1 && roster_at(node, 0) == 0 && node.header().term > term);
  CHECK(is_present(node, 1, 0) && !is_present(node, 1, 1) && is_present(node, 2, 1));
}

bool a_log_writer_is_killed(uint64_t at) {
  Job job(kRanks);
  Node& node = *job.node;
  NodeHeader& h = node.header();
  h.term = 5;  // ranks have entered: in term 0 nothing is proposed
  ask_to_leave(node, kOfRank1);
  bool killed = killed_at(at, [&] {
    LogWriter log_writer(node, kOpRules);
    log_writer.open();
    work(log_writer);
    propose_roster(node, 1);
    work(log_writer);
  });
  LogWriter next(node, kOpRules);
  next.open();
  work(next);
  check_whole(node);
  CHECK(latest_roster(node) == 1 && h.rosters[0].mark == pack_mark(1, -1));
  CHECK(h.leave_requests[0].answered == 1);
  ask_to_leave(node, kOfRank2);
  work(next);
  uint64_t before = 0;
  if (h.log_length == 0) {  // the coordinator proposes it again, perhaps behind others
    CHECK(latest_roster(node) == 1);
    propose(node, HVDFT_REDUCE, 0);
    work(next);
    before = h.log_length;
    CHECK(before == 1 && roster_at(node, before) == 0 && is_present(node, 1, before));
    propose_roster(node, 1);
    work(next);
  }
  uint64_t length = before + 1;
  CHECK(h.log_length == length && roster_at(node, before) == 0 && roster_at(node, length) == 1);
  CHECK(latest_roster(node) == 2 && h.rosters[1].mark == pack_mark(length + 1, -1));
  CHECK(is_in_roster(node, 2, 0) && !is_in_roster(node, 2, 1) && !is_in_roster(node, 2, 2));
  return killed;
}

// Rank 0 coordinates; who has left cannot leave; and there is room for so many only.
void what_changes_nothing_is_answered() {
  Job job(kRanks);
  Node& node = *job.node;
  LogWriter log_writer(node, kOpRules);
  log_writer.open();
  ask_to_leave(node, 1);
  work(log_writer);
  CHECK(latest_roster(node) == 0 && node.header().leave_requests[0].answered == 1);
  ask_to_leave(node, kOfRank1 | 1);
  work(log_writer);
  propose_roster(node, 1);
  work(log_writer);
  ask_to_leave(node, kOfRank1);
  work(log_writer);
  CHECK(latest_roster(node) == 1 && node.header().leave_requests[0].answered == 3);
  for (uint64_t n = 1; n < kRosters; ++n) node.header().rosters[n].mark = 1;
  ask_to_leave(node, kOfRank2);
  work(log_writer);
  CHECK(latest_roster(node) == kRosters && node.header().leave_requests[0].answered == 4);
}

// A rank that has left keeps nothing in the log; one that is to leave does until it has ended.
void the_log_is_truncated_without_ranks_that_have_left() {
  Job job(kRanks);
  Node& node = *job.node;
  LogWriter log_writer(node, kOpRules);
  log_writer.open();
  ask_to_leave(node, kOfRank1 | kOfRank2);
  work(log_writer);
  propose_roster(node, 1);
  work(log_writer);
  for (int r = 0; r < kRanks; ++r) node.rank(r).loops[0].begin = 1;
  node.rank(0).loops[0].published = 2 << 1;  // after the roster's op
  node.rank(1).state = HVDFT_DONE;
  work(log_writer);
  CHECK(node.header().truncated == 0);
  node.rank(2).state = HVDFT_DONE;
  work(log_writer);
  CHECK(node.header().truncated == 1);
}

void comes_to(Node& node, int rank, uint64_t returns) {
  node.rank(rank).state = HVDFT_REPLAYING;
  node.rank(rank).returns = returns;
}

void leave(Node& node, LogWriter& log_writer, uint64_t ranks) {
  ask_to_leave(node, ranks);
  work(log_writer);
  propose_roster(node, static_cast<uint32_t>(latest_roster(node)));
  work(log_writer);
  for (int r = 1; r < kRanks; ++r) {
    if (ranks >> r & 1) node.rank(r).state = HVDFT_DONE;
  }
}

// Ranks that return do so together, and a roster with them that cannot begin makes room for others.
void ranks_return() {
  Job job(kRanks);
  Node& node = *job.node;
  NodeHeader& h = node.header();
  LogWriter log_writer(node, kOpRules);
  log_writer.open();
  node.rank(0).loops_done = loops_begun(1);
  leave(node, log_writer, kOfRank1 | kOfRank2);
  CHECK(has_left(node, 1) && !needs_log(node, 1) && needs_log(node, 0));
  comes_to(node, 1, waits_in(1));
  comes_to(node, 2, kReturns);
  work(log_writer);
  CHECK(latest_roster(node) == 1 && returns_later(node, 1) && !needs_log(node, 2));
  comes_to(node, 2, waits_in(1));
  watched([&] { work(log_writer); },
          [&] {
            if (latest_roster(node) < 2) return;
            CHECK(h.rosters[1].mark == pack_mark(2, 1));
            CHECK(is_in_roster(node, 2, 0) && is_in_roster(node, 2, 1) && is_in_roster(node, 2, 2));
          });
  CHECK(latest_roster(node) == 2 && latest_return(node, 2) == 2 && latest_return(node, 0) == 0);
  CHECK(has_part(node, 1) && needs_log(node, 1) && !is_present(node, 1, 1));
  ask_to_leave(node, kOfRank2);
  work(log_writer);
  CHECK(latest_roster(node) == 2 && h.leave_requests[0].answered == 1);  // one after the other
  node.rank(0).loops_done = loops_ended(1);
  work(log_writer);
  CHECK(latest_roster(node) == 1 && h.leave_requests[0].answered == 2);  // nothing to do
  CHECK(!needs_log(node, 1));
  node.rank(0).loops_done = loops_begun(2);
  comes_to(node, 1, waits_in(2));
  comes_to(node, 2, 0);  // it has left, and has not ended
  work(log_writer);
  CHECK(latest_roster(node) == 2 && h.rosters[1].mark == pack_mark(2, 2));
  CHECK(is_in_roster(node, 2, 1) && !is_in_roster(node, 2, 2) && needs_log(node, 2));
  propose_roster(node, 2);
  work(log_writer);
  CHECK(is_present(node, 1, 2) && !is_present(node, 1, 1));
}

// Nor is there a roster for ranks whose place has no host of its own, or beyond the last one.
void who_does_not_return() {
  Job job(kRanks);
  Node& node = *job.node;
  LogWriter log_writer(node, kOpRules);
  log_writer.open();
  leave(node, log_writer, kOfRank1 | kOfRank2);
  comes_to(node, 1, waits_in(0));
  node.rank(0).state = HVDFT_DONE;
  work(log_writer);
  CHECK(latest_roster(node) == 1);
  node.rank(0).state = HVDFT_RUNNING;
  uint64_t words[kMaxRanks / 64] = {kOfRank1};
  write_leave_request(node.header().leave_requests[1], words);
  work(log_writer);
  CHECK(latest_roster(node) == 1);
  comes_to(node, 2, waits_in(0));
  for (uint64_t n = 1; n < kRosters; ++n) node.header().rosters[n].mark = pack_mark(1, -1);
  for (uint64_t n = 1; n < kRosters; ++n) node.header().rosters[n].since = 1;
  work(log_writer);
  CHECK(latest_roster(node) == kRosters);
}

// The loop for which a roster is announced ends at any step of the log writer that is to announce
// another one: ranks that are out then are not taken into that.
bool a_loop_ends_while_others_are_to_leave(uint64_t at) {
  Job job(kRanks);
  Node& node = *job.node;
  NodeHeader& h = node.header();
  LogWriter log_writer(node, kOpRules);
  log_writer.open();
  leave(node, log_writer, kOfRank1);
  comes_to(node, 1, waits_in(0));
  work(log_writer);
  CHECK(latest_roster(node) == 2 && is_in_roster(node, 2, 1));
  ask_to_leave(node, kOfRank2);
  bool interrupted = interrupted_at(
      at, [&] { work(log_writer); },
      [&] {
        node.rank(0).loops_done = loops_ended(0);
        node.rank(1).state = HVDFT_DONE;
      });
  work(log_writer);
  if (!interrupted) return false;
  CHECK(latest_roster(node) == 2 && h.leave_requests[0].answered == 2);
  CHECK(h.rosters[1].mark == pack_mark(2, -1));
  CHECK(is_in_roster(node, 2, 0) && !is_in_roster(node, 2, 1) && !is_in_roster(node, 2, 2));
  return true;
}

// A rank begins to return at any step of the log writer that announces another one's return: who is
// on its way is not in a roster.
bool a_rank_is_on_its_way_while_another_returns(uint64_t at) {
  Job job(kRanks);
  Node& node = *job.node;
  LogWriter log_writer(node, kOpRules);
  log_writer.open();
  leave(node, log_writer, kOfRank1 | kOfRank2);
  comes_to(node, 1, waits_in(0));
  bool interrupted =
      interrupted_at(at, [&] { work(log_writer); }, [&] { comes_to(node, 2, kReturns); });
  CHECK(latest_roster(node) < 2 || !is_in_roster(node, 2, 2));
  return interrupted;
}

bool a_log_writer_is_killed_when_ranks_return(uint64_t at) {
  Job job(kRanks);
  Node& node = *job.node;
  NodeHeader& h = node.header();
  h.term = 5;
  {
    LogWriter log_writer(node, kOpRules);
    log_writer.open();
    leave(node, log_writer, kOfRank1);
  }
  comes_to(node, 1, waits_in(0));
  bool killed = killed_at(at, [&] {
    LogWriter log_writer(node, kOpRules);
    log_writer.open();
    work(log_writer);
    node.rank(0).loops_done = loops_ended(0);  // too late
    node.rank(1).state = HVDFT_DONE;
    ask_to_leave(node, kOfRank2);
    work(log_writer);
  });
  node.rank(0).loops_done = loops_ended(0);
  node.rank(1).state = HVDFT_DONE;
  LogWriter next(node, kOpRules);
  next.open();
  if (h.leave_requests[0].number == 1) ask_to_leave(node, kOfRank2);
  work(next);
  CHECK(latest_roster(node) == 2 && loop_of_mark(h.rosters[1].mark) == -1);
  CHECK(is_in_roster(node, 2, 0) && !is_in_roster(node, 2, 1) && !is_in_roster(node, 2, 2));
  CHECK(h.leave_requests[0].answered == 2);
  return killed;
}

// A rank leaves, and has been killed in the middle of a segment that nobody waits for, as it has no
// data. Its node's part in later ops is nothing; the leader sees to that when the agent has done
// the dead one's work, for a claim only ever grows.
bool a_rank_that_leaves_is_killed_in_a_segment(uint64_t at, bool* in_the_middle) {
  Job job(1, 2);
  Node& node = *job.node;
  LogStore log(node);
  OpHead no_data{HVDFT_REDUCE, HVDFT_UINT8, HVDFT_SUM, 0, 0, 4, 4, 0};
  OpHead roster{HVDFT_ROSTER, HVDFT_UINT8, HVDFT_SUM, 1, 0, 4, 4, 0};
  OpHead later{HVDFT_COPY, HVDFT_UINT8, HVDFT_SUM, 1, kClaims * kLeastNodeSegment, 4, 4, 0};
  later.node_segment = kLeastNodeSegment;
  node.header().rosters[0].present[0] = kOfRank1;  // of the other node
  for (const OpHead& op : {no_data, roster, later}) CHECK(log.append(op, kTail) == HVDFT_OK);
  log.publish();
  auto arenas = Arenas::open(job.dir, "steps", Node::kAgent, 0);
  const Record &first = *node.record(0), &last = *node.record(2);
  ByteRange range = last.given(kClaims);  // its claim is in the place of the first one's
  char* part = node.heap() + last.partial_offset + range.from;
  std::memset(part, 'x', range.bytes());

  bool killed = killed_at(at, [&] { arenas->claim_and_reduce(first, first.first_segment, 0); });
  auto& claim = node.header().claims[0].word;
  uint64_t word = claim;
  *in_the_middle = in_work(word);
  CHECK(arenas->is_input_ready(last, kClaims) == !in_work(word));
  CHECK(!in_work(word) || claim == word);
  arenas->take_over(0);
  CHECK(arenas->is_input_ready(last, kClaims) && claimed_end(claim) == kClaims + 1);
  CHECK(std::all_of(part, part + range.bytes(), [](char byte) { return byte == 0; }));
  return killed;
}

}  // namespace

int main() {
  what_is_seen_is_whole();
  what_changes_nothing_is_answered();
  the_log_is_truncated_without_ranks_that_have_left();
  ranks_return();
  who_does_not_return();
  for (auto [what, act] :
       {std::pair("killed at stores", a_log_writer_is_killed),
        {"its loop ended at steps", a_loop_ends_while_others_are_to_leave},
        {"a rank on its way at steps", a_rank_is_on_its_way_while_another_returns},
        {"killed when ranks return", a_log_writer_is_killed_when_ranks_return}}) {
    uint64_t steps = through(act);
    std::printf("a log writer: %s, of %lu\n", what, steps);
    CHECK(steps > 10);
  }
  uint64_t in_work = 0;
  bool in_the_middle = false;
  uint64_t steps = through([&](uint64_t at) {
    bool killed = a_rank_that_leaves_is_killed_in_a_segment(at, &in_the_middle);
    in_work += in_the_middle;
    return killed;
  });
  CHECK(in_work > 0 && in_work < steps);
}
