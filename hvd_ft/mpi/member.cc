#include "member.h"

#include "hvd_ft_mpi.h"
#include "patience.h"
#include "textbook.h"

namespace hvdft {

namespace {

// With chunks of so few bytes there is nothing to overlap, and the time is that of passing from
// process to process: waking a thread for it takes longer, and so does oversleeping.
constexpr uint64_t kSmallBytes = 32 << 10;
constexpr uint64_t kSmallYieldNs = 1000000;

// Otherwise what comes from another core comes within this; later a link is waited for.
constexpr uint64_t kYieldNs = 50000;

}  // namespace

RingMember::RingMember(int communicator, int variant, uint64_t segment_bytes, uint64_t timeout_ns)
    : variant_(variant), segment_bytes_(segment_bytes), timeout_ns_(timeout_ns) {
  make_endpoints(communicator);
  if (variant_ == HVDFT_RING_THREADS || variant_ == HVDFT_RING_ENDPOINTS) {
    thread_ = std::thread(&RingMember::send_thread, this);
  }
}

RingMember::~RingMember() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

// An endpoint reaches only the one of the same number on another member, and a member needs
// different ones for its two edges. So edges are coloured: those of even and of odd members, and
// in an odd ring the last one, which has an edge of each colour beside it.
void RingMember::make_endpoints(int communicator) {
  endpoints_.push_back(std::make_unique<Endpoint>(communicator, 0));
  out_ = in_ = endpoints_[0].get();
  int members = out_->members(), member = out_->member();
  if (variant_ != HVDFT_RING_ENDPOINTS || members == 1) return;
  int colours = members % 2 == 0 ? 2 : 3;
  for (int i = 1; i < colours; ++i) {
    endpoints_.push_back(std::make_unique<Endpoint>(communicator, i));
  }
  auto of_edge = [&](int edge) {
    bool last_of_odd = colours == 3 && edge == members - 1;
    return endpoints_[static_cast<size_t>(last_of_odd ? 2 : edge % 2)].get();
  };
  out_ = of_edge(member);
  in_ = of_edge((member + members - 1) % members);
}

void RingMember::allreduce(void* data, uint64_t bytes, uint32_t dtype, uint32_t op) {
  if (failed_) throw RingError("this ring has failed before; make a new one");
  try {
    if (variant_ == HVDFT_RING_SERIAL) {
      textbook_allreduce(*out_, Exchange::kSerial, data, bytes, dtype, op);
    } else if (variant_ == HVDFT_RING_IRECV_SEND_WAIT) {
      textbook_allreduce(*out_, Exchange::kIrecvSendWait, data, bytes, dtype, op);
    } else {
      pipelined(data, bytes, dtype, op);
    }
  } catch (...) {
    failed_ = true;
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
  bool small = now.plan.chunk(0).bytes() <= kSmallBytes;
  if (thread_.joinable() && !small) {
    two_threads(sending, receiving);
  } else {
    one_thread(sending, receiving, small ? kSmallYieldNs : kYieldNs);
  }
}

void RingMember::one_thread(SendingHalf& sending, ReceivingHalf& receiving, uint64_t yield_ns) {
  struct Both {
    SendingHalf& sending;
    ReceivingHalf& receiving;
    bool step() {
      bool received = !receiving.done() && receiving.step();
      return (!sending.done() && sending.step()) || received;
    }
    bool done() const { return sending.done() && receiving.done(); }
  } both{sending, receiving};
  drive(both, yield_ns);
}

void RingMember::two_threads(SendingHalf& sending, ReceivingHalf& receiving) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    work_ = &sending;
  }
  changed_.notify_all();
  std::string error;
  try {
    drive(receiving, kYieldNs);
  } catch (const RingError& caught) {
    error = caught.what();
    failed_ = true;
  }
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return work_ == nullptr; });
  if (error.empty()) error = send_error_;
  if (!error.empty()) throw RingError(error);
}

void RingMember::send_thread() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ending_ || work_ != nullptr; });
    if (ending_) return;
    lock.unlock();
    std::string error;
    try {
      drive(*work_, kYieldNs);
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
void RingMember::drive(Half& half, uint64_t yield_ns) {
  Patience patience(timeout_ns_, yield_ns);
  while (!half.done() && !failed_) {
    if (half.step()) {
      patience.reset();
    } else if (!patience.pause()) {
      throw RingError("nothing has come or gone for the ring's timeout; see if all members call "
                      "allreduce, with the same size");
    }
  }
}

}  // namespace hvdft
