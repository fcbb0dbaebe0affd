// The protocol of the ring: what one member sends next and where what it receives goes, through
// deaths of any members at any moment. A state machine: no data, MPI, threads, clock or I/O;
// drivers tell it what happened and do what it says. The ops' arithmetic is in ring_plan.h, the
// records that outlive a process in pair_log.h.
//
// A member has two halves, each of one thread, linked only by counters that grow: the sending
// half is told what the receiving half has published. A driver's two loops are
//
//   send:    if (!sender.begun()) sender.begin(plan of op sender.op(), once it has one)
//            if (sender.next(log.received.at(), inputs of sender.op(), &out))
//              send `out`; log.sent.publish(sender.sent());
//   receive: if (!receiver.begun()) receiver.begin(plan of op receiver.op(), once it has one);
//              log.received.publish(receiver.at())
//            receiver.next(&in): in.bytes come next, and into the result they go
//            receive them; if (!receiver.accepts(their generation, their at)) drop them
//            if in.adds: wait until `inputs` of receiver.op() > in.input, then
//              result[in.bytes] = received + input[in.bytes]
//            if in.completes: wait for that too, then result = the sum of all slots
//            log.received.publish(receiver.received());
//
// begin() may skip an op at once (no data, one member): check begun() again. The halves may be in
// different ops. Both are values: a copy that is moved on looks ahead. A half that has nothing to
// do in an op may come to it when all have its result, and its plan is gone: pass().
//
// A gathered op uses other edges, over which gather.h sends. The receiving half takes its messages
// in the same stream as the ring's: in.bytes are then bytes of the slots, the input is slot 0, and
// only the sum goes into the result. So one record is a member's progress in all ops, over all
// edges.
//
// `inputs`: how many of the member's own inputs are ready, in the order of RingPlan::input().
// RingPlan::results() tells which part of the result is final, given log.received: all of op i when
// log.received.at().op > i.
//
// *When an edge is remade*, in generation g: the receiver first refuses everything older
// (remade(g), log.received.made_in(g)), and only then sends its record to the sender, which
// continues from there (resume). Why the sender still has all that the receiver may lack:
//  - Step 0 is sent out of the input, which nobody writes while the op lasts.
//  - A later step of REDUCE_SCATTER is sent out of the result, where it lies as a partial sum
//    until ALLGATHER brings the final value to the same place. That value contains the
//    input of the successor, who added it to just this partial sum, and published its record
//    before it sent the sum on. So by then its record counts it, and will not ask for it again.
//  - Everything in ALLGATHER, and the last sum of REDUCE_SCATTER, is final and stays, and so do the
//    slots of a gathered op.
// And why doing a segment again does no harm: sums are written out of place, result = received +
// input, from two values that do not change; a store in ALLGATHER is a copy of one. So what
// was torn half-way by a death is just written again. (A driver that never resumes may let input
// and result be the same memory.) The input may be used for something else when the member has
// received all of the op, as the final value of what it sent in step 0 has then been round; its
// result must stay until the *successor* has received all of it, and the slots of a gathered op,
// its input among them, until all members to whom it sends have.
//
// The order of a sum is the order of the ring, so it depends neither on timing nor on deaths.
#ifndef HVD_FT_RING_H
#define HVD_FT_RING_H

#include <cstdint>

#include "protocol/pair_log.h"
#include "protocol/ring_plan.h"

namespace hvdft {

// A half's place in a stream of positions, among those at which it has something to pass.
class EdgeCursor {
 public:
  EdgePosition at() const { return at_; }
  uint64_t op() const { return at_.op; }
  bool begun() const { return begun_; }
  const RingPlan& plan() const { return plan_; }
  uint64_t generation() const { return generation_; }

  // Begins op() with its plan. If nothing of it is left to pass, the half moves on to the next op.
  void begin(const RingPlan& plan) {
    plan_ = plan;
    begun_ = true;
    settle();
  }
  // Passes op(), of which there is no plan any more, so nothing of it was left to pass.
  void pass() { go_to({at_.op + 1, 0}); }

 protected:
  explicit EdgeCursor(EdgePosition at) : at_(at) {}
  ~EdgeCursor() = default;

  // The first position of the plan, from this one on, at which this half has something to pass;
  // plan().positions() if there is none.
  virtual uint64_t next_position(uint64_t from) const = 0;

  void go_to(EdgePosition at) {
    at_ = at;
    begun_ = false;
  }
  EdgePosition move_on() {
    ++at_.position;
    settle();
    return at_;
  }

  uint64_t generation_ = 0;

 private:
  void settle() {
    at_.position = next_position(at_.position);
    if (at_.position == plan_.positions()) go_to({at_.op + 1, 0});
  }

  EdgePosition at_;
  RingPlan plan_;
  bool begun_ = false;
};

// The next message to send.
struct Outgoing {
  EdgePosition at;
  ByteRange bytes;
  bool from_input;  // otherwise from the result
};

class RingSender final : public EdgeCursor {
 public:
  // Nothing is to be sent before resume().
  explicit RingSender(uint64_t member) : EdgeCursor({}), edge_(member) {}

  // The edge has been made in this generation, and `record` is the successor's.
  void resume(uint64_t generation, EdgePosition successor_has) {
    generation_ = generation;
    connected_ = true;
    go_to(successor_has);
  }

  // The edge is broken, or about to be made anew.
  void pause() { connected_ = false; }

  // False: there is nothing to send now. `received`: the record of the member's own receiving half.
  bool next(EdgePosition received, uint64_t inputs, Outgoing* out) const {
    if (!connected_ || !begun()) return false;
    uint64_t position = at().position, segments = plan().segments();
    bool first_step = position < segments;
    if (first_step ? inputs <= position : !(EdgePosition{op(), position - segments} < received)) {
      return false;
    }
    *out = {at(), plan().on_edge(edge_, position), first_step};
    return true;
  }

  // The message of next() is under way. Returns the sender's new record.
  EdgePosition sent() { return move_on(); }

 private:
  uint64_t next_position(uint64_t from) const override { return plan().next_on_edge(edge_, from); }

  uint64_t edge_;
  bool connected_ = false;
};

// The next message to receive, and its place: in the result, or in the slots of a gathered op.
struct Incoming {
  EdgePosition at;
  uint64_t distance;  // the member that sends it is so many before
  ByteRange bytes;
  bool adds;       // result = received + input; else what is received is copied
  bool completes;  // a gathered op: then result = the sum of all slots
  uint64_t input;  // if it adds or completes: the number of the input, which has to be ready
};

class RingReceiver final : public EdgeCursor {
 public:
  // `record`: its own, as it lies in the arena.
  RingReceiver(uint64_t member, uint64_t members, EdgePosition record)
      : EdgeCursor(record), edge_((member + members - 1) % members) {}

  // From now on only messages sent in this generation are accepted. Returns the record to send to
  // all who send to this member.
  EdgePosition remade(uint64_t generation) {
    generation_ = generation;
    return at();
  }

  // False: the op has not begun.
  bool next(Incoming* in) const {
    if (!begun()) return false;
    uint64_t position = at().position, segments = plan().segments();
    if (plan().gathered()) {
      bool last = position + 1 == plan().positions();
      GatherPlan gather = plan().gather();
      *in = {at(), GatherPlan::distance(position), gather.received(position), false, last, 0};
    } else {
      bool adds = position < (plan().members() - 1) * segments;
      *in = {at(), 1, plan().on_edge(edge_, position), adds, false, position + segments};
    }
    return true;
  }

  // A message of an older generation was meant for a process that may have died since. In this
  // generation the place is the awaited one if the driver does its part; if it does not, the check
  // keeps wrong data out.
  bool accepts(uint64_t generation, EdgePosition sent_from) const {
    return generation == generation_ && sent_from == at();
  }

  // The effect of next()'s message is written. Returns the record to publish.
  EdgePosition received() { return move_on(); }

 private:
  uint64_t next_position(uint64_t from) const override {
    return plan().gathered() ? from : plan().next_on_edge(edge_, from);
  }

  uint64_t edge_;
};

}  // namespace hvdft

#endif  // HVD_FT_RING_H
