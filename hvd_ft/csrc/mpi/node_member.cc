#include "mpi/node_member.h"

#include <algorithm>
#include <string>

namespace hvdft {

const Record* NodeMember::record(uint64_t op) const {
  uint64_t length = node().header().log_length.load(std::memory_order_acquire);
  return op < length ? node().record(op) : nullptr;
}

bool NodeMember::begin(EdgeCursor& half, const Record** out) const {
  while (!half.begun()) {
    uint64_t op = half.op();
    const Record* found = record(op);
    if (found != nullptr) {
      RingPlan its = plan(*found);
      if (record(op) != found) continue;  // truncated as it was read
      half.begin(its);
      *out = found;
    } else if (op < node().header().decided_before.load(std::memory_order_acquire)) {
      half.pass();
    } else {
      return false;
    }
  }
  return true;
}

uint64_t ReadyInputs::count(const NodeMember& member, const Record& record, const RingPlan& plan) {
  if (op_ != record.id) {
    op_ = record.id;
    count_ = 0;
    reduced_ = std::max(reduced_, record.first_segment);
  }
  NodeOrder order = member.node().order(record, plan);
  for (; count_ < plan.inputs(); ++count_) {
    uint64_t end = record.first_segment + order.given_for(plan.input(member.number(), count_));
    while (reduced_ < end && member.arenas.is_input_ready(record, reduced_)) ++reduced_;
    if (reduced_ < end) break;
  }
  return count_;
}

EdgePosition EdgeGreeting::record(uint64_t of_generation) const {
  if (generation != of_generation) {
    throw RingError("an agent of generation " + std::to_string(generation) +
                    " greets one of generation " + std::to_string(of_generation));
  }
  return unpack(at);
}

}  // namespace hvdft
