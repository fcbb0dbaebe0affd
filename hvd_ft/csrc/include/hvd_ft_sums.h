// A worker without a framework, for measurements: sums arrays over all ranks, one at a time, as
// Horovod's ft backend does, negotiation and log included. It cannot be restarted, and cannot be
// used beside a framework in the same job.
//
// All return HVDFT_OK or an error of hvdft_error().
#ifndef HVD_FT_SUMS_H
#define HVD_FT_SUMS_H

#include <stdint.h>

#include "hvd_ft.h"

#ifdef __cplusplus
extern "C" {
#endif

// Attaches this process to its job. All sums are parts of one training loop.
HVDFT_API int hvdft_sums_open(void);
// Sums an array of floats, in place; the same number of bytes on all ranks.
HVDFT_API int hvdft_sums_sum(float* array, uint64_t bytes);
// Publishes a snapshot of nothing: the log begins anew, in the memory it has, when all ranks have.
HVDFT_API int hvdft_sums_cut(void);

#ifdef __cplusplus
}
#endif

#endif  // HVD_FT_SUMS_H
