// Drives halves of rings until they are done; for all threads of a member.
#ifndef HVD_FT_RING_DRIVER_H
#define HVD_FT_RING_DRIVER_H

#include <atomic>
#include <cstdint>

#include "mpi/backoff.h"
#include "mpi/endpoint.h"
#include "mpi/nap.h"

namespace hvdft {

class RingDriver {
 public:
  // `timeout_ns`: of a wait in which nothing moves.
  explicit RingDriver(uint64_t timeout_ns) : timeout_ns_(timeout_ns) {}

  // Once one thread has failed, the others give up.
  bool failed() const { return failed_; }
  void fail() { failed_ = true; }

  template <typename Half>
  void drive(Half& half) {
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

  // So many threads begin; each calls done() when it has nothing more to drive.
  void begin(size_t threads) { busy_ = threads; }
  // MPI may still hold what the endpoint has sent, and a neighbour would wait for it until the
  // slowest ring is done (Endpoint::poke).
  void done(Endpoint& endpoint) {
    Backoff backoff(timeout_ns_, kYieldNs);
    for (--busy_; busy_ > 0 && !failed_; backoff.pause()) endpoint.poke();
  }

 private:
  const uint64_t timeout_ns_;
  std::atomic<bool> failed_{false};
  std::atomic<size_t> busy_{0};
};

}  // namespace hvdft

#endif  // HVD_FT_RING_DRIVER_H
