#include "ft_controller.h"

#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "../process_set.h"
#include "ft_signature.h"
#include "ft_stop.h"

namespace horovod {
namespace common {

namespace {

// So many requests fit into a mailbox at once whatever their names.
constexpr size_t kRequestsPerAnnouncement = 1000;
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

  tensor_queue_.SetAdmission(Admit, [this](size_t added) {
    ft().worker_pend(static_cast<int64_t>(added));
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
    while (NextFromLog(list)) {
    }
    if (!list.responses().empty()) {
      return list;
    }
    if (Advance()) {
      continue;
    }
    if (shutdown_requested && flights_.empty()) {
      Leave();
      list.set_shutdown(true);
      return list;
    }
    uint64_t log_length = ft().worker_log_length();
    if (NextOp() < log_length) {
      CheckReplayMoves(log_length);
    } else if (!ft().worker_joined()) {
      FtCheck(ft().worker_join(log_length));
    } else {
      ft().worker_caught_up();
      FollowTerm(term);
      if (MoreToCome(ticket)) {
        continue;
      }
      Announce();
      if (is_coordinator_) {
        Coordinate(state);
      }
    }
    CheckPeers();
    FtCheck(ft().worker_wait(ticket, kWaitMs));
  }
}

void FtController::CollectQueued() {
  std::deque<Request> requests;
  tensor_queue_.PopMessagesFromQueue(requests);
  for (auto& request : requests) {
    if (unannounced_.empty()) {
      unannounced_since_ = Clock::now();
    }
    unannounced_.push_back(request.tensor_name());
    requested_[request.tensor_name()] = std::move(request);
    replay_moved_ = Clock::now();
  }
}

// Others learn of it by the state of this rank: they have nothing to do for it.
void FtController::Leave() {
  CheckReplayedToTheEnd();
  ft().worker_caught_up();
  ft().worker_leave();
}

// What this rank waits for may be something that a rank which has ended cannot give any more.
void FtController::CheckPeers() {
  int peer = requested_.empty() ? -1 : ft().worker_ended_peer();
  if (peer >= 0) {
    ft().worker_stop_for_peer(peer, FtSignature(requested_.begin()->second).c_str());
  }
}

// ---------------------------------------------------------------- following the log

uint64_t FtController::NextOp() const {
  return ft().worker_cursor() + flights_.size() + executing_.size();
}

bool FtController::NextFromLog(ResponseList& list) {
  hvdft_record record;
  int code = ft().worker_record(NextOp(), &record);
  // Cut: the script is on its way to the loop, from where it jumps to its snapshot.
  if (code == HVDFT_AGAIN || (code == HVDFT_ECUT && requested_.empty())) {
    return false;
  }
  FtCheck(code);
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

hvdft_record FtController::TakeRecord() {
  hvdft_record record = executing_.front();
  executing_.pop_front();
  return record;
}

void FtController::Begin(std::unique_ptr<FtFlight> flight) {
  hvdft_copies copies{
      [](void* f, uint64_t from, uint64_t bytes, void* to) {
        auto& copy = static_cast<FtFlight*>(f)->copy_in;
        if (copy) {
          copy(from, bytes, static_cast<char*>(to));
        }
      },
      [](void* f, uint64_t from, uint64_t bytes, const void* result) {
        auto& copy = static_cast<FtFlight*>(f)->copy_out;
        if (copy) {
          copy(from, bytes, static_cast<const char*>(result));
        }
      },
      flight.get()};
  FtCheck(ft().worker_begin(flight->record.id, &copies));
  flights_.push_back(std::move(flight));
}

// Does what can be done for the ops under way; true if one of them is finished now.
bool FtController::Advance() {
  int code = flights_.empty() ? HVDFT_AGAIN : ft().worker_advance();
  if (code == HVDFT_AGAIN) {
    return false;
  }
  FtCheck(code);
  auto flight = std::move(flights_.front());
  flights_.pop_front();
  Finish(*flight);
  return true;
}

void FtController::Finish(FtFlight& flight) {
  Status status = flight.finish();
  timeline_.ActivityEndAll(flight.entries);
  ft().worker_pend(-static_cast<int64_t>(flight.tensors));
  ft().worker_executed(flight.record.id); // before the callbacks: the script goes on with them
  for (auto& e : flight.entries) {
    timeline_.End(e.tensor_name, status.ok() ? e.output : nullptr);
    e.FinishWithCallback(status);
  }
}

// ---------------------------------------------------------------- announcing

void FtController::FollowTerm(uint64_t term) {
  if (term == term_) {
    return;
  }
  term_ = term;
  message_table_.clear();
  unannounced_.clear();
  for (auto& entry : requested_) {
    unannounced_.push_back(entry.first);
  }
}

// Tensors that are announced together are agreed on together, and fused. So while this process's
// other threads, given the CPU, queue more of them it is not yet time; but no longer than a cycle.
bool FtController::MoreToCome(uint32_t ticket) {
  if (unannounced_.empty()) {
    return false;
  }
  auto cycle = std::chrono::duration<double, std::milli>(parameter_manager_.CycleTimeMs());
  if (Clock::now() - unannounced_since_ > cycle) {
    return false;
  }
  std::this_thread::yield();
  return ft().worker_ticket() != ticket;
}

void FtController::Announce() {
  if (is_coordinator_) {
    return; // it looks at its own requests itself
  }
  while (!unannounced_.empty()) {
    RequestList requests;
    size_t count = std::min(unannounced_.size(), kRequestsPerAnnouncement);
    for (size_t i = 0; i < count; ++i) {
      auto request = requested_.find(unannounced_[i]);
      if (request != requested_.end()) {
        requests.add_request(request->second);
      }
    }
    std::string bytes;
    RequestList::SerializeToString(requests, bytes);
    int code = ft().worker_announce(term_, bytes.data(), bytes.size());
    FtCheck(code);
    if (code == HVDFT_AGAIN) {
      return; // the coordinator rings when it has taken the last one
    }
    unannounced_.erase(unannounced_.begin(), unannounced_.begin() + static_cast<long>(count));
  }
}

// ---------------------------------------------------------------- the rest of the interface

int FtController::GetTypeSize(DataType dtype) { return static_cast<int>(DataType_Size(dtype)); }

void FtController::Barrier(Communicator) {
  auto flight = std::make_unique<FtFlight>(TakeRecord(), std::vector<TensorTableEntry>(), 1);
  flight->tensors = 1; // Horovod calls it back itself
  Begin(std::move(flight));
  while (!flights_.empty()) {
    uint32_t ticket = ft().worker_ticket();
    if (!Advance()) {
      FtCheck(ft().worker_wait(ticket, kWaitMs));
    }
  }
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
