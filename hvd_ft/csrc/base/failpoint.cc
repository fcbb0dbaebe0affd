#include "base/failpoint.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <sstream>
#include <string>

#include "hvd_ft.h"

namespace hvdft {

std::atomic<int> drills{-1};

namespace {

std::atomic<uint64_t> steps_done{0};

struct Drill {
  int point = 0;
  int64_t op = -1, step = -1;  // -1: any
  // 's' signal, 'x' exit code, 'r' exception, 'p' signal to the shim; 'f' is flip_drill.py's, 'l'
  // rosters.py's, 'w' slow_drill.py's.
  char way = 0;
  int value = 0;
  std::string text;  // the user's words
  std::atomic<bool> struck{false};

  bool due(int at, uint64_t at_op) const {
    if (way == 'f' || way == 'l' || way == 'w' || at != point ||
        (op >= 0 && static_cast<uint64_t>(op) != at_op))
      return false;
    return step < 0 || static_cast<uint64_t>(step) == steps_done.load();
  }
};

// HOROVOD_FT_INJECT, as drills.py wrote it: point:op:step:way:value:text;...
std::deque<Drill> read_environment() {
  std::deque<Drill> found;
  const char* list = std::getenv("HOROVOD_FT_INJECT");
  std::istringstream entries(list == nullptr ? "" : list);
  for (std::string entry; std::getline(entries, entry, ';');) {
    Drill& drill = found.emplace_back();
    int end = 0;
    // NOLINTNEXTLINE(bugprone-unchecked-string-to-number-conversion): drills.py has written it
    std::sscanf(entry.c_str(), "%d:%ld:%ld:%c:%d:%n", &drill.point, &drill.op, &drill.step,
                &drill.way, &drill.value, &end);
    drill.text = entry.substr(static_cast<size_t>(end));
  }
  drills.store(static_cast<int>(found.size()));
  return found;
}

std::deque<Drill>& all_drills() {
  static std::deque<Drill> all = read_environment();
  return all;
}

}  // namespace

void set_failpoint_step(uint64_t step) { steps_done.store(step); }

bool strike(int point, uint64_t op) {
  for (Drill& drill : all_drills()) {
    if (!drill.due(point, op) || drill.struck.exchange(true)) continue;
    dprintf(STDERR_FILENO, "hvdft: drill: %s\n", drill.text.c_str());
    if (drill.way == 's') {
      raise(drill.value);  // to this thread, so that it does not get past the point
    } else if (drill.way == 'x') {
      _exit(drill.value);
    } else if (drill.way == 'p') {
      kill(getppid(), drill.value);  // the shim then ends the agent, or mpirun: see shim.py
    } else {
      return true;
    }
  }
  return false;
}

}  // namespace hvdft

int hvdft_failpoint(int point, uint64_t op) { return hvdft::failpoint(point, op); }
