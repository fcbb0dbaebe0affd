// Which ops the log writer has gathered, of which the network is left out, and in which segments
// they are summed and travel; that the log says so, and has memory for it.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "fresh_directory.h"
#include "oplog/log_writer.h"

using namespace hvdft;

namespace {

constexpr uint64_t kLimit = 64 << 20, kMost = 4096, kRingSegment = 64 << 10,
                   kNodeSegment = 32 << 10;
const std::vector<uint64_t> kBytes = {0, 4, kMost, kMost + 1, 3, 1 << 20};

// Ops of these sizes, agreed by the log writer of a job on so many nodes.
std::unique_ptr<Node> agree(const std::string& dir, int nodes, uint64_t most_gathered,
                            bool ablates = false, uint32_t kind = HVDFT_REDUCE) {
  CHECK(Node::create(dir, "rule", nodes, nodes, 0, 0, 1, kLimit) == HVDFT_OK);
  auto node = Node::open(dir, "rule", Node::kAgent);
  CHECK(node != nullptr);
  LogWriter writer(*node, {kNodeSegment, most_gathered, kRingSegment, ablates});
  writer.open();
  char* at = node->proposal();
  for (uint64_t bytes : kBytes) {
    OpHead op{kind, HVDFT_UINT8, HVDFT_SUM, 0, bytes, 4, 4, 0};
    std::memcpy(at, &op, sizeof op);
    std::memcpy(at + sizeof op, "respsig", 8);
    at += sizeof op + align_up(op.tail_bytes(), 8);
  }
  NodeHeader& h = node->header();
  h.proposal_term = h.term.load();
  h.proposal_count = static_cast<uint32_t>(kBytes.size());
  h.proposed.store(1);
  CHECK(writer.step() && h.log_length.load() == kBytes.size());
  return node;
}

void check_apart(const std::vector<ByteRange>& taken) {
  for (size_t i = 0; i < taken.size(); ++i) {
    for (size_t j = 0; j < i; ++j) CHECK(overlap(taken[i], taken[j]).bytes() == 0);
  }
}

void check(int nodes, uint64_t most_gathered) {
  std::string dir = fresh_directory();
  auto node = agree(dir, nodes, most_gathered);
  std::vector<ByteRange> taken;
  for (uint64_t id = 0; id < kBytes.size(); ++id) {
    const Record& record = *node->record(id);
    uint64_t bytes = record.heap_bytes();
    bool gathered = nodes > 1 && bytes <= most_gathered;
    CHECK((record.op.gathered == 1) == gathered && node->plan(record).gathered() == gathered);
    CHECK(record.op.ring_segment == kRingSegment && record.op.node_segment == kNodeSegment);
    CHECK(record.segments() == segments_of(kBytes[id], kNodeSegment));
    CHECK(node->plan(record).segment_bytes() == kRingSegment);
    taken.push_back({record.result_offset, record.result_offset + bytes});
    if (nodes == 1) continue;
    uint64_t all = gathered ? static_cast<uint64_t>(nodes) * align_up(bytes, 16) : bytes;
    taken.push_back({record.partial_offset, record.partial_offset + all});
  }
  check_apart(taken);
  CHECK(LogStore(*node).length() == kBytes.size());  // nor is any memory found to be taken twice
  remove_directory(dir);
}

// Sums stay on their nodes, where they are reduced into the result as on one node; barriers and
// broadcasts do not.
void check_ablated(int nodes, uint32_t kind) {
  std::string dir = fresh_directory();
  auto node = agree(dir, nodes, kMost, true, kind);
  std::vector<ByteRange> taken;
  for (uint64_t id = 0; id < kBytes.size(); ++id) {
    const Record& record = *node->record(id);
    uint64_t bytes = record.heap_bytes(), partial = record.partial_offset;
    bool ablated = nodes > 1 && kBytes[id] > 0 && kind == HVDFT_REDUCE;
    RingPlan plan = node->plan(record);
    CHECK((record.op.ablated == 1) == ablated);
    CHECK(plan.members() == (ablated ? 1 : static_cast<uint64_t>(nodes)));
    CHECK((partial == record.result_offset) == (ablated || nodes == 1));
    CHECK(plan.gathered() == (nodes > 1 && !ablated && bytes <= kMost));
    taken.push_back({record.result_offset, record.result_offset + bytes});
    if (partial != record.result_offset) {
      uint64_t all = plan.gathered() ? plan.gather().bytes() : bytes;
      taken.push_back({partial, partial + all});
    }
  }
  check_apart(taken);
  CHECK(LogStore(*node).length() == kBytes.size());
  remove_directory(dir);
}

void check_refused() {
  auto refuses = [](uint64_t node, uint64_t ring, uint64_t window = kNodeWindowBytes) {
    return check_rules({node, 0, ring, 0}, window) == HVDFT_EINVAL;
  };
  CHECK(!refuses(kLeastNodeSegment, kLeastRingSegment));
  CHECK(!refuses(kMostNodeSegment, kMostRingSegment));
  for (uint64_t node :
       {uint64_t{0}, kLeastNodeSegment / 2, uint64_t{48 << 10}, uint64_t{1} << 20}) {
    CHECK(refuses(node, kRingSegment));
  }
  for (uint64_t ring : {kLeastRingSegment - 1, kMostRingSegment + 1}) {
    CHECK(refuses(kNodeSegment, ring));
  }
  // A window holds 2 to kClaims segments.
  CHECK(!refuses(256 << 10, kRingSegment, 512 << 10));
  CHECK(refuses(512 << 10, kRingSegment, 512 << 10));
  const char* both =
      "HOROVOD_FT_NODE_SEGMENT_BYTES is 524288, and the job was started with "
      "HOROVOD_FT_NODE_WINDOW_BYTES=524288, which holds 2 to 128 segments: give the first one from "
      "16384 to 262144";
  CHECK(std::string(hvdft_error()) == both);
  CHECK(!refuses(kMostNodeWindow / kClaims, kRingSegment, kMostNodeWindow));
  CHECK(refuses(kMostNodeWindow / kClaims / 2, kRingSegment, kMostNodeWindow));
}

}  // namespace

int main() {
  check_refused();
  for (int nodes : {1, 3}) {
    for (uint32_t kind : {HVDFT_REDUCE, HVDFT_COPY}) check_ablated(nodes, kind);
  }
  for (int nodes : {1, 2, 5}) check(nodes, kMost);
  check(3, 0);
  return 0;
}
