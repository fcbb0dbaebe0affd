// What ranks agree on: this rank announces what it is ready for; rank 0 finds out, for every
// process set, what all its ranks are ready for, whether it is in there or not.
#ifndef HOROVOD_FT_NEGOTIATOR_H
#define HOROVOD_FT_NEGOTIATOR_H

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>

#include "../global_state.h"
#include "ft_requests.h"

namespace horovod {
namespace common {

// Rank 0's part for one process set. What was counted belongs to a term.
class FtCoordinator {
public:
  virtual ~FtCoordinator() = default;
  virtual void StartTerm() = 0;
  virtual void Count(const std::vector<Request>& announced) = 0;
  // Proposes what all ranks have announced.
  virtual void Coordinate(uint64_t term, HorovodGlobalState& state) = 0;
};

struct FtProcessSet {
  FtRequests& requests;
  FtCoordinator& coordinator;
};

// By number. The global one is the last to announce and to propose, as it may remove another.
using FtProcessSets = std::map<int32_t, FtProcessSet, std::greater<int32_t>>;

class FtNegotiator {
public:
  explicit FtNegotiator(FtProcessSets& sets) : sets_(sets) {}
  void Start(ParameterManager& parameter_manager) { parameter_manager_ = &parameter_manager; }

  // Takes what the script has asked for since; true if there was anything.
  bool Collect();
  void FollowTerm(uint64_t term);
  // Tensors that are announced together are agreed on together, and fused. So while this process's
  // other threads, given the CPU, queue more of them it is not yet time; but no longer than a
  // cycle.
  bool MoreToCome(uint32_t ticket) const;
  void Negotiate(HorovodGlobalState& state);

private:
  using Clock = std::chrono::steady_clock;

  bool HasUnannounced() const;
  void TakeAnnouncements();

  FtProcessSets& sets_;
  ParameterManager* parameter_manager_ = nullptr;
  uint64_t term_ = 0;
  Clock::time_point unannounced_since_; // the first of them
};

} // namespace common
} // namespace horovod

#endif // HOROVOD_FT_NEGOTIATOR_H
