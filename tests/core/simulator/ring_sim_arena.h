// What outlives a member's process in the simulator, unless its node is lost.
#ifndef HVD_FT_TESTS_RING_SIM_ARENA_H
#define HVD_FT_TESTS_RING_SIM_ARENA_H

#include <algorithm>
#include <string>
#include <vector>

#include "protocol/pair_log.h"
#include "protocol/ring_plan.h"

namespace ring_sim {

constexpr uint64_t kSegmentBytes = 64;
constexpr char kUnused = '\xa5';  // must not be read

struct Arena {
  using Plans = std::vector<hvdft::RingPlan>;  // of all ops

  explicit Arena(const Plans& plans) : inputs(plans.size()) {
    for (const hvdft::RingPlan& plan : plans) {
      input.emplace_back(plan.bytes(), kUnused);
      result.emplace_back(plan.bytes(), kUnused);
      slots.emplace_back(plan.gathered() ? plan.gather().bytes() : 0, kUnused);
    }
  }

  // All that a new node takes from another at first: the log, with its results.
  void copy(const Arena& from, const Plans& plans) {
    begun = std::max(from.begun, uint64_t{1});
    taken = from.taken;
    result = from.result;
    inputs_used = slots_used = from.log.received.at().op;
    for (uint64_t op = 0; op < inputs_used; ++op) inputs[op] = plans[op].inputs();
    log.received.publish({inputs_used, 0});
  }
  void take_result(uint64_t op, const Arena& from, const hvdft::RingPlan& plan) {
    result[op] = op < from.taken.size() ? from.taken[op] : from.result[op];
    inputs[op] = plan.inputs();
  }

  bool lost = false;
  uint64_t done_over = 0;  // the latest op that was to be done over, + 1
  hvdft::PairLog log;
  uint64_t begun = 0;            // ops
  uint64_t inputs_used = 0;      // ops whose inputs' memory is used for something else now, …
  uint64_t slots_used = 0;       // … and whose slots' is
  std::vector<uint64_t> inputs;  // given, of each op, in the order in which they are wanted
  std::vector<std::string> input, result;
  std::vector<std::string> slots;  // of gathered ops; the first one is the own input
  std::vector<std::string> taken;  // results whose memory is used for something else now
};

}  // namespace ring_sim

#endif  // HVD_FT_TESTS_RING_SIM_ARENA_H
