// Every interleaving of ranks that ask for marks, execute ops, come to step boundaries, and die:
// all take their snapshots at the same boundaries, also in a replay.
#include <cstdio>
#include <set>
#include <tuple>
#include <vector>

#include "check.h"
#include "protocol/sequencer.h"

using namespace hvdft;

namespace {

constexpr uint64_t kStepOps = 2;

struct Rank {
  uint64_t cursor = 0, since = 0, request = 0;
  uint64_t taken = 0;       // a bit for each boundary
  bool at_boundary = true;  // it has not yet looked whether to take a snapshot here
  auto key() const { return std::tuple(cursor, since, request, taken, at_boundary); }
};

struct World {
  std::vector<Rank> ranks;
  uint64_t log_length = 0, mark = 0;
  int requests = 0, deaths = 0;
  auto key() const {
    std::vector<decltype(ranks[0].key())> keys;
    for (const Rank& rank : ranks) keys.push_back(rank.key());
    return std::tuple(keys, log_length, mark, requests, deaths);
  }
};

class Explorer {
 public:
  Explorer(size_t ranks, uint64_t steps, int requests, int deaths) : ops_(steps * kStepOps) {
    World first;
    first.ranks.resize(ranks);
    first.requests = requests;
    first.deaths = deaths;
    add(first);
    while (!open_.empty()) {
      World world = open_.back();
      open_.pop_back();
      size_t before = moves_;
      agree(world);
      answer(world);
      for (size_t r = 0; r < ranks; ++r) act(world, r);
      if (moves_ == before) check_end(world);
      for (size_t r = 0; r < ranks; ++r) die(world, r);
    }
    std::printf("%zu ranks, %lu steps: %zu states\n", ranks, steps, known_.size());
  }

 private:
  void add(const World& world) {
    ++moves_;
    if (known_.insert(world.key()).second) open_.push_back(world);
  }

  void check_end(const World& world) const {
    for (const Rank& rank : world.ranks) {
      CHECK(rank.cursor == ops_);
      CHECK(rank.taken == world.ranks[0].taken);
    }
  }

  // A step's ops are agreed on when all ranks have begun it.
  void agree(World world) {
    if (world.log_length == ops_) return;
    for (const Rank& rank : world.ranks) {
      uint64_t begin = world.log_length / kStepOps * kStepOps;
      if (rank.cursor < begin || (rank.cursor == begin && rank.at_boundary)) return;
    }
    ++world.log_length;
    add(world);
  }

  void answer(const World& before) {
    for (const Rank& rank : before.ranks) {
      Sequencer sequencer(1, before.log_length, 0, before.mark);
      if (rank.request == 0 || !sequencer.mark(rank.request - 1)) continue;
      World world = before;
      world.mark = sequencer.latest_mark();
      CHECK(world.mark > before.mark);
      add(world);
    }
  }

  void act(World world, size_t r) {
    Rank& rank = world.ranks[r];
    if (!rank.at_boundary) {
      if (rank.cursor == world.log_length) return;
      ++rank.cursor;
      rank.at_boundary = rank.cursor % kStepOps == 0;
      return add(world);
    }
    rank.at_boundary = false;
    if (passes_mark(world.mark, rank.since, rank.cursor)) {
      rank.taken |= 1 << (rank.cursor / kStepOps);
      rank.since = rank.cursor;
      return add(world);
    }
    add(world);
    if (world.requests == 0) return;
    --world.requests;
    rank.request = rank.cursor + 1;
    add(world);
  }

  void die(World world, size_t r) {
    if (world.deaths == 0) return;
    --world.deaths;
    Rank& rank = world.ranks[r];
    rank.cursor = rank.since;
    rank.at_boundary = rank.since == 0;
    add(world);
  }

  const uint64_t ops_;
  size_t moves_ = 0;
  std::vector<World> open_;
  std::set<decltype(World{}.key())> known_;
};

void a_rank_at_the_mark_has_not_passed_it() {
  Sequencer s(1, 5, 0);
  CHECK(s.latest_mark() == 0 && s.mark(3));
  CHECK(s.latest_mark() == 6);      // at position 5, the log's end
  CHECK(!s.mark(3) && !s.mark(5));  // those who ask at the same time mean the same
  CHECK(s.propose(1, 1) && s.mark(6) && s.latest_mark() == 7);
  CHECK(!passes_mark(6, 0, 5) && passes_mark(6, 0, 6));
  CHECK(passes_mark(6, 5, 6) && !passes_mark(6, 6, 7));
  CHECK(!passes_mark(0, 0, 9));
}

}  // namespace

int main() {
  a_rank_at_the_mark_has_not_passed_it();
  Explorer(2, 4, 3, 2);
  Explorer(3, 3, 2, 1);
}
