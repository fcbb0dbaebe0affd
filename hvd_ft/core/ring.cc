// The ring's C ABI: hvdft_ring.h over ring.h.
#include "ring.h"

#include "error.h"
#include "hvdft_ring.h"

using namespace hvdft;

struct hvdft_ring_sender : RingSender {
  using RingSender::RingSender;
};
struct hvdft_ring_receiver : RingReceiver {
  using RingReceiver::RingReceiver;
};

namespace {

RingPlan plan_of(const hvdft_ring_plan* plan) {
  return RingPlan(plan->members, plan->bytes, plan->segment_bytes);
}

void set(Stretch stretch, uint64_t* from, uint64_t* to) {
  *from = stretch.from;
  *to = stretch.to;
}

PairRecord& end_of(void* log, int end) {
  PairLog& pair = *static_cast<PairLog*>(log);
  return end == HVDFT_RING_RECEIVED ? pair.received : pair.sent;
}
const PairRecord& end_of(const void* log, int end) { return end_of(const_cast<void*>(log), end); }

}  // namespace

int hvdft_ring_make_plan(uint64_t members, uint64_t bytes, uint64_t segment_bytes,
                         hvdft_ring_plan* out) {
  if (members == 0 || segment_bytes == 0) {
    return fail(HVDFT_EINVAL, "a ring of %lu members with segments of %lu bytes: give both a size",
                members, segment_bytes);
  }
  RingPlan plan(members, bytes, segment_bytes);
  if (plan.segments() >= kMaxPositions / (2 * members)) {
    return fail(HVDFT_EINVAL,
                "%lu bytes over %lu members are too many segments of %lu bytes (%lu a step); "
                "make them larger",
                bytes, members, plan.segment_bytes(), plan.segments());
  }
  *out = {members,         bytes,         plan.segment_bytes(),
          plan.segments(), plan.positions(), plan.inputs()};
  return HVDFT_OK;
}

void hvdft_ring_on_edge(const hvdft_ring_plan* plan, uint64_t edge, uint64_t position,
                        hvdft_ring_at* out) {
  RingPlan made = plan_of(plan);
  RingStep step = made.step_at(position);
  Stretch bytes = made.on_edge(edge, position);
  uint32_t phase =
      step.phase == Phase::kAllgather ? HVDFT_RING_ALLGATHER : HVDFT_RING_REDUCE_SCATTER;
  *out = {phase, 0, step.step, step.segment, bytes.from, bytes.to};
}

void hvdft_ring_input(const hvdft_ring_plan* plan, uint64_t member, uint64_t i, uint64_t* from,
                      uint64_t* to) {
  set(plan_of(plan).input(member, i), from, to);
}

void hvdft_ring_result(const hvdft_ring_plan* plan, uint64_t member, uint64_t i, uint64_t* from,
                       uint64_t* to) {
  set(plan_of(plan).result(member, i), from, to);
}

uint64_t hvdft_ring_results(const hvdft_ring_plan* plan, uint64_t position) {
  return plan_of(plan).results(position);
}

uint64_t hvdft_ring_place(uint64_t op, uint64_t position) { return pack({op, position}); }

void hvdft_ring_unpack(uint64_t place, uint64_t* op, uint64_t* position) {
  *op = unpack(place).op;
  *position = unpack(place).position;
}

uint64_t hvdft_ring_log_bytes() { return sizeof(PairLog); }
uint64_t hvdft_ring_log_place(const void* log, int end) { return pack(end_of(log, end).place()); }
uint64_t hvdft_ring_log_generation(const void* log, int end) {
  return end_of(log, end).generation();
}
void hvdft_ring_log_publish(void* log, int end, uint64_t place) {
  end_of(log, end).publish(unpack(place));
}
void hvdft_ring_log_made_in(void* log, int end, uint64_t generation) {
  end_of(log, end).made_in(generation);
}

hvdft_ring_sender* hvdft_ring_sender_new(uint64_t member) { return new hvdft_ring_sender(member); }
void hvdft_ring_sender_free(hvdft_ring_sender* half) { delete half; }
uint64_t hvdft_ring_sender_op(const hvdft_ring_sender* half) { return half->op(); }
int hvdft_ring_sender_begun(const hvdft_ring_sender* half) { return half->begun(); }
void hvdft_ring_sender_begin(hvdft_ring_sender* half, const hvdft_ring_plan* plan) {
  half->begin(plan_of(plan));
}
void hvdft_ring_sender_resume(hvdft_ring_sender* half, uint64_t generation,
                              uint64_t successor_has) {
  half->resume(generation, unpack(successor_has));
}
void hvdft_ring_sender_pause(hvdft_ring_sender* half) { half->pause(); }
int hvdft_ring_sender_next(const hvdft_ring_sender* half, uint64_t received, uint64_t inputs,
                           hvdft_ring_transfer* out) {
  Outgoing next;
  if (!half->next(unpack(received), inputs, &next)) return 0;
  uint32_t what = next.from_input ? HVDFT_RING_SEND_INPUT : HVDFT_RING_SEND_RESULT;
  *out = {pack(next.place), next.bytes.from, next.bytes.to, what, 0, 0};
  return 1;
}
uint64_t hvdft_ring_sender_sent(hvdft_ring_sender* half) { return pack(half->sent()); }

hvdft_ring_receiver* hvdft_ring_receiver_new(uint64_t member, uint64_t members,
                                             uint64_t record) {
  return new hvdft_ring_receiver(member, members, unpack(record));
}
void hvdft_ring_receiver_free(hvdft_ring_receiver* half) { delete half; }
uint64_t hvdft_ring_receiver_op(const hvdft_ring_receiver* half) { return half->op(); }
int hvdft_ring_receiver_begun(const hvdft_ring_receiver* half) { return half->begun(); }
uint64_t hvdft_ring_receiver_begin(hvdft_ring_receiver* half, const hvdft_ring_plan* plan) {
  half->begin(plan_of(plan));
  return pack(half->place());
}
uint64_t hvdft_ring_receiver_remade(hvdft_ring_receiver* half, uint64_t generation) {
  return pack(half->remade(generation));
}
int hvdft_ring_receiver_next(const hvdft_ring_receiver* half, hvdft_ring_transfer* out) {
  Incoming next;
  if (!half->next(&next)) return 0;
  uint32_t what = next.adds ? HVDFT_RING_ADD : HVDFT_RING_STORE;
  *out = {pack(next.place), next.bytes.from, next.bytes.to, what, 0, next.input};
  return 1;
}
int hvdft_ring_receiver_accepts(const hvdft_ring_receiver* half, uint64_t generation,
                                uint64_t place) {
  return half->accepts(generation, unpack(place));
}
uint64_t hvdft_ring_receiver_received(hvdft_ring_receiver* half) {
  return pack(half->received());
}
