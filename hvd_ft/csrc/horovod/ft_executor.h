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
  // Horovod will begin it.
  void HandOver(const hvdft_record& record) { handed_over_.push_back(record); }
  // An op of others is passed over: they can rely on it that this rank has come to it.
  void PassOver(const hvdft_record& record);
  bool IsIdle() const { return in_flight_.empty(); }
  // Does what can be done for the ops under way; true if one of them is finished now.
  bool Advance();
  // The timeline tells a wait for a rank that is restarted from an op that takes long.
  void ShowWaiting();

  // What follows is for Horovod's operations.

  // The record of the op that Horovod begins now; called once for each, in order.
  hvdft_record TakeRecord();
  // Carries the op out while Horovod does other things, and calls its entries back.
  void Begin(std::unique_ptr<InFlightOp> op);
  // Waits for all that is under way, the op that Horovod begins now included.
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
