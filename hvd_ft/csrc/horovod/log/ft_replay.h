// Checks that a restarted script asks for the ops in the log. If it does not, the job stops with a
// line that names the likely cause.
#ifndef HOROVOD_FT_REPLAY_H
#define HOROVOD_FT_REPLAY_H

#include <chrono>

#include "ft_library.h"
#include "ft_negotiator.h"

namespace horovod {
namespace common {

// Whether this rank has asked for anything that is not yet executed.
bool FtAnyPending(const FtProcessSets& sets);

// Checks that the script's request matches the agreed op. A first incarnation has announced it
// itself.
void FtCheckSignatures(const hvdft_record& record, const Response& response,
                       const FtRequests& requests);

// Checks that an incarnation does not end before it has done what an earlier one did.
void FtCheckReplayedToTheEnd();

// A restarted script that asks for collectives that the log does not have would wait for ever. The
// tensors of one step may come in another order than before, and the rest may still be being
// computed, so an early request is an error only when nothing has moved for the whole timeout.
class FtReplay {
public:
  explicit FtReplay(const FtProcessSets& sets) : sets_(sets) {}
  void Start();
  // The script has asked for something, or an op is handed over.
  void Moved() { moved_ = Clock::now(); }
  // The log, of this length, has an op `next` that this rank has not asked for.
  void Check(uint64_t next, uint64_t log_length);

private:
  using Clock = std::chrono::steady_clock;

  void CheckAgainstLog(const FtRequests& requests, int32_t process_set, const hvdft_record& next,
                       uint64_t log_length, bool over) const;

  const FtProcessSets& sets_;
  Clock::time_point moved_;
  std::chrono::duration<double> timeout_{60};
};

} // namespace common
} // namespace horovod

#endif // HOROVOD_FT_REPLAY_H
