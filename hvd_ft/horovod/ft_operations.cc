#include "ft_operations.h"

#include <algorithm>
#include <cstring>

#include "ft_controller.h"
#include "ft_stop.h"

namespace horovod {
namespace common {

namespace {

constexpr char FT_ALLREDUCE[] = "FT_ALLREDUCE";
constexpr char FT_ALLGATHER[] = "FT_ALLGATHER";
constexpr char FT_BROADCAST[] = "FT_BROADCAST";

FtController& ControllerOf(HorovodGlobalState* state) {
  return static_cast<FtController&>(*state->global_controller);
}

char* Data(const std::shared_ptr<Tensor>& tensor) {
  return static_cast<char*>(const_cast<void*>(tensor->data()));
}

// The entries of an op as one stretch of memory, although each lies somewhere else.
class Fused {
public:
  explicit Fused(std::vector<TensorTableEntry>& entries) : entries_(entries) {
    for (auto& e : entries) {
      ends_.push_back((ends_.empty() ? 0 : ends_.back()) + e.tensor->size());
    }
  }

  // Calls copy(entry, byte in the entry, bytes, byte in the stretch) for each part of it.
  template <typename Copy> void Each(uint64_t from, uint64_t bytes, Copy copy) {
    auto first = std::upper_bound(ends_.begin(), ends_.end(), from);
    uint64_t at = from, end = from + bytes;
    for (auto i = static_cast<size_t>(first - ends_.begin()); at < end; ++i) {
      uint64_t begin = i == 0 ? 0 : ends_[i - 1];
      uint64_t part = std::min(ends_[i], end) - at;
      if (part > 0) {
        copy(entries_[i], at - begin, part, at - from);
      }
      at += part;
    }
  }

private:
  std::vector<TensorTableEntry>& entries_;
  std::vector<uint64_t> ends_; // of each entry, in bytes from the first one's beginning
};

// Gives `copy_in` and `copy_out`, which are called as hvdft_copies tells, to the core.
template <typename CopyIn, typename CopyOut>
void Run(HorovodGlobalState* state, const std::vector<TensorTableEntry>& entries,
         const char* activity, const hvdft_record& record, CopyIn copy_in, CopyOut copy_out) {
  struct Context {
    CopyIn& in;
    CopyOut& out;
  } context{copy_in, copy_out};
  hvdft_copies copies{
      [](void* c, uint64_t from, uint64_t bytes, void* to) {
        static_cast<Context*>(c)->in(from, bytes, static_cast<char*>(to));
      },
      [](void* c, uint64_t from, uint64_t bytes, const void* result) {
        static_cast<Context*>(c)->out(from, bytes, static_cast<const char*>(result));
      },
      &context};
  state->timeline.ActivityStartAll(entries, activity);
  FtCheck(ft().worker_run(record.id, &copies));
  state->timeline.ActivityEndAll(entries);
}

} // namespace

// ---------------------------------------------------------------- allreduce

Status FtAllreduce::Execute(std::vector<TensorTableEntry>& entries, const Response& response) {
  WaitForData(entries);
  auto& controller = ControllerOf(global_state_);
  hvdft_record record = controller.TakeRecord();
  double prescale = response.prescale_factor(), postscale = response.postscale_factor();
  if (response.reduce_op() == ReduceOp::AVERAGE) {
    postscale /= controller.GetSize();
  }
  Fused fused(entries);
  auto scale = [&](double factor, TensorTableEntry& e, const char* from, char* to,
                   uint64_t bytes) {
    if (factor == 1.0) {
      std::memcpy(to, from, bytes);
    } else {
      ScaleBuffer(factor, {e}, from, to,
                  static_cast<int64_t>(bytes / DataType_Size(e.tensor->dtype())));
    }
  };
  Run(
      global_state_, entries, FT_ALLREDUCE, record,
      [&](uint64_t from, uint64_t bytes, char* to) {
        fused.Each(from, bytes, [&](TensorTableEntry& e, uint64_t at, uint64_t n, uint64_t of) {
          scale(prescale, e, Data(e.tensor) + at, to + of, n);
        });
      },
      [&](uint64_t from, uint64_t bytes, const char* result) {
        fused.Each(from, bytes, [&](TensorTableEntry& e, uint64_t at, uint64_t n, uint64_t of) {
          scale(postscale, e, result + of, Data(e.output) + at, n);
        });
      });
  controller.Executed(record, entries.size());
  return Status::OK();
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

  Fused fused(entries);
  Run(
      global_state_, entries, FT_ALLGATHER, record,
      [&](uint64_t from, uint64_t bytes, char* to) {
        fused.Each(from, bytes, [&](TensorTableEntry& e, uint64_t at, uint64_t n, uint64_t of) {
          std::memcpy(to + of, Data(e.tensor) + at, n);
        });
      },
      [](uint64_t, uint64_t, const char*) {}); // what it gives is allocated afterwards

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
  // A replayed root takes the logged value too: what it broadcast before is what counts.
  bool gives = root && ft().worker_owes(record.id);
  char* output = Data(root ? e.tensor : e.output);
  Run(
      global_state_, entries, FT_BROADCAST, record,
      [&](uint64_t from, uint64_t bytes, char* to) {
        std::memcpy(to, Data(e.tensor) + from, bytes);
      },
      [&](uint64_t from, uint64_t bytes, const char* result) {
        if (!gives) {
          std::memcpy(output + from, result, bytes);
        }
      });
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
