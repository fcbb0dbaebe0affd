#include "ft_controller.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <unordered_set>

#include "../logging.h"
#include "../process_set.h"
#include "ft_signature.h"

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

// The job is being stopped: the agent is about to kill this process. An error thrown here
// would only bury the one line that tells why.
[[noreturn]] void AwaitEnd() {
  for (;;) {
    pause();
  }
}

[[noreturn]] void Stop(const std::string& message) {
  ft().worker_fatal(message.c_str());
  AwaitEnd();
}

void Check(int code) {
  if (code == HVDFT_ESTOPPED) {
    AwaitEnd();
  }
  if (code < 0 && code != HVDFT_AGAIN) {
    Stop(ft().error());
  }
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
      Check(ft().worker_join(log_length));
    } else {
      ft().worker_caught_up();
      FollowTerm(term);
      Announce(shutdown_requested);
      if (is_coordinator_) {
        Coordinate(shutdown_requested, state);
      }
    }
    Check(ft().worker_wait(ticket, kWaitMs));
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
  Check(code);
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
      Stop("rank " + std::to_string(rank_) + ": op " + std::to_string(record.id) +
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
    Check(ft().worker_record(ft().worker_cursor(), &record));
    std::string next(record.signature, std::strcspn(record.signature, "\n"));
    Stop("rank " + std::to_string(rank_) + " cannot be replayed: op " +
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
    Check(code);
    if (code == HVDFT_AGAIN) {
      return; // the coordinator rings when it has taken the last one
    }
    unannounced_.erase(unannounced_.begin(), unannounced_.begin() + static_cast<long>(count));
    shutdown_announced_ = shutdown_requested;
  }
}

// ---------------------------------------------------------------- coordinating

void FtController::Coordinate(bool shutdown_requested, HorovodGlobalState& state) {
  std::vector<std::string> ready;
  bool shutdown = TakeAnnouncements(ready) || shutdown_requested;
  if (stall_inspector_.ShouldPerformCheck()) {
    shutdown |= stall_inspector_.CheckForStalledTensors(global_ranks_);
    stall_inspector_.UpdateCheckTime();
  }
  if (ready.empty() && (!shutdown || shutdown_proposed_)) {
    return;
  }
  ResponseList list;
  Fuse(ready, state, list);
  shutdown_proposed_ = shutdown;
  Propose(list, shutdown);
}

// Tensors that all ranks have announced now; true if a rank asks for shutdown.
bool FtController::TakeAnnouncements(std::vector<std::string>& ready) {
  auto count = [&](const Request& request) {
    bool complete = IncrementTensorCount(request);
    stall_inspector_.RecordUncachedTensorStart(request.tensor_name(), request.request_rank(),
                                               size_);
    if (complete) {
      ready.push_back(request.tensor_name());
    }
  };
  for (auto& name : unannounced_) {
    auto request = requested_.find(name);
    if (request != requested_.end()) {
      count(request->second);
    }
  }
  unannounced_.clear();
  for (int rank = 1; rank < size_; ++rank) {
    const void* bytes;
    while (ft().worker_take(rank, term_, &bytes) >= 0) {
      RequestList requests;
      RequestList::ParseFromBytes(requests, static_cast<const uint8_t*>(bytes));
      for (auto& request : requests.requests()) {
        count(request);
      }
      shutdown_seen_ |= requests.shutdown();
    }
  }
  return shutdown_seen_;
}

void FtController::Fuse(const std::vector<std::string>& ready, HorovodGlobalState& state,
                        ResponseList& list) {
  std::deque<Response> together;
  std::unordered_set<int32_t> done;
  for (auto& name : ready) {
    auto group = group_table_.GetGroupIDFromTensorName(name);
    if (!state.disable_group_fusion || group == NULL_GROUP_ID) {
      together.push_back(ConstructResponse(name));
    } else if (done.insert(group).second) {
      std::deque<Response> alone;
      for (auto& member : group_table_.GetGroupTensorNames(group)) {
        alone.push_back(ConstructResponse(member));
      }
      FuseResponses(alone, state, list);
    }
  }
  FuseResponses(together, state, list);
}

namespace {

uint32_t CoreReduce(ReduceOp op) {
  switch (op) {
  case ReduceOp::MIN: return HVDFT_MIN;
  case ReduceOp::MAX: return HVDFT_MAX;
  case ReduceOp::PRODUCT: return HVDFT_PRODUCT;
  default: return HVDFT_SUM; // an average is a sum, scaled afterwards
  }
}

// What the core needs to know of a response; `blocks` has to live as long as the op.
hvdft_op CoreOp(const Response& response, const TensorQueue& queue, int size,
                std::vector<uint64_t>& blocks) {
  hvdft_op op{};
  op.waits = 1;
  op.dtype = static_cast<uint32_t>(response.tensor_type());
  auto& sizes = response.tensor_sizes();
  auto& names = response.tensor_names();
  if (response.response_type() == Response::ALLREDUCE) {
    op.kind = HVDFT_REDUCE;
    op.reduce = CoreReduce(response.reduce_op());
    op.result_bytes = static_cast<uint64_t>(std::accumulate(sizes.begin(), sizes.end(), 0LL)) *
                      DataType_Size(response.tensor_type());
  } else if (response.response_type() == Response::BROADCAST) {
    auto& entry = queue.GetTensorEntry(names[0]);
    op.kind = HVDFT_COPY;
    op.root = static_cast<uint32_t>(entry.root_rank);
    op.result_bytes = entry.tensor->size();
  } else if (response.response_type() == Response::ALLGATHER) {
    op.kind = HVDFT_CONCAT;
    blocks.assign(static_cast<size_t>(size), 0);
    for (size_t t = 0; t < names.size(); ++t) {
      auto& entry = queue.GetTensorEntry(names[t]);
      uint64_t row = DataType_Size(entry.tensor->dtype());
      for (int d = 1; d < entry.tensor->shape().dims(); ++d) {
        row *= static_cast<uint64_t>(entry.tensor->shape().dim_size(d));
      }
      for (int r = 0; r < size; ++r) {
        blocks[r] += row * static_cast<uint64_t>(sizes[t * static_cast<size_t>(size) + r]);
      }
    }
    op.result_bytes = std::accumulate(blocks.begin(), blocks.end(), uint64_t{0});
    op.block_bytes = blocks.data();
  } else {
    op.kind = HVDFT_NONE;
    op.waits = response.response_type() == Response::BARRIER;
  }
  return op;
}

} // namespace

void FtController::Propose(const ResponseList& list, bool shutdown) {
  size_t count = list.responses().size();
  std::vector<std::string> bytes(count), signatures(count);
  std::vector<std::vector<uint64_t>> blocks(count);
  std::vector<hvdft_op> ops;
  for (size_t i = 0; i < count; ++i) {
    const Response& response = list.responses()[i];
    ops.push_back(CoreOp(response, tensor_queue_, size_, blocks[i]));
    Response::SerializeToString(response, bytes[i]);
    for (auto& name : response.tensor_names()) {
      signatures[i] += FtSignature(requested_.at(name)) + '\n';
    }
    ops.back().response = bytes[i].data();
    ops.back().response_bytes = bytes[i].size();
    ops.back().signature = signatures[i].c_str();
  }
  if (shutdown) {
    ops.push_back({});
    ops.back().flags = HVDFT_SHUTDOWN;
    ops.back().response = "";
    ops.back().signature = "shutdown";
  }
  // If a rank joined meanwhile the answer is "again": everyone announces anew in the new term.
  Check(ft().worker_propose(term_, ops.data(), static_cast<int>(ops.size())));
}

// ---------------------------------------------------------------- the rest of the interface

int FtController::GetTypeSize(DataType dtype) { return static_cast<int>(DataType_Size(dtype)); }

void FtController::Barrier(Communicator) {
  hvdft_record record = TakeRecord();
  Check(ft().worker_contribute(record.id));
  Check(ft().worker_wait_complete(record.id));
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
