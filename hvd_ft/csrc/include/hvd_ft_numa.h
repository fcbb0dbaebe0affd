/* The C ABI of the core, continued: where the memory of a job's files lies. */
#ifndef HVDFT_NUMA_H
#define HVDFT_NUMA_H

#include "hvd_ft.h"

#ifdef __cplusplus
extern "C" {
#endif

// Files that the calling thread makes from now on have their memory on these NUMA nodes: on the one
// given, or page by page on all of them in turn. When these are full it comes from others. It holds
// for what any process allocates in the file at any time; only where the file lies in memory.
// None (count 0): wherever it is used first. HVDFT_ESYS if the system does not allow it; then
// files have no place.
HVDFT_API int hvdft_place_files(const int* nodes, int count);

#ifdef __cplusplus
}
#endif

#endif  // HVDFT_NUMA_H
