// Notes of both kinds, by a log writer that is checked between any two stores and killed at each: a
// note that was readable once stays so and says the same, whatever is truncated.
#include <cstring>

#include "../op_rules.h"
#include "oplog/log_writer.h"
#include "steps.h"

using namespace hvdft;

namespace {

constexpr uint32_t kOp = HVDFT_REDUCE, kNumbers = HVDFT_REQUESTS, kTuned = HVDFT_TUNED;
const std::vector<uint32_t> kKinds = {kOp, kNumbers, kOp, kTuned, kNumbers, kTuned, kNumbers, kOp};

// What an op's response says: its place among all that were proposed.
OpHead head_of(uint32_t kind) {
  return {kind, HVDFT_FLOAT32, HVDFT_SUM, 0, kind == kOp ? uint64_t{300} : 0, 1, 2, 0};
}

void propose(Node& node, const std::vector<uint32_t>& kinds, char first) {
  char* at = node.proposal();
  for (uint32_t kind : kinds) {
    OpHead head = head_of(kind);
    char tail[] = {first++, 's', '\0'};
    std::memcpy(at, &head, sizeof head);
    std::memcpy(at + sizeof head, tail, sizeof tail);
    at += sizeof head + align_up(head.tail_bytes(), 8);
  }
  NodeHeader& h = node.header();
  h.proposal_term = h.term.load();
  h.proposal_count = static_cast<uint32_t>(kinds.size());
  h.proposed.fetch_add(1);
}

// As hvdft_worker_note() reads them: the first byte of each response.
std::string readable(const Node& node, uint32_t kind) {
  std::string seen;
  for (uint64_t number = 0; uint64_t after = node.note(kind, number); ++number) {
    const Record* record = node.record(after - 1);
    CHECK(record != nullptr && record->id == after - 1 && record->op.kind == kind);
    seen += *reinterpret_cast<const char*>(record + 1);
  }
  return seen;
}

// What numbers requests, then what autotuning has changed.
std::string readable(const Node& node) {
  return readable(node, kNumbers) + ' ' + readable(node, kTuned);
}

// All ranks have ended a loop that begins behind op 0 and one that begins behind op 5, with a
// snapshot in each. So ops between these two are kept, and dropped before and behind them.
void take_snapshots(Node& node) {
  for (int r = 0; r < node.size(); ++r) {
    auto& loops = node.rank(r).loops;
    loops[0].begin = 1 + 1;
    loops[0].published = (4 + 1) << 1;
    loops[0].ended = 1;
    loops[1].begin = 6 + 1;
    loops[1].published = (8 + 1) << 1;
  }
}

void work(LogWriter& log_writer) {
  while (log_writer.step()) {
  }
}

void check_truncated(const Node& node) {
  CHECK(readable(node) == "beg df");
  CHECK(node.header().decided_before == 8 && node.header().kept == 6);
  for (uint64_t id : {2, 7}) CHECK(node.record(id) == nullptr);
  for (uint64_t id : {0, 1, 3, 4, 5, 6})
    CHECK(node.record(id) != nullptr && node.record(id)->id == id);
}

void what_was_readable_stays_so() {
  Job job(2);
  Node& node = *job.node;
  node.header().term = 5;
  LogWriter log_writer(node, kOpRules);
  log_writer.open();
  std::vector<std::string> seen = {" "};
  watched(
      [&] {
        propose(node, kKinds, 'a');
        work(log_writer);
        take_snapshots(node);
        work(log_writer);
        propose(node, {kTuned, kNumbers, kOp}, 'i');
        work(log_writer);
      },
      [&] {
        std::string now = readable(node);
        if (now != seen.back()) seen.push_back(now);
      });
  CHECK((seen == std::vector<std::string>{" ", "beg df", "begj dfi"}));
}

bool a_log_writer_is_killed(uint64_t at) {
  Job job(2);
  Node& node = *job.node;
  node.header().term = 5;
  bool killed = killed_at(at, [&] {
    LogWriter log_writer(node, kOpRules);
    log_writer.open();
    propose(node, kKinds, 'a');
    work(log_writer);
    take_snapshots(node);
    work(log_writer);
  });
  LogWriter next(node, kOpRules);
  next.open();
  work(next);
  if (node.header().log_length == 0) {  // what it had not published is as if it had not been
    CHECK(readable(node) == " ");
    propose(node, {kOp, kNumbers, kTuned}, 'x');
    work(next);
    CHECK(readable(node) == "y z");
    return killed;
  }
  CHECK(readable(node) == "beg df");
  take_snapshots(node);
  work(next);
  check_truncated(node);
  propose(node, {kTuned, kNumbers, kOp}, 'i');
  work(next);
  CHECK(readable(node) == "begj dfi");
  return killed;
}

}  // namespace

int main() {
  what_was_readable_stays_so();
  uint64_t steps = through(a_log_writer_is_killed);
  CHECK(steps > 50);
  std::printf("killed at each of %lu stores\n", steps);
}
