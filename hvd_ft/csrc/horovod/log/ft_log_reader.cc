#include "ft_log_reader.h"

#include "ft_agreed.h"
#include "ft_process_sets.h"
#include "ft_stop.h"

namespace horovod {
namespace common {

bool FtLogReader::HandOver(bool leaving) {
  const FtProcessSet* to = nullptr;
  roster_ = false;
  // What follows a new roster is that roster's: it is in force when its op is executed.
  while (!roster_) {
    const FtProcessSet* next = HandOverOne(to, leaving);
    if (next == nullptr) {
      break;
    }
    to = next;
  }
  return to != nullptr;
}

// Hands over the log's next op if it is of the same process set as the op before. Returns the set,
// or nullptr.
const FtProcessSet* FtLogReader::HandOverOne(const FtProcessSet* before, bool leaving) {
  if (!sets_.at(0).requests.InSet()) {
    return nullptr; // it has left the job
  }
  while (!change_) { // until then the process sets are not known
    hvdft_record record;
    int code = ft().worker_record(executor_.NextOp(), &record);
    // Truncated: the script has not reached the loop yet, where it jumps to its snapshot.
    if (code == HVDFT_AGAIN || (code == HVDFT_ETRUNCATED && !FtAnyPending(sets_))) {
      return nullptr;
    }
    FtCheck(code);
    if (FtIsNote(record)) {
      if (before != nullptr || !ft().worker_may_pass(record.id)) {
        return nullptr;
      }
      PassOver(record);
      continue;
    }
    auto agreed = FtReadResponse(record);
    // A script without requests may be about to add the set.
    if (sets_.count(agreed.process_set) == 0 && !FtAnyPending(sets_) && !leaving) {
      return nullptr;
    }
    const FtProcessSet& set = SetOf(agreed.process_set, record);
    if (before != nullptr && before != &set) {
      return nullptr;
    }
    if (set.requests.InSet()) {
      if (!set.requests.IsReadyFor(agreed.message)) {
        return nullptr;
      }
      FtCheckSignatures(record, agreed.message, set.requests);
      set.requests.Take(agreed.message);
      change_ = FtIsProcessSetChange(agreed.message);
      roster_ = FtIsRoster(agreed.message);
      executor_.HandOver(record);
      replay_.Moved();
      return &set;
    }
    // The others wait for that, whatever the script does meanwhile.
    if (!ft().worker_may_pass(record.id)) {
      return nullptr;
    }
    PassOver(record);
  }
  return nullptr;
}

void FtLogReader::PassOver(const hvdft_record& record) {
  executor_.PassOver(record);
  replay_.Moved();
}

const FtProcessSet& FtLogReader::SetOf(int32_t process_set, const hvdft_record& record) const {
  auto found = sets_.find(process_set);
  if (found == sets_.end()) {
    FtStop("op " + std::to_string(record.id) + " is one of process set " +
           std::to_string(process_set) +
           ", which this rank has not added; the restarted script "
           "must add and remove process sets outside of training loops");
  }
  return found->second;
}

bool FtLogReader::TakeChange() {
  bool change = change_;
  change_ = false;
  return change;
}

} // namespace common
} // namespace horovod
