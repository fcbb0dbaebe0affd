// A worker without a framework: see hvd_ft_sums.h. It uses the worker's C ABI like a framework.
#include "hvd_ft_sums.h"

#include <string>

#include "hvd_ft_snapshots.h"

namespace {

constexpr int kWaitMs = 10000;

// Of the op that comes next. Announcements do not name it, as in Horovod, so they are counted.
struct {
  uint64_t op, term;
  bool announced;
  int counted;
} negotiation = {0, UINT64_MAX, false, 0};

int announce(uint64_t bytes) {
  auto& at = negotiation;
  const int ranks = hvdft_worker_size();
  if (hvdft_worker_rank() != 0) {
    if (at.announced) return HVDFT_OK;
    int code = hvdft_worker_announce(at.term, "g", 1);
    at.announced = code == HVDFT_OK;
    return code == HVDFT_AGAIN ? HVDFT_OK : code;
  }
  const void* blob;
  if (!at.announced) ++at.counted;
  at.announced = true;
  for (int rank = 1; rank < ranks; ++rank) {
    while (hvdft_worker_take(rank, at.term, &blob) == 1) ++at.counted;
  }
  if (at.counted < ranks) return HVDFT_OK;
  at.counted = 0;
  std::string name = "sum " + std::to_string(at.op);
  hvdft_op op{};
  op.kind = HVDFT_REDUCE;
  op.dtype = HVDFT_FLOAT32;
  op.result_bytes = bytes;
  op.response = "";
  op.signature = name.c_str();
  return hvdft_worker_propose(at.term, &op, 1);
}

// Waits until the log has the next op.
int agree(uint64_t bytes) {
  auto& at = negotiation;
  for (;;) {
    uint32_t ticket = hvdft_worker_ticket();
    uint64_t term = hvdft_worker_term();  // before the log: see hvd_ft.h
    if (hvdft_worker_log_length() > at.op) return HVDFT_OK;
    int code = HVDFT_OK;
    if (!hvdft_worker_entered()) {
      code = hvdft_worker_enter(at.op);
    } else {
      hvdft_worker_caught_up();
      if (term != at.term) at = {at.op, term, false, 0};
      code = announce(bytes);
    }
    if (code == HVDFT_OK) code = hvdft_worker_wait(ticket, kWaitMs);
    if (code < 0) return code;
  }
}

void give(void* array, uint64_t from, uint64_t bytes, void* to) {
  __builtin_memcpy(to, static_cast<char*>(array) + from, bytes);
}

void take(void* array, uint64_t from, uint64_t bytes, const void* result) {
  __builtin_memcpy(static_cast<char*>(array) + from, result, bytes);
}

}  // namespace

int hvdft_sums_open(void) {
  uint64_t begin;
  int code = hvdft_worker_open();
  return code < 0 ? code : hvdft_worker_loop_begin(0, &begin);
}

int hvdft_sums_sum(float* array, uint64_t bytes) {
  hvdft_worker_pend(1);
  int code = agree(bytes);
  hvdft_copies copies{give, take, array};
  if (code >= 0) code = hvdft_worker_begin(negotiation.op, &copies);
  if (code < 0) return code;
  for (;;) {
    uint32_t ticket = hvdft_worker_ticket();
    code = hvdft_worker_advance();
    if (code == 1) break;
    if (code == HVDFT_AGAIN) code = hvdft_worker_wait(ticket, kWaitMs);
    if (code < 0) return code;
  }
  hvdft_worker_pend(-1);
  negotiation.announced = false;
  return hvdft_worker_executed(negotiation.op++);
}

int hvdft_sums_cut(void) {
  void* room;
  uint64_t position = hvdft_worker_cursor();
  hvdft_snapshot snapshot{position, position, 8, 0, 0};
  int code = hvdft_worker_snapshot_begin(0, position, position);
  if (code == HVDFT_OK) code = hvdft_worker_snapshot_room(0, 8, &room);
  return code < 0 ? code : hvdft_worker_snapshot_deliver(0, &snapshot);
}
