// The log writer, killed at every store and checked between any two: which ranks have entered,
// which ops are agreed, kept and truncated.
#include <cstring>
#include <functional>
#include <vector>

#include "../op_rules.h"
#include "oplog/log_writer.h"
#include "protocol/segments.h"
#include "steps.h"

using namespace hvdft;

namespace {

constexpr char kTail[] = "respsig";  // a response of four bytes, a signature of three and its zero

OpHead op_of_bytes(uint64_t bytes) {
  return {HVDFT_REDUCE, HVDFT_FLOAT32, HVDFT_SUM, 0, bytes, 4, 4, 0};
}

void append(LogStore& store, uint64_t bytes) {
  CHECK(store.append(op_of_bytes(bytes), kTail) == HVDFT_OK);
}

// As the coordinator does.
void propose(Node& node, uint64_t term, const std::vector<uint64_t>& ops) {
  char* at = node.proposal();
  for (uint64_t bytes : ops) {
    OpHead head = op_of_bytes(bytes);
    std::memcpy(at, &head, sizeof head);
    std::memcpy(at + sizeof head, kTail, head.tail_bytes());
    at += sizeof head + align_up(head.tail_bytes(), 8);
  }
  NodeHeader& h = node.header();
  h.proposal_term = term;
  h.proposal_count = static_cast<uint32_t>(ops.size());
  h.proposed.fetch_add(1);
}

void check_whole(const Node& node, uint64_t id) {
  const Record* record = node.record(id);
  CHECK(record != nullptr && record->id == id && std::memcmp(record + 1, kTail, 8) == 0);
}

// Each op that is there has memory of its own.
void check_places(const Node& node) {
  std::vector<ByteRange> taken;
  for (uint64_t id = 0; id < node.header().log_length; ++id) {
    const Record* record = node.record(id);
    if (record == nullptr) continue;
    check_whole(node, id);
    auto offset = static_cast<uint64_t>(reinterpret_cast<const char*>(record) - node.heap());
    ByteRange ranges[] = {{record->result_offset, record->result_offset + record->heap_bytes()},
                          {offset, offset + record->bytes()}};
    for (ByteRange range : ranges) {
      for (ByteRange other : taken) CHECK(overlap(range, other).bytes() == 0);
      taken.push_back(range);
    }
  }
}

void who_sees_the_term_sees_who_has_joined() {
  Job job(2);
  LogWriter log_writer(*job.node, kOpRules);
  log_writer.open();
  NodeHeader& h = job.node->header();
  RankBlock &zero = job.node->rank(0), &one = job.node->rank(1);
  uint64_t before = h.term;
  CHECK(before > 0);
  // For the first time: into the term that there is.
  uint64_t first = uint64_t{1} << 40, second = uint64_t{2} << 40;
  one.enter_request = first;
  log_writer.step();
  CHECK(h.term == before && one.entered == first);
  // Again, both at once, though the other one for the first time: they share a new term.
  one.enter_request = second;
  zero.enter_request = first;
  watched([&] { log_writer.step(); },
          [&] { CHECK(h.term == before || (one.entered == second && zero.entered == first)); });
  CHECK(h.term == before + 1 && one.entered == second && zero.entered == first);
  // What an older log writer has granted without a word is void.
  LogWriter next(*job.node, kOpRules);
  next.open();
  CHECK(h.term == before + 2);
}

// The coordinator may write the next proposal over one that is answered, and looks for its ops.
void what_is_answered_is_in_the_log() {
  Job job(2);
  LogWriter log_writer(*job.node, kOpRules);
  log_writer.open();
  NodeHeader& h = job.node->header();
  propose(*job.node, h.term, {1000, 70});
  watched([&] { log_writer.step(); },
          [&] { CHECK(h.answered != h.proposed || h.log_length == 2); });
  CHECK(h.answered == h.proposed);
}

// Whoever sees how long the log is finds its ops, until they are truncated; those that are kept
// always.
void ops_are_there_before_they_count() {
  Job job(2);
  LogStore store(*job.node);
  uint64_t cut_from = 1, cut_to = 1;
  auto look = [&] {
    for (uint64_t id = 0; id < job.node->header().log_length; ++id) {
      if (id < cut_from || id >= cut_to) check_whole(*job.node, id);
    }
  };
  watched(
      [&] {
        for (uint64_t bytes : {1000, 300000, 70}) append(store, bytes);
        store.publish();
        CHECK(store.keep(0) == HVDFT_OK);
        cut_to = 2;
        store.drop(1);
        store.decided(2);
        append(store, 200000);
        store.publish();
        store.publish_room();
      },
      look);
}

// It is killed while it empties the log: numbers of segments and inputs go on.
bool the_log_is_emptied(uint64_t at) {
  Job job(1);
  Node& node = *job.node;
  {
    LogStore before(node);
    for (uint64_t bytes : {1000, 300000}) append(before, bytes);
    before.publish();
  }
  uint64_t end = node.record(1)->end_segment(), inputs = node.record(1)->end_input();
  bool killed = killed_at(at, [&] {
    LogStore store(node);
    for (uint64_t id : {0, 1}) store.drop(id);
  });
  LogStore next(node);
  append(next, 10);
  CHECK(node.record(2)->first_segment == end && node.record(2)->first_input >= inputs);
  return killed;
}

// It is killed anywhere, and the next one continues.
bool a_log_writer_is_killed(uint64_t at) {
  Job job(2);
  Node& node = *job.node;
  {
    LogStore before(node);
    for (uint64_t bytes : {1000, 300000, 70, 0}) append(before, bytes);
    before.publish();
  }
  for (int r = 0; r < 2; ++r) {  // both begin a loop after op 0, and have a snapshot after op 2
    Loop& loop = node.rank(r).loops[0];
    loop.begin = 2;
    loop.published = 4 << 1;
  }
  uint64_t request = uint64_t{1} << 40 | 4;
  node.rank(1).enter_request = request;
  bool killed = killed_at(at, [&] {
    LogWriter log_writer(node, kOpRules);
    log_writer.open();
    log_writer.step();
    propose(node, node.header().term, {2000, 200000});
    while (log_writer.step()) {
    }
  });
  NodeHeader& h = node.header();
  LogWriter next(node, kOpRules);
  next.open();
  while (next.step()) {
  }
  uint64_t length = h.log_length;
  CHECK(length == 4 || length == 6);
  CHECK(h.answered == h.proposed && node.rank(1).entered == request);
  CHECK(h.decided_before == 3 && h.kept == 1 && h.truncated == 2);
  CHECK(node.record(1) == nullptr && node.record(2) == nullptr);
  check_whole(node, 0);
  check_places(node);
  CHECK(h.log_bytes.load() <= h.backed.load());
  propose(node, h.term, {100000, 70, 5000});
  while (next.step()) {
  }
  CHECK(h.log_length == length + 3);
  check_places(node);
  return killed;
}

// What rank 0's node would start again from if its host were lost: of each of its ranks the latest
// snapshot whose part the second node has, or the loop's beginning.
void check_reaches_back(const Node& node) {
  for (int r = node.first_local(); r < node.end_local(); ++r) {
    const Loop& loop = node.rank(r).loops[0];
    uint64_t from = std::max(loop.begin.load(), loop.held.load() >> 1) - 1;
    for (uint64_t id = from; id < node.header().log_length; ++id) check_whole(node, id);
  }
}

constexpr uint64_t kOps = 6;

// The ranks of rank 0's node publish snapshots, whose parts the second node has later.
struct TwoNodes {
  TwoNodes() : job(2, 2) {
    LogStore store(*job.node);
    for (uint64_t i = 0; i < kOps; ++i) append(store, 1000);
    store.publish();
    for (int r = 0; r < 4; ++r) loop(r).begin = 1;
    for (int r : {2, 3}) loop(r).published = (kOps + 1) << 1;
  }
  Loop& loop(int r) const { return job.node->rank(r).loops[0]; }
  // In turn: rank 0 publishes, rank 1 does; rank 0's part is there, rank 1's is.
  bool act() {
    Shared<uint64_t>& done = job.node->rank(3).step;  // by processes that are killed, too
    uint64_t acted = done, position = 2 * (acted / 4 + 1);
    if (position > kOps) return false;
    Loop& of = loop(static_cast<int>(acted % 2));
    (acted % 4 < 2 ? of.published : of.held) = (position + 1) << 1 | (acted / 4 % 2);
    done = acted + 1;
    return true;
  }
  Job job;
};

// They act at every `each`-th step of a log writer, which is killed anywhere.
bool the_log_reaches_back_to_what_the_buddy_has(uint64_t each, uint64_t killed_there) {
  TwoNodes nodes;
  Node& node = *nodes.job.node;
  bool killed = killed_at(kNever, [&] {
    uint64_t steps = 0, stores = 0;
    LogWriter log_writer(node, kOpRules);
    at_step = [&](bool written) {
      check_reaches_back(node);
      if (++steps % each == 0) nodes.act();
      if (written && stores++ == killed_there) kill(getpid(), SIGKILL);
    };
    log_writer.open();
    while (log_writer.step() || nodes.act()) {
    }
  });
  check_reaches_back(node);
  LogWriter next(node, kOpRules);
  next.open();
  do {
    next.step();
    check_reaches_back(node);
  } while (nodes.act());
  CHECK(node.header().decided_before == kOps && node.header().truncated == kOps);
  return killed;
}

// Who has ended the loop starts again nowhere in it: the others need not keep their slots for it.
void the_oldest_snapshot_is_that_of_a_rank_in_the_loop() {
  TwoNodes nodes;
  LogWriter log_writer(*nodes.job.node, kOpRules);
  log_writer.open();
  const NodeHeader& header = nodes.job.node->header();
  auto publish = [&](int rank, uint64_t position) {
    nodes.loop(rank).published = nodes.loop(rank).held = (position + 1) << 1;
    while (log_writer.step()) {
    }
  };
  publish(0, 2);
  publish(1, 4);
  CHECK(oldest_in(header, 0) == 3);
  nodes.loop(0).ended = 1;
  publish(1, 5);
  CHECK(oldest_in(header, 0) == 6);
  CHECK(oldest_in(header, 1) == 0);
}

}  // namespace

int main() {
  for (uint64_t each : {1, 3, 7, 1000}) {
    auto killed = [&](uint64_t at) { return the_log_reaches_back_to_what_the_buddy_has(each, at); };
    CHECK(through(killed) > 20);
  }
  who_sees_the_term_sees_who_has_joined();
  what_is_answered_is_in_the_log();
  the_oldest_snapshot_is_that_of_a_rank_in_the_loop();
  ops_are_there_before_they_count();
  CHECK(through(the_log_is_emptied) > 6);
  uint64_t steps = through(a_log_writer_is_killed);
  CHECK(steps > 50);
  std::printf("killed at each of %lu stores\n", steps);
}
