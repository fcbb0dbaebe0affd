// What of the ranks' announcements reaches rank 0's node: what the ranks of a node announce alike
// goes once for all of them. So with numbers (ft_known_requests.h) a training step costs
// bytes for each node, and not for each tensor of each rank.
#include <cstdio>

#include "horovod/agree/ft_numbers.h"
#include "joined_nodes.h"

using namespace hvdft;

namespace {

constexpr uint64_t kTerm = 3;

void announce(JoinedNodes& job, int rank, const std::string& what, uint64_t term = kTerm) {
  Node& node = job.node_of(rank);
  RankBlock& block = node.rank(rank);
  uint64_t sequence = block.mail_sequence;
  block.mail_sequence = sequence + 1;
  block.mail_term = term;
  block.mail_bytes = what.size();
  std::memcpy(node.mail(rank), what.data(), what.size());
  block.mail_sequence = sequence + 2;
}

// As the coordinator sees it, which then takes it.
std::string taken(JoinedNodes& job, int rank, uint64_t term = kTerm) {
  RankBlock& block = job.node(0).rank(rank);
  if (block.mail_taken == block.mail_sequence) return "";
  CHECK(block.mail_term == term);
  block.mail_taken = block.mail_sequence.load();
  return {job.node(0).mail(rank), block.mail_bytes};
}

uint64_t frames(JoinedNodes& job) {
  JoinedNodes::Arrived before = job.arrived;
  job.carry();
  return job.arrived.of_kind[FrameKind::kMail] - before.of_kind[FrameKind::kMail];
}

void what_is_alike_goes_once() {
  JoinedNodes job(2, 4);  // ranks 4 to 7 are elsewhere
  job.carry();
  for (int r : {4, 5, 7}) announce(job, r, "alike");
  announce(job, 6, "other");
  CHECK(frames(job) == 2);
  for (int r : {4, 5, 7}) CHECK(taken(job, r) == "alike");
  CHECK(taken(job, 6) == "other");
  uint64_t answers = job.told[FrameKind::kTaken];
  CHECK(frames(job) == 0);
  for (int r = 4; r < 8; ++r) {
    RankBlock& block = job.node(1).rank(r);
    CHECK(block.mail_taken == block.mail_sequence);
  }
  CHECK(job.told[FrameKind::kTaken] - answers == 1);  // they are alike
  // A rank that is behind, and one that has announced in another term.
  announce(job, 4, "alike");
  announce(job, 5, "alike", kTerm + 1);
  CHECK(frames(job) == 2);
  CHECK(taken(job, 4) == "alike" && taken(job, 5, kTerm + 1) == "alike");
  CHECK(taken(job, 6).empty() && taken(job, 7).empty());
}

// Ranks that follow each other get one answer, if it is the same; others are not told again.
void what_is_answered() {
  JoinedNodes job(2, 4);
  job.carry();
  Node &zero = job.node(0), &one = job.node(1);
  auto answer = [&](const std::vector<uint64_t>& sequences) {
    for (int i = 0; i < 4; ++i) zero.rank(4 + i).mail_taken = sequences[static_cast<size_t>(i)];
    uint64_t before = job.told[FrameKind::kTaken];
    job.carry();
    for (int i = 0; i < 4; ++i) {
      CHECK(one.rank(4 + i).mail_taken == sequences[static_cast<size_t>(i)]);
    }
    return job.told[FrameKind::kTaken] - before;
  };
  CHECK(answer({2, 2, 2, 2}) == 1);
  CHECK(answer({2, 2, 2, 2}) == 0);
  CHECK(answer({4, 2, 4, 4}) == 2);
  CHECK(answer({4, 6, 8, 8}) == 2);
  uint32_t doorbells[4];
  for (int i = 0; i < 4; ++i) doorbells[i] = one.rank(4 + i).worker_doorbell;
  one.rank(5).mail_awaited = 1;
  CHECK(answer({10, 10, 10, 8}) == 1);
  for (int i : {0, 2, 3}) CHECK(one.rank(4 + i).worker_doorbell == doorbells[i]);
  CHECK(one.rank(5).worker_doorbell != doorbells[1] && one.rank(5).mail_awaited == 0);

  for (int r : {4, 5, 7}) zero.rank(r).entered = 70;
  zero.rank(6).entered = 71;
  for (int i = 0; i < 4; ++i) doorbells[i] = one.rank(4 + i).worker_doorbell;
  uint64_t before = job.told[FrameKind::kJoined];
  job.carry();
  CHECK(job.told[FrameKind::kJoined] - before == 3);
  for (int i = 0; i < 4; ++i) {
    CHECK(one.rank(4 + i).entered == (i == 2 ? 71 : 70));
    CHECK(one.rank(4 + i).worker_doorbell != doorbells[i]);
  }
}

// A step of 200 tensors, in one announcement of each rank: by names as Horovod writes them, about
// 120 bytes each, and by numbers.
void what_a_step_costs() {
  constexpr size_t kTensors = 200, kOfName = 120;
  std::vector<uint32_t> all(kTensors);
  for (uint32_t n = 0; n < kTensors; ++n) all[n] = n;
  std::string numbers = horovod::common::FtWriteNumbers(all) + "set ";
  for (int of_node : {2, 4}) {
    for (int ranks : {4, 8, 16, 32}) {
      int nodes = ranks / of_node;
      if (nodes < 2) continue;
      JoinedNodes job(nodes, of_node);
      job.carry();
      auto step = [&](bool by_name) {
        JoinedNodes::Arrived before = job.arrived;
        for (int r = of_node; r < ranks; ++r) {
          std::string names(kTensors * kOfName, static_cast<char>('a' + r));  // each has its rank
          announce(job, r, by_name ? names : numbers);
        }
        job.carry();
        for (int r = of_node; r < ranks; ++r) CHECK(!taken(job, r).empty());
        job.carry();
        return std::pair(job.arrived.of_kind[FrameKind::kMail] - before.of_kind[FrameKind::kMail],
                         job.arrived.bytes - before.bytes);
      };
      auto [name_frames, name_bytes] = step(true);
      auto [number_frames, number_bytes] = step(false);
      auto others = static_cast<uint64_t>(nodes - 1);
      CHECK(name_frames == others * static_cast<uint64_t>(of_node));
      CHECK(name_bytes > name_frames * kTensors * kOfName);
      CHECK(number_frames == others);
      CHECK(number_bytes <= others * 124);  // heads, the clock, the numbers, which ranks
      std::printf("%d ranks, %d a node: by names %lu frames, %lu bytes; by numbers %lu, %lu\n",
                  ranks, of_node, name_frames, name_bytes, number_frames, number_bytes);
    }
  }
}

}  // namespace

int main() {
  what_is_alike_goes_once();
  what_is_answered();
  what_a_step_costs();
}
