// A job whose workers, log writer and viewers are threads of one process, over one mapping of its
// arena: so a thread sanitizer sees what processes do to each other.
#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

#include "../op_rules.h"
#include "../fresh_directory.h"
#include "../small_script.h"
#include "hvd_ft_logs.h"
#include "one_mapping.h"

namespace {

constexpr int kRanks = 3;
constexpr uint64_t kOps = 60, kWindow = hvdft::kNodeWindowBytes;
constexpr uint64_t kMessages = 200;

void become(int rank) {
  static std::mutex mutex;  // of the environment
  std::lock_guard<std::mutex> guard(mutex);
  setenv("HOROVOD_RANK", std::to_string(rank).c_str(), 1);
  CHECK(hvdft_worker_open() == HVDFT_OK);
}

void send_around(int rank) {
  int to = (rank + 1) % kRanks, from = (rank + kRanks - 1) % kRanks;
  for (uint64_t n = 0; n < kMessages; ++n) {
    CHECK(hvdft_worker_send(to, 0, "uint64", &n, sizeof n) >= 0);
    hvdft_message next;
    uint64_t got = 0;
    CHECK(hvdft_worker_await_message(from, 0, 60000, &next) == HVDFT_OK);
    CHECK(hvdft_worker_take_message(from, &next, &got) == HVDFT_OK && got == n);
  }
}

void work(int rank) {
  become(rank);
  send_around(rank);
  Script script;
  script.ops = kOps;
  CHECK(script.run() == 0);
}

void look(const char* dir, const std::atomic<bool>& end) {
  hvdft_observer* observer = hvdft_observer_open(dir);
  CHECK(observer != nullptr);
  for (uint64_t before = 0; !end.load();) {
    uint64_t length = hvdft_observer_log_length(observer);
    CHECK(length >= before &&
          hvdft_observer_used_bytes(observer) <= hvdft_observer_limit_bytes(observer));
    before = length;
    std::this_thread::yield();
  }
  hvdft_observer_close(observer);
}

}  // namespace

int main() {
  std::string dir = fresh_directory();
  setenv("HOROVOD_FT_DIR", dir.c_str(), 1);
  setenv("HOROVOD_FT_JOB", "threads", 1);
  setenv("HOROVOD_FT_INCARNATION", "0", 1);
  constexpr uint64_t limit = 64 << 20;
  CHECK(hvdft_create_node(dir.c_str(), "threads", kRanks, 1, 0, 0, kRanks, limit, kWindow) ==
        HVDFT_OK);
  for (int r = 0; r < kRanks; ++r) {
    CHECK(hvdft_create_rank(dir.c_str(), "threads", r, limit, kWindow) == HVDFT_OK);
  }
  std::vector<hvdft_agent*> agents;
  for (int r = 0; r < kRanks; ++r) {
    agents.push_back(hvdft_agent_open(dir.c_str(), "threads", r, 0));
    CHECK(agents.back() != nullptr);
    hvdft_agent_start(agents.back(), &kOpRules);
  }
  std::atomic<bool> end{false};
  std::thread viewer(look, dir.c_str(), std::cref(end));
  std::vector<std::thread> workers;
  for (int r = 0; r < kRanks; ++r) workers.emplace_back(work, r);
  for (std::thread& worker : workers) worker.join();
  end = true;
  viewer.join();
  for (hvdft_agent* agent : agents) hvdft_agent_done(agent, 0);
  for (hvdft_agent* agent : agents) hvdft_agent_close(agent);
  remove_directory(dir);
}
