// The core's system calls that wait or tell the time go to the simulated kernel: the linker's
// --wrap leads them here.
#ifndef HVD_FT_TESTS_LARGE_SYSTEM_CALLS_H
#define HVD_FT_TESTS_LARGE_SYSTEM_CALLS_H

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>

#include "kernel.h"

extern "C" {
int __real_clock_gettime(clockid_t clock, timespec* time);
int __real_sched_yield();
int __real_open(const char* path, int flags, mode_t mode);
int __real_close(int file);

int __wrap_open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  mode_t mode = (flags & O_CREAT) != 0 ? va_arg(list, mode_t) : 0;
  va_end(list);
  int file = __real_open(path, flags, mode);
  large::Kernel* kernel = large::Kernel::running();
  if (kernel != nullptr && file >= 0) kernel->opened(file);
  return file;
}

int __wrap_close(int file) {
  large::Kernel* kernel = large::Kernel::running();
  if (kernel != nullptr) kernel->closes(file);
  return __real_close(file);
}

int __wrap_clock_gettime(clockid_t clock, timespec* time) {
  large::Kernel* kernel = large::Kernel::running();
  if (kernel == nullptr) return __real_clock_gettime(clock, time);
  kernel->enters();
  time->tv_sec = static_cast<time_t>(kernel->now() / 1000000000u);
  time->tv_nsec = static_cast<long>(kernel->now() % 1000000000u);
  return 0;
}

int __wrap_sched_yield() {
  large::Kernel* kernel = large::Kernel::running();
  if (kernel == nullptr) return __real_sched_yield();
  kernel->enters();
  kernel->point();
  kernel->yield();
  return 0;
}

static long simulated_futex(large::Kernel& kernel, const uint32_t* word, int op, uint32_t value,
                            const timespec* limit, uint32_t bits) {
  kernel.enters();
  kernel.point();
  bool one_of = op == FUTEX_WAIT_BITSET || op == FUTEX_WAKE_BITSET;
  if (!one_of) bits = FUTEX_BITSET_MATCH_ANY;
  if (op == FUTEX_WAKE || op == FUTEX_WAKE_BITSET) {
    kernel.wake(word, bits);
    return 0;
  }
  if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != value) {
    errno = EAGAIN;
    return -1;
  }
  uint64_t until = large::kForever;
  if (limit != nullptr) {
    uint64_t ns =
        static_cast<uint64_t>(limit->tv_sec) * 1000000000u + static_cast<uint64_t>(limit->tv_nsec);
    until = one_of ? ns : kernel.now() + ns;
  }
  if (kernel.wait(word, until, bits)) return 0;
  errno = ETIMEDOUT;
  return -1;
}

// A drill: see base/failpoint.h.
int __wrap_raise(int) { large::Kernel::running()->end(true); }

// The core makes no other calls by number.
long __wrap_syscall(long number, ...) {
  large::Kernel* kernel = large::Kernel::running();
  if (number != SYS_futex) std::abort();
  va_list list;
  va_start(list, number);
  auto* word = va_arg(list, const uint32_t*);
  int op = va_arg(list, int);
  auto value = va_arg(list, uint32_t);
  auto* limit = va_arg(list, const timespec*);
  (void)va_arg(list, void*);
  auto bits = va_arg(list, uint32_t);
  va_end(list);
  return kernel == nullptr ? 0 : simulated_futex(*kernel, word, op, value, limit, bits);
}
}

#endif  // HVD_FT_TESTS_LARGE_SYSTEM_CALLS_H
