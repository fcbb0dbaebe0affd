#include "ft_views.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

namespace horovod {
namespace common {

namespace {

// The views in use, and some unused ones. Unused views are released when there are twice as many
// views as were in use at the last release, when the core asks, and when one is in the way.
struct HeldViews {
  struct Held {
    std::unique_ptr<OutputView> output;
    const void* view;
  };

  void Add(Held held) {
    std::lock_guard<std::mutex> guard(mutex);
    if (all.size() >= limit) {
      ReleaseUnusedLocked();
    }
    all.push_back(std::move(held));
  }

  // Only tries the lock: in the child of a fork it may be locked for ever. Views that remain are
  // detached.
  void ReleaseUnused() {
    std::unique_lock<std::mutex> guard(mutex, std::try_to_lock);
    if (guard.owns_lock()) {
      ReleaseUnusedLocked();
    }
  }

private:
  void ReleaseUnusedLocked() {
    auto used = std::partition(all.begin(), all.end(),
                               [](const Held& held) { return held.output->IsUsed(); });
    std::for_each(used, all.end(), [](const Held& held) { ft().worker_view_release(held.view); });
    all.erase(used, all.end());
    limit = std::max<size_t>(64, 2 * all.size());
  }

  std::mutex mutex;
  std::vector<Held> all;
  size_t limit = 64;
};

HeldViews& held_views() {
  static auto* held = [] {
    ft().worker_before_detach([] { held_views().ReleaseUnused(); });
    return new HeldViews; // tensors may outlive static objects
  }();
  return *held;
}

// True if the output is a view of `result` now.
bool View(const InFlightOp& in_flight, TensorTableEntry& e, const char* result) {
  auto bytes = static_cast<uint64_t>(e.tensor->size());
  if (e.output != nullptr || bytes == 0) {
    return false;
  }
  const void* view = ft().worker_view(in_flight.record.id, result, bytes);
  if (view == nullptr) { // its pages may be detached for a view that is no longer used
    held_views().ReleaseUnused();
    view = ft().worker_view(in_flight.record.id, result, bytes);
  }
  if (view == nullptr) {
    return false;
  }
  auto output = e.context->ViewOutput(e.output_index, e.tensor->shape(), view, &e.output);
  if (output == nullptr) {
    ft().worker_view_release(view);
    return false;
  }
  held_views().Add({std::move(output), view});
  return true;
}

Status Allocate(TensorTableEntry& e) {
  return e.output != nullptr
             ? Status::OK()
             : e.context->AllocateOutput(e.output_index, e.tensor->shape(), &e.output);
}

} // namespace

double FtFactor(const Response& response, int size) {
  double factor = response.postscale_factor();
  return response.reduce_op() == ReduceOp::AVERAGE ? factor / size : factor;
}

bool FtIsViewed(const Response& response, double factor) {
  auto dtype = response.tensor_type();
  bool multiplied = dtype == DataType::HOROVOD_FLOAT32 || dtype == DataType::HOROVOD_FLOAT64;
  if (response.response_type() != Response::ALLREDUCE || ft().worker_nodes() > 1 ||
      (factor != 1.0 && !multiplied)) {
    return false;
  }
  int64_t viewed = 0, copied = 0;
  for (int64_t elements : response.tensor_sizes()) {
    int64_t bytes = elements * static_cast<int64_t>(DataType_Size(dtype));
    (bytes >= kFtViewedBytes ? viewed : copied) += bytes;
  }
  return viewed > copied;
}

Status FtViewOutputs(InFlightOp& in_flight) {
  for (size_t i = 0; i < in_flight.entries.size(); ++i) {
    auto& e = in_flight.entries[i];
    const char* result = in_flight.ResultOf(i);
    if (View(in_flight, e, result)) {
      continue;
    }
    Status status = Allocate(e);
    if (!status.ok()) {
      return status;
    }
    std::memcpy(const_cast<void*>(e.output->data()), result, static_cast<size_t>(e.tensor->size()));
  }
  return Status::OK();
}

Status FtAllocateOutputs(InFlightOp& in_flight) {
  for (auto& e : in_flight.entries) {
    Status status = Allocate(e);
    if (!status.ok()) {
      return status;
    }
  }
  return Status::OK();
}

} // namespace common
} // namespace horovod
