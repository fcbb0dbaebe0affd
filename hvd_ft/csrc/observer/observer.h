// A read-only view of a job, shared by the C ABI's functions.
#ifndef HVD_FT_OBSERVER_H
#define HVD_FT_OBSERVER_H

#include "arena/arena.h"

struct hvdft_observer {
  std::unique_ptr<hvdft::Node> node;
};

#endif  // HVD_FT_OBSERVER_H
