// The negotiation: this rank announces the tensors it is ready for. Rank 0 determines for every
// process set, whether it is a member or not, the ops for which all members are ready.
#ifndef HOROVOD_FT_NEGOTIATOR_H
#define HOROVOD_FT_NEGOTIATOR_H

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>

#include "../global_state.h"
#include "ft_announcement.h"
#include "ft_requests.h"
#include "ft_tuner.h"

namespace horovod {
namespace common {

// Rank 0's part for one process set. Counts belong to a term.
class FtCoordinator {
public:
  virtual ~FtCoordinator() = default;
  virtual void StartTerm() = 0;
  // `by`: the rank, as they were numbered when the job began.
  virtual void Count(int by, const FtAnnouncement& announced) = 0;
  // Proposes the ops that all ranks have announced.
  virtual void Coordinate(uint64_t term, HorovodGlobalState& state) = 0;
  // Every rank's: from now on these ranks are present.
  virtual void Follow(const std::vector<int>& present) = 0;
};

struct FtProcessSet {
  FtRequests& requests;
  FtCoordinator& coordinator;
};

// By number. The global one is the last to announce and to propose, as it may remove another.
using FtProcessSets = std::map<int32_t, FtProcessSet, std::greater<int32_t>>;

class FtNegotiator {
public:
  FtNegotiator(FtProcessSets& sets, FtKnownRequests& known, FtTuner& tuner)
      : sets_(sets), known_(known), tuner_(tuner) {}
  void Start(ParameterManager& parameter_manager) { parameter_manager_ = &parameter_manager; }

  // Takes the script's new requests; true if there were any.
  bool Collect();
  void FollowTerm(uint64_t term);
  // Tensors that are announced together are agreed on together, and fused. So this waits while
  // other threads of this process, given the CPU, queue more of them, but no longer than a cycle.
  bool MoreToCome(uint32_t ticket) const;
  void Negotiate(HorovodGlobalState& state);

private:
  using Clock = std::chrono::steady_clock;

  bool HasUnannounced() const;
  void TakeAnnouncements();

  FtProcessSets& sets_;
  FtKnownRequests& known_;
  FtTuner& tuner_;
  ParameterManager* parameter_manager_ = nullptr;
  uint64_t term_ = 0;
  Clock::time_point unannounced_since_; // the first of them
};

} // namespace common
} // namespace horovod

#endif // HOROVOD_FT_NEGOTIATOR_H
