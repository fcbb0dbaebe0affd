// One member in the simulator: it drives the compiled protocol as a driver with threads would, but
// one small action at a time, so that it can be killed between any two. What lies in its Arena
// outlives it, unless its node is lost.
//
// Five hands act independently of each other: the worker, who gives inputs and lives on when the
// member dies; the sending half of the ring, and that of gathered ops; the receiving half; and the
// one that makes edges anew.
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
#include "ring_sim_gather.h"
#include "ring_sim_wire.h"

namespace ring_sim {

enum Hand { kWorker, kSenderHand, kGatherHand, kReceiverHand, kEdgesHand, kHands };

class Member {
 public:
  Member(uint64_t number, const Case& made, Wires& wires, Checker& checker, Random& random)
      : number_(number),
        case_(made),
        wires_(wires),
        checker_(checker),
        random_(random),
        sender_(number),
        gatherer_(number, made.members, wires, random),
        receiver_(number, made.members, {}) {
    aside_.resize(made.ops.size());
    for (const SimOp& op : made.ops) {
      plans_.emplace_back(made.members, op.bytes(), kSegmentBytes, op.gathered);
      full_input_.push_back(input_of(op, plans_.size() - 1, number));
      const hvdft::RingPlan& plan = plans_.back();
      for (uint64_t p = 0; p < plan.positions(); ++p) {
        bool passes = plan.gathered() || plan.on_edge(plan.edge_to(number), p).bytes() > 0;
        segments_in_all_ += passes;
      }
    }
    arena_.emplace(plans_);
  }
  Member(const Member&) = delete;

  // A new process: it knows what lies in the arena.
  void start() {
    alive_ = true;
    sender_ = hvdft::RingSender(number_);
    gatherer_.start();
    receiver_ = hvdft::RingReceiver(number_, case_.members, arena_->log.received.at());
    sending_ = {};
    receiving_ = 0;
    awaited_ = entered_ = told_ = telling_ = 0;
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

  void awaits(uint64_t generation) {
    awaited_ = generation;
    telling_ = 0;
  }
  bool done(uint64_t generation) const {
    return alive_ && told_ == generation && sender_.generation() == generation &&
           gatherer_.generation() == generation && arena_->log.received.at().op == case_.ops.size();
  }
  const std::string& result(uint64_t op) const { return arena_->taken[op]; }

  // What the protocol says that it needs no more is used for something else at once.
  void forget() {
    uint64_t received = arena_->log.received.at().op;
    for (; arena_->inputs_used < received; ++arena_->inputs_used) {
      arena_->input[arena_->inputs_used].assign(plans_[arena_->inputs_used].bytes(), kUnused);
    }
    while (arena_->taken.size() < std::min(received, ring_out().received_ops)) {
      std::string& result = arena_->result[arena_->taken.size()];
      arena_->taken.push_back(result);
      result.assign(result.size(), kUnused);
    }
    for (uint64_t kind = 1; kind < wires_.kinds(); ++kind) {
      received = std::min(received, wires_.from(kind, number_).received_ops);
    }
    for (; arena_->slots_used < received; ++arena_->slots_used) {
      std::string& slots = arena_->slots[arena_->slots_used];
      slots.assign(slots.size(), kUnused);
    }
  }

  // What a hand does next, if it can do something.
  std::optional<Next> next(Hand hand) {
    if (hand == kWorker) return next_of_worker();
    if (!alive_) return {};
    if (hand == kSenderHand) return next_of_sender();
    if (hand == kGatherHand) return gatherer_.next(*arena_, plans_, entered_);
    if (hand == kReceiverHand) return next_of_receiver();
    return next_of_edges();
  }

  void perform(Hand hand, Action action) {
    bool gathers = hand == kGatherHand;
    switch (action) {
      case Action::kGive:
        return give();
      case Action::kRead:
        return gathers ? gatherer_.read(*arena_, entered_) : sending_.read(source(), entered_);
      case Action::kSend:
        return gathers ? gatherer_.send(*arena_) : send();
      case Action::kNoteSent:
        return gathers ? gatherer_.note_sent(*arena_) : note_sent();
      case Action::kTake:
        return take();
      case Action::kWrite:
        return write(false);
      case Action::kWriteRest:
        return write(true);
      case Action::kNoteReceived:
        return note_received();
      case Action::kEnter:
        return enter();
      case Action::kTell:
        return tell();
      case Action::kLearn:
        return gathers ? gatherer_.learn(*arena_, entered_, by_receivers()) : learn();
      case Action::kRejoin:
        return;  // rejoin(), before it is alive
    }
  }

 private:
  bool is(Protocol protocol) const { return case_.protocol == protocol; }

  void set_record(hvdft::EdgePosition at) {
    arena_->log.received.publish(at);
    for (uint64_t kind = 0; kind < wires_.kinds(); ++kind) {
      wires_.to(kind, number_).received_ops = at.op;
    }
  }

  // Where it puts, and takes again, what it has received at a position.
  bool is_aside(uint64_t op, uint64_t position) const {
    return op + 1 == arena_->done_over && !is(Protocol::kOverFinal) &&
           hvdft::is_partial(plans_[op], position);
  }
  Wire& ring_out() { return wires_.from(Wires::kRing, number_); }
  // Over which the message comes that the receiving half awaits.
  Wire& wire_in() {
    bool gathered = plans_[incoming_.at.op].gathered();
    return wires_.to(gathered ? Wires::of_round(incoming_.at.position) : Wires::kRing, number_);
  }

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
      arena_->slots[op].replace(0, to - from, full_input_[op]);
    } else {
      arena_->input[op].replace(from, to - from, full_input_[op], from, to - from);
    }
    if (is(Protocol::kInPlace)) {
      arena_->result[op].replace(from, to - from, full_input_[op], from, to - from);
    }
    ++arena_->inputs[op];
  }

  // The sending half of the ring.

  void begin(hvdft::EdgeCursor& half) {
    while (!half.begun() && half.op() < arena_->begun) half.begin(plans_[half.op()]);
  }

  std::optional<Next> next_of_sender() {
    if (sender_.generation() != entered_ && ring_out().told.generation == entered_) {
      return Next{Action::kLearn, ring_out().told.record};
    }
    if (sending_.done > 0) return Next{sending_.next(), sending_.at};
    begin(sender_);
    uint64_t inputs = sender_.begun() ? arena_->inputs[sender_.op()] : 0;
    if (!sender_.next(arena_->log.received.at(), inputs, &outgoing_)) return {};
    sending_.at = outgoing_.at;
    sending_.bytes = outgoing_.bytes;
    return Next{Action::kRead, outgoing_.at};
  }
  bool by_receivers() const {
    return !is(Protocol::kOneLogPerNode) && !is(Protocol::kSenderIsTruth);
  }

  void learn() {
    sender_.resume(entered_, by_receivers() ? ring_out().told.record : arena_->log.sent.at());
    arena_->log.sent.made_in(entered_);
    sending_ = {};
  }

  const char* source() const {
    uint64_t op = outgoing_.at.op;
    auto& from = outgoing_.from_input ? arena_->input : from_aside() ? aside_ : arena_->result;
    return from[op].data() + outgoing_.bytes.from;
  }

  bool from_aside() const {
    return !outgoing_.from_input &&
           is_aside(outgoing_.at.op, outgoing_.at.position - plans_[outgoing_.at.op].segments());
  }

  void send() {
    bool late = random_.below(2) == 0 && !from_aside();  // not out of memory that dies
    sending_.send(source(), late, ring_out());
  }

  void note_sent() {
    arena_->log.sent.publish(sender_.sent());
    sending_ = {};
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
        set_record(receiver_.at());
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
    // What is gathered is received into its place, so it may be torn already.
    if (plans_[incoming_.at.op].gathered()) put(Sending::half(staged_.size()));
    received_one_more();
  }

  // Bytes of a gathered op's message.
  void put(uint64_t bytes) {
    std::memcpy(arena_->slots[incoming_.at.op].data() + incoming_.bytes.from, staged_.data(),
                bytes);
  }

  // What would be a call of the reduction, or of memcpy, torn in the middle.
  void write(bool rest) {
    uint64_t op = incoming_.at.op;
    if (plans_[op].gathered()) {
      put(staged_.size());
      uint64_t bytes = plans_[op].bytes(), middle = Sending::half(bytes);
      if (incoming_.completes) add_slots(op, rest ? middle : 0, rest ? bytes : middle);
    } else {
      uint64_t bytes = incoming_.bytes.bytes(), middle = Sending::half(bytes);
      write_segment(rest ? middle : 0, rest ? bytes : middle);
    }
    checker_.is_still_final(number_, op, arena_->result[op]);
    received_one_more();
  }

  void write_segment(uint64_t from, uint64_t to) {
    uint64_t op = incoming_.at.op, at = incoming_.bytes.from + from;
    if (incoming_.adds) {
      const char* own = (is(Protocol::kInPlace) ? arena_->result : arena_->input)[op].data() + at;
      add(op, staged_.data() + from, own, at, to - from);
    } else {
      std::memcpy(arena_->result[op].data() + at, staged_.data() + from, to - from);
    }
  }

  void add_slots(uint64_t op, uint64_t from, uint64_t to) {
    const hvdft::RingPlan& plan = plans_[op];
    for (uint64_t chunk = 0; chunk < case_.members; ++chunk) {
      uint64_t begin = std::max(from, plan.chunk(chunk).from);
      uint64_t end = std::min(to, plan.chunk(chunk).to);
      if (begin >= end) continue;
      for (uint64_t i = 1; i < case_.members; ++i) {
        auto slot = [&](uint64_t at) {
          return arena_->slots[op].data() + plan.gather().added(number_, chunk, at) + begin;
        };
        add(op, i == 1 ? slot(0) : arena_->result[op].data() + begin, slot(i), begin, end - begin);
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
    set_record(receiver_.received());
    checker_.records(number_, arena_->log.received.at());
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
    gatherer_.pause();
    record_ = receiver_.remade(entered_);
    arena_->log.received.made_in(entered_);
    sending_ = {};
    receiving_ = 0;
    telling_ = 0;
  }

  // One of those that send to it after the other.
  void tell() {
    bool tells_first = is(Protocol::kTellFirst);
    uint64_t generation = tells_first ? awaited_ : entered_;
    wires_.to(telling_, number_).told = {generation, tells_first ? receiver_.at() : record_};
    if (++telling_ < wires_.kinds()) return;
    telling_ = 0;
    told_ = generation;
  }

  const uint64_t number_;
  const Case& case_;
  Wires& wires_;
  Checker& checker_;
  Random& random_;

  std::optional<Arena> arena_;
  std::vector<hvdft::RingPlan> plans_;
  std::vector<std::string> full_input_;
  uint64_t segments_in_all_ = 0;

  // What dies with the process.
  bool alive_ = false;
  hvdft::RingSender sender_;
  Gatherer gatherer_;
  hvdft::RingReceiver receiver_;
  Sending sending_;
  hvdft::Outgoing outgoing_{};
  int receiving_ = 0;  // actions done of what it is at
  hvdft::Incoming incoming_{};
  std::string staged_;
  std::vector<std::string> aside_;  // partial sums of an op that is done over
  hvdft::EdgePosition record_;
  uint64_t awaited_ = 0, entered_ = 0, told_ = 0;  // generations
  uint64_t telling_ = 0;                           // told already, of those that send to it
};

}  // namespace ring_sim

#endif  // HVD_FT_TESTS_RING_SIM_MEMBER_H
