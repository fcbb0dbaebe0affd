// The worker's side of the C ABI: attaching, waiting, negotiation, the log.
#include "worker/worker.h"

#include <pthread.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/doorbell.h"
#include "base/error.h"
#include "base/failpoint.h"

using hvdft::fail;
using hvdft::failpoint;
using hvdft::RankBlock;
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
  if (number < 0 || number > INT32_MAX || *end != '\0') {
    return fail(HVDFT_EINVAL, "%s=%s is not set as an agent sets it; start the script with "
                "'hvdft run'", name, text ? text : "");
  }
  *value = static_cast<int>(number);
  return HVDFT_OK;
}
}  // namespace

Worker* the_worker() { return attached.load(std::memory_order_acquire); }

void Worker::set_state(uint32_t state) const {
  block().since_ns.store(now_ns());
  block().state.store(state, std::memory_order_release);
}

bool Worker::sleep(uint32_t ticket, int timeout_ms) {
  if (yield_for_doorbell(block().worker_doorbell, ticket)) return true;
  block().asleep.store(uint64_t{1} << 32 | ticket);
  bool notified = wait_doorbell(block().worker_doorbell, ticket, timeout_ms);
  block().asleep.store(0);
  return notified;
}

void Worker::about_to_wait() {
  stop_for_ended_peer();
  std::lock_guard<std::mutex> guard(watch_);
  if (blocked_since_ == 0) blocked_since_ = now_ns();
  if (waiting_ || block().state.load() != HVDFT_RUNNING) return;
  for (int r = 0; r < node->size(); ++r) {
    uint32_t state = node->rank(r).state.load(std::memory_order_acquire);
    if (state == HVDFT_RESTARTING || state == HVDFT_REPLAYING) {
      waiting_ = true;
      set_state(HVDFT_WAITING);
      return;
    }
  }
}

void Worker::caught_up_by_message() const {
  if (enter_request == 0 && !caught_up.load()) hvdft_worker_caught_up();
}

void Worker::progressed() {
  std::lock_guard<std::mutex> guard(watch_);
  if (waiting_) {
    event(HVDFT_EV_WAITED, now_ns() - blocked_since_);
    set_state(HVDFT_RUNNING);
  }
  waiting_ = false;
  blocked_since_ = 0;
}

}  // namespace hvdft

int hvdft_worker_open(void) {
  std::lock_guard<std::mutex> guard(hvdft::attaching);
  if (the_worker() != nullptr) return HVDFT_OK;
  const char* dir = std::getenv("HOROVOD_FT_DIR");
  const char* job = std::getenv("HOROVOD_FT_JOB");
  if (dir == nullptr || job == nullptr) {
    return fail(HVDFT_EINVAL, "HOROVOD_FT_DIR and HOROVOD_FT_JOB are not set: there is no agent; "
                "start the script with 'hvdft run'");
  }
  int rank = 0, incarnation = 0;
  if (hvdft::environment_number("HOROVOD_RANK", &rank) != HVDFT_OK ||
      hvdft::environment_number("HOROVOD_FT_INCARNATION", &incarnation) != HVDFT_OK) {
    return HVDFT_EINVAL;
  }
  auto worker = std::make_unique<Worker>();
  worker->rank = rank;
  worker->incarnation = static_cast<uint32_t>(incarnation);
  worker->arenas = hvdft::Arenas::open(dir, job, hvdft::Node::kWorker, rank);
  if (!worker->arenas) return HVDFT_EINVAL;
  worker->node = &worker->arenas->node();
  if (!worker->node->is_local(rank)) {
    return fail(HVDFT_EINVAL, "HOROVOD_RANK=%d, but this node has ranks %d to %d; start the script "
                "with 'hvdft run'", rank, worker->node->first_local(),
                worker->node->end_local() - 1);
  }
  worker->file = &worker->arenas->file(rank);
  worker->messages = std::make_unique<hvdft::Messages>(*worker->node, rank);
  worker->schedule.across = worker->node->several();
  worker->set_state(incarnation == 0 ? HVDFT_STARTING : HVDFT_REPLAYING);
  hvdft::set_failpoint_step(worker->block().step.load());  // where the dead one was
  worker->event(HVDFT_EV_ATTACHED, worker->node->header().log_length.load());
  if (worker->views.open(*worker->node) != HVDFT_OK) return HVDFT_ESYS;
  hvdft::attached.store(worker.release(), std::memory_order_release);
  auto after_fork = [] { the_worker()->views.after_fork(); };
  pthread_atfork([] { the_worker()->views.before_fork(); }, after_fork, after_fork);
  return HVDFT_OK;
}

int hvdft_worker_rank(void) { return the_worker()->rank; }
int hvdft_worker_size(void) { return the_worker()->node->size(); }

int hvdft_worker_nodes(void) {
  return static_cast<int>(the_worker()->node->header().file.nodes);
}
int hvdft_worker_incarnation(void) { return static_cast<int>(the_worker()->incarnation); }

uint32_t hvdft_worker_ticket(void) { return the_worker()->block().worker_doorbell.load(); }

int hvdft_worker_wait(uint32_t ticket, int timeout_ms) {
  Worker& w = *the_worker();
  if (w.block().pending.load() > 0) w.about_to_wait();
  if (w.stopped()) return HVDFT_ESTOPPED;
  if (!w.begun.empty()) failpoint(HVDFT_AT_WAIT, w.begun.front().record->id);
  return w.sleep(ticket, timeout_ms);
}

int hvdft_worker_waits(void) { return the_worker()->block().state.load() == HVDFT_WAITING; }

void hvdft_worker_notify(void) { the_worker()->node->notify_worker(the_worker()->rank); }

// ---------------------------------------------------------------- negotiation

uint64_t hvdft_worker_term(void) {
  return the_worker()->node->header().term.load(std::memory_order_acquire);
}

int hvdft_worker_entered(void) {
  Worker& w = *the_worker();
  return w.enter_request != 0 &&
         w.block().entered.load(std::memory_order_acquire) == w.enter_request;
}

int hvdft_worker_enter(uint64_t log_length) {
  Worker& w = *the_worker();
  w.enter_request = static_cast<uint64_t>(w.incarnation + 1) << 40 | log_length;
  if (w.block().enter_request.exchange(w.enter_request) != w.enter_request) {
    failpoint(HVDFT_AT_JOIN, w.cursor.load());
    w.node->notify_log_writer();
  }
  return HVDFT_OK;
}

void hvdft_worker_caught_up(void) {
  Worker& w = *the_worker();
  if (w.caught_up.exchange(true)) return;
  w.set_state(HVDFT_RUNNING);
  w.event(HVDFT_EV_JOINED, w.replayed.load());
}

int hvdft_worker_announce(uint64_t term, const void* blob, uint64_t bytes) {
  Worker& w = *the_worker();
  RankBlock& block = w.block();
  if (bytes > hvdft::kMailBytes) {
    return fail(HVDFT_EINVAL, "an announcement of %lu bytes is over the mailbox's %lu", bytes,
                hvdft::kMailBytes);
  }
  uint64_t sequence = block.mail_sequence.load();
  if (sequence % 2 == 1) {
    ++sequence;  // an earlier incarnation was killed while writing
  } else if (block.mail_taken.load() != sequence && block.mail_term.load() == term) {
    block.mail_awaited.store(1);  // and only then look again
    if (block.mail_taken.load() != sequence) return HVDFT_AGAIN;
  }
  block.mail_sequence.store(sequence + 1, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_release);
  block.mail_term.store(term, std::memory_order_relaxed);
  block.mail_bytes.store(bytes, std::memory_order_relaxed);
  hvdft::write_torn(w.node->mail(w.rank), static_cast<const char*>(blob), bytes);
  failpoint(HVDFT_AT_ANNOUNCE, w.cursor.load());
  block.mail_sequence.store(sequence + 2, std::memory_order_seq_cst);
  w.node->notify_worker(0);
  return HVDFT_OK;
}

int64_t hvdft_worker_take(int rank, uint64_t term, const void** blob) {
  static std::vector<char> copy;
  Worker& w = *the_worker();
  RankBlock& from = w.node->rank(rank);
  uint64_t sequence = from.mail_sequence.load(std::memory_order_seq_cst);
  if (sequence % 2 == 1 || from.mail_taken.load() == sequence) return HVDFT_AGAIN;
  uint64_t bytes = from.mail_bytes.load(std::memory_order_relaxed);
  if (from.mail_term.load(std::memory_order_relaxed) != term || bytes > hvdft::kMailBytes) {
    return HVDFT_AGAIN;
  }
  copy.resize(bytes);
  hvdft::copy_torn(copy.data(), w.node->mail(rank), bytes);
  // In a new term the owner may overwrite what was not taken: then this was no good copy.
  std::atomic_thread_fence(std::memory_order_acquire);
  if (from.mail_sequence.load(std::memory_order_seq_cst) != sequence) return HVDFT_AGAIN;
  from.mail_taken.store(sequence, std::memory_order_seq_cst);
  // An owner on another node sees what the mirror brings.
  if (from.mail_awaited.exchange(0) != 0 || !w.node->is_local(rank)) w.node->notify_worker(rank);
  *blob = copy.data();
  return static_cast<int64_t>(bytes);
}

int hvdft_worker_propose(uint64_t term, const hvdft_op* ops, int count) {
  Worker& w = *the_worker();
  auto& h = w.node->header();
  uint64_t number = h.proposed.load();
  for (;;) {  // the one before is still to be read, perhaps an earlier incarnation's
    uint32_t ticket = hvdft_worker_ticket();
    if (h.answered.load(std::memory_order_acquire) >= number) break;
    if (hvdft_worker_wait(ticket, -1) < 0) return HVDFT_ESTOPPED;
  }
  char *at = w.node->proposal(), *end = at + hvdft::kProposalBytes;
  for (int i = 0; i < count; ++i) {
    const hvdft_op& op = ops[i];
    uint64_t blocks = op.block_bytes != nullptr ? static_cast<uint64_t>(w.node->size()) : 0;
    hvdft::OpHead head{op.kind,         op.dtype,          op.reduce,
                       op.root,         op.result_bytes,   op.response_bytes,
                       std::strlen(op.signature) + 1, blocks, op.factor, op.viewed};
    uint64_t block_bytes = blocks * sizeof(uint64_t);
    uint64_t tail = head.tail_bytes();
    if (static_cast<uint64_t>(end - at) < sizeof head + tail + 8) {
      return fail(HVDFT_ENOSPACE, "%d ops agreed at once are over the proposal's %lu bytes; lower "
                  "HOROVOD_FUSION_THRESHOLD", count, hvdft::kProposalBytes);
    }
    std::memcpy(at, &head, sizeof head);
    at += sizeof head;
    if (block_bytes > 0) std::memcpy(at, op.block_bytes, block_bytes);
    std::memcpy(at + block_bytes, op.response, head.response_bytes);
    std::memcpy(at + block_bytes + head.response_bytes, op.signature, head.signature_bytes);
    at += hvdft::align_up(tail, 8);
  }
  h.proposal_term = term;
  h.proposal_count = static_cast<uint32_t>(count);
  failpoint(HVDFT_AT_PROPOSE, w.cursor.load());
  h.proposed.store(number + 1, std::memory_order_release);
  failpoint(HVDFT_AT_PROPOSED, w.cursor.load());
  w.node->notify_log_writer();
  return HVDFT_OK;
}

// ---------------------------------------------------------------- the log

uint64_t hvdft_worker_log_length(void) {
  return the_worker()->node->header().log_length.load(std::memory_order_acquire);
}

uint64_t hvdft_worker_cursor(void) { return the_worker()->cursor.load(); }
uint64_t hvdft_worker_next(void) { return the_worker()->next.load(); }

int hvdft_worker_record(uint64_t id, hvdft_record* out) {
  Worker& w = *the_worker();
  if (id >= hvdft_worker_log_length()) return HVDFT_AGAIN;
  const hvdft::Record* record = w.node->record(id);
  if (record == nullptr) {
    return fail(HVDFT_ETRUNCATED, "rank %d cannot be replayed: it asks for op %lu, which lies before its "
                "snapshot; a restarted script must reach its training loop (FaultTolerance, "
                "state.sync()) with the same collectives as before", w.rank, id);
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

void hvdft_worker_pend(int64_t tensors) { the_worker()->block().pending.fetch_add(tensors); }
uint64_t hvdft_worker_pending(void) {
  return static_cast<uint64_t>(the_worker()->block().pending.load());
}

void hvdft_worker_set_step(uint64_t step) {
  the_worker()->block().step.store(step);
  hvdft::set_failpoint_step(step);
}

void hvdft_worker_orderly_exit(void) {
  Worker& w = *the_worker();
  w.block().orderly_exit.store(w.incarnation + 1);
}

void hvdft_worker_fatal(const char* message) {
  Worker& w = *the_worker();
  w.node->stop(w.rank, 1, message);
}

int hvdft_worker_stop_code(void) {
  Worker& w = *the_worker();
  return w.stopped() ? w.node->header().stop_code : -1;
}

uint64_t hvdft_worker_event_count(void) { return the_worker()->node->header().event_count.load(); }

int hvdft_worker_events(uint64_t from, hvdft_event* out, int capacity) {
  return the_worker()->node->read_events(from, out, capacity);
}

int hvdft_worker_wait_event(uint64_t seen, int timeout_ms) {
  auto& h = the_worker()->node->header();
  uint32_t ticket = h.event_doorbell.load();
  if (h.event_count.load() <= seen) hvdft::wait_doorbell(h.event_doorbell, ticket, timeout_ms);
  return h.event_count.load() > seen;
}

// ---------------------------------------------------------------- views of results

// A rank that is replayed copies: the log may be truncated before a snapshot of an earlier incarnation.
const void* hvdft_worker_view(uint64_t id, const void* result, uint64_t bytes) {
  Worker& w = *the_worker();
  if (!w.caught_up.load()) return nullptr;
  return w.views.view(id, static_cast<const char*>(result), bytes);
}

void hvdft_worker_view_release(const void* view) { the_worker()->views.release(view); }

void hvdft_worker_before_detach(void (*release_unused)(void)) {
  the_worker()->views.before_detach(release_unused);
}
