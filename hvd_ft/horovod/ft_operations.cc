#include "ft_operations.h"

#include <cstring>
#include <memory>

#include "ft_controller.h"

namespace horovod {
namespace common {

namespace {

constexpr char FT_ALLREDUCE[] = "FT_ALLREDUCE";
constexpr char FT_ALLGATHER[] = "FT_ALLGATHER";
constexpr char FT_BROADCAST[] = "FT_BROADCAST";
constexpr char FT_ERROR[] = "FT_ERROR";

FtController& ControllerOf(HorovodGlobalState* state) {
  return static_cast<FtController&>(*state->global_controller);
}

char* Data(const std::shared_ptr<Tensor>& tensor) {
  return static_cast<char*>(const_cast<void*>(tensor->data()));
}

// Hands the op over: the controller finishes it, and calls its entries back.
Status Begin(HorovodGlobalState* state, std::unique_ptr<FtFlight> flight, const char* activity) {
  state->timeline.ActivityStartAll(flight->entries, activity);
  ControllerOf(state).Begin(std::move(flight));
  return Status::InProgress();
}

std::unique_ptr<FtFlight> NewFlight(HorovodGlobalState* state,
                                    std::vector<TensorTableEntry>& entries, int chunks = 1) {
  return std::make_unique<FtFlight>(ControllerOf(state).TakeRecord(), std::move(entries), chunks);
}

} // namespace

// ---------------------------------------------------------------- allreduce

Status FtAllreduce::Execute(std::vector<TensorTableEntry>& entries, const Response& response) {
  WaitForData(entries);
  double prescale = response.prescale_factor(), postscale = response.postscale_factor();
  if (response.reduce_op() == ReduceOp::AVERAGE) {
    postscale /= ControllerOf(global_state_).GetSize();
  }
  auto scale = [this](double factor, TensorTableEntry& e, const char* from, char* to,
                      uint64_t bytes) {
    if (factor == 1.0) {
      std::memcpy(to, from, bytes);
    } else {
      ScaleBuffer(factor, {e}, from, to,
                  static_cast<int64_t>(bytes / DataType_Size(e.tensor->dtype())));
    }
  };
  auto flight = NewFlight(global_state_, entries, ft().worker_nodes());
  FtFlight& f = *flight;
  f.copy_in = [&f, scale, prescale](uint64_t from, uint64_t bytes, char* to) {
    f.Each(from, bytes, [&](TensorTableEntry& e, uint64_t at, uint64_t n, uint64_t of) {
      scale(prescale, e, Data(e.tensor) + at, to + of, n);
    });
  };
  f.copy_out = [&f, scale, postscale](uint64_t from, uint64_t bytes, const char* result) {
    f.Each(from, bytes, [&](TensorTableEntry& e, uint64_t at, uint64_t n, uint64_t of) {
      scale(postscale, e, result + of, Data(e.output) + at, n);
    });
  };
  return Begin(global_state_, std::move(flight), FT_ALLREDUCE);
}

bool FtAllreduce::Enabled(const ParameterManager&, const std::vector<TensorTableEntry>&,
                          const Response&) const {
  return true;
}

// ---------------------------------------------------------------- allgather

Status FtAllgather::Execute(std::vector<TensorTableEntry>& entries, const Response& response) {
  WaitForData(entries);
  auto flight = NewFlight(global_state_, entries);
  FtFlight& f = *flight;
  f.copy_in = [&f](uint64_t from, uint64_t bytes, char* to) {
    f.Each(from, bytes, [&](TensorTableEntry& e, uint64_t at, uint64_t n, uint64_t of) {
      std::memcpy(to + of, Data(e.tensor) + at, n);
    });
  };
  f.finish = [this, &f, response] { return CopyOut(f, response); };
  return Begin(global_state_, std::move(flight), FT_ALLGATHER);
}

// The outputs are as large as all ranks together say. The result lies rank by rank, in each the
// entries one after the other.
Status FtAllgather::CopyOut(FtFlight& flight, const Response& response) {
  auto& entries = flight.entries;
  auto size = static_cast<size_t>(ControllerOf(global_state_).GetSize());
  std::vector<int64_t> elements(entries.size() * size); // [entry][rank]
  std::vector<int64_t*> rows;
  for (size_t e = 0; e < entries.size(); ++e) {
    rows.push_back(&elements[e * size]);
  }
  int64_t** sizes = rows.data();
  Status status = AllocateOutput(entries, response, sizes);
  if (!status.ok()) {
    return status;
  }
  const char* from = static_cast<const char*>(flight.record.result);
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
  return status;
}

bool FtAllgather::Enabled(const ParameterManager&, const std::vector<TensorTableEntry>&,
                          const Response&) const {
  return true;
}

// ---------------------------------------------------------------- broadcast

Status FtBroadcast::Execute(std::vector<TensorTableEntry>& entries, const Response&) {
  WaitForData(entries);
  auto flight = NewFlight(global_state_, entries);
  auto& e = flight->entries[0];
  bool root = ControllerOf(global_state_).GetRank() == e.root_rank;
  char* input = Data(e.tensor);
  flight->copy_in = [input](uint64_t from, uint64_t bytes, char* to) {
    std::memcpy(to, input + from, bytes);
  };
  // A replayed root takes the logged value too: what it broadcast before is what counts.
  if (!root || !ft().worker_owes(flight->record.id)) {
    char* output = root ? input : Data(e.output);
    flight->copy_out = [output](uint64_t from, uint64_t bytes, const char* result) {
      std::memcpy(output + from, result, bytes);
    };
  }
  return Begin(global_state_, std::move(flight), FT_BROADCAST);
}

bool FtBroadcast::Enabled(const ParameterManager&, const std::vector<TensorTableEntry>&,
                          const Response&) const {
  return true;
}

// ---------------------------------------------------------------- error

Status FtError::Execute(std::vector<TensorTableEntry>& entries, const Response& response) {
  auto flight = NewFlight(global_state_, entries);
  FtFlight& f = *flight;
  f.finish = [this, &f, response] { return ErrorOp::Execute(f.entries, response); };
  return Begin(global_state_, std::move(flight), FT_ERROR);
}

} // namespace common
} // namespace horovod
