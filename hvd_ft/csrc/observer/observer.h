// A read-only look at a job, as the C ABI's functions share it.
#ifndef HVD_FT_OBSERVER_H
#define HVD_FT_OBSERVER_H

#include "arena/arena.h"

struct hvdft_observer {
  std::unique_ptr<hvdft::Node> node;
};

#endif  // HVD_FT_OBSERVER_H
