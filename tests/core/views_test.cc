// Views show what lies in the log, and keep showing it when its place there is used anew.
#include "worker/result_views.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "arena/memory.h"
#include "check.h"
#include "fresh_directory.h"
#include "hvd_ft.h"

using hvdft::kPage;
using hvdft::Node;
using hvdft::Views;

namespace {

constexpr uint64_t kBytes = 64 * kPage, kWindow = hvdft::kNodeWindowBytes;

struct Log {
  explicit Log(const std::string& dir) {
    CHECK(hvdft_create_node(dir.c_str(), "views", 1, 1, 0, 0, 1, 64 << 20, kWindow) == HVDFT_OK);
    node = Node::open(dir, "views", Node::kWorker);
    CHECK(node && hvdft::grow_heap(*node, kBytes, "it") == HVDFT_OK);
    CHECK(views.open(*node) == HVDFT_OK);
  }
  void write(uint64_t at, uint64_t bytes, int value) const {
    std::memset(node->heap() + at, value, bytes);
  }
  const char* view(uint64_t id, uint64_t at, uint64_t bytes) {
    return static_cast<const char*>(views.view(id, node->heap() + at, bytes));
  }

  std::unique_ptr<Node> node;
  Views views;
};

bool all(const char* bytes, uint64_t count, int value) {
  for (uint64_t i = 0; i < count; ++i) {
    if (bytes[i] != static_cast<char>(value)) return false;
  }
  return true;
}

void what_is_viewed_stays(Log& log) {
  log.write(0, 4 * kPage, 1);
  const char* old = log.view(7, 64, 2 * kPage);
  const char* later = log.view(9, 3 * kPage, 100);
  CHECK(all(old, 2 * kPage, 1));
  CHECK(log.views.detach(8) == HVDFT_OK);
  log.write(0, 4 * kPage, 2);  // as when its place is another op's
  CHECK(all(old, 2 * kPage, 1) && all(later, 100, 2));
  CHECK(log.view(10, 0, 64) == nullptr);               // this page shows something else now, …
  CHECK(log.view(10, 2 * kPage + 64, 64) == nullptr);  // … and this, in which the view ends
  log.views.release(old);
  const char* again = log.view(11, 0, 3 * kPage);
  CHECK(all(again, 3 * kPage, 2));
  log.views.release(again);
  log.views.release(later);
}

void two_share_a_page(Log& log) {
  log.write(0, kPage, 1);
  const char *first = log.view(1, 0, 64), *second = log.view(2, 64, 64);
  CHECK(log.views.detach(2) == HVDFT_OK);
  log.views.release(first);
  CHECK(all(second, 64, 1) && log.view(3, 128, 64) == nullptr);
  CHECK(log.views.detach(3) == HVDFT_OK);  // it is already
  log.write(0, kPage, 2);
  CHECK(all(second, 64, 1));
  log.views.release(second);
  const char* third = log.view(3, 128, 64);
  CHECK(all(third, 64, 2));
  log.views.release(third);
}

void nobody_writes_there(Log& log) {
  const char* view = log.view(1, 0, 64);
  pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    *const_cast<volatile char*>(view) = 5;
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
  log.views.release(view);
}

void a_child_keeps_its_views(Log& log) {
  log.write(0, kPage, 1);
  const char* view = log.view(1, 0, 64);
  int go[2];
  CHECK(pipe(go) == 0);
  log.views.before_fork();
  pid_t child = fork();
  log.views.after_fork();
  if (child == 0) {
    close(go[1]);  // or it would wait for ever for a parent that has failed
    char byte;
    bool told = read(go[0], &byte, 1) == 1;
    _exit(told && all(view, 64, 1) ? 0 : 1);
  }
  log.write(0, kPage, 2);
  CHECK(write(go[1], "x", 1) == 1);
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  log.views.release(view);
}

// Detaching is invisible to concurrent readers.
void readers_see_no_change(Log& log) {
  log.write(0, 8 * kPage, 3);
  std::atomic<bool> end{false}, back{false};  // the view is wanted back
  std::atomic<const char*> shown{nullptr};
  std::atomic<uint64_t> looks{0};
  std::thread reader([&] {
    while (!end) {
      const char* view = back ? nullptr : shown.exchange(nullptr);
      if (view == nullptr) continue;
      CHECK(all(view, 8 * kPage, 3));
      shown.store(view);
      ++looks;
    }
  });
  for (int round = 0; round < 300; ++round) {
    const char* view = log.view(1, 0, 8 * kPage);
    shown.store(view);
    for (uint64_t seen = looks; looks < seen + 2;) {
      CHECK(log.views.detach(2) == HVDFT_OK);
    }
    back = true;  // or the reader would take it again before this thread can
    while (shown.exchange(nullptr) == nullptr) {
    }
    back = false;
    log.views.release(view);
  }
  end = true;
  reader.join();
}

// Ops come and go as in the log; each view is to show what was there when it was made.
void whatever_happens(Log& log) {
  struct Held {
    const char* view;
    uint64_t id, at, bytes;
    int value;
  };
  std::mt19937 random(1);
  std::vector<Held> held;
  uint64_t id = 0, cut = 0, views = 0;
  for (int step = 0; step < 20000; ++step) {
    switch (random() % 4) {
      case 0: {  // an op, where no other is that may not be overwritten yet
        uint64_t at = random() % (kBytes / 64 - 1) * 64;
        uint64_t bytes = 1 + random() % std::min<uint64_t>(kBytes - at, 5 * kPage);
        bool taken = false;
        for (auto& each : held) {
          taken |= each.id >= cut && each.at < at + bytes && at < each.at + each.bytes;
        }
        if (taken) break;
        int value = static_cast<int>(++id % 127);
        log.write(at, bytes, value);
        const char* view = log.view(id, at, bytes);
        if (view == nullptr) break;
        held.push_back({view, id, at, bytes, value});
        ++views;
        break;
      }
      case 1:
        if (random() % 8 == 0) CHECK(log.views.detach(cut = id + 1) == HVDFT_OK);
        break;
      default:
        if (held.empty()) break;
        std::swap(held[random() % held.size()], held.back());
        CHECK(all(held.back().view, held.back().bytes, held.back().value));
        log.views.release(held.back().view);
        held.pop_back();
    }
  }
  CHECK(views > 1000);
  for (auto& each : held) log.views.release(each.view);
  log.write(0, kBytes, 9);
  CHECK(all(log.view(id + 1, 0, kBytes), kBytes, 9));  // nothing is left apart
}

}  // namespace

int main() {
  std::string dir = fresh_directory();
  Log log(dir);
  what_is_viewed_stays(log);
  two_share_a_page(log);
  nobody_writes_there(log);
  a_child_keeps_its_views(log);
  readers_see_no_change(log);
  whatever_happens(log);
  remove_directory(dir);
}
