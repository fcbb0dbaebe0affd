// What is done over when members have lost their arenas, case by case. The simulator tries the rule
// through losses at any moment (ring_scenarios.txt, "lost…").
#include "protocol/rejoin.h"

#include "check.h"

using hvdft::is_partial;
using hvdft::Rejoin;
using hvdft::rejoin;
using hvdft::RejoinState;
using hvdft::RingPlan;

static const RejoinState kLost{true, 0, 0, 0};

static RejoinState at(uint64_t op, uint64_t log_length = 20, uint64_t done_over = 0) {
  return {false, log_length, op, done_over};
}

static void nothing_is_done_over_without_a_loss() {
  CHECK(!rejoin({at(3), at(4), at(4)}).needed);
  CHECK(!rejoin({at(0), at(0)}).needed);
}

static void the_op_of_the_most_advanced_member_is_done_over() {
  Rejoin verdict = rejoin({at(7), kLost, at(8), at(6)});
  CHECK(verdict.needed && verdict.possible);
  CHECK(verdict.op == 8 && verdict.results_from == 2);
}

// What rank 0's node appends to the log reaches the other nodes later.
static void the_longest_log_is_copied() {
  Rejoin verdict = rejoin({kLost, at(8, 11), at(7, 14), at(7, 12)});
  CHECK(verdict.log_from == 2 && verdict.results_from == 1 && verdict.op == 8);
}

// Somebody may have been killed in the middle of rejoining, or has sums aside.
static void it_is_done_over_again_until_all_are_beyond_it() {
  CHECK(rejoin({at(8, 20, 9), at(8, 20, 9)}).needed);
  CHECK(rejoin({at(9, 20, 9), at(8, 20, 9)}).needed);
  CHECK(rejoin({at(8, 20, 9), at(6, 20, 0)}).needed);
  CHECK(rejoin({at(6, 20, 9), at(8, 20, 0)}).needed);
  CHECK(rejoin({at(9, 20, 9), at(8, 20, 0)}).needed);
  CHECK(rejoin({at(8, 20, 0), at(9, 20, 9)}).needed);
  CHECK(!rejoin({at(9, 20, 9), at(9, 20, 9)}).needed);
  CHECK(!rejoin({at(9, 20, 9), at(9, 20, 0)}).needed);
  CHECK(!rejoin({at(9, 20, 0), at(9, 20, 9)}).needed);
  CHECK(rejoin({at(9, 20, 9), at(8, 20, 9)}).op == 9);
}

static void somebody_must_have_an_arena() {
  CHECK(!rejoin({kLost, kLost}).possible);
  Rejoin verdict = rejoin({kLost, at(5), kLost});
  CHECK(verdict.possible && verdict.log_from == 1 && verdict.results_from == 1 && verdict.op == 5);
}

// In a ring of 4 the sums of the first two steps travel on; the third one's is final.
static void partial_sums_are_those_that_others_add_to() {
  RingPlan plan(4, 64 * 16, 64 * 2);
  CHECK(plan.segments() == 2);
  for (uint64_t position = 0; position < plan.positions(); ++position) {
    CHECK(is_partial(plan, position) == (position < 4));
  }
  CHECK(!is_partial(RingPlan(2, 64 * 16, 64 * 2), 0));
  RingPlan gathered(4, 64, 64, true);
  CHECK(gathered.gathered() && !is_partial(gathered, 0));
}

int main() {
  nothing_is_done_over_without_a_loss();
  the_op_of_the_most_advanced_member_is_done_over();
  the_longest_log_is_copied();
  it_is_done_over_again_until_all_are_beyond_it();
  somebody_must_have_an_arena();
  partial_sums_are_those_that_others_add_to();
}
