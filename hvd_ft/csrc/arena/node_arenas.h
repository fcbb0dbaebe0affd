// All arenas of a node, and the work on the segments of ops: which worker reduces which segment,
// from the input areas of all ranks on this node into the result, or with several nodes into this
// node's input to the ring.
#ifndef HVD_FT_CLAIMS_H
#define HVD_FT_CLAIMS_H

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "arena/arena.h"

namespace hvdft {

class Arenas {
 public:
  // `rank`: the worker's rank, whose input area is mapped writable. Empty, with an error set, if a
  // file is missing or not of this job.
  static std::unique_ptr<Arenas> open(const std::string& dir, const char* job, Node::Role role,
                                      int rank);
  Node& node() const { return *node_; }
  RankFile& file(int rank) const { return *files_[static_cast<size_t>(rank)]; }

  Stage stage(const Record& record, uint64_t number) const;
  bool is_reduced(uint64_t number) const;
  // Whether its result can be taken: with one node, when it is reduced.
  bool is_final(uint64_t number) const;
  bool all_contributed(uint64_t position) const;

  // Claims segment `number` for `rank` and reduces it. False if another worker was faster.
  bool claim_and_reduce(const Record& record, uint64_t number, int rank) const;

  // For the node's leader: whether segment `number` is reduced. Where no rank of this node takes
  // part in the op any more (roster.h) no worker does that, and the leader does it here.
  bool is_input_ready(const Record& record, uint64_t number) const;

  // The worker of `rank` is dead: reduces the segments that it had claimed.
  void take_over(int rank) const;

 private:
  Shared<uint64_t>& claim(uint64_t number) const {
    return node_->header().claims[number % kClaims].word;
  }
  void reduce_segment(const Record& record, uint64_t number) const;
  const Record& record_of(uint64_t number) const;

  std::unique_ptr<Node> node_;
  mutable std::mutex reducing_;  // between the leader's threads; never shared with a process
  std::vector<std::unique_ptr<RankFile>> files_;  // empty for ranks on other nodes
};

}  // namespace hvdft

#endif  // HVD_FT_CLAIMS_H
