#include "ft_controller.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <numeric>
#include <sstream>
#include <stdexcept>

#include "../process_set.h"
#include "ft_process_sets.h"

namespace horovod {
namespace common {

namespace {

int IntFromEnv(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

std::vector<int> PresentRanks(uint64_t roster) {
  std::vector<int> ranks(static_cast<size_t>(ft().worker_size()));
  ranks.resize(static_cast<size_t>(ft().worker_present(roster, ranks.data())));
  return ranks;
}

int RankAmong(const std::vector<int>& ranks, int place) {
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), place) - ranks.begin());
}

std::logic_error Unsupported(const std::string& what) {
  return std::logic_error("hvdft: the ft backend has no " + what +
                          "; run the script on HOROVOD_CONTROLLER=mpi for that");
}

} // namespace

FtController::FtController(FtEngine& engine, int32_t process_set, ResponseCache& response_cache,
                           TensorQueue& tensor_queue, Timeline& timeline,
                           ParameterManager& parameter_manager, GroupTable& group_table,
                           TimelineController& timeline_controller)
    : Controller(response_cache, tensor_queue, timeline, parameter_manager, group_table,
                 timeline_controller),
      engine_(engine), process_set_(process_set),
      requests_(process_set, tensor_queue, engine.Known()) {}

FtController::~FtController() { engine_.Remove(process_set_); }

bool FtController::Start(std::vector<int>& ranks) {
  if (ft().worker_open() != HVDFT_OK) {
    throw std::runtime_error(ft().error());
  }
  if (process_set_ == 0) {
    engine_.Start(timeline_, parameter_manager_);
  }
  std::vector<int> present = PresentRanks(ft().worker_roster());
  if (ranks.empty()) {
    ranks.resize(present.size());
    std::iota(ranks.begin(), ranks.end(), 0);
  }
  registered_ = &ranks;
  std::vector<int> places;
  for (int rank : ranks) {
    places.push_back(present[static_cast<size_t>(rank)]);
  }
  SetRanks(std::move(places), present);
  engine_.Add(process_set_, {requests_, *this});
  return requests_.InSet();
}

void FtController::SetRanks(std::vector<int> places, const std::vector<int>& present) {
  places_ = std::move(places);
  size_ = static_cast<int>(places_.size());
  global_ranks_.clear();
  global_rank_to_controller_rank_.clear();
  for (int rank = 0; rank < size_; ++rank) {
    auto found = std::find(present.begin(), present.end(), places_[static_cast<size_t>(rank)]);
    global_ranks_.push_back(static_cast<int>(found - present.begin()));
    global_rank_to_controller_rank_[global_ranks_.back()] = rank;
  }
  *registered_ = global_ranks_;
  ranks_.assign(static_cast<size_t>(ft().worker_size()), -1);
  for (int rank = 0; rank < size_; ++rank) {
    ranks_[static_cast<size_t>(places_[static_cast<size_t>(rank)])] = rank;
  }
  counts_.Start(static_cast<size_t>(size_));
  requests_.Start(places_);
}

// Another set than the global one ends with its first rank that leaves.
void FtController::Follow(const std::vector<int>& present) {
  if (lost_ >= 0) {
    return; // it stays ended, even if that rank is back
  }
  auto is_present = [&](int place) {
    return std::find(present.begin(), present.end(), place) != present.end();
  };
  auto lost = std::find_if_not(places_.begin(), places_.end(), is_present);
  if (process_set_ == 0) {
    SetRanks(present, present);
  } else if (lost == places_.end()) {
    SetRanks(places_, present);
  } else {
    lost_ = *lost;
    return;
  }
  StartTerm();
  requests_.StartTerm();
  if (requests_.InSet()) {
    rank_ = global_rank_to_controller_rank_.at(RankAmong(present, ft().worker_rank()));
    requests_.Renumber();
    SetOwnPlace(present);
  }
}

namespace {

// How many ranks each node has, as its agent has told.
std::vector<int> NodeSizes() {
  std::vector<int> sizes;
  const char* text = std::getenv("HOROVOD_FT_NODE_SIZES");
  std::istringstream list(text == nullptr ? "" : text);
  for (std::string size; std::getline(list, size, ',');) {
    sizes.push_back(std::atoi(size.c_str()));
  }
  return sizes;
}

} // namespace

// Local and cross ranks, counted as by worker_environment.py.
void FtController::SetOwnPlace(const std::vector<int>& present) {
  std::vector<int> here, sizes; // present ranks: on this node; on each
  int first = 0;
  size_t own = 0;
  for (int size : NodeSizes()) {
    std::vector<int> ranks;
    std::copy_if(present.begin(), present.end(), std::back_inserter(ranks),
                 [&](int rank) { return rank >= first && rank < first + size; });
    if (ft().worker_rank() >= first && ft().worker_rank() < first + size) {
      own = sizes.size();
      here = ranks;
    }
    sizes.push_back(static_cast<int>(ranks.size()));
    first += size;
  }
  local_rank_ = RankAmong(here, ft().worker_rank());
  local_size_ = static_cast<int>(here.size());
  auto has_this = [&](int size) { return size > local_rank_; };
  auto own_node = sizes.begin() + static_cast<long>(own);
  cross_rank_ = static_cast<int>(std::count_if(sizes.begin(), own_node, has_this));
  cross_size_ = static_cast<int>(std::count_if(sizes.begin(), sizes.end(), has_this));
  sizes.erase(std::remove(sizes.begin(), sizes.end(), 0), sizes.end());
  is_homogeneous_ = std::all_of(sizes.begin(), sizes.end(), [&](int n) { return n == sizes[0]; });
  local_comm_ranks_.resize(static_cast<size_t>(size_));
  std::iota(local_comm_ranks_.begin(), local_comm_ranks_.end(), 0);
  local_sizes_for_cross_rank_ = {local_size_};
}

// Functions that the backend lacks fail where they are called, on every rank.
Status FtController::Admit(const Request& request) const {
  if (request.request_type() == Request::ADASUM) {
    return Status::PreconditionError(Unsupported("ADASUM operation").what());
  }
  if (lost_ >= 0) {
    return Status::PreconditionError(
        "hvdft: process set " + FtRankList(places_) + " has ended, as rank " +
        std::to_string(lost_) +
        " has left the job (ranks as numbered when it began); add one of the present ranks");
  }
  return Status::OK();
}

// Only where the rank is in the set.
void FtController::DoInitialization() {
  auto own = std::find(places_.begin(), places_.end(), ft().worker_rank());
  rank_ = static_cast<int>(own - places_.begin());
  local_rank_ = IntFromEnv("HOROVOD_LOCAL_RANK", rank_);
  local_size_ = IntFromEnv("HOROVOD_LOCAL_SIZE", size_);
  cross_rank_ = IntFromEnv("HOROVOD_CROSS_RANK", 0);
  cross_size_ = IntFromEnv("HOROVOD_CROSS_SIZE", 1);
  is_coordinator_ = ft().worker_rank() == 0;
  is_homogeneous_ = IntFromEnv("HOROVOD_FT_HOMOGENEOUS", 1) != 0;
  local_comm_ranks_.resize(static_cast<size_t>(size_));
  std::iota(local_comm_ranks_.begin(), local_comm_ranks_.end(), 0);
  local_sizes_for_cross_rank_ = {local_size_};
  auto admit = [this](const Request& request) { return Admit(request); };
  if (ft().worker_roster() != 0) {
    SetOwnPlace(PresentRanks(ft().worker_roster()));
  }
  tensor_queue_.SetAdmission(admit, [this](size_t added) {
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
  ResponseList list = requests_.Execute(process_set.joined);
  if (process_set_ == 0) {
    engine_.Tuner().Observe(list);
  }
  return list;
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

void FtController::Bcast(void*, size_t, int, Communicator) { throw Unsupported("lockstep cycle"); }

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
