#include "ft_process_sets.h"

#include "ft_library.h"

namespace horovod {
namespace common {

namespace {

constexpr char kName[] = "hvd_ft.process_sets", kRosterName[] = "hvd_ft.roster";
enum : int64_t { kAdd, kRemove };

// A barrier has no shape, so the shape carries the request: the kind of change, and the ranks or
// the set's number.
Status Enqueue(TensorQueue& queue, const char* name, std::vector<int64_t> what,
               StatusCallback done) {
  Request request;
  request.set_request_type(Request::BARRIER);
  request.set_request_rank(ft().worker_rank());
  request.set_tensor_name(name);
  request.set_tensor_shape(what);
  TensorTableEntry entry;
  entry.tensor_name = name;
  entry.callback = std::move(done);
  return queue.AddToTensorQueue(entry, request);
}

} // namespace

Status FtRequestAddition(TensorQueue& queue, const std::vector<int>& ranks) {
  std::vector<int64_t> what{kAdd};
  what.insert(what.end(), ranks.begin(), ranks.end());
  return Enqueue(queue, kName, what, [](const Status&) {});
}

Status FtRequestRemoval(TensorQueue& queue, int32_t process_set) {
  return Enqueue(queue, kName, {kRemove, process_set}, [](const Status&) {});
}

Status FtRequestRoster(TensorQueue& queue, uint64_t number, StatusCallback done) {
  return Enqueue(queue, kRosterName, {static_cast<int64_t>(number)}, std::move(done));
}

bool FtIsRoster(const Request& request) { return request.tensor_name() == kRosterName; }

bool FtIsRoster(const Response& response) { return response.tensor_names()[0] == kRosterName; }

uint64_t FtRosterNumber(const Request& request) {
  return static_cast<uint64_t>(request.tensor_shape()[0]);
}

bool FtIsProcessSetChange(const Request& request) { return request.tensor_name() == kName; }

bool FtIsProcessSetChange(const Response& response) { return response.tensor_names()[0] == kName; }

std::string FtProcessSetChange(const Request& request) {
  auto& what = request.tensor_shape();
  return what[0] == kRemove ? "remove process set " + std::to_string(what[1])
                            : "add process set " + FtRankList({what.begin() + 1, what.end()});
}

std::string FtRankList(const std::vector<int>& ranks) {
  std::string list;
  for (int rank : ranks) {
    list += (list.empty() ? "" : ", ") + std::to_string(rank);
  }
  return '[' + list + ']';
}

} // namespace common
} // namespace horovod
