#include "ft_operations.h"

#include <cstring>

#include "ft_controller.h"
#include "ft_stop.h"

namespace horovod {
namespace common {

namespace {

constexpr char FT_COPY_IN[] = "FT_COPY_IN";
constexpr char FT_WAIT_PEER[] = "FT_WAIT_PEER";
constexpr char FT_COPY_OUT[] = "FT_COPY_OUT";

FtController& ControllerOf(HorovodGlobalState* state) {
  return static_cast<FtController&>(*state->global_controller);
}

// Contributes `bytes` that `copy_in` writes to where it is told, unless an earlier
// incarnation has, and waits until the op is complete. True if this one contributed.
template <typename CopyIn>
bool Run(HorovodGlobalState* state, const std::vector<TensorTableEntry>& entries,
         const hvdft_record& record, uint64_t bytes, CopyIn copy_in) {
  auto& timeline = state->timeline;
  void* room;
  FtCheck(ft().worker_input(record.id, bytes, &room));
  if (room != nullptr) {
    timeline.ActivityStartAll(entries, FT_COPY_IN);
    copy_in(static_cast<char*>(room));
    ft().worker_point(HVDFT_AT_COPY_IN, record.id);
    timeline.ActivityEndAll(entries);
  }
  FtCheck(ft().worker_contribute(record.id));
  timeline.ActivityStartAll(entries, FT_WAIT_PEER);
  FtCheck(ft().worker_wait_complete(record.id));
  ft().worker_point(HVDFT_AT_COPY_OUT, record.id);
  timeline.ActivityEndAll(entries);
  return room != nullptr;
}

char* Data(const std::shared_ptr<Tensor>& tensor) {
  return static_cast<char*>(const_cast<void*>(tensor->data()));
}

} // namespace

// ---------------------------------------------------------------- allreduce

Status FtAllreduce::Execute(std::vector<TensorTableEntry>& entries, const Response& response) {
  WaitForData(entries);
  auto& controller = ControllerOf(global_state_);
  hvdft_record record = controller.TakeRecord();
  double postscale = response.postscale_factor();
  if (response.reduce_op() == ReduceOp::AVERAGE) {
    postscale /= controller.GetSize();
  }
  Run(global_state_, entries, record, record.result_bytes,
      [&](char* to) { CopyIn(entries, response.prescale_factor(), to); });
  global_state_->timeline.ActivityStartAll(entries, FT_COPY_OUT);
  CopyOut(entries, postscale, static_cast<const char*>(record.result));
  global_state_->timeline.ActivityEndAll(entries);
  controller.Executed(record, entries.size());
  return Status::OK();
}

void FtAllreduce::CopyIn(const std::vector<TensorTableEntry>& entries, double factor, char* to) {
  for (auto& e : entries) {
    if (factor == 1.0) {
      std::memcpy(to, e.tensor->data(), e.tensor->size());
    } else {
      ScaleBuffer(factor, {e}, e.tensor->data(), to, e.tensor->shape().num_elements());
    }
    to += e.tensor->size();
  }
}

void FtAllreduce::CopyOut(std::vector<TensorTableEntry>& entries, double factor,
                          const char* from) {
  for (auto& e : entries) {
    if (factor == 1.0) {
      std::memcpy(Data(e.output), from, e.output->size());
    } else {
      ScaleBuffer(factor, {e}, from, Data(e.output), e.output->shape().num_elements());
    }
    from += e.output->size();
  }
}

bool FtAllreduce::Enabled(const ParameterManager&, const std::vector<TensorTableEntry>&,
                          const Response&) const {
  return true;
}

// ---------------------------------------------------------------- allgather

Status FtAllgather::Execute(std::vector<TensorTableEntry>& entries, const Response& response) {
  WaitForData(entries);
  auto& controller = ControllerOf(global_state_);
  hvdft_record record = controller.TakeRecord();
  auto size = static_cast<size_t>(controller.GetSize());

  Run(global_state_, entries, record, record.block_bytes[controller.GetRank()], [&](char* to) {
    for (auto& e : entries) {
      std::memcpy(to, e.tensor->data(), e.tensor->size());
      to += e.tensor->size();
    }
  });

  std::vector<int64_t> elements(entries.size() * size); // [entry][rank]
  std::vector<int64_t*> rows;
  for (size_t e = 0; e < entries.size(); ++e) {
    rows.push_back(&elements[e * size]);
  }
  int64_t** sizes = rows.data();
  Status status = AllocateOutput(entries, response, sizes);
  if (status.ok()) {
    // The result lies rank by rank, in each the entries one after the other.
    const char* from = static_cast<const char*>(record.result);
    std::vector<char*> to;
    for (auto& e : entries) {
      to.push_back(Data(e.output));
    }
    for (size_t rank = 0; rank < size; ++rank) {
      for (size_t e = 0; e < entries.size(); ++e) {
        auto bytes = static_cast<size_t>(sizes[e][rank]) *
                     DataType_Size(entries[e].tensor->dtype());
        std::memcpy(to[e], from, bytes);
        to[e] += bytes;
        from += bytes;
      }
    }
  }
  controller.Executed(record, entries.size());
  return status;
}

bool FtAllgather::Enabled(const ParameterManager&, const std::vector<TensorTableEntry>&,
                          const Response&) const {
  return true;
}

// ---------------------------------------------------------------- broadcast

Status FtBroadcast::Execute(std::vector<TensorTableEntry>& entries, const Response&) {
  WaitForData(entries);
  auto& controller = ControllerOf(global_state_);
  hvdft_record record = controller.TakeRecord();
  auto& e = entries[0];
  bool root = controller.GetRank() == e.root_rank;
  bool contributed =
      Run(global_state_, entries, record, root ? e.tensor->size() : 0, [&](char* to) {
        if (root) {
          std::memcpy(to, e.tensor->data(), e.tensor->size());
        }
      });
  // A replayed root takes the logged value too: what it broadcast before is what counts.
  if (!root || !contributed) {
    std::memcpy(Data(root ? e.tensor : e.output), record.result, record.result_bytes);
  }
  controller.Executed(record, 1);
  return Status::OK();
}

bool FtBroadcast::Enabled(const ParameterManager&, const std::vector<TensorTableEntry>&,
                          const Response&) const {
  return true;
}

// ---------------------------------------------------------------- error

Status FtError::Execute(std::vector<TensorTableEntry>& entries, const Response& response) {
  auto& controller = ControllerOf(global_state_);
  hvdft_record record = controller.TakeRecord();
  FtCheck(ft().worker_contribute(record.id));
  controller.Executed(record, entries.size());
  return ErrorOp::Execute(entries, response);
}

} // namespace common
} // namespace horovod
