// What of the ranks' announcements reaches rank 0's node: what the ranks of a node announce alike
// goes once for all of them. So with numbers (horovod/ft_known_requests.h) a training step costs
// bytes for each node, and not for each tensor of each rank.
#include <cstdio>

#include "horovod/ft_numbers.h"
#include "star.h"

using namespace hvdft;

namespace {

constexpr uint64_t kTerm = 3;

void announce(Star& star, int rank, const std::string& what, uint64_t term = kTerm) {
  Node& node = star.node_of(rank);
  RankBlock& block = node.rank(rank);
  uint64_t sequence = block.mail_sequence;
  block.mail_sequence = sequence + 1;
  block.mail_term = term;
  block.mail_bytes = what.size();
  std::memcpy(node.mail(rank), what.data(), what.size());
  block.mail_sequence = sequence + 2;
}

// As the coordinator sees it, which then takes it.
std::string taken(Star& star, int rank, uint64_t term = kTerm) {
  RankBlock& block = star.node(0).rank(rank);
  if (block.mail_taken == block.mail_sequence) return "";
  CHECK(block.mail_term == term);
  block.mail_taken = block.mail_sequence.load();
  return {star.node(0).mail(rank), block.mail_bytes};
}

uint64_t frames(Star& star) {
  Star::Arrived before = star.arrived;
  star.carry();
  return star.arrived.of_kind[FrameKind::kMail] - before.of_kind[FrameKind::kMail];
}

void what_is_alike_goes_once() {
  Star star(2, 4);  // ranks 4 to 7 are elsewhere
  star.carry();
  for (int r : {4, 5, 7}) announce(star, r, "alike");
  announce(star, 6, "other");
  CHECK(frames(star) == 2);
  for (int r : {4, 5, 7}) CHECK(taken(star, r) == "alike");
  CHECK(taken(star, 6) == "other");
  uint64_t answers = star.told[FrameKind::kTaken];
  CHECK(frames(star) == 0);
  for (int r = 4; r < 8; ++r) {
    RankBlock& block = star.node(1).rank(r);
    CHECK(block.mail_taken == block.mail_sequence);
  }
  CHECK(star.told[FrameKind::kTaken] - answers == 1);  // they are alike
  // A rank that is behind, and one that has announced in another term.
  announce(star, 4, "alike");
  announce(star, 5, "alike", kTerm + 1);
  CHECK(frames(star) == 2);
  CHECK(taken(star, 4) == "alike" && taken(star, 5, kTerm + 1) == "alike");
  CHECK(taken(star, 6).empty() && taken(star, 7).empty());
}

// Ranks that follow each other get one answer, if it is the same; others are not told again.
void what_is_answered() {
  Star star(2, 4);
  star.carry();
  Node &zero = star.node(0), &one = star.node(1);
  auto answer = [&](const std::vector<uint64_t>& sequences) {
    for (int i = 0; i < 4; ++i) zero.rank(4 + i).mail_taken = sequences[static_cast<size_t>(i)];
    uint64_t before = star.told[FrameKind::kTaken];
    star.carry();
    for (int i = 0; i < 4; ++i) {
      CHECK(one.rank(4 + i).mail_taken == sequences[static_cast<size_t>(i)]);
    }
    return star.told[FrameKind::kTaken] - before;
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
  uint64_t before = star.told[FrameKind::kJoined];
  star.carry();
  CHECK(star.told[FrameKind::kJoined] - before == 3);
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
      Star star(nodes, of_node);
      star.carry();
      auto step = [&](bool by_name) {
        Star::Arrived before = star.arrived;
        for (int r = of_node; r < ranks; ++r) {
          std::string names(kTensors * kOfName, static_cast<char>('a' + r));  // each has its rank
          announce(star, r, by_name ? names : numbers);
        }
        star.carry();
        for (int r = of_node; r < ranks; ++r) CHECK(!taken(star, r).empty());
        star.carry();
        return std::pair(star.arrived.of_kind[FrameKind::kMail] - before.of_kind[FrameKind::kMail],
                         star.arrived.bytes - before.bytes);
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
