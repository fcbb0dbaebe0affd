// What only rank 0's node is told by the mirror, for the report: memory, and single ops. Nobody is
// woken for it.
#include <cstring>

#include "arena/memory.h"
#include "hvd_ft.h"
#include "hvd_ft_times.h"
#include "mirror_sides.h"

using namespace hvdft;

namespace {

// Rank 0's node knows the memory of the other one, now and at most, and nobody is woken for it.
void memory(Side& zero, Side& one) {
  hvdft_observer* observer = hvdft_observer_open(zero.dir.c_str());
  hvdft_observer* theirs = hvdft_observer_open(one.dir.c_str());
  hvdft_memory seen, own;
  CHECK(hvdft_observer_memory(observer, 1, 0, &seen) == 0);  // not a node's first rank
  CHECK(grow_messages(*one.node, one.node->fd(), one.node->heap_offset(), 0, 5 * kPage) ==
        HVDFT_OK);
  CHECK((rung_by(one, zero) == Rung{false, false, false}));
  unclaim_messages(*one.node, 4 * kPage);
  carry(one, zero);
  for (int most : {0, 1}) {
    CHECK(hvdft_observer_memory(observer, 2, most, &seen) == 1);
    CHECK(hvdft_observer_memory(theirs, 2, most, &own) == 1);
    CHECK(std::memcmp(&seen, &own, sizeof own) == 0);
    CHECK(seen.messages == (most ? 5 : 1) * kPage && seen.limit == kLimit);
    CHECK(hvdft_observer_memory(theirs, 0, most, &own) == 0);  // it is not sent there
    CHECK(hvdft_observer_memory(observer, 0, most, &own) == 1 && own.messages == 0);
  }
  std::string soon, bye;
  unclaim_messages(*one.node, kPage);
  one.collect(now + 1000, &soon);  // too soon after the last time
  CHECK(soon.empty());
  one.sender->bye(&bye);
  zero.feed(bye);
  CHECK(hvdft_observer_memory(observer, 2, 0, &seen) == 1 && seen.messages == 0);
  hvdft_observer_close(observer);
  hvdft_observer_close(theirs);
}

// When ops are traced, rank 0's node knows when the others came to them, by its own clock; nobody
// is woken for it.
void single_ops(Side& zero, Side& one) {
  RankBlock &theirs = one.node->rank(2), &seen = zero.node->rank(2);
  OpMoments at{};
  theirs.op_times.begin(0, 90, 100);
  carry(one, zero);
  CHECK(!seen.op_times.read(0, &at));
  one.header().traces_ops = 1;
  CHECK((rung_by(one, zero) == Rung{false, false, false}));
  CHECK(seen.op_times.read(0, &at) && at.handed == 97 && at.begun == 107 && at.done == 0);
  CHECK(at.contributed == 0);  // not yet, on any clock
  theirs.op_times.contributed(0, 120);
  theirs.op_times.done(0, 130);
  theirs.op_times.begin(1, 140, 150);
  theirs.ring_times.begin(0, 0, 110);
  theirs.ring_times.done(0, 125);
  zero.node->rank(0).op_times.begin(0, 90, 100);
  carry(one, zero);
  carry(zero, one);
  CHECK(seen.op_times.read(0, &at) && at.contributed == 127 && at.done == 137);
  CHECK(seen.op_times.read(1, &at) && at.op == 1 && at.begun == 157 && at.done == 0);
  CHECK(seen.ring_times.read(0, &at) && at.begun == 117 && at.contributed == 0 && at.done == 132);
  CHECK(!one.node->rank(0).op_times.read(0, &at));  // it is not sent there
  carry(one, zero);
  std::string soon, bye;
  theirs.op_times.done(1, 170);
  one.collect(now + 1000, &soon);  // too soon after the last time
  CHECK(soon.empty());
  one.sender->bye(&bye);
  zero.feed(bye);
  CHECK(seen.op_times.read(1, &at) && at.done == 177);
  // What is said of a node's clock is the least that it can be.
  hvdft_observer* observer = hvdft_observer_open(zero.dir.c_str());
  CHECK(hvdft_observer_clock_ahead(observer, 2) == 7);
  CHECK(hvdft_observer_clock_ahead(observer, 0) == 0);
  hvdft_op_moments moments[2];
  CHECK(hvdft_observer_op_moments(observer, 2, 0, moments, 2) == 2 && moments[1].done_ns == 177);
  CHECK(hvdft_observer_op_moments(observer, 2, 1, moments, 2) == 1 && moments[0].done_ns == 132);
  hvdft_observer_close(observer);
}

}  // namespace

int main() {
  Side zero(0, 2, 2, 3), one(2, 1, 0, 2);
  memory(zero, one);

  Side zero_traced(0, 2, 2, 3), one_traced(2, 1, 0, 2);
  single_ops(zero_traced, one_traced);
  return 0;
}
