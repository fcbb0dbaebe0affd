// The worker's side of the C ABI: attaching, waiting, negotiation, the log, published state, views.
#include "worker/worker.h"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>

#include "arena/memory.h"
#include "arena/records.h"
#include "arena/rosters.h"
#include "base/doorbell.h"
#include "base/error.h"
#include "base/failpoint.h"

using hvdft::fail;
using hvdft::failpoint;
using hvdft::the_worker;
using hvdft::Worker;

namespace hvdft {

namespace {
HVDFT_PER_WORKER std::atomic<Worker*> attached{nullptr};
std::mutex attaching;

int environment_number(const char* name, int* value) {
  const char* text = std::getenv(name);
  char* end = nullptr;
  long number = text ? std::strtol(text, &end, 10) : -1;
  if (number < 0 || number > INT32_MAX || end == text || *end != '\0') {
    return fail(HVDFT_EINVAL,
                "%s=%s is not set as an agent sets it; start the script with "
                "'hvdft run'",
                name, text ? text : "");
  }
  *value = static_cast<int>(number);
  return HVDFT_OK;
}
}  // namespace

Worker* the_worker() { return attached.load(std::memory_order_acquire); }

Worker::Worker(std::unique_ptr<Arenas> of_node, int rank, uint32_t incarnation)
    : rank(rank),
      incarnation(incarnation),
      arenas(std::move(of_node)),
      node(&arenas->node()),
      file(&arenas->file(rank)),
      state(*node, rank, incarnation),
      log(node->rank(rank), incarnation, state),
      negotiation(*node, rank, incarnation, log),
      messages(*node, rank) {
  schedule.across = node->several();
}

}  // namespace hvdft

int hvdft_worker_open(void) {
  std::lock_guard<std::mutex> guard(hvdft::attaching);
  if (the_worker() != nullptr) return HVDFT_OK;
  const char* dir = std::getenv("HOROVOD_FT_DIR");
  const char* job = std::getenv("HOROVOD_FT_JOB");
  if (dir == nullptr || job == nullptr) {
    return fail(HVDFT_EINVAL,
                "HOROVOD_FT_DIR and HOROVOD_FT_JOB are not set: there is no agent; "
                "start the script with 'hvdft run'");
  }
  int rank = 0, incarnation = 0;
  if (hvdft::environment_number("HOROVOD_RANK", &rank) != HVDFT_OK ||
      hvdft::environment_number("HOROVOD_FT_INCARNATION", &incarnation) != HVDFT_OK) {
    return HVDFT_EINVAL;
  }
  auto arenas = hvdft::Arenas::open(dir, job, hvdft::Node::kWorker, rank);
  if (!arenas) return HVDFT_EINVAL;
  auto& node = arenas->node();
  if (!node.is_local(rank)) {
    return fail(HVDFT_EINVAL,
                "HOROVOD_RANK=%d, but this node has ranks %d to %d; start the script "
                "with 'hvdft run'",
                rank, node.first_local(), node.end_local() - 1);
  }
  auto worker =
      std::make_unique<Worker>(std::move(arenas), rank, static_cast<uint32_t>(incarnation));
  hvdft::settle_claims(worker->block());
  worker->block().loop_changes.fetch_add(1);  // an earlier one may have died before it did
  worker->state.set(incarnation == 0 ? HVDFT_STARTING : HVDFT_REPLAYING);
  hvdft::set_failpoint_step(worker->block().step.load());  // where the dead one was
  worker->state.event(HVDFT_EV_ATTACHED, node.header().log_length.load());
  if (worker->views.open(node) != HVDFT_OK) return HVDFT_ESYS;
  hvdft::attached.store(worker.release(), std::memory_order_release);
  auto after_fork = [] { the_worker()->views.after_fork(); };
  pthread_atfork([] { the_worker()->views.before_fork(); }, after_fork, after_fork);
  return HVDFT_OK;
}

int hvdft_worker_rank(void) { return the_worker()->rank; }
int hvdft_worker_size(void) { return the_worker()->node->size(); }

int hvdft_worker_nodes(void) { return static_cast<int>(the_worker()->node->file().nodes); }
int hvdft_worker_incarnation(void) { return static_cast<int>(the_worker()->incarnation); }

uint32_t hvdft_worker_ticket(void) { return the_worker()->block().worker_doorbell.load(); }

int hvdft_worker_wait(uint32_t ticket, int timeout_ms) {
  Worker& w = *the_worker();
  if (w.block().pending.load() > 0) {
    hvdft::stop_for_ended_peer(w);
    w.state.about_to_wait(w.state.collectives());
  }
  if (w.stopped()) return HVDFT_ESTOPPED;
  if (!w.begun.empty()) failpoint(HVDFT_AT_WAIT, w.begun.front().record->id);
  return w.state.sleep(ticket, timeout_ms);
}

int hvdft_worker_waits(void) { return the_worker()->block().state.load() == HVDFT_WAITING; }

void hvdft_worker_notify(void) { the_worker()->node->notify_worker(the_worker()->rank); }

// ---------------------------------------------------------------- negotiation

uint64_t hvdft_worker_term(void) { return the_worker()->negotiation.term(); }
int hvdft_worker_entered(void) { return the_worker()->negotiation.entered(); }

int hvdft_worker_enter(uint64_t log_length) {
  the_worker()->negotiation.enter(log_length);
  return HVDFT_OK;
}

int hvdft_worker_announce(uint64_t term, const void* blob, uint64_t bytes) {
  return the_worker()->negotiation.announce(term, blob, bytes);
}

int64_t hvdft_worker_take(int rank, uint64_t term, const void** blob) {
  return the_worker()->negotiation.take(rank, term, blob);
}

int hvdft_worker_propose(uint64_t term, const hvdft_op* ops, int count) {
  auto& negotiation = the_worker()->negotiation;
  for (;;) {
    uint32_t ticket = hvdft_worker_ticket();
    if (negotiation.may_propose()) return negotiation.propose(term, ops, count);
    if (hvdft_worker_wait(ticket, -1) < 0) return HVDFT_ESTOPPED;
  }
}

// ---------------------------------------------------------------- the log

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
  if (int code = hvdft::check_record(*w.node, *record); code != HVDFT_OK) return code;
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

int hvdft_worker_note(uint32_t kind, uint64_t number, hvdft_record* out) {
  uint64_t entry = the_worker()->node->note(kind, number);
  return entry == 0 ? HVDFT_AGAIN : hvdft_worker_record(entry - 1, out);
}

int hvdft_worker_executed(uint64_t id) {
  Worker& w = *the_worker();
  const hvdft::Record* record = w.node->record(id);
  if (record != nullptr && record->op.kind != HVDFT_COPY) {
    w.result_bytes.fetch_add(record->op.result_bytes);
  }
  if (w.block().pending.load() == 0) hvdft::end_round(w);
  w.log.executed(id, record != nullptr && record->op.common != 0);
  return HVDFT_OK;
}

int hvdft_worker_may_pass(uint64_t id) { return the_worker()->log.may_pass(id); }

int hvdft_worker_passed(uint64_t id) {
  the_worker()->log.passed(id);
  return HVDFT_OK;
}

// ---------------------------------------------------------------- what it tells

void hvdft_worker_pend(int64_t tensors) {
  Worker& w = *the_worker();
  if (tensors > 0) w.times.pended(hvdft::now_ns());
  w.block().pending.fetch_add(tensors);
}
uint64_t hvdft_worker_pending(void) {
  return static_cast<uint64_t>(the_worker()->block().pending.load());
}

void hvdft_worker_set_step(uint64_t step) {
  Worker& w = *the_worker();
  uint64_t all = w.result_bytes.load(), bytes = all - w.bytes_before_step;
  w.bytes_before_step = all;
  w.loop_step_bytes = std::max(w.loop_step_bytes, bytes);
  if (bytes > w.block().step_bytes.load()) w.block().step_bytes.store(bytes);
  w.block().step.store(step);
  hvdft::set_failpoint_step(step);
}

uint64_t hvdft_worker_step_bytes(void) { return the_worker()->loop_step_bytes; }

void hvdft_worker_memory(hvdft_memory* out) { *out = hvdft::memory_now(*the_worker()->node); }

void hvdft_worker_orderly_exit(void) {
  Worker& w = *the_worker();
  w.block().orderly_exit.store(w.incarnation + 1);
}

void hvdft_worker_fatal(const char* message) {
  Worker& w = *the_worker();
  w.node->stop(w.rank, 1, message);
}

int hvdft_worker_stop_code(void) {
  const hvdft::StopText* why = the_worker()->node->stopped();
  return why != nullptr ? why->code : -1;
}

uint64_t hvdft_worker_event_count(void) { return the_worker()->node->header().event_count.load(); }

int hvdft_worker_events(uint64_t from, hvdft_event* out, int capacity) {
  return the_worker()->node->events().read(from, out, capacity);
}

int hvdft_worker_wait_event(uint64_t seen, int timeout_ms) {
  auto& h = the_worker()->node->header();
  uint32_t ticket = h.event_doorbell.load();
  if (h.event_count.load() <= seen) hvdft::wait_doorbell(h.event_doorbell, ticket, timeout_ms);
  return h.event_count.load() > seen;
}

// ---------------------------------------------------------------- views of results

// A replaying rank copies, as the log may be truncated at a snapshot of an earlier incarnation.
const void* hvdft_worker_view(uint64_t id, const void* result, uint64_t bytes) {
  Worker& w = *the_worker();
  if (!w.log.caught_up()) return nullptr;
  return w.views.view(id, static_cast<const char*>(result), bytes);
}

void hvdft_worker_view_release(const void* view) { the_worker()->views.release(view); }

void hvdft_worker_before_detach(void (*release_unused)(void)) {
  the_worker()->views.before_detach(release_unused);
}

void hvdft_worker_log(hvdft_log* out) {
  auto& h = the_worker()->node->header();
  out->bytes = h.log_bytes.load();
  out->bytes_room = h.log_room.load();
  uint64_t decided_before =
      h.truncated.load() + h.kept.load();  // before the length, which only grows
  out->ops = h.log_length.load() - decided_before;
  out->ops_room = hvdft::kIndexEntries;
}
