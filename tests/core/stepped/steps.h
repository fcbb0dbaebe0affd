// Production code, one access to shared memory at a time.
#ifndef HVD_FT_TESTS_STEPS_H
#define HVD_FT_TESTS_STEPS_H

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>

#include "../check.h"
#include "../fresh_directory.h"
#include "arena/arena.h"
#include "stepped.h"

// Memory is given where it is touched, page by page, as thousands of jobs are made; but for tests
// of memory. (The linker's --wrap leads the core's calls here.)
inline bool gives_memory = false;
extern "C" {
int __real_posix_fallocate(int fd, off_t from, off_t bytes);
int __wrap_posix_fallocate(int fd, off_t from, off_t bytes) {
  struct stat info{};
  if (gives_memory) return __real_posix_fallocate(fd, from, bytes);
  CHECK(fstat(fd, &info) == 0);
  return info.st_size >= from + bytes ? 0 : ftruncate(fd, from + bytes);
}
}

// A process that does `act`, and is killed where it has come to the stores of its number `number`.
template <typename Act>
pid_t start_mortal(uint64_t number, Act act) {
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid > 0) return pid;
  hvdft::at_step = [number](bool written) mutable {
    if (written && number-- == 0) kill(getpid(), SIGKILL);
  };
  act();
  hvdft::at_step = nullptr;
  _exit(0);
}

// Waits for its end; whether it was killed.
inline bool was_killed(pid_t pid) {
  int status = 0;
  CHECK(waitpid(pid, &status, 0) == pid);
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return true;
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return false;
}

template <typename Act>
bool killed_at(uint64_t number, Act act) {
  return was_killed(start_mortal(number, act));
}

constexpr uint64_t kNever = UINT64_MAX;

// Does `act` with 0, 1, and so on as long as it says that there was such a step; returns how many
// there are. Tests that are to be small take longer strides.
template <typename Act>
uint64_t through(Act act, uint64_t stride = 1) {
  uint64_t number = 0;
  while (act(number)) number += stride;
  return number;
}

// Does `act`, and calls `look` before, after, and between any two of its steps.
template <typename Act, typename Look>
void watched(Act act, Look look) {
  hvdft::at_step = [&](bool) { look(); };
  act();
  hvdft::at_step = nullptr;
  look();
}

// Does `act`, and all of `other` at its step `number`; false if it has not so many.
template <typename Act, typename Other>
bool interrupted_at(uint64_t number, Act act, Other other) {
  bool done = false;
  hvdft::at_step = [&, left = number](bool) mutable {
    if (left-- != 0) return;
    other();
    done = true;
  };
  act();
  hvdft::at_step = nullptr;
  return done;
}

// The arenas of a node, which go with it: of the first one of `nodes`, with so many ranks each.
class Job {
 public:
  explicit Job(int ranks, int nodes = 1) : dir(fresh_directory()) {
    constexpr uint64_t limit = 64 << 20;
    CHECK(hvdft::Node::create(dir, "steps", nodes * ranks, nodes, 0, 0, ranks, limit) == HVDFT_OK);
    for (int r = 0; r < ranks; ++r) {
      CHECK(hvdft::RankFile::create(dir, "steps", r, limit) == HVDFT_OK);
    }
    node = hvdft::Node::open(dir, "steps", hvdft::Node::kAgent);
    CHECK(node != nullptr);
  }
  Job(const Job&) = delete;
  ~Job() { remove_directory(dir); }

  // This process is to be a worker of the job.
  void become(int rank, int incarnation) const {
    setenv("HOROVOD_FT_DIR", dir.c_str(), 1);
    setenv("HOROVOD_FT_JOB", "steps", 1);
    setenv("HOROVOD_RANK", std::to_string(rank).c_str(), 1);
    setenv("HOROVOD_FT_INCARNATION", std::to_string(incarnation).c_str(), 1);
    CHECK(hvdft_worker_open() == HVDFT_OK);
  }

  std::string dir;
  std::unique_ptr<hvdft::Node> node;
};

#endif  // HVD_FT_TESTS_STEPS_H
