// A job has as many training loops as its script begins: a rank's table of them grows, on every
// node; the mirror looks only at those that may have changed; and the log is truncated as in the
// first one.
#include <sys/stat.h>

#include <cstring>

#include "arena/memory.h"
#include "arena/message_file.h"
#include "joined_nodes.h"
#include "op_rules.h"
#include "oplog/log_writer.h"
#include "protocol/roster.h"

using namespace hvdft;

namespace {

constexpr int kLoops = 200;

Loop& begin(const Node& node, int rank, int number) {
  CHECK(grow_loops(node, rank, number) == HVDFT_OK);
  Loop& loop = node.rank(rank).loops[number];
  loop.begin = static_cast<uint64_t>(2 * number + 1);
  node.rank(rank).loops_done = loops_begun(number);
  return loop;
}

// A snapshot of a rank's own that has nothing in it, and the loop's end.
void end(const Node& node, int rank, int number) {
  Loop& loop = node.rank(rank).loops[number];
  loop.published = (loop.begin.load() + 1) << 1;
  loop.ended = 1;
}

uint64_t memory_of(const Node& node) {
  struct stat info{};
  CHECK(fstat(node.fd(), &info) == 0);
  return static_cast<uint64_t>(info.st_blocks) * 512;
}

void the_table_grows_up_to_a_bound() {
  JoinedNodes job(2, 2);
  const Node& node = job.node(0);
  uint64_t before = memory_now(node).control;
  CHECK(memory_of(node) == before);
  const RankBlock& block = node.rank(1);
  CHECK(block.loops_there() >= kLoopsAtFirst && block.loops_there() < kLoops);
  CHECK(block.loop(kLoops).begin == 0 && memory_of(node) == before);
  CHECK(grow_loops(node, 1, kLoopsAtFirst - 1) == HVDFT_OK && memory_of(node) == before);
  for (int number = 0; number < kLoops; ++number) {
    begin(node, 1, number);
    CHECK(block.loops_there() > number && block.loop(number).begin != 0);
    CHECK(memory_of(node) == memory_now(node).control);
  }
  CHECK(memory_of(node) - before < kLoops * sizeof(Loop) + kPage);
  CHECK(node.rank(0).loops_there() < kLoops);
  CHECK(grow_loops(node, 0, kMaxLoops - 1) == HVDFT_OK);
  CHECK(node.rank(0).loops_there() == kMaxLoops);
  CHECK(grow_loops(node, 0, kMaxLoops) == HVDFT_EINVAL);
  CHECK(std::strstr(hvdft_error(), "are all that there may be") != nullptr);
  CHECK(memory_of(node) == memory_now(node).control);
}

void a_pair_s_marks_grow() {
  JoinedNodes job(1, 2);
  const Node& node = job.node(0);
  auto file = PairFile::open(node, 0, 1, true);
  PairHeader& header = file->header();
  auto memory = [&] { return file->memory_bytes(); };
  uint64_t before = memory();
  CHECK(before == node.header().message_bytes);
  for (PairEnd* end : {&header.sender, &header.receiver}) {
    for (int loop = 0; loop < kLoops; ++loop) {
      CHECK(end->marks(loop).begin == 0 && memory() == node.header().message_bytes);
      CHECK(file->grow_loops(*end, loop) == HVDFT_OK);
      end->loops[loop].begin = static_cast<uint64_t>(10 * loop + 1);
      end->loops[loop].past = static_cast<uint64_t>(10 * loop + 5);
    }
    for (uint64_t number : {0, 4, 5, 9, 10, 1994, 1995, 3000}) {
      Fate fate = number % 10 < 5 && number < 10 * kLoops ? Fate::kPast
                  : number < 10 * (kLoops - 1)            ? Fate::kKept
                                                          : Fate::kOpen;
      CHECK(end->fate(number) == fate);
    }
  }
  CHECK(memory() > before && memory() == node.header().message_bytes);
}

// Rank 2 of node 1 goes through its loops, and node 0 has all of them.
void the_mirror_tells_of_all_and_looks_at_few() {
  JoinedNodes job(2, 2);
  Node &zero = job.node(0), &one = job.node(1);
  auto is_told = [&](int number) {
    const Loop &here = zero.rank(2).loop(number), &there = one.rank(2).loop(number);
    CHECK(here.begin == there.begin.load() && here.ended == there.ended.load());
    CHECK(here.published >> 1 == there.published >> 1);
  };
  for (int number = 0; number < kLoops; ++number) {
    begin(one, 2, number);
    job.carry();
    is_told(number);
    end(one, 2, number);
    job.carry();
    is_told(number);
  }
  uint64_t frames = job.arrived.of_kind[FrameKind::kLoop];
  CHECK(frames == 2 * kLoops);  // each once
  // A restarted rank goes through one once more, and publishes what was complete there.
  one.rank(2).loops[3].published = uint64_t{99} << 1;
  one.rank(2).loop_changes.fetch_add(1);
  job.carry();
  is_told(3);
  CHECK(job.arrived.of_kind[FrameKind::kLoop] == frames + 1);
  job.renew();  // the next generation is told all again
  job.carry();
  CHECK(job.arrived.of_kind[FrameKind::kLoop] == 2 * kLoops + kLoops + 1);
}

// Of rank 0's, whose parts the second node holds: what was told as held changes with the loop.
void what_is_held_is_told_of_all() {
  JoinedNodes job(2, 2);
  Node& zero = job.node(0);
  for (int number = 0; number < kLoops; ++number) {
    begin(zero, 0, number);
    end(zero, 0, number);
    job.carry();
    CHECK(zero.rank(0).loops[number].held >> 1 == zero.rank(0).loops[number].published >> 1);
  }
  zero.rank(0).loops[3].published = uint64_t{99} << 1;
  zero.rank(0).loop_changes.fetch_add(1);
  job.carry();
  CHECK(zero.rank(0).loops[3].held >> 1 == 99);
}

// Ops in the loops are truncated, those between them are kept; a log writer that begins later finds
// the same. Where ranks of several nodes may start again is known of the latest loops.
void the_log_is_truncated_in_each() {
  JoinedNodes job(2, 1);
  Node& node = job.node(0);
  OpHead op{HVDFT_REDUCE, HVDFT_FLOAT32, HVDFT_SUM, 0, 300, 4, 4, 0};
  {
    LogStore store(node);
    for (int i = 0; i < 2 * kLoops; ++i) CHECK(store.append(op, "respsig") == HVDFT_OK);
    store.publish();
  }
  auto first = std::make_unique<LogWriter>(node, kOpRules);
  for (int number = 0; number < kLoops; ++number) {
    if (number == kLoops / 2) first = std::make_unique<LogWriter>(node, kOpRules);
    for (int r : {0, 1}) {
      Loop& loop = begin(node, r, number);
      loop.published = loop.held = (loop.begin.load() + 1) << 1;
    }
    first->step();
    CHECK(node.header().decided_before == static_cast<uint64_t>(2 * number + 1));
    CHECK(oldest_in(node.header(), number) == static_cast<uint64_t>(2 * number + 2));
    for (int r : {0, 1}) node.rank(r).loops[number].ended = 1;
  }
  CHECK(node.header().kept == kLoops - 1 && node.header().truncated == kLoops);
  CHECK(oldest_in(node.header(), kLoops - kOldest) != 0);
  CHECK(oldest_in(node.header(), kLoops - kOldest - 1) == 0);  // so its slots just stay
}

}  // namespace

int main() {
  the_table_grows_up_to_a_bound();
  a_pair_s_marks_grow();
  the_mirror_tells_of_all_and_looks_at_few();
  what_is_held_is_told_of_all();
  the_log_is_truncated_in_each();
}
