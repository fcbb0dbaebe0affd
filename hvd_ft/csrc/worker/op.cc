// The worker's part of the ops it has begun: contributes its input segment by segment, reduces the
// segments that are ready, takes the results.
#include <algorithm>

#include "base/doorbell.h"
#include "base/failpoint.h"
#include "worker/worker.h"

using hvdft::BegunOp;
using hvdft::ByteRange;
using hvdft::failpoint;
using hvdft::overlap;
using hvdft::position;
using hvdft::Record;
using hvdft::Step;
using hvdft::the_worker;
using hvdft::Worker;

namespace {

const BegunOp& begun_op(const Worker& w, uint64_t number) {
  auto after = [](uint64_t n, const BegunOp& op) { return n < op.record->first_segment; };
  return *(std::upper_bound(w.begun.begin(), w.begun.end(), number, after) - 1);
}

// A segment of an op that this worker has begun.
struct Segment {
  Segment(const Worker& w, uint64_t n)
      : op(begun_op(w, n)), record(*op.record), number(n), index(n - record.first_segment) {}
  // Failpoints of drills that strike when an op is half done.
  bool in_the_middle() const { return index == record.segments() / 2; }
  bool last() const { return number + 1 == record.end_segment(); }
  uint64_t input() const { return record.input_of(number); }
  uint64_t input_end() const { return input() + record.given(number).bytes(); }

  const BegunOp& op;
  const Record& record;
  uint64_t number, index;
};

void give(Worker& w, const Segment& s) {
  ByteRange range = s.record.given(s.number), part = overlap(range, s.op.mine);
  if (part.bytes() > 0) {
    char* input = w.file->input() + s.input() % w.node->window();
    s.op.copies.copy_in(s.op.copies.context, part.from - s.op.mine.from, part.bytes(),
                        input + (part.from - range.from));
  }
  if (s.in_the_middle()) failpoint(HVDFT_AT_COPY_IN, s.record.id);
  w.block().contributed.store(hvdft::position_after(s.record.id, s.index, s.record.segments()),
                              std::memory_order_seq_cst);
  if (!s.last()) return;
  w.block().op_times.contributed(s.record.id, hvdft::now_ns());
  failpoint(HVDFT_AT_CONTRIBUTE, s.record.id);
}

void take(Worker& w, const Segment& s) {
  if (s.in_the_middle()) failpoint(HVDFT_AT_COPY_OUT, s.record.id);
  ByteRange range = s.record.taken(s.number);
  if (s.op.copies.copy_out == nullptr || range.bytes() == 0) return;
  s.op.copies.copy_out(s.op.copies.context, range.from, range.bytes(),
                       w.node->heap() + s.record.result_offset + range.from);
}

void ring_others(const Worker& w) {
  for (int r = w.node->first_local(); r < w.node->end_local(); ++r) {
    if (r != w.rank) w.node->notify_worker(r);
  }
}

}  // namespace

int hvdft_worker_begin(uint64_t id, const hvdft_copies* copies) {
  Worker& w = *the_worker();
  const Record& record = *w.node->record(id);
  uint64_t now = hvdft::now_ns();
  if (w.begun.empty()) w.times.begun(now);
  w.block().op_times.begin(id, w.times.latest_pended(), now);
  w.begun.push_back({&record, *copies, hvdft::contribution(record, w.rank)});
  w.schedule.begin(id, record.first_segment, record.segments(), w.block().contributed.load());
  return HVDFT_OK;
}

int hvdft_worker_advance(void) {
  Worker& w = *the_worker();
  auto& schedule = w.schedule;
  if (w.begun.empty()) return HVDFT_AGAIN;
  auto stage = [&](uint64_t n) { return w.arenas->stage(*begun_op(w, n).record, n); };
  auto final = [&](uint64_t n) { return w.arenas->is_final(n); };
  auto bytes = [&](uint64_t from, uint64_t last) {
    return Segment(w, last).input_end() - Segment(w, from).input();
  };
  hvdft::Window window{hvdft::kClaims, w.node->window()};
  auto fits = [&](uint64_t from, uint64_t n) { return window.fits(from, n, bytes); };
  bool given = false, reduced = false;  // and no one has been notified
  for (;;) {
    Step step = schedule.next(stage, final, fits);
    // Little data: this worker reduces it sooner than another worker would be awake.
    bool help_wanted = given && step == Step::kReduce &&
                       bytes(schedule.looked, schedule.given - 1) > hvdft::kNodeSegmentBytes;
    bool news = reduced && (step == Step::kTake || step == Step::kWait);
    if (help_wanted || news) ring_others(w);
    if (step != Step::kContribute) given = false;
    bool network = schedule.waits_for_nodes(step);
    if (network != w.times.waits_for_network()) w.times.network(network, hvdft::now_ns());
    if (news) reduced = false;

    if (step == Step::kContribute) {
      give(w, Segment(w, schedule.given++));
      given = true;
    } else if (step == Step::kReduce) {
      Segment s(w, schedule.looked++);
      reduced |= w.arenas->claim_and_reduce(s.record, s.number, w.rank);
    } else if (step == Step::kTake) {
      Segment s(w, schedule.taken++);
      take(w, s);
      if (!s.last()) continue;
      w.begun.pop_front();
      uint64_t now = hvdft::now_ns();
      w.block().op_times.done(s.record.id, now);
      if (w.begun.empty()) w.times.ended(now);
      return 1;
    } else {
      return w.stopped() ? HVDFT_ESTOPPED : HVDFT_AGAIN;
    }
  }
}

int hvdft_worker_owes(uint64_t id) {
  return the_worker()->block().contributed.load() <= position(id, 0);
}
