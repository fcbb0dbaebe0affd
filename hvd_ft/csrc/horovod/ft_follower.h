// How this rank follows the op log, which has the ops of all process sets.
//
// Every rank goes through the log in order. An op of a set that this rank is in is handed to the
// set's controller, and so to Horovod, which begins it; another op is passed over: the rank gives
// nothing and takes nothing, but others can rely on it that it has come to it. A restarted rank
// does just the same: the log's first part is only older.
#ifndef HOROVOD_FT_FOLLOWER_H
#define HOROVOD_FT_FOLLOWER_H

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "../global_state.h"
#include "ft_in_flight.h"

namespace horovod {
namespace common {

class FtController;

class FtFollower {
public:
  // A session, from hvd.init to hvd.shutdown.
  void Start(Timeline& timeline, ParameterManager& parameter_manager);
  void End();
  void Add(int32_t process_set, FtController& controller);
  void Remove(int32_t process_set);

  // Waits until the log has a next op that this rank is ready for, and hands it to its controller,
  // with all that follow in the same set. False: this rank has left.
  bool Next(bool shutdown_requested, HorovodGlobalState& state);

  // Ends a wait of Next: there is something new to look at in this process.
  static void Wake();

  // The log's record of the op that is being executed; ops call it once, in order.
  hvdft_record TakeRecord();
  // Carries the op out while it does other things, and calls its entries back.
  void Begin(std::unique_ptr<InFlightOp> op);
  // Waits for all that is under way, the op that is being executed included.
  void Barrier();

  // Whether all ranks have asked for the same change of process sets since the last call (see
  // ft_process_sets.h). When the session is over nobody need be asked.
  bool TakeChange();

private:
  using Clock = std::chrono::steady_clock;

  void Collect();
  bool Waits() const;
  uint64_t NextOp() const;
  bool HandOver(bool leaving);
  FtController* NextFromLog(const FtController* before, bool leaving);
  FtController& ControllerOf(int32_t process_set, const hvdft_record& record);
  bool Advance();
  void Finish(InFlightOp& op);
  void Leave();
  void CheckPeers();
  void ShowWaiting();
  void FollowTerm(uint64_t term);
  bool MoreToCome(uint32_t ticket);
  void Negotiate(HorovodGlobalState& state);
  void TakeAnnouncements();

  // In ft_replay.cc: whether a restarted script asks for what the log has. They stop the job.
  void CheckReplayMoves(uint64_t log_length);
  void CheckReplayedToTheEnd();

  // By process set. The global one is the last to announce and to propose, as it may remove another.
  std::map<int32_t, FtController*, std::greater<int32_t>> controllers_;
  Timeline* timeline_ = nullptr;
  ParameterManager* parameter_manager_ = nullptr;
  std::deque<hvdft_record> executing_; // handed to Horovod, which has not yet begun them
  std::deque<std::unique_ptr<InFlightOp>> in_flight_;
  uint64_t term_ = 0;
  Clock::time_point unannounced_since_; // the first of them
  Clock::time_point replay_moved_;
  std::chrono::duration<double> replay_timeout_{60};
  bool change_ = false, ended_ = false;
};

// The process's one.
FtFollower& ft_follower();

} // namespace common
} // namespace horovod

#endif // HOROVOD_FT_FOLLOWER_H
