// The ops that this rank executes, in the log's order: those handed to Horovod, which begins them,
// and those begun, several of which are under way at once.
#ifndef HOROVOD_FT_EXECUTOR_H
#define HOROVOD_FT_EXECUTOR_H

#include <deque>
#include <memory>

#include "../timeline.h"
#include "ft_in_flight.h"

namespace horovod {
namespace common {

class FtExecutor {
public:
  void Start(Timeline& timeline) { timeline_ = &timeline; }

  // The first op of the log that is neither executed nor handed over.
  uint64_t NextOp() const;
  // Hands it over: Horovod will begin it.
  void HandOver(const hvdft_record& record) { handed_over_.push_back(record); }
  // Passes over an op of other ranks, which can rely on this rank having reached it.
  void PassOver(const hvdft_record& record);
  bool IsIdle() const { return in_flight_.empty(); }
  // Advances the ops under way; true if one of them has finished.
  bool Advance();
  // The timeline distinguishes waiting for a restarted rank from a slow op.
  void ShowWaiting();

  // The following functions are for Horovod's operations.

  // Returns the record of the op that Horovod begins now; called once for each, in order.
  hvdft_record TakeRecord();
  // Executes the op while Horovod does other things, and calls its entries' callbacks.
  void Begin(std::unique_ptr<InFlightOp> op);
  // Waits for all ops under way, including the one that Horovod begins now.
  void Barrier();

private:
  void Finish(InFlightOp& op);

  Timeline* timeline_ = nullptr;
  std::deque<hvdft_record> handed_over_;
  std::deque<std::unique_ptr<InFlightOp>> in_flight_;
};

} // namespace common
} // namespace horovod

#endif // HOROVOD_FT_EXECUTOR_H
