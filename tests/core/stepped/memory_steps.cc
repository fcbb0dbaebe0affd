// What a node's memory is said to be: it is killed at every store of those who get and return some,
// and looked at between any two. What the files really have is never more than what is said, now
// and at most; and when the killed ones are back, nothing counts twice.
#include <sys/stat.h>

#include <functional>
#include <vector>

#include "arena/memory.h"
#include "oplog/log_store.h"
#include "protocol/shared_snapshot.h"
#include "steps.h"
#include "worker/messages.h"

using namespace hvdft;

namespace {

constexpr uint64_t kMiB = 1 << 20;

uint64_t bytes_of(const std::string& path) {
  struct stat info{};
  return stat(path.c_str(), &info) == 0 ? static_cast<uint64_t>(info.st_blocks) * 512 : 0;
}

// What the files of the job have, beside what they had from the beginning.
struct Truth {
  explicit Truth(const Job& job) : dir(job.dir), begin(all()) {}
  uint64_t all() const {
    return bytes_of(dir + "/node.arena") + bytes_of(dir + "/rank-0.arena") +
           bytes_of(dir + "/messages-0-1.log");
  }
  uint64_t grown() const { return all() - begin; }
  const std::string dir;
  const uint64_t begin;
};

uint64_t constant(const hvdft_memory& memory) { return memory.input_areas + memory.control; }

// Rank 0's worker: two snapshots in a loop, of which rank 1 shares the second, and a message.
void work(const Node& node) {
  node.rank(1).loops[0].slots[0] = slot_word(2, 1);
  uint64_t begin;
  CHECK(hvdft_worker_loop_begin(0, &begin) == HVDFT_OK);
  for (uint64_t cut = 1; cut <= 2; ++cut) {
    int code = hvdft_worker_snapshot_begin(0, cut, 0);
    if (code == 1) continue;  // an earlier incarnation has delivered it
    CHECK(code == HVDFT_OK);
    uint64_t bytes = cut * kMiB, stripe = cut == 2 ? kMiB / 2 : 0;
    void* room;
    CHECK(hvdft_worker_snapshot_room(0, bytes, &room) == HVDFT_OK);
    hvdft_snapshot snapshot{cut, 0, bytes, stripe, cut == 2};
    CHECK(hvdft_worker_snapshot_deliver(0, &snapshot) == HVDFT_OK);
  }
  Messages sender(node, 0);
  MessageHead head{};
  std::string data(3 * kPage, 'x');
  head.bytes = data.size();
  CHECK(sender.send(1, head, data.data()) >= 0);
  CHECK(hvdft_worker_loop_end(0) == HVDFT_OK);
}

// The owner of the log.
void append(Node& node) {
  LogStore store(node);
  while (store.length() < 3) {
    OpHead op{HVDFT_REDUCE, HVDFT_FLOAT32, HVDFT_SUM, 0, kMiB, 4, 4, 0};
    CHECK(store.append(op, "respsig") == HVDFT_OK);
    store.publish();
  }
  if (store.gone() == 0) CHECK(store.keep(0) == HVDFT_OK);
  if (store.gone() == 1) store.drop(1);
  store.publish_room();
}

constexpr uint64_t kSlots = 3 * kMiB, kHeap = 4 * kMiB;

void check_the_end(const Node& node, const Truth& truth) {
  hvdft_memory now = memory_now(node), most = memory_most(node);
  CHECK(now.slots == 2 * kMiB);  // the other slot is released at the loop's end
  CHECK(now.private_state == kMiB / 2 && now.shared_state == 3 * kMiB / 2);
  CHECK(now.heap == kHeap && now.kept > kMiB && now.kept < kMiB + kPage);
  CHECK(now.log > kMiB && now.log < kMiB + kPage);
  CHECK(most.slots == kSlots && most.heap == kHeap);
  CHECK(most.private_state == 3 * kMiB / 2 && most.shared_state == 3 * kMiB / 2);
  CHECK(most.log > 2 * kMiB && most.log < 3 * kMiB + 3 * kPage);
  CHECK(most.total >= kSlots + constant(now) && most.total <= most.limit);
  CHECK(now.total - constant(now) >= truth.grown());
  CHECK(now.total - constant(now) == used_bytes(node));
}

void what_is_said_is_never_less_than_what_there_is() {
  Job job(2);
  Truth truth(job);
  uint64_t peak = 0;
  auto look = [&] {
    uint64_t grown = truth.grown();
    peak = std::max(peak, grown);
    CHECK(used_bytes(*job.node) >= grown);
    hvdft_memory most = memory_most(*job.node);
    CHECK(most.total - constant(most) >= peak);
    CHECK(most.slots >= memory_now(*job.node).slots);
  };
  watched([&] { append(*job.node); }, look);
  pid_t pid = fork();
  if (pid == 0) {
    job.become(0, 0);
    watched([&] { work(*job.node); }, look);
    _exit(0);
  }
  CHECK(!was_killed(pid));
  CHECK(memory_now(*job.node).messages == truth.grown() - 2 * kMiB - kHeap);
  check_the_end(*job.node, truth);
}

bool a_worker_is_killed(uint64_t at) {
  Job job(2);
  Truth truth(job);
  append(*job.node);
  bool killed = killed_at(at, [&] {
    job.become(0, 0);
    work(*job.node);
  });
  CHECK(used_bytes(*job.node) >= truth.grown());
  CHECK(!killed_at(kNever, [&] {
    job.become(0, 1);
    work(*job.node);
  }));
  hvdft_memory now = memory_now(*job.node);
  // One that was killed at its very end leaves the slot that it was releasing.
  if (now.slots == 2 * kMiB) {
    check_the_end(*job.node, truth);
  } else {
    CHECK(now.slots == kSlots && memory_most(*job.node).slots == kSlots);
  }
  CHECK(used_bytes(*job.node) >= truth.grown());
  return killed;
}

bool a_logs_owner_is_killed(uint64_t at) {
  Job job(2);
  Truth truth(job);
  bool killed = killed_at(at, [&] { append(*job.node); });
  CHECK(used_bytes(*job.node) >= truth.grown());
  append(*job.node);
  hvdft_memory now = memory_now(*job.node);
  CHECK(now.heap == kHeap && used_bytes(*job.node) == kHeap);
  CHECK(memory_most(*job.node).heap == kHeap && memory_most(*job.node).log > 2 * kMiB);
  return killed;
}

// Two that grow at the same time: the limit holds, and the most is what both have.
void two_grow_at_the_same_time() {
  uint64_t number = 0;
  for (bool interrupted = true; interrupted; ++number) {
    Job job(2);
    auto file = RankFile::open(job.dir, "steps", 1, true);
    CHECK(file != nullptr);
    interrupted = interrupted_at(
        number, [&] { CHECK(grow_heap(*job.node, 20 * kMiB, "a") == HVDFT_OK); },
        [&] { CHECK(grow_slot(*job.node, *file, {1, 0, 0}, 10 * kMiB) == HVDFT_OK); });
    if (!interrupted) break;
    hvdft_memory most = memory_most(*job.node);
    CHECK(used_bytes(*job.node) == 30 * kMiB && most.total == 30 * kMiB + constant(most));
    CHECK(grow_heap(*job.node, 60 * kMiB, "a") == HVDFT_ENOSPACE);
    CHECK(used_bytes(*job.node) == 30 * kMiB);
    release_slot(*job.node, *file, {1, 0, 0});
    CHECK(used_bytes(*job.node) == 20 * kMiB);
    CHECK(memory_most(*job.node).total == most.total);  // not what was refused
  }
  CHECK(number > 5);
}

// One that grows is killed, and what it has got is freed without growing again.
bool what_a_killed_one_had_is_known(uint64_t at) {
  Job job(1);
  Truth truth(job);
  auto file = RankFile::open(job.dir, "steps", 0, true);
  bool killed =
      killed_at(at, [&] { CHECK(grow_slot(*job.node, *file, {0, 0, 0}, 10 * kMiB) == HVDFT_OK); });
  settle_claims(job.node->rank(0));
  uint64_t had = truth.grown();
  release_slot(*job.node, *file, {0, 0, 0});
  hvdft_memory most = memory_most(*job.node);
  CHECK(truth.grown() == 0 && used_bytes(*job.node) == 0 && most.total - constant(most) >= had);
  return killed;
}

// Memory is given to one while another frees some.
void one_grows_while_another_frees() {
  for (uint64_t number = 0;; ++number) {
    Job job(1);
    Truth truth(job);
    auto file = RankFile::open(job.dir, "steps", 0, true);
    CHECK(grow_slot(*job.node, *file, {0, 0, 0}, 10 * kMiB) == HVDFT_OK);
    uint64_t had = 0;
    bool interrupted = interrupted_at(
        number, [&] { release_slot(*job.node, *file, {0, 0, 0}); },
        [&] {
          CHECK(grow_heap(*job.node, 20 * kMiB, "a") == HVDFT_OK);
          had = truth.grown();
        });
    if (!interrupted) {
      CHECK(number > 10);
      return;
    }
    hvdft_memory most = memory_most(*job.node);
    CHECK(most.total - constant(most) >= had && used_bytes(*job.node) == 20 * kMiB);
  }
}

}  // namespace

int main(int argc, char**) {
  uint64_t stride = argc > 1 ? 5 : 1;
  gives_memory = true;
  what_is_said_is_never_less_than_what_there_is();
  two_grow_at_the_same_time();
  one_grows_while_another_frees();
  CHECK(through(what_a_killed_one_had_is_known) > 5);
  uint64_t worker = through(a_worker_is_killed, stride);
  uint64_t owner = through(a_logs_owner_is_killed, stride);
  CHECK(worker > 60 && owner > 20);
  std::printf("killed at stores, of %lu, %lu\n", worker, owner);
}
