// A read-only look at a running job: launcher, live display, reports.
#include "view.h"

using hvdft::Node;

hvdft_view* hvdft_view_open(const char* dir) {
  auto node = Node::open(dir, nullptr, Node::kViewer);
  return node ? new hvdft_view{std::move(node)} : nullptr;
}

void hvdft_view_close(hvdft_view* view) { delete view; }

int hvdft_view_size(hvdft_view* view) { return view->node->size(); }

int hvdft_view_status(hvdft_view* view, int rank, hvdft_status* out) {
  auto& block = view->node->rank(rank);
  out->state = block.state.load(std::memory_order_acquire);
  out->incarnation = block.incarnation.load();
  out->pid = block.pid.load();
  out->step = block.step.load();
  out->executed = block.executed.load();
  out->since_ns = block.since_ns.load();
  return HVDFT_OK;
}

int hvdft_view_snapshots(hvdft_view* view, int rank, hvdft_snapshots* out) {
  auto& block = view->node->rank(rank);
  out->count = block.snapshot_count.load();
  out->steps = block.snapshot_steps.load();
  out->training_ns = block.training_ns.load();
  out->stall_ns = block.stall_ns.load();
  out->copy_ns = block.copy_ns.load();
  return HVDFT_OK;
}

int hvdft_view_watch(hvdft_view* view, int rank, hvdft_watch* out) {
  auto& block = view->node->rank(rank);
  uint64_t asleep = block.asleep.load();
  out->state = block.state.load(std::memory_order_acquire);
  out->incarnation = block.incarnation.load();
  out->pending = block.pending.load();
  out->asleep = asleep != 0 && static_cast<uint32_t>(asleep) == block.worker_bell.load();
  out->contributed = hvdft::ops_contributed(block);
  out->executed = block.executed.load();
  out->announced = block.mail_sequence.load();
  out->step = block.step.load();
  return HVDFT_OK;
}

int hvdft_view_events(hvdft_view* view, uint64_t from, hvdft_event* out, int capacity) {
  return view->node->read_events(from, out, capacity);
}

uint64_t hvdft_view_used_bytes(hvdft_view* view) { return view->node->header().used_bytes.load(); }
uint64_t hvdft_view_limit_bytes(hvdft_view* view) { return view->node->limit(); }
uint64_t hvdft_view_generation(hvdft_view* view) { return view->node->header().generation.load(); }
uint64_t hvdft_view_log_length(hvdft_view* view) { return view->node->header().log_length.load(); }
uint64_t hvdft_view_log_records(hvdft_view* view) {
  auto& h = view->node->header();
  return h.log_length.load() - h.cut.load();
}
