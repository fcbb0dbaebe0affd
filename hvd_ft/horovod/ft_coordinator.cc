// The coordinator's part of the ft controller: rank 0 finds out what all ranks are ready for,
// and proposes it for the log.
#include <numeric>
#include <unordered_set>

#include "ft_controller.h"
#include "ft_signature.h"
#include "ft_stop.h"

namespace horovod {
namespace common {

void FtController::Coordinate(HorovodGlobalState& state) {
  std::vector<std::string> ready;
  TakeAnnouncements(ready);
  if (stall_inspector_.ShouldPerformCheck()) {
    if (stall_inspector_.CheckForStalledTensors(global_ranks_)) {
      FtStop("tensors were stalled for longer than HOROVOD_STALL_SHUTDOWN_TIME_SECONDS: Horovod "
             "has named them and the missing ranks above");
    }
    stall_inspector_.UpdateCheckTime();
  }
  if (ready.empty() && !AllJoined()) {
    return;
  }
  ResponseList list;
  Fuse(ready, state, list);
  Propose(list);
}

// Tensors that all ranks have announced now.
void FtController::TakeAnnouncements(std::vector<std::string>& ready) {
  for (auto& name : unannounced_) {
    auto request = requested_.find(name);
    if (request != requested_.end()) {
      Count(WithSplits(request->second), ready);
    }
  }
  unannounced_.clear();
  for (int rank = 1; rank < size_; ++rank) {
    const void* bytes;
    while (ft().worker_take(rank, term_, &bytes) >= 0) {
      RequestList requests;
      RequestList::ParseFromBytes(requests, static_cast<const uint8_t*>(bytes));
      for (auto& request : requests.requests()) {
        Count(request, ready);
      }
    }
  }
  // What now waits for ranks only that have joined.
  for (auto& entry : message_table_) {
    bool complete = entry.second.size() == static_cast<size_t>(size_);
    if (!joined_.ranks.empty() && !complete &&
        Absent(entry.first).size() + entry.second.size() == static_cast<size_t>(size_)) {
      timeline_.NegotiateEnd(entry.first);
      ready.push_back(entry.first);
    }
  }
}

void FtController::Count(const Request& announced, std::vector<std::string>& ready) {
  if (announced.request_type() == Request::JOIN) {
    joined_.Add(announced.request_rank(), announced.tensor_shape()[0]);
    return;
  }
  bool complete = IncrementTensorCount(TakeSplits(announced));
  auto& name = announced.tensor_name();
  stall_inspector_.RecordUncachedTensorStart(name, announced.request_rank(), size_);
  if (complete) {
    ready.push_back(name);
  }
}

Request FtController::TakeSplits(const Request& announced) {
  Request request = announced;
  if (announced.request_type() == Request::ALLTOALL) {
    auto size = static_cast<size_t>(size_);
    auto shape = announced.tensor_shape();
    auto& all = splits_[announced.tensor_name()];
    all.resize(size * size);
    std::copy(shape.end() - size_, shape.end(),
              all.begin() + announced.request_rank() * size_);
    shape.resize(shape.size() - size);
    request.set_tensor_shape(shape);
  }
  return request;
}

bool FtController::AllJoined() const {
  return joined_.ranks.size() == static_cast<size_t>(size_);
}

// Ranks that have joined without announcing this tensor before.
std::vector<int> FtController::Absent(const std::string& name) const {
  std::set<int> absent = joined_.ranks;
  for (auto& request : message_table_.at(name)) {
    absent.erase(request.request_rank());
  }
  return {absent.begin(), absent.end()};
}

// Horovod's response to what has been announced. It takes no part in that who is absent: ranks
// that give zeros have a device of their own, so that only what lacks the same ranks is fused.
Response FtController::Agree(const std::string& name) {
  constexpr int32_t kAbsentDevice = CPU_DEVICE_ID - 1;
  auto& requests = message_table_.at(name);
  auto type = requests[0].request_type();
  signatures_[name] = FtSignature(requests[0]);
  auto absent = Absent(name);
  for (int rank : absent) {
    requests.push_back(requests[0]);
    requests.back().set_request_rank(rank);
  }
  Response response = ConstructResponse(name, static_cast<int>(absent.size()));
  if (type == Request::BARRIER && !absent.empty()) {
    response.set_response_type(Response::ERROR);
    response.set_error_message("Barrier is not supported with Join at this time.");
  }
  auto devices = response.devices();
  for (int rank : absent) {
    devices[static_cast<size_t>(rank)] = kAbsentDevice;
  }
  response.set_devices(devices);
  if (response.response_type() == Response::ALLTOALL) {
    response.set_tensor_sizes(splits_.at(name));
  }
  splits_.erase(name);
  return response;
}

void FtController::Fuse(const std::vector<std::string>& ready, HorovodGlobalState& state,
                        ResponseList& list) {
  std::deque<Response> together;
  std::unordered_set<int32_t> done;
  for (auto& name : ready) {
    auto group = group_table_.GetGroupIDFromTensorName(name);
    if (!state.disable_group_fusion || group == NULL_GROUP_ID) {
      together.push_back(Agree(name));
    } else if (done.insert(group).second) {
      std::deque<Response> alone;
      for (auto& member : group_table_.GetGroupTensorNames(group)) {
        alone.push_back(Agree(member));
      }
      FuseResponses(alone, state, list);
    }
  }
  if (AllJoined()) {
    Response join;
    join.set_response_type(Response::JOIN);
    join.add_tensor_name(JOIN_TENSOR_NAME);
    join.set_last_joined_rank(joined_.last);
    together.push_back(std::move(join));
    signatures_[JOIN_TENSOR_NAME] = FtSignature(requested_.at(JOIN_TENSOR_NAME));
    joined_ = FtJoined();
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

// Bytes of a tensor's slice at one place of its first dimension.
uint64_t RowBytes(const TensorTableEntry& entry) {
  uint64_t row = DataType_Size(entry.tensor->dtype());
  for (int d = 1; d < entry.tensor->shape().dims(); ++d) {
    row *= static_cast<uint64_t>(entry.tensor->shape().dim_size(d));
  }
  return row;
}

// What each rank gives to a concatenation of all, in bytes.
std::vector<uint64_t> Blocks(const Response& response, const TensorQueue& queue, size_t size) {
  std::vector<uint64_t> blocks(size);
  auto& sizes = response.tensor_sizes();
  auto& names = response.tensor_names();
  // An allgather has a size for each tensor and rank, an alltoall (which is never fused) for each
  // rank and receiver.
  bool gather = response.response_type() == Response::ALLGATHER;
  for (size_t i = 0; i < sizes.size(); ++i) {
    auto& name = gather ? names[i / size] : names[0];
    blocks[gather ? i % size : i / size] +=
        RowBytes(queue.GetTensorEntry(name)) * static_cast<uint64_t>(sizes[i]);
  }
  return blocks;
}

// What the core needs to know of a response; `blocks` has to live as long as the op.
hvdft_op CoreOp(const Response& response, const TensorQueue& queue, int size,
                std::vector<uint64_t>& blocks) {
  hvdft_op op{};
  op.dtype = static_cast<uint32_t>(response.tensor_type());
  auto& sizes = response.tensor_sizes();
  auto type = response.response_type();
  if (type == Response::ALLREDUCE || type == Response::REDUCESCATTER) {
    op.kind = HVDFT_REDUCE;
    op.reduce = CoreReduce(response.reduce_op());
    op.result_bytes = static_cast<uint64_t>(std::accumulate(sizes.begin(), sizes.end(), 0LL)) *
                      DataType_Size(response.tensor_type());
  } else if (type == Response::BROADCAST) {
    auto& entry = queue.GetTensorEntry(response.tensor_names()[0]);
    op.kind = HVDFT_COPY;
    op.root = static_cast<uint32_t>(entry.root_rank);
    op.result_bytes = entry.tensor->size();
  } else if (type == Response::ALLGATHER || type == Response::ALLTOALL) {
    op.kind = HVDFT_CONCAT;
    blocks = Blocks(response, queue, static_cast<size_t>(size));
    op.result_bytes = std::accumulate(blocks.begin(), blocks.end(), uint64_t{0});
    op.block_bytes = blocks.data();
  } else {
    op.kind = HVDFT_NONE; // a barrier, a join, or an error
  }
  return op;
}

} // namespace

void FtController::Propose(const ResponseList& list) {
  size_t count = list.responses().size();
  std::vector<std::string> bytes(count), signatures(count);
  std::vector<std::vector<uint64_t>> blocks(count);
  std::vector<hvdft_op> ops;
  for (size_t i = 0; i < count; ++i) {
    const Response& response = list.responses()[i];
    ops.push_back(CoreOp(response, tensor_queue_, size_, blocks[i]));
    Response::SerializeToString(response, bytes[i]);
    for (auto& name : response.tensor_names()) {
      signatures[i] += signatures_.at(name) + '\n';
    }
    ops.back().response = bytes[i].data();
    ops.back().response_bytes = bytes[i].size();
    ops.back().signature = signatures[i].c_str();
  }
  // If a rank joined meanwhile the answer is "again": everyone announces anew in the new term.
  FtCheck(ft().worker_propose(term_, ops.data(), static_cast<int>(ops.size())));
  signatures_.clear();
}

} // namespace common
} // namespace horovod
