// This worker's part in the negotiation: it enters, announces and, as rank 0, takes announcements
// and proposes ops for the log.
#ifndef HVD_FT_NEGOTIATION_H
#define HVD_FT_NEGOTIATION_H

#include <atomic>
#include <vector>

#include "worker/log_cursor.h"

namespace hvdft {

class Negotiation {
 public:
  Negotiation(Node& node, int rank, uint32_t incarnation, const LogCursor& log)
      : node_(node), rank_(rank), incarnation_(incarnation), log_(log) {}

  uint64_t term() const { return node_.header().term.load(std::memory_order_acquire); }
  bool wants_to_enter() const { return enter_request_.load() != 0; }  // or has entered
  bool entered() const;
  void enter(uint64_t log_length);
  void leave();  // ends the session

  int announce(uint64_t term, const void* blob, uint64_t bytes);
  int64_t take(int rank, uint64_t term, const void** blob);
  // Whether the last proposal, perhaps an earlier incarnation's, has been read.
  bool may_propose() const;
  int propose(uint64_t term, const hvdft_op* ops, int count);

 private:
  int write_proposal(const hvdft_op* ops, int count);

  Node& node_;
  const int rank_;
  const uint32_t incarnation_;
  const LogCursor& log_;
  uint64_t session_ = 0;                    // how many have ended
  std::atomic<uint64_t> enter_request_{0};  // of this attachment; 0: none yet
  std::vector<char> taken_;
};

}  // namespace hvdft

#endif  // HVD_FT_NEGOTIATION_H
