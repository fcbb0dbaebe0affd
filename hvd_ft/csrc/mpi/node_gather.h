// The sending side of gathered ops between nodes: drives the protocol of gather.h through the log's
// gathered ops. It belongs to the receiving half (node_ring.h) and runs in its thread, because
// every message that it sends depends on a received one.
#ifndef HVD_FT_NODE_GATHER_H
#define HVD_FT_NODE_GATHER_H

#include <vector>

#include "mpi/endpoint.h"
#include "mpi/node_member.h"
#include "mpi/pipelined.h"
#include "protocol/gather.h"

namespace hvdft {

// Gathered ops are small, so a few on their way are enough.
constexpr uint64_t kGathersUnderWay = 4;

class NodeGatherer {
 public:
  NodeGatherer(NodeMember& member, Endpoint& endpoint);
  uint64_t edges() const { return sender_.edges(); }
  bool connect();  // false: not yet, and nothing else may be called before
  bool step();     // does what is possible without waiting; returns whether there was anything
  // Whether it waits for something that comes over MPI, without a doorbell.
  bool waits_for_mpi() const { return !on_their_way_.empty(); }

 private:
  bool send_next();

  NodeMember& member_;
  Endpoint& endpoint_;
  GatherSender sender_;
  std::vector<EdgeGreeting> greetings_;  // by edge
  std::vector<Transfer> greeted_;
  ReadyInputs ready_;
  const Record* record_ = nullptr;  // of the op that it is in
  OnTheirWay<EdgePosition> on_their_way_{kGathersUnderWay};
};

// The members with which one exchanges gathered ops, each once.
std::vector<int> gather_peers(int member, int members);

}  // namespace hvdft

#endif  // HVD_FT_NODE_GATHER_H
