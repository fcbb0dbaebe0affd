#include "worker/log_cursor.h"

#include "base/error.h"
#include "base/failpoint.h"
#include "worker/worker.h"

namespace hvdft {

void LogCursor::catch_up() {
  if (caught_up_.exchange(true)) return;
  state_.set(HVDFT_RUNNING);
  state_.event(HVDFT_EV_JOINED, replayed_.load());
}

void LogCursor::executed(uint64_t id) {
  state_.progressed();
  if (!caught_up()) {
    replayed_.fetch_add(1);
    if (incarnation_ > 0) failpoint(HVDFT_AT_REPLAY, id);
  }
  block_.executed.store(id + 1);
  failpoint(HVDFT_AT_EXECUTED, id);
  cursor_.store(id + 1);
  next_.store(id + 1);
}

void LogCursor::passed(uint64_t id) {
  state_.progressed();
  block_.executed.store(id + 1);
  next_.store(id + 1);
}

void LogCursor::jump(uint64_t position) {
  cursor_.store(position);
  // It may be ahead: then there were only ops of others since the snapshot.
  if (next() < position) passed(position - 1);
}

}  // namespace hvdft

using hvdft::fail;
using hvdft::the_worker;
using hvdft::Worker;

uint64_t hvdft_worker_log_length(void) {
  return the_worker()->node->header().log_length.load(std::memory_order_acquire);
}

uint64_t hvdft_worker_cursor(void) { return the_worker()->log.cursor(); }
uint64_t hvdft_worker_next(void) { return the_worker()->log.next(); }
void hvdft_worker_caught_up(void) { the_worker()->log.catch_up(); }

int hvdft_worker_record(uint64_t id, hvdft_record* out) {
  Worker& w = *the_worker();
  if (id >= hvdft_worker_log_length()) return HVDFT_AGAIN;
  const hvdft::Record* record = w.node->record(id);
  if (record == nullptr) {
    return fail(HVDFT_ETRUNCATED,
                "rank %d cannot be replayed: it asks for op %lu, which lies before its "
                "snapshot; a restarted script must reach its training loop (FaultTolerance, "
                "state.sync()) with the same collectives as before",
                w.rank, id);
  }
  const hvdft::OpHead& op = record->op;
  const char* tail = reinterpret_cast<const char*>(record + 1);
  uint64_t block_bytes = op.blocks * sizeof(uint64_t);
  out->id = id;
  out->kind = op.kind;
  out->dtype = op.dtype;
  out->reduce = op.reduce;
  out->root = op.root;
  out->result_bytes = op.result_bytes;
  out->block_bytes = op.blocks > 0 ? reinterpret_cast<const uint64_t*>(tail) : nullptr;
  out->result = w.node->heap() + record->result_offset;
  out->response = tail + block_bytes;
  out->response_bytes = op.response_bytes;
  out->signature = tail + block_bytes + op.response_bytes;
  out->viewed = static_cast<uint32_t>(op.viewed);
  return HVDFT_OK;
}

int hvdft_worker_executed(uint64_t id) {
  the_worker()->log.executed(id);
  return HVDFT_OK;
}

int hvdft_worker_passed(uint64_t id) {
  the_worker()->log.passed(id);
  return HVDFT_OK;
}
