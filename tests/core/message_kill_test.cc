// Messages between real processes that are killed at random moments, thousands of times.
//
// Each worker sends to its successor and receives from its predecessor: a prologue, then a training
// loop with snapshots. What it carries from step to step is mixed from all it has received, so a
// message that is lost, doubled or changed shows; and there is less room than all messages take.
//
//   message_kill_test [RANKS STEPS KILLS SEED]
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/doorbell.h"
#include "check.h"
#include "fresh_directory.h"
#include "hvd_ft_logs.h"
#include "take_snapshot.h"

namespace {

constexpr uint64_t kPrologue = 3, kSnapshotSteps = 5;
constexpr uint64_t kLimit = 24 << 20, kWindow = 1 << 20;

struct Carried {
  uint64_t step, state;
};

struct Run {
  int ranks;
  uint64_t steps;
  uint64_t* results;  // of each rank, shared
};

uint64_t mixed(uint64_t state, uint64_t more) { return state * 6364136223846793005u + more; }
uint64_t first_state(int rank) { return mixed(1, static_cast<uint64_t>(rank)); }

// Some messages are empty, some take many pages.
uint64_t words(uint64_t step, int tag) {
  return tag == 0 ? step % 7 * 40 : step % 5 == 0 ? 4000 : 1;
}

std::vector<uint64_t> message(uint64_t state, uint64_t step, int tag) {
  std::vector<uint64_t> data(words(step, tag));
  for (uint64_t i = 0; i < data.size(); ++i) data[i] = mixed(state + step, i);
  return data;
}

uint64_t received(uint64_t state, const std::vector<uint64_t>& data) {
  for (uint64_t word : data) state = mixed(state, word);
  return mixed(state, data.size());
}

void send(int dest, uint64_t state, uint64_t step, int tag) {
  std::vector<uint64_t> data = message(state, step, tag);
  int code = hvdft_worker_send(dest, tag, "uint64 []", data.data(), data.size() * sizeof data[0]);
  if (code < 0) std::fprintf(stderr, "%s\n", hvdft_error());
  CHECK(code >= 0);
}

uint64_t receive(int source, uint64_t state, int tag) {
  hvdft_message next;
  int code = hvdft_worker_await_message(source, tag, 30000, &next);
  if (code != HVDFT_OK) std::fprintf(stderr, "%d: %s\n", code, hvdft_error());
  CHECK(code == HVDFT_OK);
  std::vector<uint64_t> data(next.bytes / sizeof(uint64_t));
  CHECK(hvdft_worker_take_message(source, &next, data.data()) == HVDFT_OK);
  return received(state, data);
}

// Tags are asked for in another order than they are sent in.
uint64_t one_step(const Run& run, int rank, uint64_t state, uint64_t step) {
  int to = (rank + 1) % run.ranks, from = (rank + run.ranks - 1) % run.ranks;
  send(to, state, step, 0);
  send(to, state, step, 1);
  state = receive(from, state, 1);
  return receive(from, state, 0);
}

void snapshot_of(const Carried& carried) { take_snapshot(carried.step, &carried, sizeof carried); }

void work(const Run& run, int rank) {
  CHECK(hvdft_worker_open() == HVDFT_OK);
  Carried now{0, first_state(rank)};
  for (; now.step < kPrologue; ++now.step) now.state = one_step(run, rank, now.state, now.step);
  uint64_t begin;
  hvdft_snapshot snapshot;
  CHECK(hvdft_worker_loop_begin(0, &begin) == HVDFT_OK);
  const void* data;
  if (hvdft_worker_snapshot_get(0, &data, &snapshot) == 1) {
    std::memcpy(&now, data, sizeof now);
    CHECK(hvdft_worker_jump(0) == HVDFT_OK);
  }
  while (now.step < run.steps) {
    now.state = one_step(run, rank, now.state, now.step);
    ++now.step;
    if (now.step % kSnapshotSteps == static_cast<uint64_t>(rank) % kSnapshotSteps) snapshot_of(now);
  }
  run.results[rank] = now.state;
}

std::vector<uint64_t> undisturbed(const Run& run) {
  std::vector<uint64_t> states;
  for (int r = 0; r < run.ranks; ++r) states.push_back(first_state(r));
  for (uint64_t step = 0; step < run.steps; ++step) {
    std::vector<uint64_t> before = states;
    for (size_t r = 0; r < states.size(); ++r) {
      uint64_t from = before[(r + states.size() - 1) % states.size()];
      for (int tag : {1, 0}) states[r] = received(states[r], message(from, step, tag));
    }
  }
  return states;
}

struct Parent {
  Run run;
  std::string dir = fresh_directory();
  std::vector<hvdft_agent*> agents{};
  std::vector<pid_t> pids{};
  std::vector<int> incarnations{};

  void start(int rank) {
    auto at = static_cast<size_t>(rank);
    pids[at] = fork();
    if (pids[at] == 0) {
      setenv("HOROVOD_RANK", std::to_string(rank).c_str(), 1);
      setenv("HOROVOD_FT_INCARNATION", std::to_string(incarnations[at]).c_str(), 1);
      work(run, rank);
      _exit(0);
    }
    hvdft_agent_started(agents[at], incarnations[at], static_cast<uint64_t>(pids[at]));
  }

  // Reaps processes that have ended; restarts killed ones. Returns how many are alive.
  int reap() {
    int alive = 0;
    for (int r = 0; r < run.ranks; ++r) {
      auto at = static_cast<size_t>(r);
      int status;
      if (pids[at] != 0 && waitpid(pids[at], &status, WNOHANG) == pids[at]) {
        pids[at] = 0;
        if (WIFEXITED(status)) {
          CHECK(WEXITSTATUS(status) == 0);
          hvdft_agent_done(agents[at], status);
        } else {
          hvdft_agent_failed(agents[at], status);
          ++incarnations[at];
          start(r);
        }
      }
      alive += pids[at] != 0;
    }
    return alive;
  }
};

}  // namespace

int main(int argc, char** argv) {
  int ranks = argc > 1 ? std::atoi(argv[1]) : 3;
  uint64_t steps = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 3000;
  int kills = argc > 3 ? std::atoi(argv[3]) : 400;
  std::mt19937 random(argc > 4 ? std::strtoul(argv[4], nullptr, 10) : 1);
  size_t bytes = sizeof(uint64_t) * static_cast<size_t>(ranks);
  void* shared = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Parent parent{{ranks, steps, static_cast<uint64_t*>(shared)}};
  const char* dir = parent.dir.c_str();
  setenv("HOROVOD_FT_DIR", dir, 1);
  setenv("HOROVOD_FT_JOB", "messages", 1);
  CHECK(hvdft_create_node(dir, "messages", ranks, 1, 0, 0, ranks, kLimit, kWindow) == HVDFT_OK);
  for (int r = 0; r < ranks; ++r) {
    CHECK(hvdft_create_rank(dir, "messages", r, kLimit, kWindow) == HVDFT_OK);
  }
  for (int r = 0; r < ranks; ++r) {
    parent.agents.push_back(hvdft_agent_open(dir, "messages", r, 0));
    CHECK(parent.agents.back() != nullptr);
  }
  parent.pids.resize(static_cast<size_t>(ranks));
  parent.incarnations.resize(static_cast<size_t>(ranks));
  for (int r = 0; r < ranks; ++r) parent.start(r);
  int killed = 0;
  while (parent.reap() > 0) {
    usleep(static_cast<useconds_t>(random() % 4000));  // to strike at any moment
    pid_t victim = parent.pids[random() % parent.pids.size()];
    if (killed < kills && victim != 0 && kill(victim, SIGKILL) == 0) ++killed;
  }
  std::vector<uint64_t> expected = undisturbed(parent.run);
  for (size_t r = 0; r < expected.size(); ++r) CHECK(parent.run.results[r] == expected[r]);
  hvdft_observer* observer = hvdft_observer_open(dir);
  std::printf("%d kills, %lu of %lu KiB in use at the end\n", killed,
              hvdft_observer_used_bytes(observer) >> 10,
              hvdft_observer_limit_bytes(observer) >> 10);
  hvdft_observer_close(observer);
  for (hvdft_agent* agent : parent.agents) hvdft_agent_close(agent);
  remove_directory(parent.dir);
}
