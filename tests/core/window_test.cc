// How far a rank gets ahead of another one of its node: as far as the window's bytes, or the
// claims, and no further; that what lies in a window of any size is summed; what windows cost, and
// which are refused. Rank 0's worker is this process, rank 1 contributes what it is made to.
#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "arena/memory.h"
#include "arena/node_arenas.h"
#include "check.h"
#include "fresh_directory.h"
#include "hvd_ft.h"
#include "oplog/log_store.h"

using namespace hvdft;

namespace {

constexpr uint64_t kLimit = 128 << 20;
constexpr char kJob[] = "window";

OpHead sum_of(uint64_t bytes, uint64_t segment) {
  OpHead op{HVDFT_REDUCE, HVDFT_UINT8, HVDFT_SUM, 0, bytes, 1, 1, 0};
  op.node_segment = segment;
  return op;
}

// In no two segments the same, nor in two windows.
char byte_at(uint64_t at) { return static_cast<char>(at / kLeastNodeSegment * 7 + at % 251); }

void give(void*, uint64_t from, uint64_t bytes, void* to) {
  for (uint64_t i = 0; i < bytes; ++i) static_cast<char*>(to)[i] = byte_at(from + i);
}

struct Taken {
  uint64_t end = 0;
  static void take(void* self, uint64_t from, uint64_t bytes, const void* data) {
    auto* mine = static_cast<Taken*>(self);
    CHECK(from == mine->end);  // one segment after the other
    for (uint64_t i = 0; i < bytes; ++i) {
      CHECK(static_cast<const char*>(data)[i] == byte_at(from + i));
    }
    mine->end = from + bytes;
  }
};

// One op that is larger than the window, and then many that have a segment each.
struct Ops {
  uint64_t window, segment, small;  // powers of two
  uint64_t bytes() const { return 2 * window + segment / 2; }
  uint64_t ahead() const { return std::min(kClaims, window / small); }  // in small ones
  uint64_t count() const { return ahead() + 50; }
};

std::unique_ptr<Node> make(const std::string& dir, uint64_t window) {
  CHECK(hvdft_create_node(dir.c_str(), kJob, 2, 1, 0, 0, 2, kLimit, window) == HVDFT_OK);
  for (int r : {0, 1}) {
    CHECK(hvdft_create_rank(dir.c_str(), kJob, r, kLimit, window) == HVDFT_OK);
  }
  return Node::open(dir, kJob, Node::kAgent);
}

void attach(const std::string& dir) {
  setenv("HOROVOD_FT_DIR", dir.c_str(), 1);
  setenv("HOROVOD_FT_JOB", kJob, 1);
  setenv("HOROVOD_RANK", "0", 1);
  setenv("HOROVOD_FT_INCARNATION", "0", 1);
  CHECK(hvdft_worker_open() == HVDFT_OK);
}

// Rank 0 goes on as far as it can; how far it has contributed then.
uint64_t advance(const Node& node) {
  int code;
  while ((code = hvdft_worker_advance()) == 1) {
  }
  CHECK(code == HVDFT_AGAIN);
  return node.rank(0).contributed.load();
}

void large(const Node& node, const Ops& ops) {
  Taken taken;
  hvdft_copies copies{give, Taken::take, &taken};
  CHECK(hvdft_worker_begin(0, &copies) == HVDFT_OK);
  uint64_t ahead = ops.window / ops.segment;
  for (uint64_t others = 0; others < ahead; ++others) {
    node.rank(1).contributed.store(position(0, others));
    CHECK(advance(node) == position(0, others + ahead));
    CHECK(taken.end == others * ops.segment);
  }
  node.rank(1).contributed.store(position(1, 0));
  CHECK(advance(node) == position(1, 0) && taken.end == ops.bytes());
}

void small(const Node& node, const Ops& ops) {
  uint64_t count = ops.count(), ahead = ops.ahead();
  std::vector<Taken> taken(count);
  for (uint64_t i = 0; i < count; ++i) {
    hvdft_copies copies{give, Taken::take, &taken[i]};
    CHECK(hvdft_worker_begin(1 + i, &copies) == HVDFT_OK);
  }
  for (uint64_t others = 0; others + ahead <= count; ++others) {
    node.rank(1).contributed.store(position(1 + others, 0));
    CHECK(advance(node) == position(1 + others + ahead, 0));
  }
  node.rank(1).contributed.store(position(1 + count, 0));
  advance(node);
  for (const Taken& each : taken) CHECK(each.end == ops.small);
}

void account(const Node& node, uint64_t window) {
  hvdft_memory memory = memory_now(node);
  CHECK(memory.input_areas == 2 * window);
  uint64_t last = slot_offset(kLimit, kMaxLoops - 1, 1), end = last + kLimit + window;
  CHECK(std::filesystem::file_size(node.dir() + "/rank-1.arena") == end);  // behind all slots
  CHECK(node.limit() + 2 * window + node.control_bytes() == kLimit && memory.limit == kLimit);
  hvdft_observer* observer = hvdft_observer_open(node.dir().c_str());
  CHECK(observer != nullptr && hvdft_observer_window_bytes(observer) == window);
  hvdft_observer_close(observer);
}

void run(const Ops& ops) {
  std::string dir = fresh_directory();
  auto node = make(dir, ops.window);
  CHECK(node != nullptr);
  account(*node, ops.window);
  {
    LogStore store(*node);
    CHECK(store.append(sum_of(ops.bytes(), ops.segment), "rs") == HVDFT_OK);
    for (uint64_t i = 0; i < ops.count(); ++i) {
      CHECK(store.append(sum_of(ops.small, ops.segment), "rs") == HVDFT_OK);
    }
    store.publish();
  }
  attach(dir);
  large(*node, ops);
  small(*node, ops);
  remove_directory(dir);
}

bool told(const char* what) { return std::strstr(hvdft_error(), what) != nullptr; }

void what_cannot_be_is_said() {
  std::string dir = fresh_directory();
  for (uint64_t window : {uint64_t{0}, kLeastNodeWindow / 2, 3 * kLeastNodeWindow, 32ul << 20}) {
    CHECK(Node::create(dir, kJob, 2, 1, 0, 0, 2, kLimit, window) == HVDFT_EINVAL);
    CHECK(told("from 262144 to 16777216 as HOROVOD_FT_NODE_WINDOW_BYTES"));
  }
  CHECK(Node::create(dir, kJob, 2, 1, 0, 0, 2, 32 << 20, kMostNodeWindow) == HVDFT_ENOSPACE);
  CHECK(told("raise HOROVOD_FT_ARENA_BYTES, or lower HOROVOD_FT_NODE_WINDOW_BYTES"));
  CHECK(Node::create(dir, kJob, 2, 1, 0, 0, 2, kLimit) == HVDFT_OK);
  CHECK(RankFile::create(dir, kJob, 0, kLimit) == HVDFT_OK);
  CHECK(RankFile::create(dir, kJob, 1, kLimit, RankFile::kLocal, kLeastNodeWindow) == HVDFT_OK);
  CHECK(Arenas::open(dir, kJob, Node::kWorker, 0) == nullptr);
  CHECK(told("rank 1's window has 262144 bytes, its node's have 1048576"));
  remove_directory(dir);
}

}  // namespace

// A process is one worker, so each window has one of its own.
int main(int argc, char** argv) {
  const std::vector<Ops> all = {
      {kLeastNodeWindow, 128 << 10, 8192}, {kLeastNodeWindow, 16 << 10, 2048},
      {kNodeWindowBytes, 128 << 10, 64},   {4 << 20, 128 << 10, 64},
      {4 << 20, 32 << 10, 16 << 10},       {kMostNodeWindow, 512 << 10, 256 << 10}};
  if (argc > 1) {
    run(all[std::stoul(argv[1])]);
    return 0;
  }
  what_cannot_be_is_said();
  for (size_t i = 0; i < all.size(); ++i) {
    std::string again = std::string(argv[0]) + " " + std::to_string(i);
    CHECK(std::system(again.c_str()) == 0);
  }
}
