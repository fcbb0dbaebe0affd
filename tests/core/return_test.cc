// Every interleaving of ranks that go through two training loops and die, with a rank that has left
// and comes back at any moment: either all begin the roster with it at the same boundary of the
// first loop, also in a replay, and it does every op from there; or the loop ends before, the
// roster never begins, and the rank stays out. Nobody waits for ever.
#include <algorithm>
#include <cstdio>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "check.h"
#include "protocol/roster.h"
#include "protocol/sequencer.h"

using namespace hvdft;

namespace {

constexpr int kLoops = 2;
// The others' state is handed over by the first op of the roster.
enum Wants : char {
  kBoundary,
  kStep = 'a',
  kRoster = 'r',
  kHandOver = 'h',
  kDone = '-',
  kDoor = 'd',  // the rank that returns, where the loop begins
  kAway = 'w',
  kOut = 'o'
};

struct Place {
  uint64_t next = 0, step = 0, begun = 0;  // begun: at which step + 1 the roster was
  int loop = 0;
  Wants wants = kBoundary;
  auto key() const { return std::tuple(next, step, begun, loop, wants); }
};

struct Rank {
  Place now, snapshot;
  uint64_t common = 0;
  auto key() const { return std::tuple(now.key(), snapshot.key(), common); }
};

struct World {
  std::vector<Rank> ranks;  // the last one returns
  std::string log;
  uint64_t mark = 0, returns = kReturns, loops_done = 0;  // rank 0's
  int deaths = 0;
  auto key() const {
    std::vector<decltype(ranks[0].key())> keys;
    for (const Rank& rank : ranks) keys.push_back(rank.key());
    return std::tuple(keys, log, mark, returns, loops_done, deaths);
  }
};

class Explorer {
 public:
  Explorer(size_t ranks, uint64_t steps, int deaths) : steps_(steps) {
    World first;
    first.ranks.resize(ranks);
    first.ranks.back().now.wants = first.ranks.back().snapshot.wants = kAway;
    first.deaths = deaths;
    first.loops_done = loops_begun(0);
    add(first);
    while (!open_.empty()) {
      World world = open_.back();
      open_.pop_back();
      size_t before = moves_;
      for (char op : {kStep, kRoster, kHandOver}) agree(world, op);
      for (size_t r = 0; r + 1 < ranks; ++r) act(world, r);
      act_returning(world);
      announce(world);
      if (moves_ == before) check_end(world);
      for (size_t r = 0; r < ranks; ++r) die(world, r);
    }
    CHECK(back_ > 0 && out_ > 0);
    std::printf("%zu ranks, %lu steps: %zu states\n", ranks, steps, known_.size());
  }

 private:
  void add(const World& world) {
    ++moves_;
    if (known_.insert(world.key()).second) open_.push_back(world);
  }

  static bool is_last(const World& world, const Rank& rank) { return &rank == &world.ranks.back(); }
  static size_t roster_of(const World& world) { return world.log.find(kRoster); }

  void check_end(const World& world) {
    const Place& last = world.ranks.back().now;
    bool began = roster_of(world) != std::string::npos;
    ++(began ? back_ : out_);
    CHECK(last.wants == (began ? kDone : kOut));
    for (const Rank& rank : world.ranks) {
      if (is_last(world, rank) && !began) continue;
      CHECK(rank.now.wants == kDone && rank.now.begun == world.ranks[0].now.begun);
    }
  }

  static bool takes_part(const World& world, const Rank& rank, uint64_t at) {
    return !is_last(world, rank) || at > roster_of(world);  // npos: never
  }

  void agree(World world, char op) {
    for (const Rank& rank : world.ranks) {
      if (!takes_part(world, rank, world.log.size())) continue;
      if (rank.now.wants != op || rank.now.next != world.log.size()) return;
    }
    world.log += op;
    add(world);
  }

  void announce(World world) {
    if (world.mark != 0 || world.returns == kReturns) return;
    int loop = loop_waited_in(world.returns);
    if (is_past(world.loops_done, loop)) return;
    Sequencer sequencer(1, world.log.size(), 0);
    world.mark = pack_mark(sequencer.announce_roster(), loop);
    add(world);
  }

  void act(World world, size_t r) {
    Rank& rank = world.ranks[r];
    Place& now = rank.now;
    if (now.wants == kBoundary) return look(world, r);
    if (now.wants == kDone || now.next == world.log.size()) return;
    char op = world.log[now.next];
    if (op != now.wants) return;
    rank.common = ++now.next;
    if (op == kRoster) {
      CHECK(now.loop == 0);
      now.begun = now.step + 1;
      now.wants = kHandOver;
    } else if (op == kHandOver) {
      go_on(now);
      note_progress(world);
      rank.snapshot = now;
    } else {
      ++now.step;
      now.wants = kBoundary;
    }
    add(world);
  }

  void look(World world, size_t r) {
    Rank& rank = world.ranks[r];
    bool due = rank.now.begun == 0 && begins_roster(world.mark, rank.now.loop, rank.common);
    if (due) {
      rank.now.wants = kRoster;
    } else {
      go_on(rank.now);
    }
    note_progress(world);
    add(world);
  }

  static void note_progress(World& world) {
    const Place& first = world.ranks[0].now;
    if (first.loop == 0) return;
    world.loops_done = std::max(world.loops_done, loops_ended(first.loop - 1));
  }

  // After a boundary: the next step, or the next loop, or the end.
  void go_on(Place& now) const {
    now.wants = kStep;
    if (now.step < steps_) return;
    now.step = 0;
    ++now.loop;
    now.wants = now.loop == kLoops ? kDone : kStep;
  }

  void act_returning(World world) {
    Rank& rank = world.ranks.back();
    Place& now = rank.now;
    size_t roster = roster_of(world);
    if (now.wants == kAway) {
      now.wants = kDoor;
      if (world.returns != 0) world.returns = waits_in(0);
    } else if (now.wants == kDoor && roster != std::string::npos) {
      now = {roster + 1, step_of(world, roster), step_of(world, roster) + 1, 0, kHandOver};
      rank.common = 0;
      world.returns = 0;
    } else if (now.wants == kDoor && is_past(world.loops_done, 0)) {
      now.wants = kOut;
    } else if (now.wants != kDoor && now.wants != kOut) {
      return act(world, world.ranks.size() - 1);
    } else {
      return;
    }
    add(world);
  }

  static uint64_t step_of(const World& world, size_t roster) {
    uint64_t steps = 0;
    for (size_t at = 0; at < roster; ++at) steps += world.log[at] == kStep;
    return steps;
  }

  void die(World world, size_t r) {
    Rank& rank = world.ranks[r];
    if (world.deaths == 0) return;
    --world.deaths;
    rank.now = rank.snapshot;
    rank.common = 0;
    add(world);
  }

  const uint64_t steps_;
  size_t moves_ = 0, back_ = 0, out_ = 0;
  std::vector<World> open_;
  std::set<decltype(World{}.key())> known_;
};

void what_becomes_of_ranks() {
  CHECK(renewal(true, kReturns, true) == Renewal::kGoesOn);
  CHECK(renewal(true, 0, false) == Renewal::kGoesOn);
  CHECK(renewal(false, 0, false) == Renewal::kReturns);
  CHECK(renewal(false, waits_in(3), false) == Renewal::kReturns);
  CHECK(renewal(false, 0, true) == Renewal::kGoesOn);  // it may not have ended
  CHECK(renewal(false, kReturns, true) == Renewal::kStaysOut);
}

void where_a_rank_goes_on() {
  CHECK(returned_at(9, 4, 0, true) == 9 && returned_at(4, 4, 0, true) == 4);
  CHECK(returned_at(3, 4, 0, true) == 0);             // it was in an earlier loop
  CHECK(returned_at(9, 4, 0, false) == 9);            // it has to leave once more
  CHECK(returned_at(9, 4, waits_in(0), false) == 0);  // it has left since, and returns again
  CHECK(returned_at(9, 4, waits_in(0), true) == 9 && returned_at(0, 4, waits_in(0), true) == 0);
}

void words() {
  constexpr int last = (1 << 15) - 1;  // of arena/layout.h
  CHECK(loop_of_mark(pack_mark(7, last)) == last && pack_mark(7, last) >> 16 == 7);
  CHECK(loop_of_mark(pack_mark(7, -1)) == -1);
  CHECK(loop_waited_in(waits_in(63)) == 63 && waits_in(0) != kReturns);
  CHECK(!is_past(loops_begun(2), 2) && is_past(loops_ended(2), 2) && is_past(loops_begun(3), 2));
  CHECK(!is_past(loops_ended(1), 2));
  CHECK(latest_loop(0) == -1 && latest_loop(loops_begun(2)) == 2 &&
        latest_loop(loops_ended(2)) == 2);
  CHECK(may_return(loops_ended(2), loops_begun(2)) && !may_return(loops_ended(2), loops_ended(2)));
  CHECK(!may_return(loops_begun(2), loops_begun(2)) && !may_return(loops_ended(1), loops_begun(2)));
  CHECK(begins_roster(pack_mark(6, 1), 1, 6) && !begins_roster(pack_mark(6, 1), 2, 6));
  CHECK(!begins_roster(pack_mark(6, 1), 1, 5) && begins_roster(pack_mark(6, -1), 2, 6));
}

}  // namespace

int main() {
  words();
  where_a_rank_goes_on();
  what_becomes_of_ranks();
  Explorer(2, 2, 2);
  Explorer(3, 2, 1);
}
