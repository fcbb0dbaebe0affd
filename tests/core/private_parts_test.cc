// Private parts of snapshots on their way to the buddy's node, in pieces, with deaths in between:
// a snapshot is told of only when all of its part is there, and rank 0's node waits for that too.
#include "replication/private_parts.h"

#include <unistd.h>

#include <string>

#include "arena/memory.h"
#include "check.h"
#include "mirror_sides.h"
#include "protocol/shared_snapshot.h"

using namespace hvdft;

namespace {

std::string contents(uint64_t cut, uint64_t bytes) {
  std::string data(bytes, '\0');
  for (uint64_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(i * 31 + cut + i / 4096);
  return data;
}

// A rank of this node publishes a snapshot, as its worker would: `own` bytes, then its stripe.
void publish(Side& side, int rank, int slot, uint64_t cut, uint64_t own, uint64_t stripe) {
  auto file = RankFile::open(side.dir, "mirror", rank, true);
  CHECK(file != nullptr);
  std::string data = contents(cut, own) + std::string(stripe, 's');
  CHECK(grow_slot(*side.node, *file, {rank, 0, slot}, data.size()) == HVDFT_OK);
  CHECK(pwrite(file->fd(), data.data(), data.size(),
               static_cast<off_t>(slot_offset(file->limit(), 0, slot))) ==
        static_cast<ssize_t>(data.size()));
  Loop& loop = side.node->rank(rank).loops[0];
  loop.begin = 1;
  loop.positions[slot] = 10 * cut;
  loop.bytes[slot] = data.size();
  loop.stripes[slot] = stripe > 0 ? own : 0;
  loop.slots[slot] = slot_word(cut, stripe > 0 ? 7 : 0);
  loop.published = (10 * cut + 1) << 1 | static_cast<uint64_t>(slot);
}

// What is told of is there, whole.
void check_known(Side& side, int rank, uint64_t own) {
  const Loop& loop = side.node->rank(rank).loops[0];
  uint64_t published = loop.published, slot = published & 1;
  if (published == 0) return;
  uint64_t cut = (published >> 1) / 10;
  CHECK(cut_of(loop.slots[slot]) == cut && loop.bytes[slot] == own);
  CHECK(loop.positions[slot] == 10 * cut);
  auto file = RankFile::open(side.dir, "mirror", rank, false, RankFile::kParts);
  CHECK(file->window() == 0);  // only parts
  std::string data(own, '\0');
  CHECK(pread(file->fd(), data.data(), own,
              static_cast<off_t>(slot_offset(file->limit(), 0, static_cast<int>(slot)))) ==
        static_cast<ssize_t>(own));
  CHECK(data == contents(cut, own));
}

// Everything goes over, in several rounds; returns how many were needed until it was told of.
int rounds_until_known(Side& from, Side& to, int rank, uint64_t published, uint64_t own) {
  for (int round = 1; round < 20; ++round) {
    carry(from, to, [] {});
    check_known(to, rank, own);
    if (to.node->rank(rank).loops[0].published >> 1 == published >> 1) return round;
  }
  return 20;
}

// Rank 2 is on the second node: its buddy is rank 0's node.
void a_part_goes_before_its_snapshot(Side& zero, Side& one) {
  constexpr uint64_t kOwn = (2 << 20) + 77;  // three pieces
  const Loop& theirs = one.node->rank(2).loops[0];
  publish(one, 2, 0, 1, kOwn, 5000);
  CHECK(rounds_until_known(one, zero, 2, theirs.published, kOwn) == 3);
  publish(one, 2, 1, 2, kOwn, 5000);
  carry(one, zero, [] {});
  CHECK(zero.node->rank(2).loops[0].published >> 1 == 11);  // still the first one
  renew(zero, one);                                         // what was under way is lost
  CHECK(rounds_until_known(one, zero, 2, theirs.published, kOwn) == 3);
  // Something newer is published in the middle: that goes over instead.
  publish(one, 2, 0, 3, kOwn, 5000);
  carry(one, zero, [] {});
  publish(one, 2, 1, 4, kOwn, 5000);
  CHECK(rounds_until_known(one, zero, 2, theirs.published, kOwn) == 3);
}

// Rank 0's ranks have the second node for a buddy, which tells them what it holds.
void the_log_s_node_waits_for_its_buddy(Side& zero, Side& one) {
  constexpr uint64_t kOwn = 900;
  Loop& loop = zero.node->rank(1).loops[0];
  publish(zero, 1, 0, 1, kOwn, 0);
  CHECK(loop.held == 0);
  CHECK(rounds_until_known(zero, one, 1, loop.published, kOwn) == 1);
  CHECK(loop.held == 0);
  carry(one, zero, [] {});
  CHECK(loop.held >> 1 == loop.published >> 1);
  publish(zero, 1, 1, 2, kOwn, 0);
  CHECK(loop.held >> 1 == 11);
  carry(zero, one, [] {});
  carry(one, zero, [] {});
  CHECK(loop.held >> 1 == loop.published >> 1);
  CHECK(one.node->rank(1).slot_bytes.load() >= 2 * kPage);  // it counts there
  CHECK(used_bytes(*one.node) >= one.node->rank(1).slot_bytes.load());
}

// There is no room for it: nobody may take the older part for what was told of.
void a_part_that_is_left_out_leaves_its_slot_empty(Side& zero, Side& one) {
  claim_messages(*zero.node, kLimit);
  publish(one, 2, 0, 5, 3 << 20, 5000);
  for (int round = 0; round < 5; ++round) carry(one, zero, [] {});
  const Loop& seen = zero.node->rank(2).loops[0];
  CHECK(seen.published >> 1 == 51 && seen.slots[seen.published & 1] == 0);
  unclaim_messages(*zero.node, kLimit);
}

}  // namespace

int main() {
  Side zero(0, 2, 2, 3), one(2, 1, 0, 2);
  for (int rank : {0, 1}) CHECK(RankFile::create(zero.dir, "mirror", rank, kLimit) == HVDFT_OK);
  CHECK(RankFile::create(one.dir, "mirror", 2, kLimit) == HVDFT_OK);
  renew(zero, one);
  a_part_goes_before_its_snapshot(zero, one);
  the_log_s_node_waits_for_its_buddy(zero, one);
  a_part_that_is_left_out_leaves_its_slot_empty(zero, one);
}
