// The core with real processes that are killed at random moments, thousands of times.
//
// Each worker runs a small script over the C ABI, in the manner of Horovod's ft backend: a
// prologue, a training loop with snapshots, then an end. The parent holds the agents and
// kills. Every result is checked by every worker: rank r contributes (op + 1) * 2^r to each
// element, so a contribution missing or taken twice shows.
//
//   kill_test RANKS OPS SECONDS SEED     (the parent)
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "bell.h"
#include "check.h"
#include "fresh_directory.h"
#include "hvd_ft.h"
#include "segments.h"

extern char** environ;

namespace {

constexpr uint64_t kTogether = 3;      // ops that are announced, agreed and under way at once
constexpr uint64_t kPrologue = 3;      // ops before the loop
constexpr uint64_t kSnapshotOps = 6;

// Some ops have one segment, some more than the window: kills strike between segments too.
uint64_t elements(uint64_t op) {
  constexpr uint64_t segment = hvdft::kSegmentBytes / sizeof(uint64_t);
  return op % 5 == 0 ? hvdft::kInputBytes / sizeof(uint64_t) + 2 * segment + 1 : op % 5 * segment / 3 + 1;
}

// One op under way, and whose it is.
struct Flight {
  uint64_t op;
  hvdft_record record;
  static void give(void* self, uint64_t, uint64_t bytes, void* to) {
    uint64_t value = (static_cast<Flight*>(self)->op + 1) << hvdft_worker_rank();
    auto* mine = static_cast<uint64_t*>(to);
    for (uint64_t i = 0; i < bytes / sizeof value; ++i) mine[i] = value;
  }
  static void take(void* self, uint64_t, uint64_t bytes, const void* from) {
    uint64_t expected =
        (static_cast<Flight*>(self)->op + 1) * ((1u << hvdft_worker_size()) - 1);
    auto* result = static_cast<const uint64_t*>(from);
    for (uint64_t i = 0; i < bytes / sizeof expected; ++i) CHECK(result[i] == expected);
  }
};

// What a worker carries from op to op: wrong after a bad replay.
uint64_t mixed(uint64_t state, uint64_t result) { return state * 6364136223846793005u + result; }

struct Script {
  uint64_t ops = 0, state = 0, next = 0;
  uint64_t term = 0, announced = 0;
  // Coordinator: ranks that announced the next ops. As in Horovod, whose tensors have the
  // same names in every step, an announcement does not tell which op it is for.
  int counted = 0;

  void follow_term(uint64_t now) {
    if (now == term) return;
    term = now;
    announced = 0;
    counted = 0;
  }

  void announce() {
    if (announced == next + 1) return;
    if (hvdft_worker_rank() == 0) {
      ++counted;
    } else {
      int code = hvdft_worker_announce(term, "g", 1);
      if (code == HVDFT_AGAIN) return;
      CHECK(code == HVDFT_OK);
    }
    announced = next + 1;
  }

  void coordinate() {
    for (int r = 1; r < hvdft_worker_size(); ++r) {
      const void* blob;
      while (hvdft_worker_take(r, term, &blob) == 1) ++counted;
    }
    if (counted < hvdft_worker_size()) return;
    CHECK(counted == hvdft_worker_size());
    counted = 0;
    hvdft_op ops[kTogether]{};
    std::string signatures[kTogether];
    for (uint64_t i = 0; i < kTogether; ++i) {
      hvdft_op& op = ops[i];
      op.kind = HVDFT_REDUCE;
      op.dtype = HVDFT_INT64;
      op.result_bytes = elements(next + i) * sizeof(int64_t);
      op.response = "";
      signatures[i] = "op " + std::to_string(next + i);
      op.signature = signatures[i].c_str();
    }
    CHECK(hvdft_worker_propose(term, ops, kTogether) == HVDFT_OK);
  }

  hvdft_record agreed(uint64_t id) {
    for (;;) {
      uint32_t ticket = hvdft_worker_ticket();
      uint64_t now = hvdft_worker_term();  // before the log: see hvd_ft.h
      hvdft_record record;
      int code = hvdft_worker_record(id, &record);
      if (code == HVDFT_OK) return record;
      CHECK(code == HVDFT_AGAIN);
      if (!hvdft_worker_joined()) {
        hvdft_worker_join(id);
      } else {
        hvdft_worker_caught_up();
        follow_term(now);
        announce();
        if (hvdft_worker_rank() == 0) coordinate();
      }
      hvdft_worker_wait(ticket, 10000);
    }
  }

  void step() {
    std::deque<Flight> flights;
    for (uint64_t op = next; op < next + kTogether; ++op) {
      flights.push_back({op, agreed(op)});
      CHECK("op " + std::to_string(op) == flights.back().record.signature);
      hvdft_copies copies{Flight::give, Flight::take, &flights.back()};
      CHECK(hvdft_worker_begin(op, &copies) == HVDFT_OK);
    }
    while (!flights.empty()) {
      uint32_t ticket = hvdft_worker_ticket();
      int code = hvdft_worker_advance();
      if (code == 1) {
        state = mixed(state, *static_cast<const uint64_t*>(flights.front().record.result));
        hvdft_worker_executed(next++);
        flights.pop_front();
        continue;
      }
      CHECK(code == HVDFT_AGAIN);
      hvdft_worker_wait(ticket, 10000);
    }
  }

  void snapshot() {
    void* room;
    uint64_t content[] = {next, state};
    CHECK(hvdft_worker_snapshot_room(0, sizeof content, &room) == HVDFT_OK);
    std::memcpy(room, content, sizeof content);
    CHECK(hvdft_worker_snapshot_publish(0, sizeof content, hvdft_worker_cursor()) == HVDFT_OK);
  }

  void restore() {
    const void* data;
    uint64_t bytes, position, content[2];
    if (hvdft_worker_snapshot_get(0, &data, &bytes, &position) != 1) return;
    CHECK(bytes == sizeof content);
    std::memcpy(content, data, sizeof content);
    next = content[0];
    state = content[1];
    CHECK(next == position);
    CHECK(hvdft_worker_jump(0) == HVDFT_OK);
  }

  int run() {
    if (hvdft_worker_open() != HVDFT_OK) {
      std::fprintf(stderr, "%s\n", hvdft_error());
      return 1;
    }
    while (next < kPrologue) step();
    uint64_t begin;
    CHECK(hvdft_worker_loop_begin(0, &begin) == HVDFT_OK);
    CHECK(begin == kPrologue);
    restore();
    while (next < ops) {
      step();
      if ((next - kPrologue) % kSnapshotOps == 0) snapshot();
    }
    uint64_t expected = 0;
    for (uint64_t op = 0; op < ops; ++op) {
      expected = mixed(expected, (op + 1) * ((1u << hvdft_worker_size()) - 1));
    }
    CHECK(state == expected);
    return 0;
  }
};

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

int parent(const char* program, int size, const char* ops, double seconds, unsigned seed) {
  std::string dir = fresh_directory();
  const char* name = dir.c_str();
  Job job{dir, program, ops, size, {}, std::vector<pid_t>(size), std::vector<int>(size)};
  uint64_t limit = 64 << 20;
  CHECK(hvdft_create_node(name, "kill-test", size, 1, 0, 0, size, limit) == HVDFT_OK);
  for (int r = 0; r < size; ++r) {
    CHECK(hvdft_create_rank(name, "kill-test", r, limit) == HVDFT_OK);
  }
  for (int r = 0; r < size; ++r) {
    job.agents.push_back(hvdft_agent_open(name, "kill-test", r, 0));
    CHECK(job.agents.back() != nullptr);
    hvdft_agent_start(job.agents.back());
  }
  for (int r = 0; r < size; ++r) job.start(r);

  std::mt19937 random(seed);
  uint64_t kills = 0, end = hvdft::now_ns() + static_cast<uint64_t>(seconds * 1e9);
  uint64_t alarm = end + 60000000000u, running = static_cast<uint64_t>(size);
  while (running > 0) {
    CHECK(hvdft::now_ns() < alarm);  // a hang
    if (hvdft::now_ns() < end) {
      timespec pause{0, static_cast<long>(random() % 4000000)};
      nanosleep(&pause, nullptr);
      pid_t victim = job.workers[random() % static_cast<unsigned>(size)];
      if (victim > 0 && kill(victim, SIGKILL) == 0) ++kills;
    }
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, hvdft::now_ns() < end ? WNOHANG : 0)) > 0) {
      for (int r = 0; r < size; ++r) {
        if (job.workers[r] == pid) job.attend(r, status);
      }
      running = 0;
      for (pid_t worker : job.workers) running += worker > 0;
      if (running == 0) break;
    }
  }
  hvdft_view* view = hvdft_view_open(name);
  std::printf("%d ranks, %lu ops, %lu kills, 0 bad sums, 0 hangs; %lu of %lu records left\n", size,
              hvdft_view_log_length(view), kills, hvdft_view_log_records(view),
              hvdft_view_log_length(view));
  CHECK(hvdft_view_log_records(view) <= kPrologue + 2 * kSnapshotOps);
  hvdft_view_close(view);
  for (hvdft_agent* agent : job.agents) hvdft_agent_close(agent);
  std::string remove = "rm -r " + job.dir;
  return std::system(remove.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "worker") {
    Script script;
    script.ops = std::stoull(argv[2]);
    return script.run();
  }
  CHECK(argc == 5);
  return parent(argv[0], std::stoi(argv[1]), argv[2], std::stod(argv[3]),
                static_cast<unsigned>(std::stoul(argv[4])));
}
