// CRC-32C, which finds damage to records and heads in shared memory, but not to results.
#ifndef HVD_FT_CRC32C_H
#define HVD_FT_CRC32C_H

#include <cstdint>

namespace hvdft {

// Of `bytes` of data; `before`: of what comes before them.
uint32_t crc32c(const void* data, uint64_t bytes, uint32_t before = 0);

}  // namespace hvdft

#endif  // HVD_FT_CRC32C_H
