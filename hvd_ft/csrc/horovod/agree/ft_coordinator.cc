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

// ---------------------------------------------------------------- agreeing

void FtController::Coordinate(uint64_t term, HorovodGlobalState& state) {
  if (!joined_.ranks.empty()) {
    FindReadyByJoins();
  }
  if (stall_inspector_.ShouldPerformCheck()) {
    NoteStalled();
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

// The first time Horovod builds the response of what the ranks would have asked for by name.
Response FtController::AgreeOnNumber(const std::string& name, uint32_t number) {
  auto known = answers_.find(number);
  if (known == answers_.end()) {
    for (int rank = 0; rank < size_; ++rank) {
      IncrementTensorCount(engine_.Known().Of(number, rank));
    }
    Response response = Agree(name);
    known = answers_.emplace(number, Answer{response, agreed_.at(name)}).first;
  }
  stall_inspector_.RemoveUncachedTensor(name);
  agreed_[name] = known->second.agreed;
  return known->second.response;
}

// Horovod's response to the announcements; absent ranks take no part.
Response FtController::Agree(const std::string& name) {
  auto counted = by_number_.find(name);
  if (counted != by_number_.end()) {
    uint32_t number = counted->second;
    by_number_.erase(counted);
    return AgreeOnNumber(name, number);
  }
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
                   FtIsRoster(first) ? static_cast<uint32_t>(FtRosterNumber(first)) : place, first};
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
  agreed_[JOIN_TENSOR_NAME] = {requests_.Signature(request), 0, 0, 0, request};
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

namespace {

// Much less than what can be proposed at once; the rest of them is numbered when it is agreed
// again.
constexpr size_t kNumberedAtOnce = 1000;

} // namespace

// The requests that get numbers with this proposal.
RequestList FtController::ToBeNumbered(const ResponseList& list) {
  RequestList numbered;
  for (auto& response : list.responses()) {
    if (response.response_type() == Response::ERROR) {
      continue;
    }
    for (auto& name : response.tensor_names()) {
      Request request = agreed_.at(name).request;
      request.set_request_rank(0);
      bool alone = group_table_.GetGroupIDFromTensorName(name) == NULL_GROUP_ID;
      if (alone && numbered.requests().size() < kNumberedAtOnce &&
          engine_.Known().IsToBeNumbered(request)) {
        numbered.add_request(request);
      }
    }
  }
  return numbered;
}

std::vector<FtNote> FtController::Notes(const ResponseList& list) {
  std::vector<FtNote> notes;
  // Of the global process set: all ranks execute its ops.
  if (process_set_ == 0) {
    notes = engine_.Tuner().TakeUnproposed();
  }
  RequestList numbered = ToBeNumbered(list);
  if (!numbered.requests().empty() && engine_.Known().HasRoom()) {
    notes.push_back({HVDFT_REQUESTS, FtWrite(numbered, process_set_),
                     "numbers " + std::to_string(numbered.requests().size()) + " requests"});
  }
  return notes;
}

void FtController::Propose(uint64_t term, const ResponseList& list) {
  size_t count = list.responses().size();
  std::vector<std::string> bytes(count), signatures(count);
  std::vector<std::vector<uint64_t>> blocks(count);
  std::vector<hvdft_op> ops;
  // First: who has executed an op of the list has seen them, and may end.
  std::vector<FtNote> notes = Notes(list);
  for (auto& note : notes) {
    ops.push_back(note.Op());
  }
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
