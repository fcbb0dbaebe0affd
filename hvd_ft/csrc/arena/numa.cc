#include "arena/numa.h"

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "hvd_ft_numa.h"

namespace hvdft {

namespace {

constexpr int kMaxNodes = 1024, kBits = 8 * sizeof(unsigned long);  // of Linux
// What is mapped at a time: a rank's file, with room for all snapshots, may be larger than the
// address space.
constexpr uint64_t kMappedBytes = uint64_t{1} << 38;

struct Policy {
  int mode = MPOL_DEFAULT;
  unsigned long nodes[kMaxNodes / kBits] = {};
};
thread_local Policy policy;

// Neither of the modes makes an allocation fail. 0, or an error of errno.h.
int bind(int fd, int flags, uint64_t offset, uint64_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE | flags, fd,
                    static_cast<off_t>(offset));
  if (data == MAP_FAILED) return errno;
  // Linux reads one bit fewer than it is told.
  long code = syscall(SYS_mbind, data, bytes, policy.mode, policy.nodes, kMaxNodes + 1, 0);
  int error = code == 0 ? 0 : errno;
  munmap(data, bytes);
  return error;
}

}  // namespace

void place_file(int fd, uint64_t bytes) {
  if (policy.mode == MPOL_DEFAULT) return;
  for (uint64_t at = 0; at < bytes; at += kMappedBytes) {
    bind(fd, 0, at, std::min(bytes - at, kMappedBytes));
  }
}

}  // namespace hvdft

int hvdft_place_files(const int* nodes, int count) {
  using namespace hvdft;
  policy = {};
  if (count == 0) return HVDFT_OK;
  policy.mode = count == 1 ? MPOL_PREFERRED : MPOL_INTERLEAVE;
  for (int i = 0; i < count; ++i) {
    if (nodes[i] < 0 || nodes[i] >= kMaxNodes) {
      policy = {};
      return fail(HVDFT_EINVAL, "there is no NUMA node %d; see numactl -H", nodes[i]);
    }
    policy.nodes[nodes[i] / kBits] |= 1UL << nodes[i] % kBits;
  }
  // Memory that is shared without a file is a file in memory as well.
  int error = bind(-1, MAP_ANONYMOUS, 0, static_cast<uint64_t>(getpagesize()));
  if (error == 0) return HVDFT_OK;
  policy = {};
  return fail(HVDFT_ESYS,
              "the arenas' memory cannot be bound to NUMA nodes: %s; it lies wherever it is used "
              "first (containers: allow mbind, or give the capability SYS_NICE)",
              std::strerror(error));
}
