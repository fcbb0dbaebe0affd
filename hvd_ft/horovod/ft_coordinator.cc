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
  if (ready.empty()) {
    return;
  }
  ResponseList list;
  Fuse(ready, state, list);
  Propose(list);
}

// Tensors that all ranks have announced now.
void FtController::TakeAnnouncements(std::vector<std::string>& ready) {
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
    }
  }
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
  op.dtype = static_cast<uint32_t>(response.tensor_type());
  auto& sizes = response.tensor_sizes();
  auto& names = response.tensor_names();
  if (response.response_type() == Response::ALLREDUCE) {
    op.kind = HVDFT_REDUCE;
    op.reduce = CoreReduce(response.reduce_op());
    FtLayout layout(static_cast<uint64_t>(ft().worker_nodes()));
    for (int64_t elements : sizes) {
      layout.Add(static_cast<uint64_t>(elements) * DataType_Size(response.tensor_type()));
    }
    op.result_bytes = layout.Bytes();
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
    op.kind = HVDFT_NONE; // a barrier, or an error
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
      signatures[i] += FtSignature(requested_.at(name)) + '\n';
    }
    ops.back().response = bytes[i].data();
    ops.back().response_bytes = bytes[i].size();
    ops.back().signature = signatures[i].c_str();
  }
  // If a rank joined meanwhile the answer is "again": everyone announces anew in the new term.
  FtCheck(ft().worker_propose(term_, ops.data(), static_cast<int>(ops.size())));
}

} // namespace common
} // namespace horovod
