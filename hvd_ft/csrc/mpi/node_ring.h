// The ring between nodes: each node's leader is a member. It drives the protocol of ring.h through
// the ops of the log, one after the other: the sums that workers have reduced in the node's arena
// go in, and progress of the final results is published there. The two halves have a thread each,
// and may be in different ops. In a new generation of agents they continue from the arena's pair
// log: each edge begins with a greeting, in which the receiver tells the sender what it has.
#ifndef HVD_FT_NODE_RING_H
#define HVD_FT_NODE_RING_H

#include <optional>
#include <vector>

#include "arena/node_arenas.h"
#include "mpi/endpoint.h"
#include "mpi/pipelined.h"
#include "protocol/rejoin.h"
#include "protocol/ring.h"

namespace hvdft {

// State that both halves share.
struct NodeMember {
  const Arenas& arenas;
  uint64_t members;
  // Partial sums of the op that is done over (rejoin.h); the receiving half makes it.
  std::vector<char> aside{};

  Node& node() const { return arenas.node(); }
  uint64_t number() const { return node().number(); }
  uint64_t generation() const { return node().header().generation.load(); }
  PairLog& log() const { return node().header().pair_log; }
  // nullptr: the log does not have it yet.
  const Record* record(uint64_t op) const;
  RingPlan plan(const Record& record) const { return node().plan(record); }
  char* partial(const Record& record) const { return node().heap() + record.partial_offset; }
  char* result(const Record& record) const { return node().heap() + record.result_offset; }
  char* chunks(const Record& record, const RingPlan& plan) const {
    return node().heap() + node().chunks_offset(record, plan);
  }
  // Addresses of a plan's bytes: of inputs, and of those that are received at a position, and sent
  // on.
  char* inputs(const Record& record, const RingPlan& plan) const {
    return plan.gathered() ? chunks(record, plan) : partial(record);
  }
  char* passing(const Record& record, const RingPlan& plan, uint64_t received_at) {
    if (is_aside(record, plan, received_at)) return aside.data();
    return plan.gathered() ? chunks(record, plan) : result(record);
  }
  bool is_aside(const Record& record, const RingPlan& plan, uint64_t received_at) const {
    return record.id + 1 == node().header().done_over.load() && is_partial(plan, received_at);
  }
};

// How many of an op's inputs are ready, in the order of RingPlan::input(). For one thread.
class ReadyInputs {
 public:
  uint64_t count(const NodeMember& member, const Record& record, const RingPlan& plan);

 private:
  uint64_t reduced_ = 0;  // number: all segments before it are reduced
  uint64_t op_ = UINT64_MAX, count_ = 0;
};

// The first message of a receiver to its predecessor.
struct EdgeGreeting {
  uint64_t generation, at;
};

class NodeSender {
 public:
  NodeSender(NodeMember& member, Endpoint& endpoint);
  bool connect();  // false: not yet, and nothing else may be called before
  bool step();     // does what is possible without waiting; returns whether there was anything
  // Whether it waits for something that comes over MPI, without a doorbell.
  bool waits_for_mpi() const { return !on_their_way_.empty(); }
  // Has to be called now and then where no transfer is waited for (endpoint.h).
  void poke() { endpoint_.poke(); }

 private:
  bool send_next();

  int successor() const { return (endpoint_.member() + 1) % endpoint_.members(); }

  NodeMember& member_;
  Endpoint& endpoint_;
  EdgeGreeting greeting_{};
  std::optional<Transfer> greeted_;
  RingSender sender_;
  ReadyInputs ready_;
  const Record* record_ = nullptr;  // of the op that it is in
  OnTheirWay<EdgePosition> on_their_way_;
};

class NodeReceiver {
 public:
  NodeReceiver(NodeMember& member, Endpoint& endpoint);
  bool connect();
  bool step();
  bool waits_for_mpi() const { return !on_their_way_.empty(); }
  void poke() { endpoint_.poke(); }

 private:
  struct Expected {
    Incoming in;
    const Record* record;
  };
  bool expect_next();
  bool take_oldest();
  void add(const Record& record, const Incoming& in);
  void add_chunks(const Record& record);
  void publish_final(EdgePosition at);
  int predecessor() const {
    return (endpoint_.member() + endpoint_.members() - 1) % endpoint_.members();
  }
  char* room(uint64_t number) { return room_.data() + number % kTransfers * kRingSegmentBytes; }

  NodeMember& member_;
  Endpoint& endpoint_;
  EdgeGreeting greeting_{};
  std::optional<Transfer> greeted_;
  RingReceiver receiver_, ahead_;  // what is complete, what is begun
  ReadyInputs ready_;
  const Record* record_ = nullptr;  // of the op that `ahead_` is in
  std::vector<char> room_;
  OnTheirWay<Expected> on_their_way_;
};

}  // namespace hvdft

#endif  // HVD_FT_NODE_RING_H
