#include "mpi/one_ring.h"

namespace hvdft {

OneRing::OneRing(int communicator, int first, bool two_endpoints, bool backwards,
                 uint64_t transfers)
    : transfers_(transfers) {
  endpoints_.push_back(std::make_unique<Endpoint>(communicator, first));
  out_ = in_ = endpoints_[0].get();
  int members = out_->members();
  place_ = ring_place(out_->member(), members, backwards);
  if (!two_endpoints || members == 1) return;
  for (int i = 1; i < edge_colours(members); ++i) {
    endpoints_.push_back(std::make_unique<Endpoint>(communicator, first + i));
  }
  auto of_edge = [&](int edge) {
    return endpoints_[static_cast<size_t>(colour_of_edge(edge, members))].get();
  };
  int number = static_cast<int>(place_.number);
  out_ = of_edge(number);
  in_ = of_edge((number + members - 1) % members);
}

void OneRing::receive(RingDriver& driver) {
  for (RingOp& op : ops_) {
    ReceivingHalf half(*in_, place_, op, transfers_, room_);
    driver.drive(half);
  }
}

void OneRing::send(RingDriver& driver) {
  for (RingOp& op : ops_) {
    SendingHalf half(*out_, place_, op, transfers_);
    driver.drive(half);
  }
}

void OneRing::send_and_receive(RingDriver& driver) {
  struct Both {
    SendingHalf sending;
    ReceivingHalf receiving;
    bool step() {
      bool received = !receiving.done() && receiving.step();
      return (!sending.done() && sending.step()) || received;
    }
    bool done() const { return sending.done() && receiving.done(); }
  };
  for (RingOp& op : ops_) {
    Both both{{*out_, place_, op, transfers_}, {*in_, place_, op, transfers_, room_}};
    driver.drive(both);
  }
}

}  // namespace hvdft
