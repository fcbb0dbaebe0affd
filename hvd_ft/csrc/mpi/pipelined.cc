#include "mpi/pipelined.h"

#include "base/reduce.h"

namespace hvdft {

namespace {
constexpr uint64_t kGeneration = 0;  // edges are never remade here
}

SendingHalf::SendingHalf(Endpoint& endpoint, const RingPlace& place, RingOp& op, uint64_t transfers)
    : endpoint_(endpoint),
      successor_(place.successor),
      op_(op),
      sender_(place.number),
      on_their_way_(transfers) {
  sender_.resume(kGeneration, {0, 0});
  sender_.begin(op.plan);
}

bool SendingHalf::step() {
  bool moved = false;
  Outgoing next;
  EdgePosition received = op_.log.received.at();
  while (!on_their_way_.full() && sender_.next(received, op_.plan.inputs(), &next)) {
    const char* from = op_.array.data + next.bytes.from;
    on_their_way_.add({endpoint_.begin_send(from, next.bytes.bytes(), successor_), next.at});
    sender_.sent();
    moved = true;
  }
  while (!on_their_way_.empty() && endpoint_.complete(&on_their_way_.oldest().transfer)) {
    op_.log.sent.publish({0, on_their_way_.oldest().what.position + 1});
    ++on_their_way_.done;
    moved = true;
  }
  if (!moved && on_their_way_.empty()) endpoint_.poke();  // or the successor may wait for ever
  return moved;
}

ReceivingHalf::ReceivingHalf(Endpoint& endpoint, const RingPlace& place, RingOp& op,
                             uint64_t transfers, std::vector<char>& room)
    : endpoint_(endpoint),
      predecessor_(place.predecessor),
      op_(op),
      room_(room),
      receiver_(place.number, op.plan.members(), {0, 0}),
      ahead_(receiver_),
      on_their_way_(transfers) {
  receiver_.begin(op.plan);
  ahead_.begin(op.plan);
  uint64_t lines = (op.plan.chunk(0).bytes() + kCacheLine - 1) / kCacheLine;
  uint64_t most = std::min(op.plan.segment_bytes(), lines * kCacheLine);
  if (room_.size() < transfers * most) room_.resize(transfers * most);
}

// A final value must not be received into memory that is still being sent from: its contents were
// sent a round of the ring earlier.
bool ReceivingHalf::may_begin(const Incoming& next) const {
  uint64_t round = (op_.plan.members() - 1) * op_.plan.segments();
  return next.adds || EdgePosition{0, next.at.position - round} < op_.log.sent.at();
}

char* ReceivingHalf::place_for(const Incoming& next, uint64_t number) {
  if (!next.adds) return op_.array.data + next.bytes.from;
  uint64_t most = on_their_way_.items.size();
  return room_.data() + number % most * (room_.size() / most);
}

// Adds arrived data to the result.
void ReceivingHalf::take(const Incoming& arrived, uint64_t number) {
  if (!arrived.adds) return;
  char* own = op_.array.data + arrived.bytes.from;
  const void* inputs[] = {place_for(arrived, number), own};
  uint64_t count = arrived.bytes.bytes() / element_bytes(op_.array.dtype);
  reduce(op_.array.dtype, op_.array.op, inputs, 2, own, count);
}

bool ReceivingHalf::step() {
  bool moved = false;
  Incoming next;
  while (!on_their_way_.full() && ahead_.next(&next) && may_begin(next)) {
    char* to = place_for(next, on_their_way_.begun);
    on_their_way_.add({endpoint_.begin_receive(to, next.bytes.bytes(), predecessor_), next});
    ahead_.received();
    moved = true;
  }
  // One at a time, so that its result is sent before the next one is reduced.
  if (!on_their_way_.empty() && endpoint_.complete(&on_their_way_.oldest().transfer)) {
    take(on_their_way_.oldest().what, on_their_way_.done);
    ++on_their_way_.done;
    op_.log.received.publish(receiver_.received());
    moved = true;
  }
  if (!moved && on_their_way_.empty()) endpoint_.poke();
  return moved;
}

}  // namespace hvdft
