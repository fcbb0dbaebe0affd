// The protocol of the op log, event by event.
#include "protocol/sequencer.h"

#include "check.h"

using hvdft::LoopPosition;
using hvdft::Sequencer;
using Positions = std::vector<std::vector<LoopPosition>>;

static void only_who_knows_the_whole_log_joins() {
  Sequencer s;
  CHECK(s.may_enter(0));
  CHECK(s.propose(s.term(), 3));
  CHECK(s.log_length() == 3);
  CHECK(!s.may_enter(2) && s.may_enter(3) && !s.may_enter(4));
}

static void only_who_enters_again_begins_a_term() {
  Sequencer s;
  uint64_t term = s.term();
  s.enter(false);
  CHECK(s.term() == term && s.propose(term, 1));
  s.enter(true);
  CHECK(s.term() == term + 1);
}

static void what_was_proposed_before_a_join_is_void() {
  Sequencer s;
  uint64_t term = s.term();
  s.enter(true);
  CHECK(!s.propose(term, 1));
  CHECK(s.log_length() == 0);
  CHECK(s.propose(s.term(), 1));
}

static LoopPosition at(uint64_t begin, uint64_t position) { return {true, true, begin, position}; }

static void the_log_is_cut_at_the_oldest_snapshot() {
  Sequencer s;
  LoopPosition begun{true, false, 2, 0};
  CHECK(s.truncate({{begun}, {LoopPosition{}}}).drop.empty());
  Sequencer::Truncation first = s.truncate({{begun}, {begun}});
  CHECK((first.keep == std::vector<uint64_t>{0, 1}) && first.drop.empty());
  CHECK(s.truncate({{at(2, 9)}, {begun}}).drop.empty());
  Sequencer::Truncation freed = s.truncate({{at(2, 9)}, {at(2, 5)}});
  CHECK((freed.drop == std::vector<uint64_t>{2, 3, 4}) && freed.keep.empty());
  freed = s.truncate({{at(2, 9)}, {at(2, 7)}});
  CHECK((freed.drop == std::vector<uint64_t>{5, 6}));
}

static void ops_between_two_loops_are_kept() {
  Sequencer s;
  s.truncate({{at(0, 4), LoopPosition{}}, {at(0, 4), LoopPosition{}}});
  // One rank is in the second loop already, the other not: nothing is known yet.
  CHECK(s.truncate({{at(0, 4), at(6, 9)}, {at(0, 4), LoopPosition{}}}).keep.empty());
  Sequencer::Truncation freed = s.truncate({{at(0, 4), at(6, 9)}, {at(0, 4), at(6, 8)}});
  CHECK((freed.keep == std::vector<uint64_t>{4, 5}));
  CHECK((freed.drop == std::vector<uint64_t>{6, 7}));
}

// A rank's snapshots of a loop that others have left already still free that loop's ops.
static void a_late_snapshot_of_the_first_loop_counts() {
  Sequencer s;
  Sequencer::Truncation freed =
      s.truncate({{at(0, 4), LoopPosition{true, false, 5, 0}}, {at(0, 2), LoopPosition{}}});
  CHECK((freed.drop == std::vector<uint64_t>{0, 1}));
  freed = s.truncate({{at(0, 4), LoopPosition{true, false, 5, 0}}, {at(0, 4), LoopPosition{}}});
  CHECK((freed.drop == std::vector<uint64_t>{2, 3}));
}

int main() {
  only_who_knows_the_whole_log_joins();
  only_who_enters_again_begins_a_term();
  what_was_proposed_before_a_join_is_void();
  the_log_is_cut_at_the_oldest_snapshot();
  ops_between_two_loops_are_kept();
  a_late_snapshot_of_the_first_loop_counts();
}
