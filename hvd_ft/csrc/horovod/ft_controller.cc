#include "ft_controller.h"

#include <cstdlib>
#include <numeric>
#include <stdexcept>

#include "../process_set.h"

namespace horovod {
namespace common {

namespace {

int IntFromEnv(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

std::logic_error Unsupported(const std::string& what) {
  return std::logic_error("hvdft: the ft backend has no " + what +
                          "; run the script on HOROVOD_CONTROLLER=mpi for that");
}

// Functions that the backend lacks fail where they are called, on every rank.
Status Admit(const Request& request) {
  return request.request_type() == Request::ADASUM
             ? Status::PreconditionError(Unsupported("ADASUM operation").what())
             : Status::OK();
}

} // namespace

FtController::FtController(FtEngine& engine, int32_t process_set, ResponseCache& response_cache,
                           TensorQueue& tensor_queue, Timeline& timeline,
                           ParameterManager& parameter_manager, GroupTable& group_table,
                           TimelineController& timeline_controller)
    : Controller(response_cache, tensor_queue, timeline, parameter_manager, group_table,
                 timeline_controller),
      engine_(engine), process_set_(process_set), requests_(process_set, tensor_queue) {}

FtController::~FtController() { engine_.Remove(process_set_); }

bool FtController::Start(std::vector<int>& ranks) {
  if (ft().worker_open() != HVDFT_OK) {
    throw std::runtime_error(ft().error());
  }
  if (process_set_ == 0) {
    engine_.Start(timeline_, parameter_manager_);
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
  bool in_set = requests_.Start(ranks);
  engine_.Add(process_set_, {requests_, *this});
  return in_set;
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
  tensor_queue_.SetAdmission(Admit, [this](size_t added) {
    ft().worker_pend(static_cast<int64_t>(added));
    engine_.Wake();
  });
}

ResponseList FtController::ComputeResponseList(bool shutdown_requested, HorovodGlobalState& state,
                                               ProcessSet& process_set) {
  if (process_set_ == 0 && !engine_.Next(shutdown_requested, state)) {
    ResponseList list;
    list.set_shutdown(true);
    return list;
  }
  return requests_.Execute(process_set.joined);
}

// ---------------------------------------------------------------- the rest of the interface

int FtController::GetTypeSize(DataType dtype) { return static_cast<int>(DataType_Size(dtype)); }

void FtController::Barrier(Communicator) { engine_.Executor().Barrier(); }

void FtController::Allgather2Ints(std::array<int, 2> values, std::vector<int>& recv_values) {
  bool agreed = engine_.TakeChange();
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
