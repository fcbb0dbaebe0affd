// Whether a restarted script asks for what the log has. If not the job stops, with a line that
// tells what is likely the cause.
#ifndef HOROVOD_FT_REPLAY_H
#define HOROVOD_FT_REPLAY_H

#include <chrono>

#include "ft_library.h"
#include "ft_negotiator.h"

namespace horovod {
namespace common {

// Whether this rank has asked for anything that is not yet executed.
bool FtAnyPending(const FtProcessSets& sets);

// What the script asks for is what was agreed. A first incarnation has announced it itself.
void FtCheckSignatures(const hvdft_record& record, const Response& response,
                       const FtRequests& requests);

// An incarnation may not end before it has done what an earlier one did.
void FtCheckReplayedToTheEnd();

// A restarted script that asks for other collectives than the log has would wait for ever. The
// tensors of one step may come in another order than before, and the rest may still be computed:
// so what is asked for too early is an error only when nothing has moved for the whole timeout.
class FtReplay {
public:
  explicit FtReplay(const FtProcessSets& sets) : sets_(sets) {}
  void Start();
  // The script has asked for something, or an op is handed over.
  void Moved() { moved_ = Clock::now(); }
  // The log, of this length, has an op `next` that this rank does not ask for.
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
