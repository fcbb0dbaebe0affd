#include "mpi/node_ring.h"

#include <utility>

#include "base/doorbell.h"
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

NodeSender::NodeSender(NodeMember& member, Edge edge)
    : member_(member),
      edge_(std::move(edge)),
      greetings_(edge_.size()),
      sender_(member.number()),
      on_their_way_(edge_.transfers()) {}

// Only receives, so that it is never stuck in a call while the successor, which sends, needs one of
// its calls on another endpoint to make a connection.
bool NodeSender::connect() {
  for (uint64_t i = greeted_.size(); i < edge_.size(); ++i) {
    greeted_.push_back(edge_.endpoints()[i]->begin_receive(&greetings_[i], sizeof(EdgeGreeting),
                                                           member_.after(1)));
  }
  bool all = true;
  for (uint64_t i = 0; i < edge_.size(); ++i) {
    all &= edge_.endpoints()[i]->complete(&greeted_[i]);
  }
  if (!all) return false;
  EdgePosition at = greetings_[0].record(member_.generation());  // all say the same
  sender_.resume(greetings_[0].generation, at);
  member_.log().sent.made_in(greetings_[0].generation);
  member_.log().sent.publish(at);
  return true;
}

bool NodeSender::step() {
  bool moved = false;
  while (!on_their_way_.full() && send_next()) moved = true;
  while (!on_their_way_.empty()) {
    EdgePosition sent = on_their_way_.oldest().what;
    if (!edge_.of(sent).complete(&on_their_way_.oldest().transfer)) break;
    member_.log().sent.publish({sent.op, sent.position + 1});
    ++on_their_way_.done;
    member_.node().notify_ring();  // the other half may wait for it
    moved = true;
  }
  poll_younger();
  return moved;
}

// Polls the other connections than that of the oldest transfer: MPI goes on only with what it is
// asked about.
void NodeSender::poll_younger() {
  uint64_t polled = 0;
  for (uint64_t i = on_their_way_.done; i < on_their_way_.begun; ++i) {
    auto& [transfer, at] = on_their_way_.at(i);
    bool first = !(polled & edge_.bit_of(at));
    if (first && i > on_their_way_.done) edge_.of(at).complete(&transfer);
    polled |= edge_.bit_of(at);
  }
}

void NodeSender::poke() {
  uint64_t polled = 0;
  for (uint64_t i = on_their_way_.done; i < on_their_way_.begun; ++i) {
    polled |= edge_.bit_of(on_their_way_.at(i).what);
  }
  edge_.poke_others(polled);
}

bool NodeSender::send_next() {
  if (!member_.begin(sender_, &record_)) return false;
  Outgoing next;
  EdgePosition received = member_.log().received.at();
  uint64_t inputs = ready_.count(member_, *record_, sender_.plan());
  if (!sender_.next(received, inputs, &next)) return false;
  const RingPlan& plan = sender_.plan();
  const char* from = next.from_input
                         ? member_.partial(*record_)
                         : member_.passing(*record_, plan, next.at.position - plan.segments());
  on_their_way_.add(
      {edge_.of(next.at).begin_send(from + next.bytes.from, next.bytes.bytes(), member_.after(1)),
       next.at});
  sender_.sent();
  return true;
}

NodeReceiver::NodeReceiver(NodeMember& member, Edge ring, Endpoint& gather)
    : member_(member),
      ring_(std::move(ring)),
      gather_(gather),
      gatherer_(member, gather),
      receiver_(member.number(), member.members, member.log().received.at()),
      ahead_(receiver_),
      room_(new char[ring_.transfers() * kMostRingSegment]),
      on_their_way_(ring_.transfers()) {}

// All who send to this member are told its record. Those to whom it sends itself are heard by the
// gatherer, which has to be ready for them before this member awaits anything else of theirs.
bool NodeReceiver::connect() {
  bool heard = gatherer_.connect();
  if (!greets_) greet_all();
  while (!greeted_.empty() && greeted_.back().endpoint.complete(&greeted_.back().transfer)) {
    greeted_.pop_back();
  }
  return heard && greeted_.empty();
}

void NodeReceiver::greet_all() {
  greets_ = true;
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
  auto greet = [&](Endpoint& endpoint, uint64_t distance) {
    greeted_.push_back(
        {endpoint, endpoint.begin_send(&greeting_, sizeof greeting_, member_.before(distance))});
  };
  for (Endpoint* endpoint : ring_.endpoints()) greet(*endpoint, 1);
  for (uint64_t e = 0; e < gatherer_.edges(); ++e) greet(gather_, GatherPlan::distance(e));
}

bool NodeReceiver::step() {
  bool moved = gatherer_.step();
  while (!on_their_way_.full() && expect_next()) moved = true;
  return take_oldest() || moved;
}

// Begins the op whose messages come next. An ablated op, of which nothing comes, is complete when
// this node's ranks have reduced it: only then the receiver passes it, and publishes what follows.
bool NodeReceiver::begin_op() {
  while (!receiver_.begun()) {
    const Record* record = member_.record(receiver_.op());
    if (record == nullptr) return false;
    RingPlan plan = member_.plan(*record);
    bool ablated = record->op.ablated != 0;
    if (ablated && ready_.count(member_, *record, plan) < plan.inputs()) return false;
    receiver_.begin(plan);
    if (!ablated) continue;
    member_.log().received.publish(receiver_.at());
    publish_final(receiver_.at());
  }
  return true;
}

void NodeReceiver::poke() {
  uint64_t polled = 0;  // connections of the ring, as bits
  bool polls_gather = gatherer_.waits_for_mpi();
  for (uint64_t i = on_their_way_.done; i < on_their_way_.begun; ++i) {
    const Expected& expected = on_their_way_.at(i).what;
    polls_gather |= expected.gathered;
    if (!expected.gathered) polled |= ring_.bit_of(expected.in.at);
  }
  ring_.poke_others(polled);
  if (!polls_gather) gather_.poke();
}

bool NodeReceiver::expect_next() {
  if (!member_.begin(ahead_, &record_)) return false;
  Incoming next;
  if (!ahead_.next(&next) || !may_come(next)) return false;
  bool gathered = ahead_.plan().gathered();
  Transfer transfer =
      endpoint_of(next, gathered)
          .begin_receive(place_for(next), next.bytes.bytes(), member_.before(next.distance));
  on_their_way_.add({transfer, {next, record_, gathered}});
  ahead_.received();
  return true;
}

// A final value must not be received into memory that is still being sent from: its contents were
// sent a round of the ring earlier. (What is gathered is sent when it has come.)
bool NodeReceiver::may_come(const Incoming& next) const {
  if (next.adds || ahead_.plan().gathered()) return true;
  uint64_t round = (member_.members - 1) * ahead_.plan().segments();
  return EdgePosition{next.at.op, next.at.position - round} < member_.log().sent.at();
}

char* NodeReceiver::place_for(const Incoming& next) {
  if (next.adds) return room(on_their_way_.begun);
  const RingPlan& plan = ahead_.plan();
  char* all =
      plan.gathered() ? member_.slots(*record_) : member_.passing(*record_, plan, next.at.position);
  return all + next.bytes.from;
}

// Whether the oldest message has come. What comes over other links and connections is looked at as
// well: MPI would not go on with it, and it must not seem to be under way for as long as the oldest
// takes (link_watch.py).
bool NodeReceiver::has_come() {
  uint64_t polled = 0;  // connections of the ring, as bits
  bool come = false;
  for (uint64_t i = on_their_way_.done; i < on_their_way_.begun; ++i) {
    auto& item = on_their_way_.at(i);
    const Expected& expected = item.what;
    if (!expected.gathered) {
      if (polled & ring_.bit_of(expected.in.at)) continue;  // it comes behind an older one
      polled |= ring_.bit_of(expected.in.at);
    }
    bool complete = endpoint_of(expected.in, expected.gathered).complete(&item.transfer);
    if (i == on_their_way_.done) come = complete;
  }
  return come;
}

bool NodeReceiver::take_oldest() {
  bool come = !on_their_way_.empty() && has_come();
  if (!begin_op() || !come) return false;
  const Expected expected = on_their_way_.oldest().what;
  const Record& record = *expected.record;
  const Incoming& in = expected.in;
  bool waits = in.adds || in.completes;
  if (waits && ready_.count(member_, record, receiver_.plan()) <= in.input) return false;
  if (in.adds) add(record, in);
  if (in.completes) add_slots(record);
  ++on_their_way_.done;
  EdgePosition at = receiver_.received();
  note_moments(in, at.op != in.at.op);
  member_.log().received.publish(at);
  publish_final(at);
  member_.node().notify_ring();  // the other half may send it on
  return true;
}

void NodeReceiver::note_moments(const Incoming& in, bool over) {
  Node& node = member_.node();
  if (node.header().traces_ops.load(std::memory_order_relaxed) == 0) return;
  OpTimes& times = node.rank(node.first_local()).ring_times;
  uint64_t now = now_ns();
  if (noted_ != in.at.op) times.begin(noted_ = in.at.op, 0, now);
  if (in.adds) times.contributed(in.at.op, now);
  if (over) times.done(in.at.op, now);
}

void NodeReceiver::add(const Record& record, const Incoming& in) {
  const RingPlan& plan = receiver_.plan();
  if (member_.aside.empty() && member_.is_aside(record, plan, in.at.position)) {
    member_.aside.resize(record.heap_bytes());
  }
  sum(record, room(on_their_way_.done), member_.partial(record) + in.bytes.from,
      member_.passing(record, plan, in.at.position) + in.bytes.from, in.bytes.bytes());
}

// Two at a time, as in the ring, where every sum of two is rounded.
void NodeReceiver::add_slots(const Record& record) {
  const RingPlan& plan = receiver_.plan();
  GatherPlan gather = plan.gather();
  for (uint64_t number = 0; number < plan.members(); ++number) {
    auto [from, to] = plan.chunk(number);
    if (from == to) break;
    auto input = [&, from = from](uint64_t i) {
      return member_.slots(record) + gather.added(member_.number(), number, i) + from;
    };
    char* result = member_.result(record) + from;
    for (uint64_t i = 1; i < plan.members(); ++i) {
      sum(record, i == 1 ? input(0) : result, input(i), result, to - from);
    }
  }
}

void NodeReceiver::publish_final(EdgePosition at) {
  uint64_t end = 0;
  if (const Record* record = at.position > 0 ? member_.record(at.op) : nullptr) {
    RingPlan plan = member_.plan(*record);
    NodeOrder order = member_.node().order(*record, plan);
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
