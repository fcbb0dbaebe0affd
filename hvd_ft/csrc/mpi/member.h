// A member of a ring over MPI, or of several that carry an array's segments side by side: its rings
// and its threads.
#ifndef HVD_FT_MEMBER_H
#define HVD_FT_MEMBER_H

#include <functional>
#include <memory>
#include <vector>

#include "mpi/idle_poker.h"
#include "mpi/one_ring.h"
#include "mpi/ring_driver.h"
#include "mpi/ring_thread.h"

namespace hvdft {

class RingMember {
 public:
  // Several rings only of variants with endpoints of their own. `both_ways`: every other one of
  // them goes backwards.
  struct Rings {
    int variant;
    int count;
    bool both_ways;
    uint64_t segment_bytes, transfers, timeout_ns;
  };
  RingMember(int communicator, const Rings& rings);

  // Reduces all of them at once. Each goes over as many rings as its chunks have segments, at most
  // all, and the rings take turns.
  void allreduce(const std::vector<RingArray>& arrays);
  bool failed() const { return driver_.failed(); }

 private:
  using Work = std::function<void()>;
  void make_rings(int communicator);
  template <typename Which>
  std::vector<Endpoint*> endpoints_of(Which which) const;
  void blocking(const RingArray& array);
  void pipelined(const std::vector<RingArray>& arrays);
  void deal(const std::vector<RingArray>& arrays);
  std::vector<Work> works();
  void run(const std::vector<Work>& works);

  const Rings asked_;
  const bool two_threads_, own_endpoints_;
  RingDriver driver_;
  std::vector<std::unique_ptr<OneRing>> rings_;
  std::vector<std::unique_ptr<RingThread>> threads_;  // those beside the caller's
  std::unique_ptr<IdlePoker> poker_;
};

}  // namespace hvdft

#endif  // HVD_FT_MEMBER_H
