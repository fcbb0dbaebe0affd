#include "mpi/node_ring.h"

#include "base/doorbell.h"
#include "protocol/node_order.h"
#include "base/reduce.h"

namespace hvdft {

namespace {

// A node's partial result of an op that does not reduce is zero except for its own parts.
void sum(const Record& record, const char* a, const char* b, char* result, uint64_t bytes) {
  const void* inputs[] = {a, b};
  bool reduces = record.op.kind == HVDFT_REDUCE;
  uint32_t dtype = reduces ? record.op.dtype : static_cast<uint32_t>(HVDFT_UINT8);
  uint32_t op = reduces ? record.op.reduce : static_cast<uint32_t>(HVDFT_SUM);
  reduce(dtype, op, inputs, 2, result, bytes / element_bytes(dtype));
}

}  // namespace

const Record* NodeMember::record(uint64_t op) const {
  uint64_t length = node().header().log_length.load(std::memory_order_acquire);
  return op < length ? node().record(op) : nullptr;
}

uint64_t ReadyInputs::count(const NodeMember& member, const Record& record, const RingPlan& plan) {
  if (op_ != record.id) {
    op_ = record.id;
    count_ = 0;
    reduced_ = std::max(reduced_, record.first_segment);
  }
  NodeOrder order(plan, member.number());
  for (; count_ < plan.inputs(); ++count_) {
    uint64_t end = record.first_segment + order.given_for(plan.input(member.number(), count_));
    while (reduced_ < end && member.arenas.is_input_ready(record, reduced_)) ++reduced_;
    if (reduced_ < end) break;
  }
  return count_;
}

NodeSender::NodeSender(NodeMember& member, Endpoint& endpoint)
    : member_(member), endpoint_(endpoint), sender_(member.number()) {}

bool NodeSender::connect() {
  if (!greeted_) greeted_ = endpoint_.begin_receive(&greeting_, sizeof greeting_, successor());
  if (!endpoint_.complete(&*greeted_)) return false;
  if (greeting_.generation != member_.generation()) {
    throw RingError("an agent of generation " + std::to_string(greeting_.generation) +
                    " greets one of generation " + std::to_string(member_.generation()));
  }
  EdgePosition at = unpack(greeting_.at);
  sender_.resume(greeting_.generation, at);
  member_.log().sent.made_in(greeting_.generation);
  member_.log().sent.publish(at);
  return true;
}

bool NodeSender::step() {
  bool moved = false;
  while (!on_their_way_.full() && send_next()) moved = true;
  while (!on_their_way_.empty() && endpoint_.complete(&on_their_way_.oldest().transfer)) {
    EdgePosition sent = on_their_way_.oldest().what;
    member_.log().sent.publish({sent.op, sent.position + 1});
    ++on_their_way_.done;
    member_.node().notify_ring();  // the other half may wait for it
    moved = true;
  }
  return moved;
}

bool NodeSender::send_next() {
  while (!sender_.begun()) {
    record_ = member_.record(sender_.op());
    if (record_ == nullptr) return false;
    sender_.begin(member_.plan(*record_));
  }
  Outgoing next;
  EdgePosition received = member_.log().received.at();
  uint64_t inputs = ready_.count(member_, *record_, sender_.plan());
  if (!sender_.next(received, inputs, &next)) return false;
  const RingPlan& plan = sender_.plan();
  const char* from = next.from_input
                         ? member_.inputs(*record_, plan)
                         : member_.passing(*record_, plan, next.at.position - plan.segments());
  on_their_way_.add(
      {endpoint_.begin_send(from + next.bytes.from, next.bytes.bytes(), successor()), next.at});
  sender_.sent();
  return true;
}

NodeReceiver::NodeReceiver(NodeMember& member, Endpoint& endpoint)
    : member_(member),
      endpoint_(endpoint),
      receiver_(member.number(), member.members, member.log().received.at()),
      ahead_(receiver_),
      room_(kTransfers * kRingSegmentBytes) {}

bool NodeReceiver::connect() {
  if (!greeted_) {
    uint64_t generation = member_.generation();
    EdgePosition at = receiver_.remade(generation);
    member_.log().received.made_in(generation);
    if (generation > 0) {
      publish_final(at);  // the older process may have been killed just before
      Node& node = member_.node();
      node.push_event(
          {now_ns(), HVDFT_EV_RESUMED, static_cast<uint32_t>(node.first_local()), 0, 0, pack(at)});
    }
    ahead_ = receiver_;
    greeting_ = {generation, pack(at)};
    greeted_ = endpoint_.begin_send(&greeting_, sizeof greeting_, predecessor());
  }
  return endpoint_.complete(&*greeted_);
}

bool NodeReceiver::step() {
  bool moved = false;
  while (!on_their_way_.full() && expect_next()) moved = true;
  return take_oldest() || moved;
}

bool NodeReceiver::expect_next() {
  while (!ahead_.begun()) {
    record_ = member_.record(ahead_.op());
    if (record_ == nullptr) return false;
    ahead_.begin(member_.plan(*record_));
  }
  Incoming next;
  if (!ahead_.next(&next)) return false;
  // A final value must not be received into memory that is still being sent from: its contents were
  // sent a round of the ring earlier. (Chunks of a gathered op are sent when they have come.)
  const RingPlan& plan = ahead_.plan();
  uint64_t round = (member_.members - 1) * plan.segments();
  if (!next.adds && !plan.gathered() &&
      !(EdgePosition{next.at.op, next.at.position - round} < member_.log().sent.at())) {
    return false;
  }
  char* to = next.adds ? room(on_their_way_.begun)
                       : member_.passing(*record_, plan, next.at.position) + next.bytes.from;
  on_their_way_.add(
      {endpoint_.begin_receive(to, next.bytes.bytes(), predecessor()), {next, record_}});
  ahead_.received();
  return true;
}

bool NodeReceiver::take_oldest() {
  if (on_their_way_.empty() || !endpoint_.complete(&on_their_way_.oldest().transfer)) return false;
  const Expected expected = on_their_way_.oldest().what;
  const Record& record = *expected.record;
  const Incoming& in = expected.in;
  while (!receiver_.begun()) receiver_.begin(member_.plan(*member_.record(receiver_.op())));
  bool waits = in.adds || in.completes;
  if (waits && ready_.count(member_, record, receiver_.plan()) <= in.input) return false;
  if (in.adds) add(record, in);
  if (in.completes) add_chunks(record);
  ++on_their_way_.done;
  EdgePosition at = receiver_.received();
  member_.log().received.publish(at);
  publish_final(at);
  member_.node().notify_ring();  // the other half may send it on
  return true;
}

void NodeReceiver::add(const Record& record, const Incoming& in) {
  const RingPlan& plan = receiver_.plan();
  if (member_.aside.empty() && member_.is_aside(record, plan, in.at.position)) {
    member_.aside.resize(record.heap_bytes());
  }
  sum(record, room(on_their_way_.done), member_.partial(record) + in.bytes.from,
      member_.passing(record, plan, in.at.position) + in.bytes.from, in.bytes.bytes());
}

void NodeReceiver::add_chunks(const Record& record) {
  const RingPlan& plan = receiver_.plan();
  const char* chunks = member_.chunks(record, plan);
  for (uint64_t part = 0; part < plan.members(); ++part) {
    auto [from, to] = plan.part(part);
    auto chunk = [&, from = from](uint64_t i) {
      return chunks + plan.chunk(plan.added(part, i)).from + from;
    };
    char* result = member_.result(record) + from;
    for (uint64_t i = 1; i < plan.members(); ++i) {
      sum(record, i == 1 ? chunk(0) : result, chunk(i), result, to - from);
    }
  }
}

void NodeReceiver::publish_final(EdgePosition at) {
  uint64_t end = 0;
  if (const Record* record = at.position > 0 ? member_.record(at.op) : nullptr) {
    RingPlan plan = member_.plan(*record);
    NodeOrder order(plan, member_.number());
    end = record->first_segment + order.final_at(plan, member_.number(), at.position);
  } else if (const Record* before = at.op > 0 ? member_.record(at.op - 1) : nullptr) {
    end = before->end_segment();
  }
  auto& final_segments = member_.node().header().final_segments;
  if (end > final_segments.load()) {
    final_segments.store(end);
    member_.node().notify_local_workers();
  }
}

}  // namespace hvdft
