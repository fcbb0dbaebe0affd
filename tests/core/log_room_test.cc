// The log's room as workers see it: ops that are kept for ever do not count, truncated ones are
// free again. One agent and one worker, in one process.
#include <stdlib.h>
#include <time.h>

#include <functional>
#include <string>

#include "op_rules.h"
#include "base/doorbell.h"
#include "check.h"
#include "fresh_directory.h"
#include "hvd_ft.h"
#include "run_op.h"
#include "take_snapshot.h"

namespace {

constexpr uint64_t kMiB = 1 << 20;

void await(const std::function<bool()>& met) {
  uint64_t end = hvdft::now_ns() + 10000000000u;
  while (!met()) {
    CHECK(hvdft::now_ns() < end);
    timespec pause{0, 100000};
    nanosleep(&pause, nullptr);
  }
}

hvdft_log log_now() {
  hvdft_log log;
  hvdft_worker_log(&log);
  return log;
}

// `count` ops with a result of 1 MiB each.
void execute(int count) {
  for (int i = 0; i < count; ++i) {
    hvdft_op op{};
    op.kind = HVDFT_NONE;
    op.result_bytes = kMiB;
    op.response = "";
    op.signature = "op";
    CHECK(hvdft_worker_propose(hvdft_worker_term(), &op, 1) == HVDFT_OK);
    uint64_t id = hvdft_worker_cursor();
    for (;;) {
      uint32_t ticket = hvdft_worker_ticket();
      if (hvdft_worker_log_length() > id) break;
      hvdft_worker_wait(ticket, 10000);
    }
    run_op(id, hvdft_copies{});
  }
}

void publish_snapshot() {
  uint64_t content = 0;
  take_snapshot(hvdft_worker_cursor(), &content, sizeof content);
}

void run(const char* dir) {
  CHECK(hvdft_create_node(dir, "room-test", 1, 1, 0, 0, 1, 64 * kMiB, kMiB) == HVDFT_OK);
  CHECK(hvdft_create_rank(dir, "room-test", 0, 64 * kMiB, kMiB) == HVDFT_OK);
  hvdft_agent* agent = hvdft_agent_open(dir, "room-test", 0, 0);
  CHECK(agent != nullptr && hvdft_agent_start(agent, &kOpRules) == HVDFT_OK);
  setenv("HOROVOD_FT_DIR", dir, 1);
  setenv("HOROVOD_FT_JOB", "room-test", 1);
  setenv("HOROVOD_RANK", "0", 1);
  setenv("HOROVOD_FT_INCARNATION", "0", 1);
  CHECK(hvdft_worker_open() == HVDFT_OK);
  hvdft_worker_enter(0);
  await([] { return hvdft_worker_entered() == 1; });

  execute(3);
  await([] { return log_now().bytes >= 3 * kMiB; });
  uint64_t begin;
  CHECK(hvdft_worker_loop_begin(0, &begin) == HVDFT_OK);
  await([] { return log_now().bytes == 0 && log_now().ops == 0; });  // outside of loops: kept
  hvdft_log empty = log_now();
  CHECK(empty.bytes_room < 61 * kMiB);

  execute(10);
  await([] { return log_now().bytes >= 10 * kMiB; });
  CHECK(log_now().bytes < 11 * kMiB);
  CHECK(log_now().ops == 10);
  publish_snapshot();
  await([] { return log_now().bytes == 0 && log_now().ops == 0; });
  CHECK(log_now().bytes_room <= empty.bytes_room);  // the snapshot has taken a page
  CHECK(log_now().bytes_room + kMiB > empty.bytes_room);
  hvdft_agent_close(agent);
}

}  // namespace

int main() {
  std::string dir = fresh_directory();
  run(dir.c_str());
  remove_directory(dir);
}
