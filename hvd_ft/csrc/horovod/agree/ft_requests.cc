#include "ft_requests.h"

#include <algorithm>

#include "ft_announcement.h"
#include "ft_joined.h"
#include "ft_process_sets.h"
#include "ft_signature.h"
#include "ft_stop.h"

namespace horovod {
namespace common {

namespace {

// The number of requests that fit into a mailbox at once whatever their names, if no shape is
// longer.
constexpr size_t kRequestsPerAnnouncement = 1000;
constexpr size_t kDimensionsPerRequest = 64;
constexpr size_t kNumbersPerRequest = 128; // in the same room

} // namespace

FtRequests::FtRequests(int32_t process_set, TensorQueue& queue, FtKnownRequests& known)
    : process_set_(process_set), queue_(queue), known_(known) {}

bool FtRequests::Start(const std::vector<int>& ranks) {
  ranks_ = ranks;
  auto found = std::find(ranks.begin(), ranks.end(), ft().worker_rank());
  rank_ = found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
  return InSet();
}

void FtRequests::Renumber() {
  for (auto& entry : pending_) {
    entry.second.set_request_rank(rank_);
  }
}

bool FtRequests::Collect() {
  std::deque<Request> requests;
  queue_.PopMessagesFromQueue(requests);
  for (auto& request : requests) {
    if (request.request_type() == Request::JOIN) {
      request.set_tensor_name(JOIN_TENSOR_NAME);
      request.set_tensor_shape({static_cast<int64_t>(ft().worker_cursor())}); // see FtJoined
    }
    unannounced_.push_back(request.tensor_name());
    pending_[request.tensor_name()] = std::move(request);
  }
  return !requests.empty();
}

std::string FtRequests::Signature(const Request& request) const {
  std::string signature = FtSignature(request);
  return process_set_ == 0 ? signature : signature + " in process set " + FtRankList(ranks_);
}

bool FtRequests::Joined() const { return pending_.count(JOIN_TENSOR_NAME) > 0; }

// ---------------------------------------------------------------- announcing

void FtRequests::StartTerm() {
  unannounced_.clear();
  for (auto& entry : pending_) {
    if (entry.first != JOIN_TENSOR_NAME) {
      unannounced_.push_back(entry.first);
    }
  }
  if (Joined()) {
    unannounced_.push_back(JOIN_TENSOR_NAME); // last, as it came
  }
}

void FtRequests::Announce(uint64_t term) {
  known_.Follow();
  while (!unannounced_.empty()) {
    FtAnnouncement announcement;
    auto& numbers = announcement.numbers;
    auto& others = announcement.others;
    size_t count = 0, taken = 0;
    for (; count < unannounced_.size() &&
           taken + numbers.size() / kNumbersPerRequest < kRequestsPerAnnouncement;
         ++count) {
      auto request = pending_.find(unannounced_[count]);
      uint32_t number;
      if (request == pending_.end()) {
        continue;
      }
      if (known_.Find(request->second, number)) {
        numbers.push_back(number);
      } else {
        others.add_request(WithSplits(request->second));
        taken += 1 + others.requests().back().tensor_shape().size() / kDimensionsPerRequest;
      }
    }
    std::string bytes = FtWrite(announcement, process_set_);
    int code = ft().worker_announce(term, bytes.data(), bytes.size());
    FtCheck(code);
    if (code == HVDFT_AGAIN) {
      return; // the coordinator notifies this rank when it has taken the last one
    }
    unannounced_.erase(unannounced_.begin(), unannounced_.begin() + static_cast<long>(count));
  }
}

std::vector<Request> FtRequests::TakeUnannounced() {
  std::vector<Request> requests;
  for (auto& name : unannounced_) {
    auto request = pending_.find(name);
    if (request != pending_.end()) {
      requests.push_back(WithSplits(request->second));
    }
  }
  unannounced_.clear();
  return requests;
}

// What each rank sends to whom has to be agreed as well: an alltoall is announced with its splits
// behind its shape.
Request FtRequests::WithSplits(const Request& request) const {
  Request announced = request;
  if (request.request_type() == Request::ALLTOALL) {
    for (int32_t rows : queue_.GetTensorEntry(request.tensor_name()).splits) {
      announced.add_tensor_shape(rows);
    }
  }
  return announced;
}

// ---------------------------------------------------------------- following the log

bool FtRequests::GivesZerosTo(const Response& response) const {
  auto& devices = response.devices();
  return !devices.empty() && devices[static_cast<size_t>(rank_)] == FtJoined::kAbsentDevice;
}

bool FtRequests::HasAll(const Response& response) const {
  auto& names = response.tensor_names();
  return std::all_of(names.begin(), names.end(),
                     [&](auto& name) { return pending_.count(name) > 0; });
}

bool FtRequests::IsReadyFor(const Response& response) const {
  bool zeros = GivesZerosTo(response);
  bool alone = zeros || response.response_type() == Response::JOIN || joined_;
  if (alone && !taken_.responses().empty()) {
    return false;
  }
  return zeros ? Joined() : HasAll(response);
}

void FtRequests::Take(const Response& response) {
  bool zeros = GivesZerosTo(response);
  if (!zeros) {
    for (auto& name : response.tensor_names()) {
      pending_.erase(name);
    }
  }
  joined_ = zeros || response.response_type() == Response::JOIN;
  taken_.add_response(response);
}

ResponseList FtRequests::Execute(bool& joined) {
  joined = joined_;
  ResponseList taken;
  std::swap(taken, taken_);
  return taken;
}

} // namespace common
} // namespace horovod
