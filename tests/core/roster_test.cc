// Every interleaving of ranks that execute ops, of all and of some of them, come to step boundaries
// and die, with a roster that is announced at any moment: all begin it at the same boundary, also
// in a replay, the ranks that leave do no op behind it, and nobody waits for ever.
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

// A step is an op of the ranks from 1 on, and then one of all ranks.
enum Wants : char { kBoundary, kOfSome = 's', kOfAll = 'a', kRoster = 'r', kNothing = '-' };

struct Place {
  uint64_t next = 0, step = 0, begun = 0;  // begun: at which step + 1 the roster was
  Wants wants = kBoundary;
  auto key() const { return std::tuple(next, step, begun, wants); }
};

struct Rank {
  Place now, snapshot;
  uint64_t common = 0;
  auto key() const { return std::tuple(now.key(), snapshot.key(), common); }
};

struct World {
  std::vector<Rank> ranks;
  std::string log;
  uint64_t mark = 0;
  int deaths = 0, snapshots = 0;
  auto key() const {
    std::vector<decltype(ranks[0].key())> keys;
    for (const Rank& rank : ranks) keys.push_back(rank.key());
    return std::tuple(keys, log, mark, deaths, snapshots);
  }
};

class Explorer {
 public:
  // The last rank is the one that leaves.
  Explorer(size_t ranks, uint64_t steps, int deaths, int snapshots) : steps_(steps) {
    World first;
    first.ranks.resize(ranks);
    first.deaths = deaths;
    first.snapshots = snapshots;
    add(first);
    while (!open_.empty()) {
      World world = open_.back();
      open_.pop_back();
      size_t before = moves_;
      for (char op : {kOfSome, kOfAll, kRoster}) agree(world, op);
      for (size_t r = 0; r < ranks; ++r) act(world, r);
      if (moves_ == before) check_end(world);
      for (size_t r = 0; r < ranks; ++r) die(world, r);
      announce(world);
    }
    CHECK(ends_with_ > 0 && ends_without_ > 0);
    std::printf("%zu ranks, %lu steps: %zu states\n", ranks, steps, known_.size());
  }

 private:
  void add(const World& world) {
    ++moves_;
    if (known_.insert(world.key()).second) open_.push_back(world);
  }

  void check_end(const World& world) {
    uint64_t begun = world.ranks[0].now.begun;
    ++(begun > 0 ? ends_with_ : ends_without_);
    for (const Rank& rank : world.ranks) {
      bool left = begun > 0 && &rank == &world.ranks.back();
      CHECK(rank.now.begun == begun);
      CHECK(rank.now.step == (left ? begun - 1 : steps_));
    }
  }

  static bool takes_part(const World& world, size_t r, char op, uint64_t at) {
    size_t roster = world.log.find(kRoster);
    bool left = r + 1 == world.ranks.size() && roster != std::string::npos && at > roster;
    return !left && (op != kOfSome || r > 0);
  }

  // Whether the log has no more for it: only then it announces what it wants.
  static bool has_caught_up(const World& world, size_t r) {
    for (uint64_t at = world.ranks[r].now.next; at < world.log.size(); ++at) {
      if (takes_part(world, r, world.log[at], at)) return false;
    }
    return true;
  }

  void agree(World world, char op) {
    bool any = false;
    for (size_t r = 0; r < world.ranks.size(); ++r) {
      if (!takes_part(world, r, op, world.log.size())) continue;
      if (world.ranks[r].now.wants != op || !has_caught_up(world, r)) return;
      any = true;
    }
    if (!any) return;
    world.log += op;
    if (op == kRoster) CHECK(world.log.find(kRoster) + 1 == world.log.size());
    add(world);
  }

  void announce(World world) {
    if (world.mark != 0) return;
    Sequencer sequencer(1, world.log.size(), 0);
    world.mark = pack_mark(sequencer.announce_roster(), -1);
    add(world);
  }

  void act(World world, size_t r) {
    Rank& rank = world.ranks[r];
    Place& now = rank.now;
    if (now.wants == kBoundary) return look(world, r);
    if (now.wants == kNothing || now.next == world.log.size()) return;
    char op = world.log[now.next];
    if (takes_part(world, r, op, now.next)) {
      if (op != now.wants) return;  // in a replay its script may not have come to it
      if (op != kOfSome) rank.common = now.next + 1;
      if (op == kRoster) now.begun = now.step + 1;
      bool leaves = op == kRoster && r + 1 == world.ranks.size();
      if (op == kOfAll) ++now.step;
      now.wants = leaves ? kNothing : op == kOfAll ? kBoundary : op == kOfSome ? kOfAll : first(r);
      if (op == kRoster && now.step == steps_) now.wants = kNothing;
      ++now.next;
      if (op == kRoster && !leaves) rank.snapshot = now;
    } else {
      ++now.next;
    }
    add(world);
  }

  static Wants first(size_t r) { return r > 0 ? kOfSome : kOfAll; }

  void look(World world, size_t r) {
    Rank& rank = world.ranks[r];
    bool due = rank.now.begun == 0 && begins_roster(world.mark, 0, rank.common);
    rank.now.wants = due ? kRoster : rank.now.step == steps_ ? kNothing : first(r);
    add(world);
    if (due || world.snapshots == 0) return;
    --world.snapshots;
    rank.snapshot = rank.now;
    add(world);
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
  size_t moves_ = 0, ends_with_ = 0, ends_without_ = 0;
  std::vector<World> open_;
  std::set<decltype(World{}.key())> known_;
};

void one_roster_after_the_other() {
  Sequencer s(1, 5, 0);
  CHECK(s.announce_roster() == 6);  // at position 5, the log's end
  CHECK(s.announce_roster() == 0);
  CHECK(s.propose(1, 2));
  s.begin_roster();
  CHECK(s.term() == 2 && !s.propose(1, 1));  // what was announced before is void
  CHECK(s.announce_roster() == 8);
  Sequencer next(3, 9, 0, 0, true);  // after another sequencer, which has announced one
  CHECK(next.announce_roster() == 0);
}

void a_roster_counts_behind_its_op() {
  uint64_t mark = pack_mark(6, -1);
  CHECK(!begins_roster(0, 0, 9) && !begins_roster(mark, 0, 5) && begins_roster(mark, 0, 6));
  CHECK(!has_begun(0, 9) && !has_begun(8, 7) && has_begun(8, 8));
}

}  // namespace

int main() {
  one_roster_after_the_other();
  a_roster_counts_behind_its_op();
  Explorer(2, 3, 2, 1);
  Explorer(3, 2, 1, 1);
}
