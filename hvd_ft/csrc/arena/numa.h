// The NUMA nodes that the memory of a file comes from.
//
// In a file system in memory (tmpfs) the policy that mbind() gives to a shared mapping belongs to
// the file: it outlives the mapping and this process, and applies to every process that allocates
// memory there.
#ifndef HVD_FT_NUMA_H
#define HVD_FT_NUMA_H

#include <cstdint>

namespace hvdft {

// Gives a new file of this size the place that hvdft_place_files() has set. A failure is ignored:
// that function has tried it already, and reported it.
void place_file(int fd, uint64_t bytes);

}  // namespace hvdft

#endif  // HVD_FT_NUMA_H
