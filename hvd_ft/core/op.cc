// The worker's part of an op: gives its input segment by segment, takes the result likewise.
#include "bell.h"
#include "error.h"
#include "inject.h"
#include "worker.h"

using hvdft::overlap;
using hvdft::pass_point;
using hvdft::place;
using hvdft::Range;
using hvdft::Record;
using hvdft::the_worker;
using hvdft::Worker;

namespace {

bool all_contributed(const Worker& w, uint64_t at) {
  for (int r = 0; r < w.node->size(); ++r) {
    if (w.node->rank(r).contributed.load(std::memory_order_seq_cst) <= at) return false;
  }
  return true;
}

// What this worker has still to do in one op.
class Walk {
 public:
  Walk(Worker& worker, const Record& record, const hvdft_copies& copies)
      : w_(worker),
        record_(record),
        copies_(copies),
        segments_(hvdft::segments_of(record.op.result_bytes)),
        mine_(hvdft::contribution(record, w_.rank)) {
    // An earlier incarnation may have given all, or some segments of this op.
    uint64_t at = w_.block().contributed.load();
    given_ = hvdft::op_of(at) > record.id ? segments_ : hvdft::segment_of(at);
  }

  int run() {
    for (;;) {
      uint32_t ticket = hvdft_worker_ticket();
      auto complete = [&](uint64_t segment) { return is_complete(segment); };
      switch (hvdft::next_step(segments_, given_, taken_, complete)) {
        case hvdft::Step::kContribute:
          give(given_++);
          break;
        case hvdft::Step::kTake:
          take(taken_++);
          break;
        case hvdft::Step::kWait: {
          w_.about_to_wait();
          if (w_.stopped()) return HVDFT_ESTOPPED;
          pass_point(HVDFT_AT_WAIT, record_.id);
          w_.sleep(ticket, -1);
          break;
        }
        case hvdft::Step::kFinished:
          return HVDFT_OK;
      }
    }
  }

 private:
  Range range(uint64_t segment) const {
    return hvdft::segment_range(segment, record_.op.result_bytes);
  }

  // So many agents, those of the first ranks, have a part in it.
  int slices(uint64_t segment) const {
    return static_cast<int>(hvdft::slices_of(range(segment).bytes(),
                                             static_cast<uint64_t>(w_.node->size())));
  }

  bool is_complete(uint64_t segment) const {
    for (int r = 0; r < slices(segment); ++r) {
      if (w_.node->rank(r).reduced.load(std::memory_order_seq_cst) <= place(record_.id, segment)) {
        return false;
      }
    }
    return true;
  }

  void give(uint64_t segment) {
    Range all = range(segment), part = overlap(all, mine_);
    if (part.bytes() > 0) {
      char* slot = w_.file->input() + segment % hvdft::kWindow * hvdft::kSegmentBytes;
      copies_.copy_in(copies_.context, part.from - mine_.from, part.bytes(),
                      slot + (part.from - all.from));
    }
    if (segment == segments_ / 2) pass_point(HVDFT_AT_COPY_IN, record_.id);
    uint64_t next = segment + 1;
    w_.block().contributed.store(
        next < segments_ ? place(record_.id, next) : place(record_.id + 1, 0),
        std::memory_order_seq_cst);
    if (next == segments_) pass_point(HVDFT_AT_CONTRIBUTE, record_.id);
    // Whoever sees that it is the last one rings. Should it be killed in between, its agent
    // rings when it sees it dead.
    if (!all_contributed(w_, place(record_.id, segment))) return;
    for (int r = 0; r < slices(segment); ++r) hvdft::ring(w_.node->rank(r).agent_bell);
  }

  void take(uint64_t segment) {
    Range all = range(segment);
    if (segment == segments_ / 2) pass_point(HVDFT_AT_COPY_OUT, record_.id);
    if (copies_.copy_out == nullptr || all.bytes() == 0) return;
    copies_.copy_out(copies_.context, all.from, all.bytes(),
                     w_.node->heap() + record_.result_offset + all.from);
  }

  Worker& w_;
  const Record& record_;
  const hvdft_copies& copies_;
  uint64_t segments_, given_, taken_ = 0;
  Range mine_;  // of the result: where this rank's input goes
};

}  // namespace

int hvdft_worker_owes(uint64_t id) {
  return the_worker()->block().contributed.load() <= place(id, 0);
}

int hvdft_worker_run(uint64_t id, const hvdft_copies* copies) {
  Worker& w = *the_worker();
  return Walk(w, *w.node->record(id), *copies).run();
}

int hvdft_worker_contribute(uint64_t id) {
  Worker& w = *the_worker();
  if (!hvdft_worker_owes(id)) return HVDFT_OK;
  w.block().contributed.store(place(id + 1, 0), std::memory_order_seq_cst);
  if (all_contributed(w, place(id, 0))) hvdft::ring(w.node->rank(0).agent_bell);
  return HVDFT_OK;
}

int hvdft_worker_executed(uint64_t id) {
  Worker& w = *the_worker();
  w.progressed();
  if (!w.caught_up.load()) {
    w.replayed.fetch_add(1);
    if (w.incarnation > 0) pass_point(HVDFT_AT_REPLAY, id);
  }
  w.block().executed.store(id + 1);
  pass_point(HVDFT_AT_EXECUTED, id);
  w.cursor.store(id + 1);
  return HVDFT_OK;
}
