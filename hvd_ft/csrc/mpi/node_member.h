// The node as a member of the ring and of gathered ops, shared by both halves of its leader.
#ifndef HVD_FT_NODE_MEMBER_H
#define HVD_FT_NODE_MEMBER_H

#include <vector>

#include "arena/node_arenas.h"
#include "mpi/endpoint.h"
#include "protocol/rejoin.h"
#include "protocol/ring.h"

namespace hvdft {

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
  // Begins a half's next op of which something is left to pass; false: the log does not have it
  // yet. Ops of which nothing is left may have been truncated meanwhile.
  bool begin(EdgeCursor& half, const Record** out) const;
  char* partial(const Record& record) const { return node().heap() + record.partial_offset; }
  char* result(const Record& record) const { return node().heap() + record.result_offset; }
  // Of a gathered op.
  char* slots(const Record& record) const { return partial(record); }
  // The address of a plan's bytes that are received at a position of the ring, and sent on.
  char* passing(const Record& record, const RingPlan& plan, uint64_t received_at) {
    return is_aside(record, plan, received_at) ? aside.data() : result(record);
  }
  bool is_aside(const Record& record, const RingPlan& plan, uint64_t received_at) const {
    return record.id + 1 == node().header().done_over.load() && is_partial(plan, received_at);
  }
  // Another member by its distance.
  int after(uint64_t distance) const { return static_cast<int>((number() + distance) % members); }
  int before(uint64_t distance) const {
    return static_cast<int>((number() + members - distance) % members);
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

// The first message of a receiver to each member that sends to it: its record. It begins an edge.
struct EdgeGreeting {
  uint64_t generation, at;

  // Its record. Throws RingError if the greeting is not of this generation.
  EdgePosition record(uint64_t of_generation) const;
};

}  // namespace hvdft

#endif  // HVD_FT_NODE_MEMBER_H
