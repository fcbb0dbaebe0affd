// Every interleaving of workers in two ops of a few segments, with a worker dying at every point,
// and its agent while it repeats the worker's claims: no slot of a window is overwritten before it
// is reduced, everything is reduced from the right inputs, nothing is taken earlier, and every run
// ends.
#include "protocol/segments.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <set>
#include <tuple>
#include <vector>

#include "check.h"
#include "stepwise.h"

using namespace hvdft;

namespace {

constexpr uint64_t kOps = 2;
constexpr uint64_t kMostSegments = 10, kMostSlots = 8;

struct World {
  uint64_t size, window, claims;
  bool across;  // nodes: nothing of an op is final before all of it is reduced
  std::array<uint64_t, kOps> segments;

  uint64_t first(uint64_t op) const { return op == 0 ? 0 : segments[0]; }
  uint64_t end() const { return segments[0] + segments[1]; }
  uint64_t op_with(uint64_t number) const { return number < segments[0] ? 0 : 1; }
  uint64_t position_of(uint64_t number) const {
    return position(op_with(number), number - first(op_with(number)));
  }
};

struct Rank {
  uint64_t contributed = 0;                  // a position, as in shared memory; outlives the worker
  std::array<uint64_t, kMostSlots> slots{};  // the window: the segment whose input lies there, + 1
  // Of its worker.
  bool alive = true;
  SegmentSchedule schedule;
  uint64_t begun = 0;     // ops
  bool claiming = false;  // it is at a segment:
  uint64_t number = 0;
  History history;  // so far; of its agent, if it is dead

  auto key() const {
    return std::tie(contributed, slots, alive, schedule.given, schedule.looked, schedule.freed,
                    schedule.taken, schedule.end, begun, claiming, number, history);
  }
  bool operator<(const Rank& other) const { return key() < other.key(); }
};

struct State {
  std::vector<Rank> ranks;
  std::array<uint64_t, kMostSlots> claims{};
  std::array<bool, kMostSegments> results{};
  int deaths = 1, agent_deaths = 1;  // that may still happen
  bool operator<(const State& o) const {
    return std::tie(deaths, agent_deaths, claims, results, ranks) <
           std::tie(o.deaths, o.agent_deaths, o.claims, o.results, o.ranks);
  }
};

Stage stage(const World& world, const State& state, uint64_t number) {
  return stage_of(number, state.claims[number % world.claims], [&] {
    for (const Rank& rank : state.ranks) {
      if (rank.contributed <= world.position_of(number)) return false;
    }
    return true;
  });
}

void reduce(const World& world, State& state, Stepwise& run, uint64_t number) {
  run.access([&] {
    for (Rank& rank : state.ranks) CHECK(rank.slots[number % world.window] == number + 1);
    state.results[number] = true;
    return 0;
  });
}

void contribute(const World& world, State& state, Rank& mine, uint64_t number) {
  uint64_t& slot = mine.slots[number % world.window];
  if (slot != 0) CHECK(stage(world, state, slot - 1) == Stage::kReduced);
  slot = number + 1;
  uint64_t op = world.op_with(number);
  mine.contributed = position_after(op, number - world.first(op), world.segments[op]);
}

// The worker of rank `r` does its next step; false if it has to wait or is done.
bool worker_step(const World& world, State& state, uint64_t r) {
  Rank& mine = state.ranks[r];
  if (mine.claiming) {
    mine.claiming = !Stepwise::step(&mine.history, [&](Stepwise& run) {
      SteppedWord word(run, &state.claims[mine.number % world.claims]);
      claim_and_reduce(word, mine.number, static_cast<int>(r),
                       [&](uint64_t n) { reduce(world, state, run, n); });
    });
    return true;
  }
  SegmentSchedule schedule = mine.schedule;
  auto stage_now = [&](uint64_t n) { return stage(world, state, n); };
  auto final = [&](uint64_t n) {
    if (!world.across) return stage_now(n) == Stage::kReduced;
    uint64_t op = world.op_with(n), end = world.first(op) + world.segments[op];
    for (uint64_t s = world.first(op); s < end; ++s) {
      if (stage_now(s) != Stage::kReduced) return false;
    }
    return true;
  };
  mine.schedule.across = world.across;
  auto fits = [&](uint64_t from, uint64_t n) {  // each segment has a byte
    return Window{world.claims, world.window}.fits(
        from, n, [](uint64_t first, uint64_t last) { return last + 1 - first; });
  };
  Step step = mine.schedule.next(stage_now, final, fits);
  if (step == Step::kContribute) {
    contribute(world, state, mine, mine.schedule.given++);
  } else if (step == Step::kReduce) {
    mine.number = mine.schedule.looked++;
    mine.claiming = true;
  } else if (step == Step::kTake) {
    CHECK(state.results[mine.schedule.taken]);
    ++mine.schedule.taken;
  } else {
    return schedule.looked != mine.schedule.looked;
  }
  return true;
}

void begin(const World& world, Rank& mine) {
  uint64_t op = mine.begun++;
  mine.schedule.begin(op, world.first(op), world.segments[op], mine.contributed);
}

// Its agent finds the worker dead: it does what that had claimed, then the next one starts. An
// agent that is killed meanwhile leaves that to another, which begins anew.
void take_over_dead(const World& world, State& state, uint64_t r) {
  Rank& dead = state.ranks[r];
  bool done = Stepwise::step(&dead.history, [&](Stepwise& run) {
    for (uint64_t at = 0; at < world.claims; ++at) {
      take_over(SteppedWord(run, &state.claims[at]), static_cast<int>(r),
                [&](uint64_t n) { reduce(world, state, run, n); });
    }
  });
  if (!done) return;
  Rank next;
  next.contributed = dead.contributed;
  next.slots = dead.slots;
  dead = next;
}

size_t explore(const World& world) {
  std::set<State> seen;
  State start;
  start.ranks.resize(world.size);
  std::vector<State> open{start};
  auto reach = [&](const State& state) {
    if (seen.insert(state).second) open.push_back(state);
  };
  while (!open.empty()) {
    State state = open.back();
    open.pop_back();
    bool moved = false, done = true;
    for (uint64_t r = 0; r < world.size; ++r) {
      const Rank& mine = state.ranks[r];
      done = done && mine.alive && mine.begun == kOps && mine.schedule.taken == world.end();
      State next = state;
      if (!mine.alive) {
        take_over_dead(world, next, r);
        moved = true, reach(next);
        if (state.agent_deaths > 0 && !mine.history.empty()) {
          next = state;
          --next.agent_deaths;
          next.ranks[r].history.clear();
          reach(next);
        }
        continue;
      }
      if (worker_step(world, next, r)) moved = true, reach(next);
      if (mine.begun < kOps && !mine.claiming) {
        next = state;
        begin(world, next.ranks[r]);
        moved = true, reach(next);
      }
      if (state.deaths > 0) {
        next = state;
        --next.deaths;
        next.ranks[r].alive = false;
        next.ranks[r].history.clear();
        reach(next);
      }
    }
    CHECK(moved || done);  // else it hangs
  }
  return seen.size();
}

// Numbers, and the bytes of them, with segments of this size.
void check_numbers(uint64_t s) {
  CHECK(segments_of(0, s) == 1 && segments_of(1, s) == 1);
  CHECK(segments_of(s, s) == 1 && segments_of(s + 1, s) == 2);
  CHECK(segment_range(1, s + 5, s).bytes() == 5);
  uint64_t huge = uint64_t{3} << 40;  // counts beyond 2^31
  CHECK(op_of(position(1, segments_of(huge, s))) == 1);
  CHECK(segment_range(segments_of(huge, s) - 1, huge, s).to == huge);
  for (uint64_t window = kLeastNodeWindow; window <= kMostNodeWindow; window *= 2) {
    CHECK(is_node_window(window));
    bool good = window / s >= 2 && window / s <= kClaims;
    CHECK(holds(window, s) == good && (!good || window % s == 0));
    CHECK(s != kNodeSegmentBytes || good);      // every window goes with the usual segments, ...
    CHECK(window != kNodeWindowBytes || good);  // ... and the usual one with all of these
  }
  uint64_t at = 0;
  for (uint64_t bytes : {0, 64, 1 << 20, 4096, 128 << 10, 70000, 70000, 1, 200000, 0, 50000}) {
    uint64_t begin = input_begin(at, bytes, s), first = std::min(bytes, s);
    CHECK(begin >= at && begin - at < s);
    CHECK(first == 0 || begin / s == (begin + first - 1) / s);
    CHECK(bytes <= s || begin % s == 0);
    at = (begin + bytes + 63) / 64 * 64;
  }
}

// A segment may become final between two looks at it: then the worker takes it, and its op is over.
void nothing_is_asked_of_an_op_that_is_over() {
  for (bool across : {false, true}) {
    SegmentSchedule schedule;
    schedule.across = across;
    schedule.begin(1, 0, 1, position(1, 0));
    auto fits = [](uint64_t, uint64_t) { return true; };
    bool done = false;
    auto open = [&](uint64_t n) {
      CHECK(!done || n > 0);
      return Stage::kOpen;
    };
    auto final = [](uint64_t n) { return n == 0; };
    CHECK(schedule.next(open, final, fits) == Step::kContribute);
    ++schedule.given;
    schedule.begin(2, 1, 1, position(1, 1));
    schedule.given = 2;  // both are contributed
    CHECK(schedule.next(open, final, fits) == Step::kTake);
    ++schedule.taken;
    done = true;  // and its record may be gone
    CHECK(schedule.next(open, final, fits) == Step::kWait);
  }
}

// A worker waits for other nodes once all that it has contributed is summed on its own.
void own_part_is_done_before_others_are_waited_for() {
  for (bool across : {false, true}) {
    SegmentSchedule schedule;
    schedule.across = across;
    schedule.begin(1, 0, 2, position(1, 0));
    Stage stages[] = {Stage::kReduced, Stage::kOpen};
    auto stage = [&](uint64_t n) { return stages[n]; };
    uint64_t finals = 0;
    auto final = [&](uint64_t n) { return n < finals; };
    auto fits = [](uint64_t, uint64_t) { return true; };
    auto waits = [&] { return schedule.waits_for_nodes(schedule.next(stage, final, fits)); };
    CHECK(!waits() && schedule.given == 0);
    schedule.given = 2;
    CHECK(!waits());  // a rank of this node is late
    stages[1] = Stage::kClaimed;
    CHECK(!waits());  // another one sums
    stages[1] = Stage::kReduced;
    CHECK(waits() == across);
    finals = 2;
    CHECK(!waits());  // it takes
    schedule.taken = 2;
    CHECK(!waits());  // nothing is under way
  }
}

}  // namespace

// An argument leaves out the larger worlds, for sanitizers.
int main(int argc, char**) {
  nothing_is_asked_of_an_op_that_is_over();
  own_part_is_done_before_others_are_waited_for();
  CHECK(position_after(7, 0, 1) == position(8, 0));
  CHECK(position_after(7, 3, 9) == position(7, 4));
  for (uint64_t s = kLeastNodeSegment; s <= kMostNodeSegment; s *= 2) check_numbers(s);
  for (int owner : {0, 255}) {
    uint64_t word = claim_word(uint64_t{1} << 45, owner, false);
    CHECK(in_work(word) && owner_of(word) == owner && claimed_end(word) == (uint64_t{1} << 45) + 1);
  }
  for (uint64_t bytes : {kLeastNodeWindow / 2, 3 * kLeastNodeWindow, 2 * kMostNodeWindow}) {
    CHECK(!is_node_window(bytes));
  }
  size_t states = 0;
  // Ranks, slots of the window, claims.
  using Case = std::tuple<uint64_t, uint64_t, uint64_t>;
  for (auto [size, window, claims] : {Case{1, 1, 1},
                                      {1, 2, 2},
                                      {1, 3, 3},
                                      {2, 1, 1},
                                      {2, 1, 2},
                                      {2, 2, 1},
                                      {2, 2, 2},
                                      {1, 8, 8},
                                      {2, 3, 3},
                                      {3, 1, 1},
                                      {3, 2, 2}}) {
    if (argc > 1 && size * window > 2 && size > 1) continue;
    uint64_t most = size == 3 ? 2 : size == 2 ? 4 : std::max<uint64_t>(6, window + 2);
    for (uint64_t first = 1; first < most; ++first) {
      size_t now = explore({size, window, claims, false, {first, most - first}});
      if (size < 3) now += explore({size, window, claims, true, {first, most - first}});
      states += now;
    }
  }
  std::printf("%zu states, all well\n", states);
}
