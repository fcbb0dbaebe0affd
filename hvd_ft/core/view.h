// A read-only look at a job, as the C ABI's functions share it.
#ifndef HVD_FT_VIEW_H
#define HVD_FT_VIEW_H

#include "arena.h"

struct hvdft_view {
  std::unique_ptr<hvdft::Node> node;
};

#endif  // HVD_FT_VIEW_H
