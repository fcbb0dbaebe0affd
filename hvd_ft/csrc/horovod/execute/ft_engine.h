// One session of this rank, from hvd.init to hvd.shutdown: it announces the script's requests,
// follows the op log, and executes its ops. Horovod's controllers and operations get it as an
// argument.
#ifndef HOROVOD_FT_ENGINE_H
#define HOROVOD_FT_ENGINE_H

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "ft_executor.h"
#include "ft_log_reader.h"
#include "ft_negotiator.h"
#include "ft_replay.h"
#include "ft_tuner.h"

namespace horovod {
namespace common {

class FtEngine {
public:
  FtEngine()
      : negotiator_(sets_, known_, tuner_), replay_(sets_), reader_(sets_, executor_, replay_) {}
  FtEngine(const FtEngine&) = delete; // its parts refer to each other

  void Start(Timeline& timeline, ParameterManager& parameter_manager);
  void End();
  void Add(int32_t number, FtProcessSet set) { sets_.emplace(number, set); }
  void Remove(int32_t number);

  // Waits until the log has next ops that this rank is ready for, and hands them to their process
  // set. False: this rank has left.
  bool Next(bool shutdown_requested, HorovodGlobalState& state);
  // Ends a wait of Next, as something in this process has changed. From any thread.
  void Wake() { ft().worker_notify(); }

  // Whether all ranks have asked for the same change of process sets since the last call (see
  // ft_process_sets.h). Once the session is over no agreement is needed.
  bool TakeChange() { return reader_.TakeChange() || ended_; }

  // The script's thread: waits until the present ranks are those of where it is in the log. False:
  // the session has ended.
  bool AwaitRoster();

  FtExecutor& Executor() { return executor_; }
  FtKnownRequests& Known() { return known_; }
  FtTuner& Tuner() { return tuner_; }

private:
  void FollowRoster();
  bool HasLeft() const;
  void Leave();
  void CheckPeers();

  FtProcessSets sets_;
  FtExecutor executor_;
  FtKnownRequests known_;
  FtTuner tuner_;
  FtNegotiator negotiator_;
  FtReplay replay_;
  FtLogReader reader_;
  std::atomic<bool> ended_{false};
  std::atomic<uint64_t> roster_{0}; // that the process sets follow
  std::mutex mutex_;
  std::condition_variable changed_;
};

} // namespace common
} // namespace horovod

#endif // HOROVOD_FT_ENGINE_H
