// A read-only look at a running job: launcher, live display, reports.
#include "observer/observer.h"

#include <cstring>

#include "arena/memory.h"
#include "arena/rosters.h"
#include "hvd_ft_times.h"
#include "protocol/roster.h"

using hvdft::Node;

hvdft_observer* hvdft_observer_open(const char* dir) {
  auto node = Node::open(dir, nullptr, Node::kObserver);
  return node ? new hvdft_observer{std::move(node)} : nullptr;
}

void hvdft_observer_close(hvdft_observer* observer) { delete observer; }

int hvdft_observer_size(hvdft_observer* observer) { return observer->node->size(); }

int hvdft_observer_status(hvdft_observer* observer, int rank, hvdft_status* out) {
  auto& block = observer->node->rank(rank);
  out->state = block.state.load(std::memory_order_acquire);
  out->incarnation = block.incarnation.load();
  out->pid = block.pid.load();
  out->step = block.step.load();
  out->executed = block.executed.load();
  out->since_ns = block.since_ns.load();
  out->step_bytes = block.step_bytes.load();
  return HVDFT_OK;
}

int hvdft_observer_snapshots(hvdft_observer* observer, int rank, hvdft_snapshots* out) {
  auto& block = observer->node->rank(rank);
  out->count = block.snapshot_count.load();
  out->steps = block.snapshot_steps.load();
  out->training_ns = block.training_ns.load();
  out->stall_ns = block.stall_ns.load();
  out->copy_ns = block.copy_ns.load();
  return HVDFT_OK;
}

int hvdft_observer_times(hvdft_observer* observer, int rank, hvdft_times* out) {
  auto& block = observer->node->rank(rank);
  *out = {block.rounds.load(), block.compute_ns.load(), block.wait_ns.load(),
          block.moving_ns.load(), block.network_ns.load()};
  return HVDFT_OK;
}

int64_t hvdft_observer_clock_ahead(hvdft_observer* observer, int first_rank) {
  return observer->node->rank(first_rank).clock_ahead_ns.load();
}

int hvdft_observer_op_moments(hvdft_observer* observer, int rank, int of_ring,
                              hvdft_op_moments* out, int capacity) {
  auto& block = observer->node->rank(rank);
  auto& times = of_ring != 0 ? block.ring_times : block.op_times;
  int found = 0;
  hvdft::OpMoments at;
  for (uint64_t place = 0; place < hvdft::kOpTimes && found < capacity; ++place) {
    if (!times.read(place, &at)) continue;
    out[found++] = {at.op, at.handed, at.begun, at.contributed, at.done};
  }
  return found;
}

int hvdft_observer_watch(hvdft_observer* observer, int rank, hvdft_watch* out) {
  auto& block = observer->node->rank(rank);
  uint64_t asleep = block.asleep.load();
  out->state = block.state.load(std::memory_order_acquire);
  out->incarnation = block.incarnation.load();
  out->pending = block.pending.load();
  out->asleep = asleep != 0 && static_cast<uint32_t>(asleep) == block.worker_doorbell.load();
  out->contributed = hvdft::ops_contributed(block);
  out->executed = block.executed.load();
  out->announced = block.mail_sequence.load();
  out->step = block.step.load();
  return HVDFT_OK;
}

int hvdft_observer_left(hvdft_observer* observer, int rank) {
  const Node& node = *observer->node;
  if (!hvdft::has_left(node, rank)) return 0;
  uint64_t theirs = node.rank(rank).loops_done.load(), firsts = node.rank(0).loops_done.load();
  return hvdft::may_return(theirs, firsts) ? HVDFT_MAY_RETURN : HVDFT_HAS_LEFT;
}

int hvdft_observer_events(hvdft_observer* observer, uint64_t from, hvdft_event* out, int capacity) {
  return observer->node->events().read(from, out, capacity);
}

int hvdft_observer_report(hvdft_observer* observer, uint64_t from, hvdft_event* out, int capacity) {
  return observer->node->report().read(from, out, capacity);
}

uint64_t hvdft_observer_divergences(hvdft_observer* observer) {
  return observer->node->header().divergence_count.load();
}
int hvdft_observer_divergence(hvdft_observer* observer, uint64_t number, hvdft_divergence* out) {
  return observer->node->read_divergence(number, out);
}

int hvdft_observer_memory(hvdft_observer* observer, int rank, int most, hvdft_memory* out) {
  const Node& node = *observer->node;
  if (rank == node.first_local()) {
    *out = most ? hvdft::memory_most(node) : hvdft::memory_now(node);
    return 1;
  }
  uint64_t words[hvdft::kMemoryWords];
  for (uint64_t i = 0; i < hvdft::kMemoryWords; ++i) {
    words[i] = node.rank(rank).memory[most ? 1 : 0][i].load();
  }
  std::memcpy(out, words, sizeof words);
  return out->limit > 0;
}

uint64_t hvdft_observer_used_bytes(hvdft_observer* observer) {
  return hvdft::used_bytes(*observer->node);
}
uint64_t hvdft_observer_limit_bytes(hvdft_observer* observer) { return observer->node->limit(); }
uint64_t hvdft_observer_window_bytes(hvdft_observer* observer) { return observer->node->window(); }
uint64_t hvdft_observer_generation(hvdft_observer* observer) {
  return observer->node->header().generation.load();
}
uint64_t hvdft_observer_log_length(hvdft_observer* observer) {
  return observer->node->header().log_length.load();
}
uint64_t hvdft_observer_log_records(hvdft_observer* observer) {
  auto& h = observer->node->header();
  return h.log_length.load() - h.truncated.load();
}
