// This rank's requests in one process set that are not yet executed.
#ifndef HOROVOD_FT_REQUESTS_H
#define HOROVOD_FT_REQUESTS_H

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "../message.h"
#include "../tensor_queue.h"
#include "ft_known_requests.h"

namespace horovod {
namespace common {

class FtRequests {
public:
  FtRequests(int32_t process_set, TensorQueue& queue, FtKnownRequests& known);

  // The set has these ranks. Returns whether this rank is one of them.
  bool Start(const std::vector<int>& ranks);
  // From now on this rank has another number in the set.
  void Renumber();
  bool InSet() const { return rank_ >= 0; }
  const std::vector<int>& Ranks() const { return ranks_; }

  // Takes what the script has asked for since; true if there was anything.
  bool Collect();
  // By tensor.
  const std::unordered_map<std::string, Request>& Pending() const { return pending_; }
  std::string Signature(const Request& request) const;

  // ------------------------------------------------------------ announcing

  bool HasUnannounced() const { return !unannounced_.empty(); }
  // Voids the announcements.
  void StartTerm();
  void Announce(uint64_t term);
  // Rank 0 need not announce its own.
  std::vector<Request> TakeUnannounced();

  // ------------------------------------------------------------ following the log

  // Whether the rank can execute this op together with those already taken. An op to which it
  // contributes zeros is executed alone.
  bool IsReadyFor(const Response& response) const;
  // Determined by the log, not by this rank's requests, which come at other times in a replay.
  bool GivesZerosTo(const Response& response) const;
  void Take(const Response& response);
  // Hands the taken ops to Horovod. `joined` is true if Horovod is to take zeros for this rank's
  // tensors, or to end the join.
  ResponseList Execute(bool& joined);

private:
  bool Joined() const;
  bool HasAll(const Response& response) const;
  Request WithSplits(const Request& request) const;

  const int32_t process_set_;
  TensorQueue& queue_;
  FtKnownRequests& known_;
  std::vector<int> ranks_;
  int rank_ = -1; // in the set
  // The announced ones among them may have to be announced again in a new term.
  std::unordered_map<std::string, Request> pending_;
  std::deque<std::string> unannounced_;
  ResponseList taken_;
  bool joined_ = false; // as Execute tells of `taken_`
};

} // namespace common
} // namespace horovod

#endif // HOROVOD_FT_REQUESTS_H
