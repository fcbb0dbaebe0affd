// The memory of a node's arena, as a function of the job's ranks: a node has mailboxes and
// fingerprints for its own ranks, and for others only what has arrived.
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "arena/arena.h"
#include "arena/memory.h"
#include "check.h"
#include "fresh_directory.h"

using namespace hvdft;

namespace {

constexpr int kLocals = 8;
constexpr uint64_t kLimit = uint64_t{1} << 30;

struct Job {
  Job(int size, int first) : dir(fresh_directory()) {
    CHECK(Node::create(dir, "sizes", size, size / kLocals, first / kLocals, first, kLocals,
                       kLimit) == HVDFT_OK);
    node = Node::open(dir, "sizes", Node::kAgent);
    CHECK(node != nullptr);
  }
  ~Job() { remove_directory(dir); }
  uint64_t memory() const {
    struct stat info{};
    CHECK(stat((dir + "/node.arena").c_str(), &info) == 0);
    return static_cast<uint64_t>(info.st_blocks) * 512;
  }
  std::string dir;
  std::unique_ptr<Node> node;
};

// What there is, and what the job is told of it.
void a_rank_elsewhere_costs_its_block() {
  for (int first : {0, kLocals}) {
    Job small(1024, first), large(kMaxRanks, first);
    for (Job* job : {&small, &large}) {
      hvdft_memory told = memory_now(*job->node);
      CHECK(job->memory() == told.control && told.control == job->node->control_bytes());
      CHECK(told.limit == kLimit);
    }
    uint64_t of_each = (large.memory() - small.memory()) / (kMaxRanks - 1024);
    CHECK(of_each < sizeof(RankBlock) + 2 * (kMaxRanks / 8 + 512));
    CHECK(of_each * 10 < kMailBytes);
  }
}

void what_arrives_gets_memory() {
  Job job(1024, 0);
  const Node& node = *job.node;
  constexpr int kOther = 700;
  uint64_t before = job.memory(), most = kKeptMailBytes + 5 * kPage;
  auto grown = [&] {
    CHECK(memory_now(node).control == job.memory());
    CHECK(memory_now(node).limit == kLimit);
    return job.memory() - before;
  };
  CHECK(grow_mail(node, kOther, 1) == HVDFT_OK && grown() == kPage);
  CHECK(grow_mail(node, kOther, kPage) == HVDFT_OK && grown() == kPage);
  CHECK(grow_mail(node, kOther, most - 1) == HVDFT_OK && grown() == most);
  std::memset(node.mail(kOther), 1, most);
  CHECK(grown() == most);
  shrink_mail(node, kOther);
  CHECK(grown() == kKeptMailBytes && node.mail(kOther)[kKeptMailBytes - 1] == 1);
  shrink_mail(node, kOther);
  CHECK(grown() == kKeptMailBytes);
  for (int again = 0; again < 2; ++again) {
    CHECK(grow_fingerprints(node, kOther) == HVDFT_OK);
    CHECK(grown() == kKeptMailBytes + 2 * sizeof(Fingerprints));
  }
  // A rank of the node has all it needs.
  CHECK(grow_mail(node, 3, most) == HVDFT_OK && grow_fingerprints(node, 3) == HVDFT_OK);
  CHECK(grown() == kKeptMailBytes + 2 * sizeof(Fingerprints));
}

void the_last_rank_is_like_the_others() {
  std::string dir = fresh_directory();
  CHECK(Node::create(dir, "sizes", kMaxRanks + 1, 2, 0, 0, 1, kLimit) == HVDFT_EINVAL);
  CHECK(std::strstr(hvdft_error(), "1 to 4096 ranks, not 4097") != nullptr);
  remove_directory(dir);
  constexpr int kLast = kMaxRanks - 1;
  CHECK(owner_of(claim_word(1000, kLast, false)) == kLast);
  CHECK(claimed_end(claim_word(1000, kLast, false)) == 1001);

  Job job(kMaxRanks, kMaxRanks - kLocals);
  const Node& node = *job.node;
  for (int peer : {0, 63, 64, kLast}) {
    CHECK(!node.has_peer(node.sends_to(kLast), peer));
    node.sends_to(kLast)[peer / 64].fetch_or(uint64_t{1} << peer % 64);
    CHECK(node.has_peer(node.sends_to(kLast), peer));
    CHECK(!node.has_peer(node.receives_from(kLast), peer));
    CHECK(!node.has_peer(node.receives_from(kLast - 1), peer));
  }
  CHECK(node.event_slots()[0].published.load() == 0);  // behind the last bits
}

}  // namespace

int main() {
  a_rank_elsewhere_costs_its_block();
  what_arrives_gets_memory();
  the_last_rank_is_like_the_others();
}
