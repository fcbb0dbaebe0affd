// A job's whole life in small: each of its workers is killed at every store it ever does, from when
// it attaches to its end, and comes back; all sums and all that workers carry are right.
// An argument makes it every fifth store.
#include <cstdio>

#include "../op_rules.h"
#include "../small_script.h"
#include "steps.h"

namespace {

using hvdft::Node;

constexpr int kRanks = 2;
constexpr uint64_t kOps =
    3 * kTogether;  // the prologue's, the loop's, and more behind its snapshot

void work(const Job& job, int rank, int incarnation) {
  job.become(rank, incarnation);
  Script script;
  script.ops = kOps;
  script.snapshot_ops = kTogether;
  CHECK(script.run() == 0);
}

int ends_told(const Node& node) {
  hvdft_event events[2 * kRanks];
  int told = 0, count = node.report().read(0, events, 2 * kRanks);
  for (int i = 0; i < count; ++i) told += events[i].type == HVDFT_EV_DONE;
  return told;
}

// The last worker ends. Who sees at any time that all are done finds the events of all, and who
// waits for an event is woken afterwards.
void the_end_is_told() {
  Job job(kRanks);
  const Node& node = *job.node;
  hvdft_agent* agents[kRanks];
  for (int r = 0; r < kRanks; ++r) {
    agents[r] = hvdft_agent_open(job.dir.c_str(), "steps", r, 0);
    CHECK(agents[r] != nullptr);
  }
  hvdft_agent_done(agents[0], 0);
  bool over = false;
  uint32_t ticket = 0;
  watched([&] { hvdft_agent_done(agents[1], 0); },
          [&] {
            if (over || hvdft_agent_wait(agents[0], UINT64_MAX, 0) != 2) return;
            over = true;
            ticket = node.header().event_doorbell.load();
            CHECK(ends_told(node) == kRanks);
          });
  CHECK(over && node.header().event_doorbell.load() != ticket);
  for (hvdft_agent* agent : agents) hvdft_agent_close(agent);
}

bool survives_a_kill(int victim, uint64_t at) {
  Job job(kRanks);
  hvdft_agent* agents[kRanks];
  pid_t pids[kRanks];
  for (int r = 0; r < kRanks; ++r) {
    agents[r] = hvdft_agent_open(job.dir.c_str(), "steps", r, 0);
    CHECK(agents[r] != nullptr);
  }
  // Before the log writer has a thread: it is not in a child.
  for (int r = 0; r < kRanks; ++r) {
    pids[r] = start_mortal(r == victim ? at : kNever, [&] { work(job, r, 0); });
    hvdft_agent_started(agents[r], 0, static_cast<uint64_t>(pids[r]));
  }
  for (hvdft_agent* agent : agents) hvdft_agent_start(agent, &kOpRules);
  bool killed = was_killed(pids[victim]);
  if (killed) {
    hvdft_agent_failed(agents[victim], SIGKILL);
    pids[victim] = start_mortal(kNever, [&] { work(job, victim, 1); });
    hvdft_agent_started(agents[victim], 1, static_cast<uint64_t>(pids[victim]));
    CHECK(!was_killed(pids[victim]));
  }
  CHECK(!was_killed(pids[1 - victim]));
  for (int r = 0; r < kRanks; ++r) hvdft_agent_done(agents[r], 0);
  for (hvdft_agent* agent : agents) hvdft_agent_close(agent);
  return killed;
}

}  // namespace

int main(int argc, char**) {
  uint64_t stride = argc > 1 ? 5 : 1;
  the_end_is_told();
  for (int victim = 0; victim < kRanks; ++victim) {
    uint64_t steps = 0;
    while (survives_a_kill(victim, steps)) steps += stride;
    std::printf("rank %d: %lu stores, killed at each that %lu divides\n", victim, steps, stride);
    CHECK(steps > 100);
  }
}
