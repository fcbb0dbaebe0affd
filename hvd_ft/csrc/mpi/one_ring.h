// A member's part in one of its rings: its endpoints there, and the ops that this ring is to do.
#ifndef HVD_FT_ONE_RING_H
#define HVD_FT_ONE_RING_H

#include <deque>
#include <memory>
#include <vector>

#include "mpi/endpoint.h"
#include "mpi/pipelined.h"
#include "mpi/ring_driver.h"
#include "protocol/ring_plan.h"

namespace hvdft {

class OneRing {
 public:
  // `first`: the number of its first endpoint. With `two_endpoints` each direction has one,
  // coloured as edges are. `transfers`: so many may be under way in a direction. Collective.
  OneRing(int communicator, int first, bool two_endpoints, bool backwards, uint64_t transfers);

  uint64_t members() const { return static_cast<uint64_t>(out_->members()); }
  // So many numbers all members together use.
  int numbers() const { return static_cast<int>(endpoints_.size()); }
  Endpoint& out() { return *out_; }
  Endpoint& in() { return *in_; }
  // Those that this member uses.
  std::vector<Endpoint*> own() const {
    return out_ == in_ ? std::vector<Endpoint*>{out_} : std::vector<Endpoint*>{out_, in_};
  }

  void add(const RingArray& array, const RingPlan& plan) { ops_.emplace_back(array, plan); }
  bool has_ops() const { return !ops_.empty(); }
  void clear() { ops_.clear(); }

  // Does all its ops: by two threads, a direction each, …
  void receive(RingDriver& driver);
  void send(RingDriver& driver);
  // … or both by one, on one endpoint. With two endpoints this would hang: a call on one can wait
  // for a neighbour that has to make a call on the other, and is stuck in the same way.
  void send_and_receive(RingDriver& driver);

 private:
  // A communicator for each colour of edges, of which a member uses two.
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  Endpoint* out_;
  Endpoint* in_;
  RingPlace place_;
  const uint64_t transfers_;
  std::deque<RingOp> ops_;
  std::vector<char> room_;
};

}  // namespace hvdft

#endif  // HVD_FT_ONE_RING_H
