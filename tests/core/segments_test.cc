// Every interleaving of workers and agents in two ops of a few segments, with a worker dying at
// every point: no slot of a window is overwritten before all slices of its segment are reduced,
// each slice is reduced once and out of the right inputs, and all comes to an end. A last segment
// may be so short that only some agents have a slice.
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

struct World {
  uint64_t size, window, last_slices;
  std::array<uint64_t, kOps> segments;

  uint64_t slices(uint64_t place) const {
    bool last = segment_of(place) + 1 == segments[op_of(place)];
    return last ? std::min(last_slices, size) : size;
  }
};

struct Rank {
  uint64_t contributed = 0;   // a place, as in shared memory; outlives the worker
  uint64_t op = 0, taken = 0; // of its worker
  uint64_t reduced = 0;       // of its agent
  std::array<uint64_t, 3> slots{};  // the window: the place whose input lies there, + 1
  auto key() const { return std::tie(contributed, op, taken, reduced, slots); }
  bool operator<(const Rank& other) const { return key() < other.key(); }
};

struct State {
  std::vector<Rank> ranks;
  int deaths = 1;  // that may still happen
  bool operator<(const State& o) const {
    return std::tie(deaths, ranks) < std::tie(o.deaths, o.ranks);
  }
};

// Agent `a` does its next segment or passes the op by; false if it has to wait.
bool agent_step(const World& world, State& state, uint64_t a) {
  Rank& mine = state.ranks[a];
  uint64_t at = mine.reduced;
  if (op_of(at) == kOps) return false;
  if (a < world.slices(at)) {
    for (Rank& rank : state.ranks) {
      if (rank.contributed <= at) return false;
    }
    for (Rank& rank : state.ranks) {
      CHECK(rank.slots[segment_of(at) % world.window] == at + 1);
    }
  }
  mine.reduced = next_place(at, world.segments[op_of(at)]);
  return true;
}

bool reduced(const World& world, const State& state, uint64_t at) {
  for (uint64_t a = 0; a < world.slices(at); ++a) {
    if (state.ranks[a].reduced <= at) return false;
  }
  return true;
}

// The worker of rank `r` does its next step; false if it has to wait or is done.
bool worker_step(const World& world, State& state, uint64_t r) {
  Rank& mine = state.ranks[r];
  if (mine.op == kOps) return false;
  uint64_t segments = world.segments[mine.op];
  uint64_t given = op_of(mine.contributed) > mine.op ? segments : segment_of(mine.contributed);
  auto complete = [&](uint64_t s) { return reduced(world, state, place(mine.op, s)); };
  switch (next_step(segments, given, mine.taken, complete, world.window)) {
    case Step::kContribute: {
      uint64_t& slot = mine.slots[given % world.window];
      if (slot != 0) {  // what lay there has been reduced
        CHECK(reduced(world, state, slot - 1));
      }
      slot = place(mine.op, given) + 1;
      mine.contributed = given + 1 < segments ? place(mine.op, given + 1) : place(mine.op + 1, 0);
      return true;
    }
    case Step::kTake:
      ++mine.taken;
      return true;
    case Step::kFinished:
      ++mine.op;
      mine.taken = 0;
      return true;
    default:
      return false;
  }
}

size_t explore(const World& world) {
  std::set<State> seen;
  std::vector<State> open{{std::vector<Rank>(world.size)}};
  auto reach = [&](const State& state) {
    if (seen.insert(state).second) open.push_back(state);
  };
  while (!open.empty()) {
    State state = open.back();
    open.pop_back();
    bool moved = false, done = true;
    for (uint64_t r = 0; r < world.size; ++r) {
      State next = state;
      if (agent_step(world, next, r)) moved = true, reach(next);
      next = state;
      if (worker_step(world, next, r)) moved = true, reach(next);
      done = done && state.ranks[r].op == kOps;
      if (state.deaths > 0) {  // the next incarnation begins with the first op
        next = state;
        --next.deaths;
        next.ranks[r].op = next.ranks[r].taken = 0;
        reach(next);
      }
    }
    CHECK(moved || done);  // else it hangs
  }
  return seen.size();
}

}  // namespace

int main() {
  CHECK(next_place(place(7, 0), 1) == place(8, 0));
  CHECK(next_place(place(7, 3), 9) == place(7, 4));
  for (uint64_t bytes : {uint64_t{0}, uint64_t{1}, 3 * kSliceBytes - 8, kSegmentBytes}) {
    for (uint64_t size : {1, 2, 5, 256}) {  // the slices are the segment, without a gap
      uint64_t at = 0;
      for (uint64_t a = 0; a < size; ++a) {
        Range slice = slice_range(bytes, a, size);
        CHECK(slice.from == at && slice.to >= at);
        CHECK((a < slices_of(bytes, size)) == (slice.to > at) || bytes == 0);
        at = slice.to;
      }
      CHECK(at == bytes);
    }
  }
  CHECK(segments_of(0) == 1 && segments_of(1) == 1);
  CHECK(segments_of(kSegmentBytes) == 1 && segments_of(kSegmentBytes + 1) == 2);
  CHECK(segment_range(1, kSegmentBytes + 5).bytes() == 5);
  uint64_t huge = uint64_t{3} << 40;  // counts beyond 2^31
  CHECK(op_of(place(1, segments_of(huge))) == 1);
  CHECK(segment_range(segments_of(huge) - 1, huge).to == huge);
  size_t states = 0;
  for (uint64_t size : {1, 2, 3}) {
    for (uint64_t window : {1, 2, 3}) {
      uint64_t most = size == 3 ? 3 : 6;
      for (uint64_t first = 1; first <= most; ++first) {
        for (uint64_t last_slices : {uint64_t{1}, size}) {
          states += explore({size, window, last_slices, {first, most - first + 1}});
        }
      }
    }
  }
  std::printf("%zu states, all well\n", states);
}
