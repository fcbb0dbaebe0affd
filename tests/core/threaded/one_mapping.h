// What a process maps of one file twice is here mapped once: a thread sanitizer knows memory by its
// addresses. (The linker's --wrap leads the core's calls here; nothing is unmapped before the end.)
#ifndef HVD_FT_TESTS_ONE_MAPPING_H
#define HVD_FT_TESTS_ONE_MAPPING_H

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <string>
#include <tuple>

extern "C" {
void* __real_mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset);
int __real_munmap(void* address, size_t bytes);

void* __wrap_mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  // Views are replaced in their places, page by page, so they have a mapping of their own.
  bool view = protection == PROT_READ && (flags & MAP_NORESERVE) != 0;
  if (fd < 0 || address != nullptr || view) {
    return __real_mmap(address, bytes, protection, flags, fd, offset);
  }
  static std::mutex mutex;
  static std::map<std::tuple<dev_t, ino_t, off_t, size_t>, void*> mapped;
  std::lock_guard<std::mutex> guard(mutex);
  struct stat info{};
  if (fstat(fd, &info) != 0) return MAP_FAILED;
  void*& known = mapped[{info.st_dev, info.st_ino, offset, bytes}];
  if (known != nullptr) return known;
  int writable = open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDWR | O_CLOEXEC);
  known = __real_mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, writable, offset);
  close(writable);
  return known;
}

int __wrap_munmap(void*, size_t) { return 0; }
}

#endif  // HVD_FT_TESTS_ONE_MAPPING_H
