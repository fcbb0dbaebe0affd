// The ring in segments, over MPI: receiving one, reducing the one before and sending the one
// before that overlap. Drives the protocol of ring.h for one op; its two halves are linked by
// counters only, so that two threads may drive them, or one.
#ifndef HVD_FT_PIPELINED_H
#define HVD_FT_PIPELINED_H

#include <cstdint>
#include <vector>

#include "mpi/endpoint.h"
#include "protocol/ring.h"

namespace hvdft {

// An array that a member has reduced, in place.
struct RingArray {
  char* data;
  uint64_t bytes;
  uint32_t dtype, op;
};

// A ring's part in the allreduce of an array.
struct RingOp {
  RingOp(const RingArray& of, const RingPlan& by) : array(of), plan(by) {}
  RingArray array;
  RingPlan plan;
  // Its progress. `sent` counts the data that has left the member's memory.
  PairLog log;
};

// A queue of at most so many transfers over one edge, with the item that each of them carries.
template <typename What>
struct OnTheirWay {
  struct Item {
    Transfer transfer;
    What what;
  };
  explicit OnTheirWay(uint64_t most) : items(most) {}

  std::vector<Item> items;
  uint64_t begun = 0, done = 0;

  bool full() const { return begun - done == items.size(); }
  bool empty() const { return begun == done; }
  Item& at(uint64_t number) { return items[number % items.size()]; }  // from done to begun - 1
  Item& oldest() { return at(done); }
  void add(const Item& item) { items[begun++ % items.size()] = item; }
};

class SendingHalf {
 public:
  // `transfers`: so many may be under way.
  SendingHalf(Endpoint& endpoint, const RingPlace& place, RingOp& op, uint64_t transfers);
  // Does what is possible without waiting. Returns whether there was anything to do.
  bool step();
  bool done() const { return sender_.op() > 0 && on_their_way_.empty(); }

 private:
  Endpoint& endpoint_;
  const int successor_;
  RingOp& op_;
  RingSender sender_;
  OnTheirWay<EdgePosition> on_their_way_;
};

class ReceivingHalf {
 public:
  // `room`: memory for received data that is not yet reduced; reused from op to op.
  ReceivingHalf(Endpoint& endpoint, const RingPlace& place, RingOp& op, uint64_t transfers,
                std::vector<char>& room);
  bool step();
  bool done() const { return receiver_.op() > 0; }

 private:
  bool may_begin(const Incoming& next) const;
  void take(const Incoming& arrived, uint64_t number);
  char* place_for(const Incoming& next, uint64_t number);

  Endpoint& endpoint_;
  const int predecessor_;
  RingOp& op_;
  std::vector<char>& room_;
  RingReceiver receiver_, ahead_;  // what is complete, what is begun
  OnTheirWay<Incoming> on_their_way_;
};

}  // namespace hvdft

#endif  // HVD_FT_PIPELINED_H
