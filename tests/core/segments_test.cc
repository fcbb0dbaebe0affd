// Every interleaving of workers in two ops of a few segments, with a worker dying at every point:
// no slot of a window is overwritten before what lies there is reduced, everything is reduced out
// of the right inputs, nothing is taken before, and all comes to an end.
#include "segments.h"

#include <array>
#include <cstdio>
#include <set>
#include <tuple>
#include <vector>

#include "check.h"

using namespace hvdft;

namespace {

constexpr uint64_t kOps = 2;
constexpr uint64_t kMostSegments = 6;

struct World {
  uint64_t size, window;
  bool across;  // nodes: nothing of an op is final before all of it is reduced
  std::array<uint64_t, kOps> segments;

  uint64_t first(uint64_t op) const { return op == 0 ? 0 : segments[0]; }
  uint64_t end() const { return segments[0] + segments[1]; }
  uint64_t op_with(uint64_t number) const { return number < segments[0] ? 0 : 1; }
  uint64_t place_of(uint64_t number) const {
    return place(op_with(number), number - first(op_with(number)));
  }
};

// What a worker is at in reducing a segment.
enum class At { kNothing, kClaiming, kReducing, kMarking };

struct Rank {
  uint64_t contributed = 0;         // a place, as in shared memory; outlives the worker
  std::array<uint64_t, 3> slots{};  // the window: the segment whose input lies there, + 1
  // Of its worker.
  bool alive = true;
  Lane lane;
  uint64_t begun = 0;  // ops
  At at = At::kNothing;
  uint64_t number = 0, before = 0;  // what it is at, and the claim as it saw it

  auto key() const {
    return std::tie(contributed, slots, alive, lane.given, lane.looked, lane.freed, lane.taken,
                    lane.end, begun, at, number, before);
  }
  bool operator<(const Rank& other) const { return key() < other.key(); }
};

struct State {
  std::vector<Rank> ranks;
  std::array<uint64_t, 3> claims{};
  std::array<bool, kMostSegments> results{};
  int deaths = 1;  // that may still happen
  bool operator<(const State& o) const {
    return std::tie(deaths, claims, results, ranks) <
           std::tie(o.deaths, o.claims, o.results, o.ranks);
  }
};

Stage stage(const World& world, const State& state, uint64_t number) {
  return stage_of(number, state.claims[number % world.window], [&] {
    for (const Rank& rank : state.ranks) {
      if (rank.contributed <= world.place_of(number)) return false;
    }
    return true;
  });
}

void reduce(const World& world, State& state, uint64_t number) {
  for (Rank& rank : state.ranks) CHECK(rank.slots[number % world.window] == number + 1);
  state.results[number] = true;
}

void contribute(const World& world, State& state, Rank& mine, uint64_t number) {
  uint64_t& slot = mine.slots[number % world.window];
  if (slot != 0) CHECK(stage(world, state, slot - 1) == Stage::kReduced);
  slot = number + 1;
  uint64_t op = world.op_with(number);
  mine.contributed = place_after(op, number - world.first(op), world.segments[op]);
}

// The worker of rank `r` does its next step; false if it has to wait or is done.
bool worker_step(const World& world, State& state, uint64_t r) {
  Rank& mine = state.ranks[r];
  uint64_t& claim = state.claims[mine.number % world.window];
  switch (mine.at) {
    case At::kClaiming:
      if (claim == mine.before) {
        claim = claim_word(mine.number, static_cast<int>(r), false);
        mine.at = At::kReducing;
      } else {
        mine.at = At::kNothing;
      }
      return true;
    case At::kReducing:
      reduce(world, state, mine.number);
      mine.at = At::kMarking;
      return true;
    case At::kMarking:
      claim = claim_word(mine.number, static_cast<int>(r), true);
      mine.at = At::kNothing;
      return true;
    default:
      break;
  }
  Lane lane = mine.lane;
  auto stage_now = [&](uint64_t n) { return stage(world, state, n); };
  auto final = [&](uint64_t n) {
    if (!world.across) return stage_now(n) == Stage::kReduced;
    uint64_t op = world.op_with(n), end = world.first(op) + world.segments[op];
    for (uint64_t s = world.first(op); s < end; ++s) {
      if (stage_now(s) != Stage::kReduced) return false;
    }
    return true;
  };
  mine.lane.across = world.across;
  auto fits = [&](uint64_t from, uint64_t n) { return n < from + world.window; };
  Step step = mine.lane.next(stage_now, final, fits);
  if (step == Step::kContribute) {
    contribute(world, state, mine, mine.lane.given++);
  } else if (step == Step::kReduce) {
    mine.number = mine.lane.looked++;
    mine.before = state.claims[mine.number % world.window];
    // Another may have claimed it since this worker looked.
    if (claimed_end(mine.before) <= mine.number) mine.at = At::kClaiming;
  } else if (step == Step::kTake) {
    CHECK(state.results[mine.lane.taken]);
    ++mine.lane.taken;
  } else {
    return lane.looked != mine.lane.looked;
  }
  return true;
}

void begin(const World& world, Rank& mine) {
  uint64_t op = mine.begun++;
  mine.lane.begin(op, world.first(op), world.segments[op], mine.contributed);
}

// Its agent finds the worker dead: it does what that had claimed, then the next one starts.
void bury(const World& world, State& state, uint64_t r) {
  for (uint64_t& claim : state.claims) {
    if (!in_work(claim) || owner_of(claim) != static_cast<int>(r)) continue;
    uint64_t number = claimed_end(claim) - 1;
    reduce(world, state, number);
    claim = claim_word(number, static_cast<int>(r), true);
  }
  Rank next;
  next.contributed = state.ranks[r].contributed;
  next.slots = state.ranks[r].slots;
  state.ranks[r] = next;
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
      done = done && mine.alive && mine.begun == kOps && mine.lane.taken == world.end();
      State next = state;
      if (!mine.alive) {
        bury(world, next, r);
        moved = true, reach(next);
        continue;
      }
      if (worker_step(world, next, r)) moved = true, reach(next);
      if (mine.begun < kOps && mine.at == At::kNothing) {
        next = state;
        begin(world, next.ranks[r]);
        moved = true, reach(next);
      }
      if (state.deaths > 0) {
        next = state;
        --next.deaths;
        next.ranks[r].alive = false;
        reach(next);
      }
    }
    CHECK(moved || done);  // else it hangs
  }
  return seen.size();
}

}  // namespace

int main() {
  CHECK(place_after(7, 0, 1) == place(8, 0));
  CHECK(place_after(7, 3, 9) == place(7, 4));
  CHECK(segments_of(0) == 1 && segments_of(1) == 1);
  CHECK(segments_of(kSegmentBytes) == 1 && segments_of(kSegmentBytes + 1) == 2);
  CHECK(segment_range(1, kSegmentBytes + 5).bytes() == 5);
  uint64_t huge = uint64_t{3} << 40;  // counts beyond 2^31
  CHECK(op_of(place(1, segments_of(huge))) == 1);
  CHECK(segment_range(segments_of(huge) - 1, huge).to == huge);
  uint64_t at = 0;
  for (uint64_t bytes : {0, 64, 1 << 20, 4096, 128 << 10, 70000, 70000, 1, 200000, 0, 50000}) {
    uint64_t begin = input_begin(at, bytes), first = std::min(bytes, kSegmentBytes);
    CHECK(begin >= at && begin - at < kSegmentBytes);
    CHECK(first == 0 || begin / kSegmentBytes == (begin + first - 1) / kSegmentBytes);
    CHECK(bytes <= kSegmentBytes || begin % kSegmentBytes == 0);
    at = (begin + bytes + 63) / 64 * 64;
  }
  for (int owner : {0, 255}) {
    uint64_t word = claim_word(uint64_t{1} << 45, owner, false);
    CHECK(in_work(word) && owner_of(word) == owner && claimed_end(word) == (uint64_t{1} << 45) + 1);
  }
  size_t states = 0;
  for (uint64_t size : {1, 2, 3}) {
    for (uint64_t window : {1, 2, 3}) {
      uint64_t most = size == 3 ? 2 : size == 2 ? 4 : kMostSegments;
      for (uint64_t first = 1; first < most; ++first) {
        states += explore({size, window, false, {first, most - first}});
        if (size < 3) states += explore({size, window, true, {first, most - first}});
      }
    }
  }
  std::printf("%zu states, all well\n", states);
}
