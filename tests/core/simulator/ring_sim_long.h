// As many runs as the time allows: every pair of crash points of small rings, then random cases.
#ifndef HVD_FT_TESTS_RING_SIM_LONG_H
#define HVD_FT_TESTS_RING_SIM_LONG_H

#include <chrono>
#include <cstdio>
#include <set>

#include "ring_sim_runs.h"

namespace ring_sim {

class LongRuns {
 public:
  LongRuns(double minutes, uint64_t seed)
      : began_(Clock::now()), seconds_(minutes * 60), seed_(seed) {}

  // Returns whether all was well.
  bool run() {
    for (uint64_t members = 2; members <= 5; ++members) pairs(members);
    while (!over()) runs_.must_be_well(random_case(seed_++));
    say("random runs");
    return runs_.failures() == 0;
  }

 private:
  using Clock = std::chrono::steady_clock;

  double elapsed() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }
  bool over() {
    if (elapsed() >= said_ + 5) say("  …");
    return elapsed() >= seconds_ || runs_.failures() >= 10;
  }

  void say(const char* what) {
    said_ = elapsed();
    std::printf("%5.0f s  %s: %lu cases, %lu faults, %lu not well\n", said_, what, runs_.cases(),
                runs_.struck(), runs_.failures());
    std::fflush(stdout);
  }

  // Those of the larger rings may take half of the time, for each ring; then they are sampled.
  void pairs(uint64_t members) {
    Case made;
    made.members = members;
    made.seed = seed_;
    made.ops = {{false, 4 * members + 1}, {false, 3, true}};
    double until = elapsed() + (seconds_ - elapsed()) / 2;
    bool cut = false;
    runs_.at_each_point(made, false, 0, [&](const Case& one) {
      if ((cut = cut || over() || elapsed() > until)) return;
      runs_.at_each_point(one, false, one.faults[0].before, [&](const Case& two) {
        if (!over() && an_arena_is_left(two)) runs_.must_be_well(two);
      });
    });
    std::string what = "pairs of crash points, rings of " + std::to_string(members);
    say((what + (cut ? ", cut short" : ", all")).c_str());
  }

  // A pair of losses may be that of a whole ring of two.
  static bool an_arena_is_left(const Case& made) {
    std::set<int> lost;
    for (const Fault& fault : made.faults) {
      if (fault.loses) lost.insert(fault.member);
    }
    return lost.size() < made.members;
  }

  static Case random_case(uint64_t seed) {
    Random random(seed ^ 0x51ed);
    Case made;
    made.seed = seed;
    made.members = 2 + random.below(random.below(4) == 0 ? 15 : 7);
    made.ops.resize(1 + random.below(5));
    for (SimOp& op : made.ops) {
      op = {random.below(2) == 1, random.below(random.below(4) == 0 ? 400 : 60),
            random.below(2) == 1};
    }
    made.faults.resize(random.below(7));
    int64_t at = 0;
    for (Fault& fault : made.faults) {
      at += static_cast<int64_t>(random.below(random.below(3) == 0 ? 20 : 800));
      fault.before = at;
      fault.kills = random.below(6) > 0;
      if (random.below(8) > 0) fault.member = static_cast<int>(random.below(made.members));
      // One is never lost, so that some arena is left.
      fault.loses = fault.kills && fault.member > 0 && random.below(3) == 0;
      fault.arrives = static_cast<Fault::Arrives>(random.below(3));
      fault.late = random.below(2) == 1;
    }
    return made;
  }

  const Clock::time_point began_;
  const double seconds_;
  uint64_t seed_;
  double said_ = 0;
  Runs runs_;
};

}  // namespace ring_sim

#endif  // HVD_FT_TESTS_RING_SIM_LONG_H
