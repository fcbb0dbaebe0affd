#include "ft_controller.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <stdexcept>

#include "../process_set.h"
#include "ft_agreed.h"
#include "ft_follower.h"
#include "ft_process_sets.h"
#include "ft_signature.h"
#include "ft_stop.h"

namespace horovod {
namespace common {

namespace {

// So many requests fit into a mailbox at once whatever their names, if no shape is longer.
constexpr size_t kRequestsPerAnnouncement = 1000;
constexpr size_t kDimensionsPerRequest = 64;

int IntFromEnv(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

std::logic_error Unsupported(const std::string& what) {
  return std::logic_error("hvd_ft: the ft backend has no " + what +
                          "; run the script on HOROVOD_CONTROLLER=mpi for that");
}

// What the backend does not have fails where it is called, on every rank.
Status Admit(const Request& request) {
  return request.request_type() == Request::ADASUM
             ? Status::PreconditionError(Unsupported("ADASUM operation").what())
             : Status::OK();
}

} // namespace

FtController::FtController(int32_t process_set, ResponseCache& response_cache,
                           TensorQueue& tensor_queue, Timeline& timeline,
                           ParameterManager& parameter_manager, GroupTable& group_table,
                           TimelineController& timeline_controller)
    : Controller(response_cache, tensor_queue, timeline, parameter_manager, group_table,
                 timeline_controller),
      process_set_(process_set) {}

FtController::~FtController() { ft_follower().Remove(process_set_); }

bool FtController::Start(std::vector<int>& ranks) {
  if (ft().worker_open() != HVDFT_OK) {
    throw std::runtime_error(ft().error());
  }
  if (process_set_ == 0) {
    ft_follower().Start(timeline_, parameter_manager_);
  }
  if (ranks.empty()) {
    ranks.resize(static_cast<size_t>(ft().worker_size()));
    std::iota(ranks.begin(), ranks.end(), 0);
  }
  global_ranks_ = ranks;
  size_ = static_cast<int>(ranks.size());
  for (int rank = 0; rank < size_; ++rank) {
    global_rank_to_controller_rank_[ranks[static_cast<size_t>(rank)]] = rank;
  }
  ft_follower().Add(process_set_, *this);
  return global_rank_to_controller_rank_.count(ft().worker_rank()) > 0;
}

// Only where the rank is in the set.
void FtController::DoInitialization() {
  rank_ = global_rank_to_controller_rank_.at(ft().worker_rank());
  local_rank_ = IntFromEnv("HOROVOD_LOCAL_RANK", rank_);
  local_size_ = IntFromEnv("HOROVOD_LOCAL_SIZE", size_);
  cross_rank_ = IntFromEnv("HOROVOD_CROSS_RANK", 0);
  cross_size_ = IntFromEnv("HOROVOD_CROSS_SIZE", 1);
  is_coordinator_ = ft().worker_rank() == 0;
  is_homogeneous_ = IntFromEnv("HOROVOD_FT_HOMOGENEOUS", 1) != 0;
  local_comm_ranks_.resize(static_cast<size_t>(size_));
  std::iota(local_comm_ranks_.begin(), local_comm_ranks_.end(), 0);
  local_sizes_for_cross_rank_ = {local_size_};
  tensor_queue_.SetAdmission(Admit, [](size_t added) {
    ft().worker_pend(static_cast<int64_t>(added));
    FtFollower::Wake();
  });
}

ResponseList FtController::ComputeResponseList(bool shutdown_requested, HorovodGlobalState& state,
                                               ProcessSet& process_set) {
  ResponseList list;
  if (process_set_ == 0 && !ft_follower().Next(shutdown_requested, state)) {
    list.set_shutdown(true);
    return list;
  }
  // Horovod then takes zeros for this rank's tensors, or ends the join.
  process_set.joined = gives_zeros_;
  std::swap(list, computed_);
  return list;
}

bool FtController::Collect() {
  std::deque<Request> requests;
  tensor_queue_.PopMessagesFromQueue(requests);
  for (auto& request : requests) {
    if (request.request_type() == Request::JOIN) {
      request.set_tensor_name(JOIN_TENSOR_NAME);
      request.set_tensor_shape({static_cast<int64_t>(ft().worker_cursor())}); // see FtJoined
    }
    unannounced_.push_back(request.tensor_name());
    requests_[request.tensor_name()] = std::move(request);
  }
  return !requests.empty();
}

bool FtController::TakeResponse(const hvdft_record& record, const Response& response) {
  bool absent = IsAbsent(response), zeros = absent || response.response_type() == Response::JOIN;
  bool others = !computed_.responses().empty();
  if ((others && (zeros || gives_zeros_)) || (absent ? !Joined() : !HasRequested(response))) {
    return false;
  }
  if (!absent) {
    // What a first incarnation has in the log it has announced itself.
    if (ft().worker_incarnation() > 0) {
      CheckSignature(record, response);
    }
    for (auto& name : response.tensor_names()) {
      requests_.erase(name);
    }
  }
  gives_zeros_ = zeros;
  computed_.add_response(response);
  return true;
}

bool FtController::HasRequested(const Response& response) const {
  auto& names = response.tensor_names();
  return std::all_of(names.begin(), names.end(),
                     [&](auto& name) { return requests_.count(name) > 0; });
}

// It is the log that says so, not this rank's requests: they come at other times in a replay.
bool FtController::IsAbsent(const Response& response) const {
  auto& devices = response.devices();
  return !devices.empty() && devices[static_cast<size_t>(rank_)] == FtJoined::kAbsentDevice;
}

bool FtController::Joined() const { return requests_.count(JOIN_TENSOR_NAME) > 0; }

// ---------------------------------------------------------------- announcing

void FtController::StartTerm() {
  message_table_.clear();
  splits_.clear();
  ready_.clear();
  joined_ = FtJoined();
  unannounced_.clear();
  for (auto& entry : requests_) {
    if (entry.first != JOIN_TENSOR_NAME) {
      unannounced_.push_back(entry.first);
    }
  }
  if (Joined()) {
    unannounced_.push_back(JOIN_TENSOR_NAME); // last, as it came
  }
}

void FtController::Announce(uint64_t term) {
  while (!unannounced_.empty()) {
    RequestList requests;
    size_t count = 0;
    for (size_t taken = 0; count < unannounced_.size() && taken < kRequestsPerAnnouncement;
         ++count) {
      auto request = requests_.find(unannounced_[count]);
      if (request != requests_.end()) {
        requests.add_request(WithSplits(request->second));
        taken += 1 + requests.requests().back().tensor_shape().size() / kDimensionsPerRequest;
      }
    }
    std::string bytes = FtWrite(requests, process_set_);
    int code = ft().worker_announce(term, bytes.data(), bytes.size());
    FtCheck(code);
    if (code == HVDFT_AGAIN) {
      return; // the coordinator notifies when it has taken the last one
    }
    unannounced_.erase(unannounced_.begin(), unannounced_.begin() + static_cast<long>(count));
  }
}

// What each rank sends to whom has to be agreed as well: an alltoall is announced with its splits
// behind its shape.
Request FtController::WithSplits(const Request& request) const {
  Request announced = request;
  if (request.request_type() == Request::ALLTOALL) {
    for (int32_t rows : tensor_queue_.GetTensorEntry(request.tensor_name()).splits) {
      announced.add_tensor_shape(rows);
    }
  }
  return announced;
}

std::string FtController::Signature(const Request& request) const {
  std::string signature = FtSignature(request);
  return process_set_ == 0 ? signature
                           : signature + " in process set " + FtRankList(global_ranks_);
}

// ---------------------------------------------------------------- the rest of the interface

int FtController::GetTypeSize(DataType dtype) { return static_cast<int>(DataType_Size(dtype)); }

void FtController::Barrier(Communicator) { ft_follower().Barrier(); }

void FtController::Allgather2Ints(std::array<int, 2> values, std::vector<int>& recv_values) {
  bool agreed = ft_follower().TakeChange();
  for (size_t i = 0; i < recv_values.size(); ++i) {
    recv_values[i] = agreed ? values[i % 2] : -1; // no count, and no number of a process set
  }
}

void FtController::Bcast(void*, size_t, int, Communicator) {
  throw Unsupported("autotuning (HOROVOD_AUTOTUNE)");
}

void FtController::AlltoallGetRecvSplits(const std::vector<int32_t>&, std::vector<int32_t>&) {
  throw Unsupported("lockstep cycle");
}

void FtController::CrossRankBitwiseAnd(std::vector<long long>&, int) {
  throw Unsupported("response cache");
}
void FtController::CrossRankBitwiseOr(std::vector<long long>&, int) {
  throw Unsupported("response cache");
}
void FtController::RecvReadyTensors(std::vector<std::string>&, std::vector<RequestList>&) {
  throw Unsupported("lockstep cycle");
}
void FtController::SendReadyTensors(RequestList&) { throw Unsupported("lockstep cycle"); }
void FtController::SendFinalTensors(ResponseList&) { throw Unsupported("lockstep cycle"); }
void FtController::RecvFinalTensors(ResponseList&) { throw Unsupported("lockstep cycle"); }

} // namespace common
} // namespace horovod
