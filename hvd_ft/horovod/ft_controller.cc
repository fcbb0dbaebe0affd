#include "ft_controller.h"

#include <cstdlib>
#include <cstring>
#include <numeric>
#include <sstream>
#include <stdexcept>

#include "../process_set.h"
#include "ft_signature.h"
#include "ft_stop.h"

namespace horovod {
namespace common {

namespace {

// So many requests fit into a mailbox at once whatever their names.
constexpr size_t kRequestsPerAnnouncement = 1000;
constexpr char kSameCollectives[] =
    "a restarted script must do the same collectives in the same order";
constexpr int kWaitMs = 1000; // for the stall inspector; all else rings

int IntFromEnv(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

std::logic_error Unsupported(const std::string& what) {
  return std::logic_error("hvd_ft: the ft backend has no " + what +
                          "; run the script on HOROVOD_CONTROLLER=mpi for that");
}

// Operations that the backend does not have fail where they are called, on every rank.
Status Admit(const Request& request) {
  switch (request.request_type()) {
  case Request::ALLREDUCE:
  case Request::ALLGATHER:
  case Request::BROADCAST:
  case Request::BARRIER:
    return Status::OK();
  default:
    return Status::PreconditionError(
        Unsupported(Request::RequestType_Name(request.request_type()) + " operation").what());
  }
}

} // namespace

FtController::FtController(ResponseCache& response_cache, TensorQueue& tensor_queue,
                           Timeline& timeline, ParameterManager& parameter_manager,
                           GroupTable& group_table, TimelineController& timeline_controller)
    : Controller(response_cache, tensor_queue, timeline, parameter_manager, group_table,
                 timeline_controller) {}

void FtController::DoInitialization() {
  if (ft().worker_open() != HVDFT_OK) {
    throw std::runtime_error(ft().error());
  }
  rank_ = ft().worker_rank();
  size_ = ft().worker_size();
  local_rank_ = IntFromEnv("HOROVOD_LOCAL_RANK", rank_);
  local_size_ = IntFromEnv("HOROVOD_LOCAL_SIZE", size_);
  cross_rank_ = IntFromEnv("HOROVOD_CROSS_RANK", 0);
  cross_size_ = IntFromEnv("HOROVOD_CROSS_SIZE", 1);
  is_coordinator_ = rank_ == 0;
  is_homogeneous_ = true;
  global_ranks_.resize(size_);
  std::iota(global_ranks_.begin(), global_ranks_.end(), 0);
  for (int rank : global_ranks_) {
    global_rank_to_controller_rank_[rank] = rank;
  }
  local_comm_ranks_ = global_ranks_;
  local_sizes_for_cross_rank_ = {local_size_};
  const char* timeout = std::getenv("HOROVOD_FT_REPLAY_TIMEOUT_SECONDS"); // checked by the agent
  replay_timeout_ = std::chrono::duration<double>(timeout ? std::strtod(timeout, nullptr) : 60);
  replay_moved_ = Clock::now();
  ft().worker_leave();

  tensor_queue_.SetAdmission(Admit, [this](size_t added) {
    ft().worker_set_pending(queued_ += added);
    Wake();
  });
}

void FtController::Wake() { ft().worker_ring(); }

ResponseList FtController::ComputeResponseList(bool shutdown_requested, HorovodGlobalState& state,
                                               ProcessSet&) {
  for (;;) {
    uint32_t ticket = ft().worker_ticket();
    uint64_t term = ft().worker_term(); // before the log, see hvd_ft.h
    shutdown_requested |= state.shut_down;
    CollectQueued();
    ResponseList list;
    if (NextFromLog(list)) {
      return list;
    }
    uint64_t log_length = ft().worker_log_length();
    if (ft().worker_cursor() < log_length) {
      CheckReplayMoves(log_length);
    } else if (!ft().worker_joined()) {
      FtCheck(ft().worker_join(log_length));
    } else {
      ft().worker_caught_up();
      FollowTerm(term);
      Announce(shutdown_requested);
      if (is_coordinator_) {
        Coordinate(shutdown_requested, state);
      }
    }
    FtCheck(ft().worker_wait(ticket, kWaitMs));
  }
}

void FtController::CollectQueued() {
  std::deque<Request> requests;
  tensor_queue_.PopMessagesFromQueue(requests);
  for (auto& request : requests) {
    unannounced_.push_back(request.tensor_name());
    requested_[request.tensor_name()] = std::move(request);
  }
}

// ---------------------------------------------------------------- following the log

bool FtController::NextFromLog(ResponseList& list) {
  hvdft_record record;
  int code = ft().worker_record(ft().worker_cursor(), &record);
  // Cut: the script is on its way to the loop, from where it jumps to its snapshot.
  if (code == HVDFT_AGAIN || (code == HVDFT_ECUT && requested_.empty())) {
    return false;
  }
  FtCheck(code);
  if (record.flags & HVDFT_SHUTDOWN) {
    ft().worker_contribute(record.id);
    ft().worker_executed(record.id);
    ft().worker_caught_up();
    list.set_shutdown(true);
    return true;
  }
  Response response;
  Response::ParseFromBytes(response, static_cast<const uint8_t*>(record.response));
  if (!Requested(response)) {
    return false;
  }
  CheckSignature(record, response);
  for (auto& name : response.tensor_names()) {
    requested_.erase(name);
  }
  executing_.push_back(record);
  list.add_response(std::move(response));
  replay_moved_ = Clock::now();
  return true;
}

bool FtController::Requested(const Response& response) const {
  for (auto& name : response.tensor_names()) {
    if (requested_.find(name) == requested_.end()) {
      return false;
    }
  }
  return true;
}

void FtController::CheckSignature(const hvdft_record& record, const Response& response) {
  if (response.response_type() == Response::ERROR) {
    return; // its requests differed between ranks, that is the error
  }
  std::istringstream agreed(record.signature);
  for (auto& name : response.tensor_names()) {
    std::string line, mine = FtSignature(requested_.at(name));
    std::getline(agreed, line);
    if (line != mine) {
      FtStop("rank " + std::to_string(rank_) + ": op " + std::to_string(record.id) +
           " is not what was agreed: the log has '" + line + "', the script asks for '" + mine +
           "'; " + kSameCollectives);
    }
  }
}

// A restarted script that asks for other collectives than the log has would wait for ever.
void FtController::CheckReplayMoves(uint64_t log_length) {
  if (requested_.empty()) {
    replay_moved_ = Clock::now(); // it computes
  } else if (Clock::now() - replay_moved_ > replay_timeout_) {
    hvdft_record record;
    FtCheck(ft().worker_record(ft().worker_cursor(), &record));
    std::string next(record.signature, std::strcspn(record.signature, "\n"));
    FtStop("rank " + std::to_string(rank_) + " cannot be replayed: op " +
         std::to_string(record.id) + " of " + std::to_string(log_length) + " is '" + next +
         "', but for HOROVOD_FT_REPLAY_TIMEOUT_SECONDS=" +
         std::to_string(static_cast<int>(replay_timeout_.count())) + " the script has asked for '" +
         FtSignature(requested_.begin()->second) + "'; " + kSameCollectives);
  }
}

hvdft_record FtController::TakeRecord() {
  hvdft_record record = executing_.front();
  executing_.pop_front();
  return record;
}

void FtController::Executed(const hvdft_record& record, size_t tensors) {
  ft().worker_set_pending(queued_ -= tensors);
  ft().worker_executed(record.id);
}

// ---------------------------------------------------------------- announcing

void FtController::FollowTerm(uint64_t term) {
  if (term == term_) {
    return;
  }
  term_ = term;
  message_table_.clear();
  shutdown_announced_ = shutdown_proposed_ = shutdown_seen_ = false;
  unannounced_.clear();
  for (auto& entry : requested_) {
    unannounced_.push_back(entry.first);
  }
}

void FtController::Announce(bool shutdown_requested) {
  if (is_coordinator_) {
    return; // it looks at its own requests itself
  }
  while (!unannounced_.empty() || (shutdown_requested && !shutdown_announced_)) {
    RequestList requests;
    size_t count = std::min(unannounced_.size(), kRequestsPerAnnouncement);
    for (size_t i = 0; i < count; ++i) {
      auto request = requested_.find(unannounced_[i]);
      if (request != requested_.end()) {
        requests.add_request(request->second);
      }
    }
    requests.set_shutdown(shutdown_requested);
    std::string bytes;
    RequestList::SerializeToString(requests, bytes);
    int code = ft().worker_announce(term_, bytes.data(), bytes.size());
    FtCheck(code);
    if (code == HVDFT_AGAIN) {
      return; // the coordinator rings when it has taken the last one
    }
    unannounced_.erase(unannounced_.begin(), unannounced_.begin() + static_cast<long>(count));
    shutdown_announced_ = shutdown_requested;
  }
}

// ---------------------------------------------------------------- the rest of the interface

int FtController::GetTypeSize(DataType dtype) { return static_cast<int>(DataType_Size(dtype)); }

void FtController::Barrier(Communicator) {
  hvdft_record record = TakeRecord();
  hvdft_copies no_data{};
  FtCheck(ft().worker_run(record.id, &no_data));
  Executed(record, 1);
}

void FtController::Bcast(void*, size_t, int, Communicator) {
  throw Unsupported("autotuning (HOROVOD_AUTOTUNE)");
}

void FtController::Allgather2Ints(std::array<int, 2>, std::vector<int>&) {
  throw Unsupported("process sets besides the global one");
}

void FtController::AlltoallGetRecvSplits(const std::vector<int32_t>&, std::vector<int32_t>&) {
  throw Unsupported("ALLTOALL operation");
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
