#include "ft_replay.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "ft_agreed.h"
#include "ft_stop.h"

namespace horovod {
namespace common {

namespace {

constexpr char kSameCollectives[] =
    "a restarted script must do the same collectives in the same order";
constexpr char kOtherContents[] =
    "only type, shape or options differ: likely the data or the model is not the same as before";
constexpr char kOtherOrder[] =
    "the log has it later: likely the order is not fixed, as by iterating over a set or an "
    "unseeded shuffle";
constexpr char kOtherBranch[] =
    "the log has it nowhere after that: likely a branch on time, files, random numbers or "
    "hvd.incarnation()";
constexpr std::chrono::seconds kQuiet(1); // the log is searched when nothing has moved for so long
constexpr uint64_t kSearchedOps = 4096;

std::string FirstLine(const char* text) { return std::string(text, std::strcspn(text, "\n")); }

// The set's next op on a tensor of that name, from `from` on.
struct Found {
  bool any = false;
  uint64_t id = 0;
  std::string line; // its signature; "" if it was an error, in which the ranks' signatures differ
};

Found Find(int32_t process_set, const std::string& name, uint64_t from, uint64_t log_length) {
  uint64_t end = std::min(log_length, from + kSearchedOps);
  for (uint64_t id = from; id < end; ++id) {
    hvdft_record record;
    if (ft().worker_record(id, &record) != HVDFT_OK || FtIsNote(record)) {
      continue;
    }
    auto agreed = FtReadResponse(record);
    if (agreed.process_set != process_set) {
      continue;
    }
    const Response& response = agreed.message;
    std::istringstream lines(record.signature);
    std::string line;
    for (auto& other : response.tensor_names()) {
      std::getline(lines, line);
      if (other == name) {
        return {true, id, response.response_type() == Response::ERROR ? "" : line};
      }
    }
  }
  return {};
}

[[noreturn]] void StopOther(int rank, uint64_t id, const std::string& agreed,
                            const std::string& mine) {
  FtStop("rank " + std::to_string(rank) + ": op " + std::to_string(id) +
         " is not what was agreed: the log has '" + agreed + "', the script asks for '" + mine +
         "'; " + kOtherContents + "; " + kSameCollectives);
}

} // namespace

bool FtAnyPending(const FtProcessSets& sets) {
  return std::any_of(sets.begin(), sets.end(),
                     [](auto& each) { return !each.second.requests.Pending().empty(); });
}

void FtCheckSignatures(const hvdft_record& record, const Response& response,
                       const FtRequests& requests) {
  if (ft().worker_incarnation() == 0 || requests.GivesZerosTo(response)) {
    return;
  }
  if (response.response_type() == Response::ERROR) {
    return; // the ranks' requests differed; that is the error
  }
  std::istringstream agreed(record.signature);
  for (auto& name : response.tensor_names()) {
    std::string line, mine = requests.Signature(requests.Pending().at(name));
    std::getline(agreed, line);
    if (line != mine) {
      StopOther(ft().worker_rank(), record.id, line, mine);
    }
  }
}

void FtReplay::Start() {
  const char* timeout = std::getenv("HOROVOD_FT_REPLAY_TIMEOUT_SECONDS"); // checked by the agent
  timeout_ = std::chrono::duration<double>(timeout ? std::strtod(timeout, nullptr) : 60);
  Moved();
}

void FtReplay::Check(uint64_t next, uint64_t log_length) {
  if (!FtAnyPending(sets_)) {
    Moved(); // it computes
    return;
  }
  auto quiet = Clock::now() - moved_;
  if (quiet < kQuiet && quiet < timeout_) {
    return;
  }
  hvdft_record record;
  FtCheck(ft().worker_record(next, &record));
  for (auto& each : sets_) {
    CheckAgainstLog(each.second.requests, each.first, record, log_length, quiet >= timeout_);
  }
}

// `over`: whether the timeout has passed.
void FtReplay::CheckAgainstLog(const FtRequests& requests, int32_t process_set,
                               const hvdft_record& next, uint64_t log_length, bool over) const {
  for (auto& entry : requests.Pending()) {
    Found found = Find(process_set, entry.first, next.id, log_length);
    std::string mine = requests.Signature(entry.second);
    if (!found.line.empty() && found.line != mine) {
      StopOther(ft().worker_rank(), found.id, found.line, mine);
    }
    if (over) {
      FtStop("rank " + std::to_string(ft().worker_rank()) + " cannot be replayed: op " +
             std::to_string(next.id) + " of " + std::to_string(log_length) + " is '" +
             FirstLine(next.signature) + "', but for HOROVOD_FT_REPLAY_TIMEOUT_SECONDS=" +
             std::to_string(static_cast<int>(timeout_.count())) + " the script has asked for '" +
             mine + "'; " + (found.any ? kOtherOrder : kOtherBranch) + "; " + kSameCollectives);
    }
  }
}

void FtCheckReplayedToTheEnd() {
  uint64_t done = ft().worker_next(), before = ft().worker_owed();
  if (done >= before) {
    return;
  }
  hvdft_record next;
  bool truncated = ft().worker_record(done, &next) != HVDFT_OK;
  FtStop("rank " + std::to_string(ft().worker_rank()) +
         " cannot be replayed: the restarted script ends after " + std::to_string(done) +
         " collectives, but before its restart it took part in " + std::to_string(before) +
         "; the next one was " +
         (truncated ? "in a training loop" : "'" + FirstLine(next.signature) + "'") +
         "; likely a branch on time, files, random numbers or hvd.incarnation(); " +
         kSameCollectives);
}

} // namespace common
} // namespace horovod
