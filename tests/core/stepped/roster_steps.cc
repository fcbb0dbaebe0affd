// A roster is asked for, announced and begun by a log writer that is checked between any two
// stores, and killed at each: the next one goes on.
#include <cstring>

#include "arena/rosters.h"
#include "oplog/log_writer.h"
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

void propose_roster(Node& node, uint32_t number) {
  OpHead head{HVDFT_ROSTER, HVDFT_UINT8, HVDFT_SUM, number, 0, 4, 4, 0};
  std::memcpy(node.proposal(), &head, sizeof head);
  std::memcpy(node.proposal() + sizeof head, kTail, head.tail_bytes());
  NodeHeader& h = node.header();
  h.proposal_term = h.term.load();
  h.proposal_count = 1;
  h.proposed.fetch_add(1);
}

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
  LogWriter log_writer(node);
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
    LogWriter log_writer(node);
    log_writer.open();
    work(log_writer);
    propose_roster(node, 1);
    work(log_writer);
  });
  LogWriter next(node);
  next.open();
  work(next);
  check_whole(node);
  CHECK(latest_roster(node) == 1 && h.rosters[0].mark == 1);
  CHECK(h.leave_requests[0].answered == 1);
  ask_to_leave(node, kOfRank2);
  work(next);
  if (h.log_length == 0) {  // the coordinator proposes it again
    CHECK(latest_roster(node) == 1);
    propose_roster(node, 1);
    work(next);
  }
  CHECK(h.log_length == 1 && roster_at(node, 1) == 1);
  CHECK(latest_roster(node) == 2 && h.rosters[1].mark == 2);
  CHECK(is_in_roster(node, 2, 0) && !is_in_roster(node, 2, 1) && !is_in_roster(node, 2, 2));
  return killed;
}

// Rank 0 coordinates; who has left cannot leave; and there is room for so many only.
void what_changes_nothing_is_answered() {
  Job job(kRanks);
  Node& node = *job.node;
  LogWriter log_writer(node);
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
  LogWriter log_writer(node);
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

}  // namespace

int main() {
  what_is_seen_is_whole();
  uint64_t steps = 0;
  while (a_log_writer_is_killed(steps)) ++steps;
  std::printf("a log writer killed at each of %lu stores\n", steps);
  CHECK(steps > 10);
  what_changes_nothing_is_answered();
  the_log_is_truncated_without_ranks_that_have_left();
}
