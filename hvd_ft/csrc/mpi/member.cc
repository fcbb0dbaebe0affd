#include "mpi/member.h"

#include <algorithm>
#include <exception>

#include "hvd_ft_mpi.h"
#include "mpi/blocking_ring.h"

namespace hvdft {

namespace {

// The program's own communicators use number 0.
constexpr int kFirstEndpoint = 1;

}  // namespace

RingMember::RingMember(int communicator, const Rings& rings)
    : asked_(rings),
      two_threads_(rings.variant == HVDFT_RING_THREADS || rings.variant == HVDFT_RING_ENDPOINTS),
      own_endpoints_(rings.variant == HVDFT_RING_ONE_ENDPOINT ||
                     rings.variant == HVDFT_RING_ENDPOINTS),
      driver_(rings.timeout_ns) {
  make_rings(communicator);
  size_t threads = rings_.size() * (two_threads_ ? 2 : 1);
  for (size_t i = 1; i < threads; ++i) threads_.push_back(std::make_unique<RingThread>());
  if (!own_endpoints_) return;
  poker_ = std::make_unique<IdlePoker>(endpoints_of([](OneRing&) { return true; }));
}

template <typename Which>
std::vector<Endpoint*> RingMember::endpoints_of(Which which) const {
  std::vector<Endpoint*> all;
  for (auto& ring : rings_) {
    if (!which(*ring)) continue;
    for (Endpoint* endpoint : ring->own()) all.push_back(endpoint);
  }
  return all;
}

void RingMember::make_rings(int communicator) {
  int next = own_endpoints_ ? kFirstEndpoint : 0;
  for (int i = 0; i < asked_.count; ++i) {
    bool two = asked_.variant == HVDFT_RING_ENDPOINTS, backwards = asked_.both_ways && i % 2 == 1;
    rings_.push_back(
        std::make_unique<OneRing>(communicator, next, two, backwards, asked_.transfers));
    next += rings_.back()->numbers();
  }
}

void RingMember::allreduce(const std::vector<RingArray>& arrays) {
  if (failed()) throw RingError("this ring has failed before; make a new one");
  try {
    if (asked_.variant == HVDFT_RING_SERIAL || asked_.variant == HVDFT_RING_IRECV_SEND_WAIT) {
      for (const RingArray& array : arrays) blocking(array);
    } else {
      pipelined(arrays);
    }
  } catch (...) {
    driver_.fail();  // and the poker does not touch the endpoints of this op any more
    throw;
  }
}

void RingMember::blocking(const RingArray& array) {
  Exchange exchange =
      asked_.variant == HVDFT_RING_SERIAL ? Exchange::kSerial : Exchange::kIrecvSendWait;
  blocking_allreduce(rings_[0]->out(), exchange, array.data, array.bytes, array.dtype, array.op);
}

void RingMember::pipelined(const std::vector<RingArray>& arrays) {
  deal(arrays);
  std::vector<Work> all = works();
  if (all.empty()) return;
  if (poker_) poker_->op_begins(endpoints_of([](OneRing& ring) { return ring.has_ops(); }));
  run(all);
  if (poker_) poker_->op_ends();
  for (auto& ring : rings_) ring->clear();
}

void RingMember::deal(const std::vector<RingArray>& arrays) {
  uint64_t members = rings_[0]->members(), count = rings_.size(), next = 0;
  for (const RingArray& array : arrays) {
    auto plan = [&](RingShare share) {
      return RingPlan(members, array.bytes, asked_.segment_bytes, false, share);
    };
    RingPlan whole = plan({});
    if (whole.positions() == 0) continue;
    if (whole.positions() >= kMaxPositions) {
      throw RingError("the array has too many segments; give a larger segment_bytes");
    }
    uint64_t parts = std::min(whole.segments(), count);
    for (uint64_t part = 0; part < parts; ++part) {
      rings_[next++ % count]->add(array, plan({part, parts}));
    }
  }
}

// The pieces of work of the rings that have something to do.
std::vector<RingMember::Work> RingMember::works() {
  std::vector<Work> all;
  for (auto& each : rings_) {
    OneRing* ring = each.get();
    if (!ring->has_ops()) continue;
    if (two_threads_) {
      all.push_back([this, ring] { ring->receive(driver_), driver_.done(ring->in()); });
      all.push_back([this, ring] { ring->send(driver_), driver_.done(ring->out()); });
    } else {
      all.push_back([this, ring] { ring->send_and_receive(driver_), driver_.done(ring->in()); });
    }
  }
  return all;
}

// The first by the caller's thread. Throws the first error when all threads have ended.
void RingMember::run(const std::vector<Work>& works) {
  std::vector<std::exception_ptr> errors(works.size());
  auto guarded = [&](size_t i) {
    try {
      works[i]();
    } catch (...) {
      errors[i] = std::current_exception();
      driver_.fail();
    }
  };
  driver_.begin(works.size());
  for (size_t i = 1; i < works.size(); ++i) threads_[i - 1]->begin([&, i] { guarded(i); });
  guarded(0);
  for (size_t i = 1; i < works.size(); ++i) threads_[i - 1]->wait();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace hvdft
