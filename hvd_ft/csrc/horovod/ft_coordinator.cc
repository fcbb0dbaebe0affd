// The coordinator's part of a controller: rank 0 determines the ops for which all ranks of a
// process set are ready, and proposes them for the log.
#include <numeric>
#include <unordered_set>

#include "ft_agreed.h"
#include "ft_controller.h"
#include "ft_layout.h"
#include "ft_process_sets.h"
#include "ft_signature.h"
#include "ft_stop.h"
#include "ft_views.h"

namespace horovod {
namespace common {

// ---------------------------------------------------------------- counting

void FtController::StartTerm() {
  message_table_.clear();
  splits_.clear();
  ready_.clear();
  joined_ = FtJoined();
}

void FtController::Count(const std::vector<Request>& announced) {
  for (auto& request : announced) {
    Count(request);
  }
}

void FtController::Count(const Request& announced) {
  if (announced.request_type() == Request::JOIN) {
    joined_.Add(announced.request_rank(), announced.tensor_shape()[0]);
    return;
  }
  bool complete = IncrementTensorCount(TakeSplits(announced));
  auto& name = announced.tensor_name();
  stall_inspector_.RecordUncachedTensorStart(name, announced.request_rank(), size_);
  if (complete) {
    ready_.push_back(name);
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

// ---------------------------------------------------------------- agreeing

void FtController::Coordinate(uint64_t term, HorovodGlobalState& state) {
  if (!joined_.ranks.empty()) {
    FindReadyByJoins();
  }
  if (stall_inspector_.ShouldPerformCheck()) {
    if (stall_inspector_.CheckForStalledTensors(global_ranks_)) {
      FtStop("tensors were stalled for longer than HOROVOD_STALL_SHUTDOWN_TIME_SECONDS: Horovod "
             "has named them and the missing ranks above");
    }
    stall_inspector_.UpdateCheckTime();
  }
  if (!ready_.empty() || AllJoined()) {
    ResponseList list;
    Fuse(state, list);
    Propose(term, list);
  }
}

namespace {

uint64_t RowBytes(const Request& request) {
  auto& shape = request.tensor_shape();
  uint64_t row = DataType_Size(request.tensor_type());
  for (size_t d = 1; d < shape.size(); ++d) {
    row *= static_cast<uint64_t>(shape[d]);
  }
  return row;
}

} // namespace

// Horovod's response to the announcements; absent ranks take no part.
Response FtController::Agree(const std::string& name) {
  auto& requests = message_table_.at(name);
  const Request first = requests[0];
  auto absent = Absent(name);
  if (FtIsProcessSetChange(first)) {
    CheckChange(requests, !absent.empty());
  }
  uint64_t row = RowBytes(first);
  uint64_t rows = first.tensor_shape().empty() ? 1 : static_cast<uint64_t>(first.tensor_shape()[0]);
  int root = first.request_type() == Request::BROADCAST ? first.root_rank() : 0;
  auto place = static_cast<uint32_t>(places_[static_cast<size_t>(root)]);
  agreed_[name] = {requests_.Signature(first), row, row * rows,
                   FtIsRoster(first) ? static_cast<uint32_t>(FtRosterNumber(first)) : place};
  for (int rank : absent) {
    requests.push_back(first);
    requests.back().set_request_rank(rank);
  }
  Response response = ConstructResponse(name, static_cast<int>(absent.size()));
  if (first.request_type() == Request::BARRIER && !absent.empty()) {
    response.set_response_type(Response::ERROR);
    response.set_error_message("Barrier is not supported with Join at this time.");
  }
  auto devices = response.devices();
  for (int rank : absent) {
    devices[static_cast<size_t>(rank)] = FtJoined::kAbsentDevice;
  }
  response.set_devices(devices);
  if (response.response_type() == Response::ALLTOALL) {
    response.set_tensor_sizes(splits_.at(name));
  }
  splits_.erase(name);
  return response;
}

// Stock Horovod also ends when ranks ask for different things.
void FtController::CheckChange(const std::vector<Request>& requests, bool absent) const {
  if (absent) {
    FtStop("cannot " + FtProcessSetChange(requests[0]) + " while ranks have joined (hvd.join)");
  }
  for (auto& other : requests) {
    if (other.tensor_shape() != requests[0].tensor_shape()) {
      FtStop("rank " + std::to_string(requests[0].request_rank()) + " is to " +
             FtProcessSetChange(requests[0]) + ", but rank " +
             std::to_string(other.request_rank()) + " is to " + FtProcessSetChange(other) +
             "; all ranks must add and remove the same process sets in the same order");
    }
  }
}

Response FtController::AgreeOnJoin() {
  Response join;
  join.set_response_type(Response::JOIN);
  join.add_tensor_name(JOIN_TENSOR_NAME);
  join.set_last_joined_rank(global_ranks_[static_cast<size_t>(joined_.last)]);
  Request request;
  request.set_request_type(Request::JOIN);
  agreed_[JOIN_TENSOR_NAME] = {requests_.Signature(request), 0, 0, 0};
  joined_ = FtJoined();
  return join;
}

void FtController::Fuse(HorovodGlobalState& state, ResponseList& list) {
  std::deque<Response> together;
  std::unordered_set<int32_t> done;
  for (auto& name : ready_) {
    auto group = group_table_.GetGroupIDFromTensorName(name);
    if (state.disable_group_fusion && group != NULL_GROUP_ID) {
      if (done.insert(group).second) {
        std::deque<Response> alone;
        for (auto& member : group_table_.GetGroupTensorNames(group)) {
          alone.push_back(Agree(member));
        }
        FuseResponses(alone, state, list);
      }
      continue;
    }
    Response response = Agree(name);
    // Horovod looks into the queue to fuse allgathers. There is nothing if rank 0 is not in the
    // set.
    if (response.response_type() == Response::ALLGATHER && !IsInitialized()) {
      list.add_response(response);
    } else {
      together.push_back(std::move(response));
    }
  }
  ready_.clear();
  if (AllJoined()) {
    together.push_back(AgreeOnJoin());
  }
  FuseResponses(together, state, list);
}

// ---------------------------------------------------------------- proposing

namespace {

uint32_t CoreReduce(ReduceOp op) {
  switch (op) {
  case ReduceOp::MIN: return HVDFT_MIN;
  case ReduceOp::MAX: return HVDFT_MAX;
  case ReduceOp::PRODUCT: return HVDFT_PRODUCT;
  default: return HVDFT_SUM; // an average is a sum, scaled afterwards
  }
}

} // namespace

// Each rank's part of a concatenation, in bytes.
std::vector<uint64_t> FtController::Blocks(const Response& response) const {
  std::vector<uint64_t> blocks(static_cast<size_t>(ft().worker_size()));
  auto& sizes = response.tensor_sizes();
  auto& names = response.tensor_names();
  auto size = static_cast<size_t>(size_);
  // An allgather has a size for each tensor and rank, an alltoall (which is never fused) for each
  // rank and receiver.
  bool gather = response.response_type() == Response::ALLGATHER;
  for (size_t i = 0; i < sizes.size(); ++i) {
    int rank = places_[gather ? i % size : i / size];
    blocks[static_cast<size_t>(rank)] +=
        agreed_.at(gather ? names[i / size] : names[0]).row_bytes * static_cast<uint64_t>(sizes[i]);
  }
  return blocks;
}

// The core's view of a response; `blocks` has to live as long as the op.
hvdft_op FtController::CoreOp(const Response& response, std::vector<uint64_t>& blocks) const {
  hvdft_op op{};
  op.common = process_set_ == 0 ? 1 : 0;
  op.dtype = static_cast<uint32_t>(response.tensor_type());
  auto& sizes = response.tensor_sizes();
  auto type = response.response_type();
  if (type == Response::ALLREDUCE || type == Response::REDUCESCATTER) {
    op.kind = HVDFT_REDUCE;
    op.reduce = CoreReduce(response.reduce_op());
    FtLayout layout(static_cast<uint64_t>(ft().worker_nodes()));
    for (int64_t elements : sizes) {
      layout.Add(static_cast<uint64_t>(elements) * DataType_Size(response.tensor_type()));
    }
    op.result_bytes = layout.Bytes();
    op.factor = FtFactor(response, size_);
    op.viewed = FtIsViewed(response, op.factor) ? 1 : 0;
    if (size_ < ft().worker_size()) {
      blocks.resize(static_cast<size_t>(ft().worker_size()));
      for (int rank : places_) {
        blocks[static_cast<size_t>(rank)] = op.result_bytes;
      }
      op.block_bytes = blocks.data();
    }
  } else if (type == Response::BROADCAST) {
    auto& agreed = agreed_.at(response.tensor_names()[0]);
    op.kind = HVDFT_COPY;
    op.root = agreed.root;
    op.result_bytes = agreed.bytes;
  } else if (type == Response::ALLGATHER || type == Response::ALLTOALL) {
    op.kind = HVDFT_CONCAT;
    blocks = Blocks(response);
    op.result_bytes = std::accumulate(blocks.begin(), blocks.end(), uint64_t{0});
    op.block_bytes = blocks.data();
  } else if (FtIsRoster(response)) {
    op.kind = HVDFT_ROSTER;
    op.root = agreed_.at(response.tensor_names()[0]).root;
  } else {
    op.kind = HVDFT_NONE; // a barrier, a join, or an error
  }
  return op;
}

void FtController::Propose(uint64_t term, const ResponseList& list) {
  size_t count = list.responses().size();
  std::vector<std::string> bytes(count), signatures(count);
  std::vector<std::vector<uint64_t>> blocks(count);
  std::vector<hvdft_op> ops;
  for (size_t i = 0; i < count; ++i) {
    const Response& response = list.responses()[i];
    ops.push_back(CoreOp(response, blocks[i]));
    bytes[i] = FtWrite(response, process_set_);
    for (auto& name : response.tensor_names()) {
      signatures[i] += agreed_.at(name).signature + '\n';
    }
    ops.back().response = bytes[i].data();
    ops.back().response_bytes = bytes[i].size();
    ops.back().signature = signatures[i].c_str();
  }
  // If a rank entered meanwhile the answer is "again": every rank announces anew in the new term.
  FtCheck(ft().worker_propose(term, ops.data(), static_cast<int>(ops.size())));
  agreed_.clear();
}

} // namespace common
} // namespace horovod
