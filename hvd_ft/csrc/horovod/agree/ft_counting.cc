// The coordinator's part of a controller, continued: it counts the ranks that have announced a
// tensor.
//
// A request is counted by its number (ft_counts.h) or by its name (Horovod's message table), never
// by both. A count by number costs the coordinator one bit per rank, and Horovod builds the
// response only once. All ranks' requests are needed by name in four cases: if they differ, which
// is an error that Horovod describes; if ranks have joined; if the requests belong to a group; and
// for Horovod's timeline.
#include "ft_controller.h"
#include "ft_stop.h"

namespace horovod {
namespace common {

void FtController::StartTerm() {
  message_table_.clear();
  splits_.clear();
  ready_.clear();
  by_number_.clear();
  answers_.clear();
  counts_.Start(static_cast<size_t>(size_));
  joined_ = FtJoined();
}

void FtController::Count(int by, const FtAnnouncement& announced) {
  int rank = ranks_[static_cast<size_t>(by)];
  if (rank < 0 && !announced.numbers.empty()) {
    FtStop("rank " + std::to_string(by) + " has announced requests of process set " +
           std::to_string(process_set_) + ", which it is not in; this is a bug of hvd_ft");
  }
  for (uint32_t number : announced.numbers) {
    CountNumber(number, rank);
  }
  for (auto& request : announced.others.requests()) {
    Count(request);
  }
}

void FtController::Count(const Request& announced) {
  if (announced.request_type() == Request::JOIN) {
    joined_.Add(announced.request_rank(), announced.tensor_shape()[0]);
    while (!counts_.Tensors().empty()) {
      MoveToNames(counts_.Tensors().begin()->first);
    }
    return;
  }
  uint32_t number;
  if (engine_.Known().Find(announced, number)) {
    CountNumber(number, announced.request_rank());
  } else {
    MoveToNames(announced.tensor_name());
    CountByName(announced);
  }
}

void FtController::CountNumber(uint32_t number, int rank) {
  const Request& request = engine_.Known().At(number);
  auto& tensor = request.tensor_name();
  bool first = !counts_.Has(number);
  std::vector<FtCounts::Named> named;
  auto may = [&] { return MayCountNumber(tensor); };
  if (counts_.Count(number, tensor, rank, may, named)) {
    by_number_[tensor] = number;
    ready_.push_back(tensor);
  } else if (first && named.empty()) {
    stall_inspector_.RecordUncachedTensorStart(tensor, rank, size_);
  }
  CountByName(named);
}

// A tensor of which no rank has announced the number in question.
bool FtController::MayCountNumber(const std::string& tensor) const {
  return joined_.ranks.empty() && !timeline_.Initialized() && message_table_.count(tensor) == 0 &&
         group_table_.GetGroupIDFromTensorName(tensor) == NULL_GROUP_ID;
}

void FtController::MoveToNames(const std::string& tensor) {
  std::vector<FtCounts::Named> named;
  counts_.Move(std::string(tensor), named);
  CountByName(named);
}

void FtController::CountByName(const std::vector<FtCounts::Named>& named) {
  for (auto& each : named) {
    CountByName(engine_.Known().Of(each.number, each.rank));
  }
}

void FtController::CountByName(const Request& announced) {
  auto& name = announced.tensor_name();
  bool complete = IncrementTensorCount(TakeSplits(announced));
  stall_inspector_.RecordUncachedTensorStart(name, announced.request_rank(), size_);
  if (complete) {
    ready_.push_back(name);
  }
}

// Horovod's inspector knows only the first rank of those that are counted by number.
void FtController::NoteStalled() {
  for (auto& counted : counts_.Tensors()) {
    counts_.EachRank(counted.second, [&](int rank) {
      stall_inspector_.RecordUncachedTensorStart(counted.first, rank, size_);
    });
  }
}

Request FtController::TakeSplits(const Request& announced) {
  Request request = announced;
  if (announced.request_type() == Request::ALLTOALL) {
    auto size = static_cast<size_t>(size_);
    auto shape = announced.tensor_shape();
    auto& all = splits_[announced.tensor_name()];
    all.resize(size * size);
    std::copy(shape.end() - size_, shape.end(), all.begin() + announced.request_rank() * size_);
    shape.resize(shape.size() - size);
    request.set_tensor_shape(shape);
  }
  return request;
}

// Tensors that only ranks which have joined have not announced.
void FtController::FindReadyByJoins() {
  auto size = static_cast<size_t>(size_);
  for (auto& entry : message_table_) {
    size_t announced = entry.second.size();
    if (announced < size && announced + Absent(entry.first).size() == size) {
      timeline_.NegotiateEnd(entry.first);
      ready_.push_back(entry.first);
    }
  }
}

bool FtController::AllJoined() const { return joined_.ranks.size() == static_cast<size_t>(size_); }

// Ranks that joined before announcing this tensor.
std::vector<int> FtController::Absent(const std::string& name) const {
  std::set<int> absent = joined_.ranks;
  for (auto& request : message_table_.at(name)) {
    absent.erase(request.request_rank());
  }
  return {absent.begin(), absent.end()};
}

} // namespace common
} // namespace horovod
