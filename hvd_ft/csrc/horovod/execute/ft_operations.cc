#include "ft_operations.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "../controller.h"
#include "ft_views.h"

namespace horovod {
namespace common {

namespace {

constexpr char FT_ALLREDUCE[] = "FT_ALLREDUCE";
constexpr char FT_ALLGATHER[] = "FT_ALLGATHER";
constexpr char FT_BROADCAST[] = "FT_BROADCAST";
constexpr char FT_REDUCESCATTER[] = "FT_REDUCESCATTER";
constexpr char FT_ALLTOALL[] = "FT_ALLTOALL";
constexpr char FT_ERROR[] = "FT_ERROR";
constexpr char FT_REPLAY[] = "FT_REPLAY";

// Of the op's process set.
Controller& ControllerOf(HorovodGlobalState* state, const std::vector<TensorTableEntry>& entries) {
  return *state->process_set_table.Get(entries[0].process_set_id).controller;
}

char* Data(const std::shared_ptr<Tensor>& tensor) {
  return static_cast<char*>(const_cast<void*>(tensor->data()));
}

} // namespace

template <class Operation>
std::unique_ptr<InFlightOp>
FtOperation<Operation>::NewInFlightOp(std::vector<TensorTableEntry>& entries, FtLayout layout) {
  return std::make_unique<InFlightOp>(executor_.TakeRecord(), std::move(entries),
                                      std::move(layout));
}

template <class Operation>
Status FtOperation<Operation>::Begin(std::unique_ptr<InFlightOp> op, const char* activity) {
  bool replays = ft().worker_incarnation() > 0 && !ft().worker_entered();
  this->global_state_->timeline.ActivityStartAll(op->entries, replays ? FT_REPLAY : activity);
  executor_.Begin(std::move(op));
  return Status::InProgress();
}

// ---------------------------------------------------------------- reductions

template <class Operation>
std::unique_ptr<InFlightOp>
FtReduction<Operation>::NewReduction(std::vector<TensorTableEntry>& entries,
                                     const Response& response) {
  auto in_flight =
      this->NewInFlightOp(entries, FtLayout(static_cast<uint64_t>(ft().worker_nodes())));
  InFlightOp& f = *in_flight;
  f.copy_in = [this, &f, prescale = response.prescale_factor()](uint64_t from, uint64_t bytes,
                                                                char* to) {
    f.Each(from, bytes, [&](TensorTableEntry& e, uint64_t at, uint64_t n, uint64_t of) {
      CopyScaled(prescale, e, Data(e.tensor) + at, to + of, n);
    });
  };
  return in_flight;
}

template <class Operation>
void FtReduction<Operation>::CopyScaled(double factor, TensorTableEntry& e, const char* from,
                                        char* to, uint64_t bytes) {
  if (factor == 1.0) {
    std::memcpy(to, from, bytes);
  } else {
    this->ScaleBuffer(factor, {e}, from, to,
                      static_cast<int64_t>(bytes / DataType_Size(e.tensor->dtype())));
  }
}

// ---------------------------------------------------------------- allreduce

Status FtAllreduce::Execute(std::vector<TensorTableEntry>& entries, const Response& response) {
  WaitForData(entries);
  double factor = FtFactor(response, ControllerOf(global_state_, entries).GetSize());
  auto in_flight = NewReduction(entries, response);
  InFlightOp& f = *in_flight;
  if (f.record.viewed != 0) {
    f.finish = [&f] { return FtViewOutputs(f); };
    return Begin(std::move(in_flight), FT_ALLREDUCE);
  }
  Status made = FtAllocateOutputs(f);
  f.finish = [made] { return made; };
  if (made.ok()) {
    f.copy_out = [this, &f, factor](uint64_t from, uint64_t bytes, const char* result) {
      f.Each(from, bytes, [&](TensorTableEntry& e, uint64_t at, uint64_t n, uint64_t of) {
        CopyScaled(factor, e, result + of, Data(e.output) + at, n);
      });
    };
  }
  return Begin(std::move(in_flight), FT_ALLREDUCE);
}

// ---------------------------------------------------------------- allgather

Status FtAllgather::Execute(std::vector<TensorTableEntry>& entries, const Response& response) {
  WaitForData(entries);
  auto in_flight = NewInFlightOp(entries);
  InFlightOp& f = *in_flight;
  f.copy_in = [&f](uint64_t from, uint64_t bytes, char* to) {
    f.Each(from, bytes, [&](TensorTableEntry& e, uint64_t at, uint64_t n, uint64_t of) {
      std::memcpy(to + of, Data(e.tensor) + at, n);
    });
  };
  f.finish = [this, &f, response] { return CopyOut(f, response); };
  return Begin(std::move(in_flight), FT_ALLGATHER);
}

// The outputs have the sizes of all ranks together. The result is laid out rank by rank, with the
// entries one after the other in each.
Status FtAllgather::CopyOut(InFlightOp& in_flight, const Response& response) {
  auto& entries = in_flight.entries;
  auto size = static_cast<size_t>(ControllerOf(global_state_, entries).GetSize());
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
  const char* from = static_cast<const char*>(in_flight.record.result);
  std::vector<char*> to;
  for (auto& e : entries) {
    to.push_back(Data(e.output));
  }
  for (size_t rank = 0; rank < size; ++rank) {
    for (size_t e = 0; e < entries.size(); ++e) {
      auto bytes = static_cast<size_t>(sizes[e][rank]) * DataType_Size(entries[e].tensor->dtype());
      std::memcpy(to[e], from, bytes);
      to[e] += bytes;
      from += bytes;
    }
  }
  return status;
}

// ---------------------------------------------------------------- broadcast

Status FtBroadcast::Execute(std::vector<TensorTableEntry>& entries, const Response&) {
  WaitForData(entries);
  auto in_flight = NewInFlightOp(entries);
  auto& e = in_flight->entries[0];
  bool root = ControllerOf(global_state_, in_flight->entries).GetRank() == e.root_rank;
  char* input = Data(e.tensor);
  in_flight->copy_in = [input](uint64_t from, uint64_t bytes, char* to) {
    std::memcpy(to, input + from, bytes);
  };
  // A replayed root takes the logged value too: the value that it broadcast before counts.
  if (!root || !ft().worker_owes(in_flight->record.id)) {
    char* output = root ? input : Data(e.output);
    in_flight->copy_out = [output](uint64_t from, uint64_t bytes, const char* result) {
      std::memcpy(output + from, result, bytes);
    };
  }
  return Begin(std::move(in_flight), FT_BROADCAST);
}

// ---------------------------------------------------------------- reducescatter

namespace {

// Offset of a rank's slice of a tensor, in bytes: the first ranks have one row more if the rows
// cannot be divided evenly.
uint64_t SliceBegin(const Tensor& tensor, int rank, int size) {
  int64_t rows = tensor.shape().dim_size(0);
  int64_t before = rank * (rows / size) + std::min<int64_t>(rank, rows % size);
  return rows == 0 ? 0 : static_cast<uint64_t>(before) * (tensor.size() / rows);
}

} // namespace

Status FtReducescatter::Execute(std::vector<TensorTableEntry>& entries, const Response& response) {
  WaitForData(entries);
  double postscale = response.postscale_factor();
  auto in_flight = NewReduction(entries, response);
  InFlightOp& f = *in_flight;
  auto& controller = ControllerOf(global_state_, f.entries);
  int rank = controller.GetRank(), size = controller.GetSize();
  f.copy_out = [this, &f, postscale, rank, size](uint64_t from, uint64_t bytes,
                                                 const char* result) {
    f.Each(from, bytes, [&](TensorTableEntry& e, uint64_t at, uint64_t n, uint64_t of) {
      uint64_t begin = SliceBegin(*e.tensor, rank, size), end = begin + e.output->size();
      uint64_t first = std::max(at, begin), last = std::min(at + n, end);
      if (first < last) {
        CopyScaled(postscale, e, result + of + (first - at), Data(e.output) + (first - begin),
                   last - first);
      }
    });
  };
  return Begin(std::move(in_flight), FT_REDUCESCATTER);
}

// ---------------------------------------------------------------- alltoall

Status FtAlltoall::Execute(std::vector<TensorTableEntry>& entries, const Response& response) {
  WaitForData(entries);
  auto in_flight = NewInFlightOp(entries);
  InFlightOp& f = *in_flight;
  char* input = Data(f.entries[0].tensor);
  f.copy_in = [input](uint64_t from, uint64_t bytes, char* to) {
    std::memcpy(to, input + from, bytes);
  };
  f.finish = [this, &f, response] { return CopyOut(f, response); };
  return Begin(std::move(in_flight), FT_ALLTOALL);
}

Status FtAlltoall::CopyOut(InFlightOp& in_flight, const Response& response) {
  auto& e = in_flight.entries[0];
  auto& controller = ControllerOf(global_state_, in_flight.entries);
  auto size = static_cast<size_t>(controller.GetSize());
  auto rank = static_cast<size_t>(controller.GetRank());
  auto& splits = response.tensor_sizes(); // rows, [from][to]
  int64_t rows = 0;
  for (size_t from = 0; from < size; ++from) {
    rows += splits[from * size + rank];
  }
  TensorShape row, shape, splits_shape;
  for (int d = 1; d < e.tensor->shape().dims(); ++d) {
    row.AddDim(e.tensor->shape().dim_size(d));
  }
  shape.AddDim(rows);
  shape.AppendShape(row);
  splits_shape.AddDim(static_cast<int64_t>(size));
  Status status = e.context->AllocateOutput(shape, &e.output);
  if (status.ok()) {
    status = e.context->AllocateOutput(1, splits_shape, &e.received_splits);
  }
  if (!status.ok()) {
    return status;
  }
  auto row_bytes = static_cast<size_t>(row.num_elements()) * DataType_Size(e.tensor->dtype());
  const char* sent = static_cast<const char*>(in_flight.record.result);
  char* output = Data(e.output);
  auto* received = reinterpret_cast<int32_t*>(Data(e.received_splits));
  for (size_t i = 0; i < splits.size(); ++i) {
    size_t bytes = static_cast<size_t>(splits[i]) * row_bytes;
    if (i % size == rank) {
      std::memcpy(output, sent, bytes);
      output += bytes;
      received[i / size] = static_cast<int32_t>(splits[i]);
    }
    sent += bytes;
  }
  return status;
}

// ---------------------------------------------------------------- join

Status FtJoin::Execute(std::vector<TensorTableEntry>& entries, const Response& response,
                       ProcessSet& process_set) {
  process_set.controller->Barrier(Communicator::GLOBAL);
  return JoinOp::Execute(entries, response, process_set);
}

// ---------------------------------------------------------------- error

Status FtError::Execute(std::vector<TensorTableEntry>& entries, const Response& response) {
  auto in_flight = NewInFlightOp(entries);
  InFlightOp& f = *in_flight;
  f.finish = [this, &f, response] { return ErrorOp::Execute(f.entries, response); };
  return Begin(std::move(in_flight), FT_ERROR);
}

} // namespace common
} // namespace horovod
