// The core with real processes that run a small script and are killed at random moments, as often
// as it is said. The parent holds the agents and kills.
//
//   kill_test RANKS OPS KILLS SEED     (the parent)
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "op_rules.h"
#include "base/doorbell.h"
#include "fresh_directory.h"
#include "hvd_ft_logs.h"
#include "small_script.h"

extern char** environ;

namespace {

struct Job {
  std::string dir, program, ops;
  int size;
  std::vector<hvdft_agent*> agents;
  std::vector<pid_t> workers;
  std::vector<int> incarnations;

  void start(int rank) {
    setenv("HOROVOD_FT_DIR", dir.c_str(), 1);
    setenv("HOROVOD_FT_JOB", "kill-test", 1);
    setenv("HOROVOD_RANK", std::to_string(rank).c_str(), 1);
    setenv("HOROVOD_FT_INCARNATION", std::to_string(incarnations[rank]).c_str(), 1);
    const char* arguments[] = {program.c_str(), "worker", ops.c_str(), nullptr};
    CHECK(posix_spawn(&workers[rank], program.c_str(), nullptr, nullptr,
                      const_cast<char**>(arguments), environ) == 0);
    hvdft_agent_started(agents[rank], incarnations[rank], static_cast<uint64_t>(workers[rank]));
  }

  // Reaps whoever died: 0 if it ended by itself, else it is started again.
  void attend(int rank, int status) {
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
      hvdft_agent_failed(agents[rank], status);
      ++incarnations[rank];
      start(rank);
      return;
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    hvdft_agent_done(agents[rank], status);
    workers[rank] = 0;
  }
};

int parent(const char* program, int size, const char* ops, uint64_t wanted, unsigned seed) {
  std::string dir = fresh_directory();
  const char* name = dir.c_str();
  Job job{dir, program, ops, size, {}, std::vector<pid_t>(size), std::vector<int>(size)};
  uint64_t limit = 64 << 20, window = hvdft::kLeastNodeWindow << size % 3 * 2;
  CHECK(hvdft_create_node(name, "kill-test", size, 1, 0, 0, size, limit, window) == HVDFT_OK);
  for (int r = 0; r < size; ++r) {
    CHECK(hvdft_create_rank(name, "kill-test", r, limit, window) == HVDFT_OK);
  }
  for (int r = 0; r < size; ++r) {
    job.agents.push_back(hvdft_agent_open(name, "kill-test", r, 0));
    CHECK(job.agents.back() != nullptr);
    hvdft_agent_start(job.agents.back(), &kOpRules);
  }
  for (int r = 0; r < size; ++r) job.start(r);

  std::mt19937 random(seed);
  hvdft_observer* observer = hvdft_observer_open(name);
  constexpr uint64_t kHangNs = 60000000000u;
  uint64_t kills = 0, length = 0, alarm = hvdft::now_ns() + kHangNs;
  auto running = [&] {
    return std::any_of(job.workers.begin(), job.workers.end(), [](pid_t pid) { return pid > 0; });
  };
  while (running()) {
    timespec pause{0, static_cast<long>(random() % 4000000)};
    nanosleep(&pause, nullptr);
    pid_t victim = job.workers[random() % static_cast<unsigned>(size)];
    if (kills < wanted && victim > 0 && kill(victim, SIGKILL) == 0) ++kills;
    uint64_t before = length;
    bool progress = (length = hvdft_observer_log_length(observer)) > before;
    for (int r = 0; r < size; ++r) {
      int status;
      if (job.workers[r] > 0 && waitpid(job.workers[r], &status, WNOHANG) > 0) {
        job.attend(r, status);
        progress = true;
      }
    }
    if (progress) alarm = hvdft::now_ns() + kHangNs;
    CHECK(hvdft::now_ns() < alarm);  // a hang
  }
  std::printf("%d ranks, %lu ops, %lu kills, 0 bad sums, 0 hangs; %lu of %lu records left\n", size,
              hvdft_observer_log_length(observer), kills, hvdft_observer_log_records(observer),
              hvdft_observer_log_length(observer));
  CHECK(hvdft_observer_log_records(observer) <= kPrologue + 2 * kSnapshotOps);
  hvdft_observer_close(observer);
  for (hvdft_agent* agent : job.agents) hvdft_agent_close(agent);
  remove_directory(job.dir);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "worker") {
    Script script;
    script.ops = std::stoull(argv[2]);
    return script.run();
  }
  CHECK(argc == 5);
  return parent(argv[0], std::stoi(argv[1]), argv[2], std::stoull(argv[3]),
                static_cast<unsigned>(std::stoul(argv[4])));
}
