#include "arena/rosters.h"

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

bool has_left(const Node& node, int rank) {
  uint64_t length = node.header().log_length.load(std::memory_order_acquire);
  return !is_present(node, rank, length) &&
         node.rank(rank).state.load(std::memory_order_acquire) == HVDFT_DONE;
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
