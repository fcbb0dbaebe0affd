// Reads the op log, which has the ops of all process sets, for this rank.
//
// Every rank reads the log in order. An op of one of the rank's process sets is handed to Horovod
// once the script has asked for it. Any other op is passed over: the rank contributes and takes
// nothing, but others can rely on it having reached the op. A restarted rank does the same; only
// the first part of the log is older.
#ifndef HOROVOD_FT_LOG_READER_H
#define HOROVOD_FT_LOG_READER_H

#include "ft_executor.h"
#include "ft_negotiator.h"
#include "ft_replay.h"

namespace horovod {
namespace common {

class FtLogReader {
public:
  FtLogReader(FtProcessSets& sets, FtExecutor& executor, FtReplay& replay)
      : sets_(sets), executor_(executor), replay_(replay) {}
  void Start() { change_ = roster_ = false; }

  // Hands over the log's next ops that this rank is ready for, as many as there are in the same
  // process set; true if there is one. `leaving`: whether this rank is about to end its session.
  bool HandOver(bool leaving);

  // Whether the log has come to a change of process sets (see ft_process_sets.h), once for each.
  bool TakeChange();

private:
  const FtProcessSet* HandOverOne(const FtProcessSet* before, bool leaving);
  void PassOver(const hvdft_record& record);
  const FtProcessSet& SetOf(int32_t process_set, const hvdft_record& record) const;

  FtProcessSets& sets_;
  FtExecutor& executor_;
  FtReplay& replay_;
  bool change_ = false;
  bool roster_ = false; // the op handed over last begins one
};

} // namespace common
} // namespace horovod

#endif // HOROVOD_FT_LOG_READER_H
