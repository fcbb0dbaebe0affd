// The ring between nodes: each node's leader is a member. It drives the protocol of ring.h through
// the ops of the log, one after the other: the sums that workers have reduced in the node's arena
// go in, and progress of the final results is published there. Each half has its own thread, and
// the halves may be in different ops. In a new generation of agents they continue from the arena's
// pair log: each edge begins with a greeting, in which the receiver sends its record to the sender.
//
// An edge may have several connections (edge.h), whose messages take turns; all of them are polled.
//
// Only the receiving half does gathered ops: it also sends (node_gather.h), on a separate endpoint.
// A message arrives at the endpoint with the number of the sending endpoint, and a member has a
// different partner in each round, so no colouring with few numbers would keep two threads apart.
#ifndef HVD_FT_NODE_RING_H
#define HVD_FT_NODE_RING_H

#include <memory>
#include <vector>

#include "mpi/edge.h"
#include "mpi/endpoint.h"
#include "mpi/node_gather.h"
#include "mpi/node_member.h"
#include "mpi/pipelined.h"
#include "protocol/ring.h"

namespace hvdft {

class NodeSender {
 public:
  NodeSender(NodeMember& member, Edge edge);
  bool connect();  // false: not yet, and nothing else may be called before
  bool step();     // does what is possible without waiting; returns whether there was anything
  // Whether it waits for something that comes over MPI, without a doorbell.
  bool waits_for_mpi() const { return !on_their_way_.empty(); }
  // Has to be called now and then: MPI may have to be polled where no transfer is waited for
  // (endpoint.h).
  void poke();

 private:
  bool send_next();
  void poll_younger();

  NodeMember& member_;
  Edge edge_;
  std::vector<EdgeGreeting> greetings_;  // one over each connection
  std::vector<Transfer> greeted_;
  RingSender sender_;
  ReadyInputs ready_;
  const Record* record_ = nullptr;  // of the op that it is in
  OnTheirWay<EdgePosition> on_their_way_;
};

class NodeReceiver {
 public:
  // `ring`: the edge from the predecessor.
  NodeReceiver(NodeMember& member, Edge ring, Endpoint& gather);
  bool connect();
  bool step();
  bool waits_for_mpi() const { return !on_their_way_.empty() || gatherer_.waits_for_mpi(); }
  void poke();

 private:
  struct Expected {
    Incoming in;
    const Record* record;
    bool gathered;
  };
  struct Greeted {
    Endpoint& endpoint;
    Transfer transfer;
  };
  void greet_all();
  bool expect_next();
  bool may_come(const Incoming& next) const;
  char* place_for(const Incoming& next);
  bool begin_op();
  bool has_come();
  bool take_oldest();
  void add(const Record& record, const Incoming& in);
  void add_slots(const Record& record);
  void publish_final(EdgePosition at);
  void note_moments(const Incoming& in, bool over);
  Endpoint& endpoint_of(const Incoming& in, bool gathered) {
    return gathered ? gather_ : ring_.of(in.at);
  }
  char* room(uint64_t number) { return &room_[number % ring_.transfers() * kMostRingSegment]; }

  NodeMember& member_;
  Edge ring_;
  Endpoint& gather_;
  NodeGatherer gatherer_;
  EdgeGreeting greeting_{};
  std::vector<Greeted> greeted_;  // those to whom the greeting is still on its way
  bool greets_ = false;
  RingReceiver receiver_, ahead_;  // what is complete, what is begun
  ReadyInputs ready_;
  const Record* record_ = nullptr;  // of the op that `ahead_` is in
  uint64_t noted_ = UINT64_MAX;     // the op of whose messages the first one has come
  std::unique_ptr<char[]> room_;    // takes memory only as segments come that need it
  OnTheirWay<Expected> on_their_way_;
};

}  // namespace hvdft

#endif  // HVD_FT_NODE_RING_H
