#include "arena/rosters.h"

#include <algorithm>

#include "protocol/roster.h"

namespace hvdft {

uint64_t roster_at(const Node& node, uint64_t position) {
  const auto& rosters = node.header().rosters;
  uint64_t number = 0;
  while (number < kRosters &&
         has_begun(rosters[number].since.load(std::memory_order_acquire), position)) {
    ++number;
  }
  return number;
}

uint64_t latest_roster(const Node& node) {
  const auto& rosters = node.header().rosters;
  uint64_t number = 0;
  while (number < kRosters && rosters[number].mark.load(std::memory_order_acquire) != 0) ++number;
  return number;
}

bool is_in_roster(const Node& node, uint64_t roster, int rank) {
  if (roster == 0) return true;
  const auto& words = node.header().rosters[roster - 1].present;
  return (words[rank / 64].load(std::memory_order_relaxed) >> rank % 64 & 1) != 0;
}

namespace {
bool is_present_now(const Node& node, int rank) {
  return is_present(node, rank, node.header().log_length.load(std::memory_order_acquire));
}
}  // namespace

bool has_part(const Node& node, int rank) {
  return is_present_now(node, rank) || is_in_roster(node, latest_roster(node), rank);
}

bool has_left(const Node& node, int rank) {
  return !is_present_now(node, rank) &&
         node.rank(rank).state.load(std::memory_order_acquire) == HVDFT_DONE;
}

bool returns_later(const Node& node, int rank) {
  return !has_part(node, rank) && node.rank(rank).returns.load(std::memory_order_acquire) != 0;
}

bool is_away(const Node& node, int rank) {
  uint32_t state = node.rank(rank).state.load(std::memory_order_acquire);
  return (state == HVDFT_RESTARTING || state == HVDFT_REPLAYING) && is_present_now(node, rank);
}

uint64_t latest_return(const Node& node, int rank) {
  uint64_t number = latest_roster(node);
  while (number > 0 &&
         !(is_in_roster(node, number, rank) && !is_in_roster(node, number - 1, rank))) {
    --number;
  }
  return number;
}

bool is_over(const Node& node, int loop) {
  const RankBlock& first = node.rank(0);
  return is_past(first.loops_done.load(std::memory_order_seq_cst), loop) ||
         first.state.load(std::memory_order_seq_cst) == HVDFT_DONE;
}

int loops_of(const Node& node, int rank) {
  const RankBlock& block = node.rank(rank);
  // It is noted before the loop begins.
  int loops = std::min(latest_loop(block.loops_done.load()) + 1, block.loops_there());
  while (loops > 0 && block.loop(loops - 1).begin.load() == 0) --loops;
  return loops;
}

int first_present_outside(const Node& node, uint64_t roster, int first, int end) {
  auto outside = [&](int r) { return r < first || r >= end ? r : end; };
  for (int r = outside(0); r < node.size(); r = outside(r + 1)) {
    if (is_in_roster(node, roster, r)) return r;
  }
  return -1;
}

// Published by its number: a process that is killed before that has asked for nothing.
void write_leave_request(LeaveRequest& request, const uint64_t* leaving) {
  for (int i = 0; i < kMaxRanks / 64; ++i) request.leaving[i].store(leaving[i]);
  request.number.store(request.number.load() + 1, std::memory_order_seq_cst);
}

}  // namespace hvdft
