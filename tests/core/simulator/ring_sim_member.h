// One member in the simulator: it drives the compiled protocol as a driver with threads would, but
// one small action at a time, so that it can be killed between any two. What lies in its Arena
// outlives it, unless its node is lost.
//
// Four hands act independently of each other: the worker, who gives inputs and lives on when the
// member dies; the sending half; the receiving half; and the one that makes edges anew.
#ifndef HVD_FT_TESTS_RING_SIM_MEMBER_H
#define HVD_FT_TESTS_RING_SIM_MEMBER_H

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "hvd_ft.h"
#include "base/reduce.h"
#include "protocol/rejoin.h"
#include "protocol/ring.h"
#include "ring_sim_arena.h"
#include "ring_sim_check.h"
#include "ring_sim_wire.h"

namespace ring_sim {

struct Next {
  Action action;
  hvdft::EdgePosition at;
};

enum Hand { kWorker, kSenderHand, kReceiverHand, kEdgesHand, kHands };

class Member {
 public:
  Member(uint64_t number, const Case& made, std::vector<Wire>& wires, Checker& checker,
         Random& random)
      : number_(number),
        case_(made),
        wires_(wires),
        checker_(checker),
        random_(random),
        sender_(number),
        receiver_(number, made.members, {}) {
    aside_.resize(made.ops.size());
    for (const SimOp& op : made.ops) {
      plans_.push_back(
          op.gathered ? hvdft::RingPlan(made.members, op.bytes(), kGatheredBytes, kGatheredBytes)
                      : hvdft::RingPlan(made.members, op.bytes(), kSegmentBytes));
      full_input_.push_back(input_of(op, plans_.size() - 1, number));
      const hvdft::RingPlan& plan = plans_.back();
      for (uint64_t p = 0; p < plan.positions(); ++p) {
        segments_in_all_ += plan.on_edge(plan.edge_to(number), p).bytes() > 0;
      }
    }
    arena_.emplace(plans_);
  }
  Member(const Member&) = delete;

  // A new process: it knows what lies in the arena.
  void start() {
    alive_ = true;
    sender_ = hvdft::RingSender(number_);
    receiver_ = hvdft::RingReceiver(number_, case_.members, arena_->log.received.at());
    sending_ = receiving_ = 0;
    awaited_ = entered_ = told_ = 0;
    for (uint64_t op = 0; op < aside_.size(); ++op) {
      aside_[op].assign(op + 1 == arena_->done_over ? case_.ops[op].bytes() : 0, kUnused);
    }
  }
  void die() { alive_ = false; }
  bool alive() const { return alive_; }
  // Its node is gone; the worker is another one, which begins again.
  void lose() {
    die();
    arena_.emplace(plans_);
    arena_->lost = true;
    checker_.lost(number_);
  }

  // What rejoin.h wants to know.
  hvdft::RejoinState state() const {
    return {arena_->lost, arena_->begun, arena_->log.received.at().op, arena_->done_over};
  }

  // The next of its steps after a loss, in which it takes what it lacks from others; returns
  // whether that was the last one.
  bool rejoin(const hvdft::Rejoin& plan, const std::deque<Member>& members) {
    if (is(Protocol::kStay) && !arena_->lost) return true;
    if (arena_->lost && arena_->begun == 0) {
      arena_->copy(*members[plan.log_from].arena_, plans_);
      set_record(arena_->log.received.at());
    } else if (arena_->done_over != plan.op + 1) {
      arena_->done_over = plan.op + 1;
    } else if (arena_->log.received.at().op < plan.op && !is(Protocol::kRecordOnly)) {
      uint64_t op = arena_->log.received.at().op;
      arena_->take_result(op, *members[plan.results_from].arena_, plans_[op]);
      set_record({op + 1, 0});
    } else {
      set_record({plan.op, 0});
      arena_->lost = false;
      checker_.rejoins(number_, {plan.op, 0}, segments_in_all_);
      return true;
    }
    return false;
  }

  void awaits(uint64_t generation) { awaited_ = generation; }
  bool done(uint64_t generation) const {
    return alive_ && told_ == generation && sender_.generation() == generation &&
           arena_->log.received.at().op == case_.ops.size();
  }
  const std::string& result(uint64_t op) const { return arena_->taken[op]; }

  // What the protocol says that it needs no more is used for something else at once.
  void forget() {
    uint64_t received = arena_->log.received.at().op;
    for (; arena_->inputs_used < received; ++arena_->inputs_used) {
      arena_->input[arena_->inputs_used].assign(plans_[arena_->inputs_used].bytes(), kUnused);
    }
    while (arena_->taken.size() < std::min(received, wire_out().received_ops)) {
      std::string& result = arena_->result[arena_->taken.size()];
      std::string& chunks = arena_->chunks[arena_->taken.size()];
      arena_->taken.push_back(result);
      result.assign(result.size(), kUnused);
      chunks.assign(chunks.size(), kUnused);
    }
  }

  // What a hand does next, if it can do something.
  std::optional<Next> next(Hand hand) {
    if (hand == kWorker) return next_of_worker();
    if (!alive_) return {};
    if (hand == kSenderHand) return next_of_sender();
    if (hand == kReceiverHand) return next_of_receiver();
    return next_of_edges();
  }

  void perform(Action action) {
    switch (action) {
      case Action::kGive:
        return give();
      case Action::kRead:
        return read();
      case Action::kSend:
        return send();
      case Action::kNoteSent:
        return note_sent();
      case Action::kTake:
        return take();
      case Action::kWrite:
        return write(0, half(incoming_.bytes.bytes()));
      case Action::kWriteRest:
        return write(half(incoming_.bytes.bytes()), incoming_.bytes.bytes());
      case Action::kNoteReceived:
        return note_received();
      case Action::kEnter:
        return enter();
      case Action::kTell:
        return tell();
      case Action::kLearn:
        return learn();
      case Action::kRejoin:
        return;  // rejoin(), before it is alive
    }
  }

 private:
  bool is(Protocol protocol) const { return case_.protocol == protocol; }

  void set_record(hvdft::EdgePosition at) {
    arena_->log.received.publish(at);
    wire_in().received_ops = at.op;
  }

  // Where it puts, and takes again, what it has received at a position.
  bool is_aside(uint64_t op, uint64_t position) const {
    return op + 1 == arena_->done_over && !is(Protocol::kOverFinal) &&
           hvdft::is_partial(plans_[op], position);
  }
  static uint64_t half(uint64_t bytes) { return bytes / 2 / 8 * 8; }
  Wire& wire_out() { return wires_[number_]; }
  Wire& wire_in() { return wires_[plans_[0].edge_to(number_)]; }

  // The worker.

  std::optional<Next> next_of_worker() const {
    for (uint64_t op = 0; op < plans_.size(); ++op) {
      if (op == arena_->begun || arena_->inputs[op] < plans_[op].inputs()) {
        return Next{Action::kGive, {op, arena_->inputs[op]}};
      }
    }
    return {};
  }

  void give() {
    uint64_t op = next_of_worker()->at.op;
    if (op == arena_->begun) {
      ++arena_->begun;
      return;
    }
    auto [from, to] = plans_[op].input(number_, arena_->inputs[op]);
    if (plans_[op].gathered()) {
      arena_->chunks[op].replace(own_chunk(op), to - from, full_input_[op]);
    } else {
      arena_->input[op].replace(from, to - from, full_input_[op], from, to - from);
    }
    if (is(Protocol::kInPlace)) {
      arena_->result[op].replace(from, to - from, full_input_[op], from, to - from);
    }
    ++arena_->inputs[op];
  }

  uint64_t own_chunk(uint64_t op) const { return plans_[op].on_edge(number_, 0).from; }

  // The sending half.

  void begin(hvdft::EdgeCursor& half) {
    while (!half.begun() && half.op() < arena_->begun) half.begin(plans_[half.op()]);
  }

  std::optional<Next> next_of_sender() {
    if (sender_.generation() != entered_ && wire_out().told.generation == entered_) {
      return Next{Action::kLearn, wire_out().told.record};
    }
    if (sending_ > 0) {
      return Next{sending_ == 1 ? Action::kSend : Action::kNoteSent, outgoing_.at};
    }
    begin(sender_);
    uint64_t inputs = sender_.begun() ? arena_->inputs[sender_.op()] : 0;
    if (!sender_.next(arena_->log.received.at(), inputs, &outgoing_)) return {};
    return Next{Action::kRead, outgoing_.at};
  }

  void learn() {
    bool by_receiver = !is(Protocol::kOneLogPerNode) && !is(Protocol::kSenderIsTruth);
    sender_.resume(entered_, by_receiver ? wire_out().told.record : arena_->log.sent.at());
    arena_->log.sent.made_in(entered_);
    sending_ = 0;
  }

  const char* source() const {
    uint64_t op = outgoing_.at.op;
    auto& from = plans_[op].gathered()  ? arena_->chunks
                 : outgoing_.from_input ? arena_->input
                 : from_aside()         ? aside_
                                        : arena_->result;
    return from[op].data() + outgoing_.bytes.from;
  }

  bool from_aside() const {
    return !outgoing_.from_input &&
           is_aside(outgoing_.at.op, outgoing_.at.position - plans_[outgoing_.at.op].segments());
  }

  void read() {
    std::string begun(source(), half(outgoing_.bytes.bytes()));
    message_ = {entered_, outgoing_.at, std::move(begun), nullptr};
    sending_ = 1;
  }

  void send() {
    uint64_t read = message_.data.size();
    message_.data.append(source() + read, outgoing_.bytes.bytes() - read);
    // It had only been ordered to send; memory of a process is not read when that is dead.
    if (random_.below(2) == 0 && !from_aside()) message_.source = source();
    wire_out().send(std::move(message_));
    sending_ = 2;
  }

  void note_sent() {
    arena_->log.sent.publish(sender_.sent());
    sending_ = 0;
  }

  // The receiving half.

  // What it does with a message, in this order.
  Action receiving() const {
    using A = Action;
    constexpr A order[] = {A::kTake, A::kWrite, A::kWriteRest, A::kNoteReceived};
    constexpr A wrong[] = {A::kTake, A::kNoteReceived, A::kWrite, A::kWriteRest};
    return (is(Protocol::kRecordFirst) ? wrong : order)[receiving_];
  }
  void received_one_more() { receiving_ = (receiving_ + 1) % 4; }

  std::optional<Next> next_of_receiver() {
    if (entered_ == 0) return {};
    if (receiving_ == 0) {
      if (!receiver_.begun()) {
        begin(receiver_);
        arena_->log.received.publish(receiver_.at());
        wire_in().received_ops = receiver_.at().op;
      }
      if (!receiver_.next(&incoming_) || wire_in().channels.empty()) return {};
    } else if (incoming_.adds || incoming_.completes) {
      if (arena_->inputs[incoming_.at.op] <= incoming_.input) return {};
    }
    return Next{receiving(), incoming_.at};
  }

  bool accepts(const Message& message) const {
    if (is(Protocol::kOneLogPerNode)) return message.generation == receiver_.generation();
    if (is(Protocol::kOldGenerations)) return message.at == receiver_.at();
    return receiver_.accepts(message.generation, message.at);
  }

  void take() {
    Message message = wire_in().take(random_);
    if (!accepts(message)) return checker_.refuses(number_, message.generation);
    checker_.accepts(number_, message.generation, segments_in_all_);
    if (message.source != nullptr) message.data.assign(message.source, message.data.size());
    staged_ = std::move(message.data);
    staged_.resize(incoming_.bytes.bytes());
    received_one_more();
  }

  // Bytes of the segment: what would be a call of the reduction, or of memcpy, torn in the middle.
  void write(uint64_t from, uint64_t to) {
    uint64_t op = incoming_.at.op, at = incoming_.bytes.from + from;
    if (plans_[op].gathered()) {
      std::memcpy(arena_->chunks[op].data() + at, staged_.data() + from, to - from);
      if (incoming_.completes) add_chunks(op, from, to);
    } else if (incoming_.adds) {
      const char* own = (is(Protocol::kInPlace) ? arena_->result : arena_->input)[op].data() + at;
      add(op, staged_.data() + from, own, at, to - from);
    } else {
      std::memcpy(arena_->result[op].data() + at, staged_.data() + from, to - from);
    }
    checker_.is_still_final(number_, op, arena_->result[op]);
    received_one_more();
  }

  void add_chunks(uint64_t op, uint64_t from, uint64_t to) {
    const hvdft::RingPlan& plan = plans_[op];
    for (uint64_t part = 0; part < case_.members; ++part) {
      uint64_t begin = std::max(from, plan.part(part).from), end = std::min(to, plan.part(part).to);
      if (begin >= end) continue;
      for (uint64_t i = 1; i < case_.members; ++i) {
        auto chunk = [&](uint64_t at) {
          return arena_->chunks[op].data() + plan.chunk(plan.added(part, at)).from + begin;
        };
        add(op, i == 1 ? chunk(0) : arena_->result[op].data() + begin, chunk(i), begin,
            end - begin);
      }
    }
  }

  void add(uint64_t op, const char* a, const char* b, uint64_t at, uint64_t bytes) {
    bool floats = case_.ops[op].floats;
    const void* inputs[] = {a, b};
    auto& to = is_aside(op, incoming_.at.position) ? aside_ : arena_->result;
    hvdft::reduce(floats ? HVDFT_FLOAT32 : HVDFT_INT64, HVDFT_SUM, inputs, 2, to[op].data() + at,
                  bytes / (floats ? 4 : 8));
  }

  void note_received() {
    const hvdft::RingPlan& plan = plans_[incoming_.at.op];
    uint64_t before = plan.results(incoming_.at.position);
    uint64_t after = plan.results(incoming_.at.position + 1);
    arena_->log.received.publish(receiver_.received());
    checker_.records(number_, arena_->log.received.at());
    wire_in().received_ops = arena_->log.received.at().op;
    for (uint64_t i = before; i < after; ++i) {
      checker_.is_final(number_, incoming_.at.op, plan.result(number_, i),
                        arena_->result[incoming_.at.op]);
    }
    received_one_more();
  }

  // Making the edges anew.

  std::optional<Next> next_of_edges() const {
    bool tells_first = is(Protocol::kTellFirst);
    hvdft::EdgePosition at = receiver_.at();
    if (tells_first && told_ < awaited_) return Next{Action::kTell, at};
    if (entered_ < awaited_) return Next{Action::kEnter, at};
    if (told_ < entered_) return Next{Action::kTell, at};
    return {};
  }

  // Whatever its halves were doing they leave half done.
  void enter() {
    checker_.enters(number_, awaited_);
    entered_ = awaited_;
    sender_.pause();
    record_ = receiver_.remade(entered_);
    arena_->log.received.made_in(entered_);
    sending_ = receiving_ = 0;
  }

  void tell() {
    bool tells_first = is(Protocol::kTellFirst);
    told_ = tells_first ? awaited_ : entered_;
    wire_in().told = {told_, tells_first ? receiver_.at() : record_};
  }

  const uint64_t number_;
  const Case& case_;
  std::vector<Wire>& wires_;
  Checker& checker_;
  Random& random_;

  std::optional<Arena> arena_;
  std::vector<hvdft::RingPlan> plans_;
  std::vector<std::string> full_input_;
  uint64_t segments_in_all_ = 0;

  // What dies with the process.
  bool alive_ = false;
  hvdft::RingSender sender_;
  hvdft::RingReceiver receiver_;
  int sending_ = 0, receiving_ = 0;  // actions done of what it is at
  hvdft::Outgoing outgoing_{};
  hvdft::Incoming incoming_{};
  Message message_{};
  std::string staged_;
  std::vector<std::string> aside_;  // partial sums of an op that is done over
  hvdft::EdgePosition record_;
  uint64_t awaited_ = 0, entered_ = 0, told_ = 0;  // generations
};

}  // namespace ring_sim

#endif  // HVD_FT_TESTS_RING_SIM_MEMBER_H
