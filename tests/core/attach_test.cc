// A worker attaches to its arenas by what an agent has set, and by nothing else: an empty variable
// is no number, least of all rank 0.
#include <cstdlib>
#include <cstring>
#include <string>

#include "arena/arena.h"
#include "check.h"
#include "fresh_directory.h"
#include "hvd_ft_snapshots.h"

using namespace hvdft;

namespace {

void set(const char* name, const char* value) {
  if (value != nullptr) {
    setenv(name, value, 1);
  } else {
    unsetenv(name);
  }
}

void what_is_no_number_is_refused_by_name() {
  for (const char* name : {"HOROVOD_RANK", "HOROVOD_FT_INCARNATION"}) {
    for (const char* value : {"", " ", "+", "-1", "1x", "0x", "1 ", "2147483648", "one"}) {
      set(name, value);
      CHECK(hvdft_worker_open() == HVDFT_EINVAL);
      std::string text = std::string(name) + "=" + value + " is not set as an agent sets it";
      CHECK(std::strstr(hvdft_error(), text.c_str()) != nullptr);
    }
    set(name, nullptr);
    CHECK(hvdft_worker_open() == HVDFT_EINVAL);
    set(name, "1");
  }
}

void the_last_loop_is_named() {
  uint64_t begin;
  CHECK(hvdft_worker_loop_begin(kMaxLoops - 1, &begin) == HVDFT_OK);
  CHECK(hvdft_worker_loop_begin(kMaxLoops, &begin) == HVDFT_EINVAL);
  CHECK(std::strstr(hvdft_error(), "can have 32768 training loops with snapshots, not more; put"));
  CHECK(hvdft_worker_loop_end(kMaxLoops) == HVDFT_EINVAL);
}

}  // namespace

int main() {
  std::string dir = fresh_directory();
  constexpr uint64_t limit = 64 << 20;
  CHECK(Node::create(dir, "attach", 2, 1, 0, 0, 2, limit) == HVDFT_OK);
  for (int r : {0, 1}) CHECK(RankFile::create(dir, "attach", r, limit) == HVDFT_OK);
  set("HOROVOD_FT_DIR", dir.c_str());
  set("HOROVOD_FT_JOB", "attach");
  set("HOROVOD_RANK", "1");
  set("HOROVOD_FT_INCARNATION", "1");
  what_is_no_number_is_refused_by_name();
  CHECK(hvdft_worker_open() == HVDFT_OK && hvdft_worker_rank() == 1);
  the_last_loop_is_named();
  remove_directory(dir);
}
