// The protocol of the op log, event by event.
#include "sequencer.h"

#include "check.h"

using hvdft::LoopPlace;
using hvdft::Sequencer;
using Places = std::vector<std::vector<LoopPlace>>;

static void only_who_knows_the_whole_log_joins() {
  Sequencer s;
  CHECK(s.join(0));
  CHECK(s.propose(s.term(), 3));
  CHECK(s.log_length() == 3);
  uint64_t term = s.term();
  CHECK(!s.join(2));
  CHECK(s.term() == term);
  CHECK(s.join(3));
  CHECK(s.term() == term + 1);
}

static void what_was_proposed_before_a_join_is_void() {
  Sequencer s;
  CHECK(s.join(0));
  uint64_t term = s.term();
  CHECK(s.join(0));
  CHECK(!s.propose(term, 1));
  CHECK(s.log_length() == 0);
  CHECK(s.propose(s.term(), 1));
}

static LoopPlace at(uint64_t begin, uint64_t position) { return {true, true, begin, position}; }

static void the_log_is_cut_at_the_oldest_snapshot() {
  Sequencer s;
  LoopPlace begun{true, false, 2, 0};
  CHECK(s.cut({{begun}, {LoopPlace{}}}).drop.empty());
  Sequencer::Cut first = s.cut({{begun}, {begun}});
  CHECK((first.keep == std::vector<uint64_t>{0, 1}) && first.drop.empty());
  CHECK(s.cut({{at(2, 9)}, {begun}}).drop.empty());
  Sequencer::Cut cut = s.cut({{at(2, 9)}, {at(2, 5)}});
  CHECK((cut.drop == std::vector<uint64_t>{2, 3, 4}) && cut.keep.empty());
  cut = s.cut({{at(2, 9)}, {at(2, 7)}});
  CHECK((cut.drop == std::vector<uint64_t>{5, 6}));
}

static void ops_between_two_loops_are_kept() {
  Sequencer s;
  s.cut({{at(0, 4), LoopPlace{}}, {at(0, 4), LoopPlace{}}});
  // One rank is in the second loop already, the other not: nothing is known yet.
  CHECK(s.cut({{at(0, 4), at(6, 9)}, {at(0, 4), LoopPlace{}}}).keep.empty());
  Sequencer::Cut cut = s.cut({{at(0, 4), at(6, 9)}, {at(0, 4), at(6, 8)}});
  CHECK((cut.keep == std::vector<uint64_t>{4, 5}));
  CHECK((cut.drop == std::vector<uint64_t>{6, 7}));
}

// A rank's snapshots of a loop that others have left already still free that loop's ops.
static void a_late_snapshot_of_the_first_loop_counts() {
  Sequencer s;
  Sequencer::Cut cut = s.cut({{at(0, 4), LoopPlace{true, false, 5, 0}}, {at(0, 2), LoopPlace{}}});
  CHECK((cut.drop == std::vector<uint64_t>{0, 1}));
  cut = s.cut({{at(0, 4), LoopPlace{true, false, 5, 0}}, {at(0, 4), LoopPlace{}}});
  CHECK((cut.drop == std::vector<uint64_t>{2, 3}));
}

int main() {
  only_who_knows_the_whole_log_joins();
  what_was_proposed_before_a_join_is_void();
  the_log_is_cut_at_the_oldest_snapshot();
  ops_between_two_loops_are_kept();
  a_late_snapshot_of_the_first_loop_counts();
}
