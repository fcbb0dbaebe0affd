// Horovod's barrier, which its TensorFlow binding does not expose.
#include <future>

#include "../operations.h"

extern "C" {

// Waits until every rank is here. 0 if Horovod is not initialised or is shut down, else 1.
int horovod_ft_barrier() {
  using namespace horovod::common;
  if (!CheckInitialized().ok()) {
    return 0;
  }
  std::promise<bool> done;
  Status status = EnqueueBarrier([&](const Status& end) { done.set_value(end.ok()); });
  return status.ok() && done.get_future().get();
}
}
