#include "ft_known_requests.h"

#include <algorithm>

#include "../group_table.h"
#include "ft_agreed.h"
#include "ft_stop.h"

namespace horovod {
namespace common {

namespace {

// Bounds what scripts cost that ask for something new all the time.
constexpr size_t kMostNumbers = 1 << 16, kMostOnce = 1 << 16;

// Requests for which all ranks have to ask alike.
bool MayBeNumbered(const Request& request) {
  auto type = request.request_type();
  return request.group_id() == NULL_GROUP_ID &&
         (type == Request::ALLREDUCE || type == Request::BROADCAST ||
          type == Request::REDUCESCATTER);
}

bool AreAlike(const Request& a, const Request& b) {
  return a.request_type() == b.request_type() && a.tensor_type() == b.tensor_type() &&
         a.root_rank() == b.root_rank() && a.device() == b.device() &&
         a.tensor_name() == b.tensor_name() && a.tensor_shape() == b.tensor_shape() &&
         a.prescale_factor() == b.prescale_factor() &&
         a.postscale_factor() == b.postscale_factor() && a.reduce_op() == b.reduce_op();
}

} // namespace

void FtKnownRequests::Follow() {
  hvdft_record record;
  for (int code; (code = ft().worker_note(HVDFT_REQUESTS, ops_, &record)) != HVDFT_AGAIN; ++ops_) {
    FtCheck(code);
    FtRead<RequestList> numbered(record.response, record.response_bytes);
    for (auto& request : numbered.message.requests()) {
      by_tensor_[request.tensor_name()].push_back(static_cast<uint32_t>(requests_.size()));
      once_.erase(request.tensor_name());
      requests_.push_back(request);
    }
  }
}

bool FtKnownRequests::Find(const Request& request, uint32_t& number) const {
  if (!MayBeNumbered(request)) {
    return false;
  }
  auto numbers = by_tensor_.find(request.tensor_name());
  if (numbers == by_tensor_.end()) {
    return false;
  }
  auto found =
      std::find_if(numbers->second.begin(), numbers->second.end(),
                   [&](uint32_t candidate) { return AreAlike(requests_[candidate], request); });
  if (found == numbers->second.end()) {
    return false;
  }
  number = *found;
  return true;
}

const Request& FtKnownRequests::At(uint32_t number) {
  if (number >= requests_.size()) {
    Follow(); // the log has it: its rank has read it there
  }
  if (number >= requests_.size()) {
    FtStop("a rank has announced request " + std::to_string(number) + ", but the log numbers " +
           std::to_string(requests_.size()) + "; this is a bug of hvd_ft");
  }
  return requests_[number];
}

Request FtKnownRequests::Of(uint32_t number, int rank) {
  Request request = At(number);
  request.set_request_rank(rank);
  return request;
}

bool FtKnownRequests::IsToBeNumbered(const Request& agreed) {
  uint32_t number;
  if (!MayBeNumbered(agreed) || Find(agreed, number)) {
    return false;
  }
  auto& before = once_[agreed.tensor_name()];
  bool again = AreAlike(before, agreed);
  before = agreed;
  if (once_.size() > kMostOnce) {
    once_.clear();
  }
  return again;
}

bool FtKnownRequests::HasRoom() const {
  return ops_ < HVDFT_NOTES && requests_.size() < kMostNumbers;
}

} // namespace common
} // namespace horovod
