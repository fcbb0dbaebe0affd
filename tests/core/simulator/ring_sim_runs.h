// Many runs: of one case, at every crash point, at pairs of them, and at random.
#ifndef HVD_FT_TESTS_RING_SIM_RUNS_H
#define HVD_FT_TESTS_RING_SIM_RUNS_H

#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "ring_sim_world.h"

namespace ring_sim {

struct Outcome {
  std::string violation;  // empty: all is well
  uint64_t actions = 0, struck = 0;
  bool well() const { return violation.empty(); }
  // One word: well, or how not.
  std::string word() const { return well() ? "well" : violation.substr(0, violation.find(':')); }
};

class Runs {
 public:
  uint64_t cases() const { return cases_; }
  uint64_t failures() const { return failures_; }
  uint64_t struck() const { return struck_; }

  // Failing cases are printed and counted, unless they are expected.
  Outcome run(const Case& made, bool trace = false) {
    Outcome outcome;
    World world(made, &reference(made), trace);
    try {
      world.run();
    } catch (const Violation& violation) {
      outcome.violation = violation.what();
    }
    outcome.actions = world.actions();
    outcome.struck = world.struck();
    ++cases_;
    struck_ += outcome.struck;
    return outcome;
  }

  bool must_be_well(const Case& made) {
    Outcome outcome = run(made);
    if (outcome.well()) return true;
    if (++failures_ <= 10) {
      std::printf("%s\n  make sim REPLAY='%s'\n", outcome.violation.c_str(), text_of(made).c_str());
      std::fflush(stdout);
    }
    return false;
  }

  // Every crash point of a case: before each action each member dies, or is lost, or all die, or
  // one is falsely suspected; with `each_way` of arrival and of detection.
  template <typename Do>
  void at_each_point(const Case& made, bool each_way, int64_t first, Do what) {
    uint64_t actions = run(made).actions;
    Random random(made.seed);
    for (int64_t at = first; at <= static_cast<int64_t>(actions); ++at) {
      auto members = static_cast<int>(made.members);
      for (int who = -2; who < 2 * members; ++who) {
        Fault fault;
        fault.before = at;
        fault.kills = who != -2;
        fault.loses = who >= members;
        fault.member = fault.loses ? who - members : std::max(who, kEverybody);
        uint64_t only = random.below(6);
        for (uint64_t way = 0; way < 6; ++way) {
          if (!each_way && way != only) continue;
          if (!fault.kills && way % 3 != 0) continue;  // nothing is lost
          fault.arrives = static_cast<Fault::Arrives>(way % 3);
          fault.late = way / 3 == 1;
          Case next = made;
          next.faults.push_back(fault);
          what(next);
        }
      }
    }
  }

 private:
  // The results of an undisturbed run of the same ops, of another schedule, and none gathered: that
  // must not make a difference.
  const std::vector<std::string>& reference(const Case& made) {
    Case plain = made;
    plain.faults.clear();
    plain.protocol = Protocol::kPairLog;
    plain.seed = 0;
    for (SimOp& op : plain.ops) op.gathered = false;
    auto [at, is_new] = references_.try_emplace(text_of(plain));
    if (is_new) {
      World world(plain, nullptr);
      world.run();
      for (size_t op = 0; op < made.ops.size(); ++op) at->second.push_back(world.result(op));
    }
    return at->second;
  }

  std::map<std::string, std::vector<std::string>> references_;
  uint64_t cases_ = 0, failures_ = 0, struck_ = 0;
};

}  // namespace ring_sim

#endif  // HVD_FT_TESTS_RING_SIM_RUNS_H
