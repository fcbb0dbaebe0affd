#include "mpi/member.h"

#include <chrono>

#include "hvd_ft_mpi.h"
#include "mpi/backoff.h"
#include "mpi/blocking_ring.h"

namespace hvdft {

namespace {

// Data from another core comes within this time; a longer wait is for a link, or for a process
// without a CPU. On a busy machine a thread that only yields has to wait for the time slices of all
// others.
constexpr uint64_t kYieldNs = 50000;

// Endpoints belong to the process, so all its rings share them: no thread may poke them while
// another is in an op. The program's own communicators use number 0.
std::mutex endpoints_mutex;
int ops_on_endpoints = 0;
constexpr int kFirstEndpoint = 1;

}  // namespace

RingMember::RingMember(int communicator, int variant, uint64_t segment_bytes, uint64_t timeout_ns)
    : variant_(variant),
      two_threads_(variant == HVDFT_RING_THREADS || variant == HVDFT_RING_ENDPOINTS),
      own_endpoints_(variant == HVDFT_RING_ONE_ENDPOINT || variant == HVDFT_RING_ENDPOINTS),
      segment_bytes_(segment_bytes),
      timeout_ns_(timeout_ns) {
  make_endpoints(communicator);
  if (two_threads_ || own_endpoints_) thread_ = std::thread(&RingMember::send_thread, this);
}

RingMember::~RingMember() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void RingMember::make_endpoints(int communicator) {
  int first = own_endpoints_ ? kFirstEndpoint : 0;
  endpoints_.push_back(std::make_unique<Endpoint>(communicator, first));
  out_ = in_ = endpoints_[0].get();
  int members = out_->members(), member = out_->member();
  if (variant_ != HVDFT_RING_ENDPOINTS || members == 1) return;
  for (int i = 1; i < edge_colours(members); ++i) {
    endpoints_.push_back(std::make_unique<Endpoint>(communicator, first + i));
  }
  auto of_edge = [&](int edge) {
    return endpoints_[static_cast<size_t>(colour_of_edge(edge, members))].get();
  };
  out_ = of_edge(member);
  in_ = of_edge((member + members - 1) % members);
}

void RingMember::allreduce(void* data, uint64_t bytes, uint32_t dtype, uint32_t op) {
  if (failed_) throw RingError("this ring has failed before; make a new one");
  try {
    if (variant_ == HVDFT_RING_SERIAL) {
      blocking_allreduce(*out_, Exchange::kSerial, data, bytes, dtype, op);
    } else if (variant_ == HVDFT_RING_IRECV_SEND_WAIT) {
      blocking_allreduce(*out_, Exchange::kIrecvSendWait, data, bytes, dtype, op);
    } else {
      pipelined(data, bytes, dtype, op);
    }
  } catch (...) {
    failed_ = true;  // and in_op_ stays set: the endpoints are not touched any more
    throw;
  }
}

void RingMember::pipelined(void* data, uint64_t bytes, uint32_t dtype, uint32_t op) {
  auto members = static_cast<uint64_t>(out_->members());
  RingOp now{static_cast<char*>(data), {members, bytes, segment_bytes_}, dtype, op, {}};
  if (now.plan.positions() == 0) return;
  if (now.plan.positions() >= kMaxPositions) {
    throw RingError("the array has too many segments; give a larger segment_bytes");
  }
  SendingHalf sending(*out_, now);
  ReceivingHalf receiving(*in_, now, room_);
  set_in_op(true);
  two_threads_ ? two_threads(sending, receiving) : one_thread(sending, receiving);
  set_in_op(false);
}

// Both halves on one endpoint. With two endpoints this would hang: a call on one can wait for a
// neighbour that has to make a call on the other, and is stuck in the same way.
void RingMember::one_thread(SendingHalf& sending, ReceivingHalf& receiving) {
  struct Both {
    SendingHalf& sending;
    ReceivingHalf& receiving;
    bool step() {
      bool received = !receiving.done() && receiving.step();
      return (!sending.done() && sending.step()) || received;
    }
    bool done() const { return sending.done() && receiving.done(); }
  } both{sending, receiving};
  drive(both);
}

void RingMember::two_threads(SendingHalf& sending, ReceivingHalf& receiving) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    work_ = &sending;
  }
  changed_.notify_all();
  std::string error;
  try {
    drive(receiving);
  } catch (const RingError& caught) {
    error = caught.what();
    failed_ = true;
  }
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return work_ == nullptr; });
  if (error.empty()) error = send_error_;
  if (!error.empty()) throw RingError(error);
}

void RingMember::set_in_op(bool in_op) {
  {
    std::lock_guard<std::mutex> lock(endpoints_mutex);
    ops_on_endpoints += in_op ? 1 : -1;
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    in_op_ = in_op;
  }
  if (!in_op) changed_.notify_all();
}

// A caller that is done makes no more calls on its endpoints, so its successor may wait for ever
// (Endpoint::poke). So the thread makes such calls between ops, less and less often.
void RingMember::await_work(std::unique_lock<std::mutex>& lock) {
  constexpr std::chrono::microseconds kFirst{100}, kLast{100000};
  auto pause = kFirst;
  auto wanted = [&] { return ending_ || work_ != nullptr; };
  while (!wanted()) {
    if (in_op_) {
      changed_.wait(lock, [&] { return wanted() || !in_op_; });
      pause = kFirst;
    } else if (!changed_.wait_for(lock, pause, [&] { return wanted() || in_op_; })) {
      std::lock_guard<std::mutex> poking(endpoints_mutex);
      if (ops_on_endpoints == 0 && own_endpoints_) {
        in_->poke();
        if (out_ != in_) out_->poke();
      }
      pause = std::min(2 * pause, kLast);
    }
  }
}

void RingMember::send_thread() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    await_work(lock);
    if (ending_) return;
    lock.unlock();
    std::string error;
    try {
      drive(*work_);
    } catch (const RingError& caught) {
      error = caught.what();
      failed_ = true;
    }
    lock.lock();
    send_error_ = error;
    work_ = nullptr;
    changed_.notify_all();
  }
}

template <typename Half>
void RingMember::drive(Half& half) {
  Backoff backoff(timeout_ns_, kYieldNs);
  while (!half.done() && !failed_) {
    if (half.step()) {
      backoff.reset();
    } else if (!backoff.pause()) {
      throw RingError(
          "nothing has come or gone for the ring's timeout; see if all members call "
          "allreduce, with the same size");
    }
  }
}

}  // namespace hvdft
