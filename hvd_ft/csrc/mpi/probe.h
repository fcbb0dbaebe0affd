// A probe of message rate and bandwidth between two processes, in the manner of IMB-MT: several
// threads of each exchange messages with the same thread of the other, in both directions at once.
// They share one endpoint, or have one each.
#ifndef HVD_FT_PROBE_H
#define HVD_FT_PROBE_H

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mpi/endpoint.h"

namespace hvdft {

// The messages that a thread has under way in each direction: as many as in IMB-MT, but with large
// ones no more than memory can hold apart.
constexpr uint64_t probe_window(uint64_t bytes) {
  constexpr uint64_t kLeast = 4, kMost = 64, kWindowBytes = 16 << 20;
  return std::clamp(kWindowBytes / bytes, kLeast, kMost);
}

class Probe {
 public:
  // Collective over `communicator`, which has two members. `split`: MPI was started with more split
  // threads than `threads`, and each thread has the endpoint after the one before; the first one
  // belongs to the caller. Otherwise all share one communicator, each with a tag of its own.
  Probe(int communicator, int threads, bool split);

  struct Result {
    uint64_t ns;     // from when the first thread began until the last one was done
    uint64_t wrong;  // bytes of the last windows that did not arrive as they were sent
  };
  // Collective: each thread exchanges `windows` windows of messages of `bytes`.
  Result run(uint64_t bytes, uint64_t windows);
  uint64_t threads() const { return threads_; }

 private:
  struct Phases;
  struct Done {
    uint64_t begin_ns = 0, end_ns = 0, wrong = 0;
    std::string error;
  };
  Done exchange(uint64_t thread, uint64_t bytes, uint64_t windows, Phases& phases);
  int peer() const { return 1 - control_.member(); }

  const uint64_t threads_;
  Endpoint control_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;  // one, or one a thread
};

}  // namespace hvdft

#endif  // HVD_FT_PROBE_H
