// The snapshots of a rank whose host is lost, by the calls of hvd_ft_rejoin.h: what its buddy has
// of them, and what a new host makes of that; once, and again when that one is lost too.
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "arena/memory.h"
#include "check.h"
#include "hvd_ft_rejoin.h"
#include "mirror_sides.h"
#include "protocol/shared_snapshot.h"

using namespace hvdft;

namespace {

constexpr int kRank = 2;  // of the second node; its buddy is rank 0's node
constexpr uint64_t kOwn = (2 << 20) + 77, kStripe = 5000;  // in three pieces

std::string contents(uint64_t cut, uint64_t bytes) {
  std::string data(bytes, '\0');
  for (uint64_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(i * 37 + cut + i / 4096);
  return data;
}

struct Rejoining {
  explicit Rejoining(const Side& side) : handle(hvdft_rejoin_open(side.dir.c_str(), "mirror")) {
    CHECK(handle != nullptr);
  }
  ~Rejoining() { hvdft_rejoin_close(handle); }

  hvdft_rejoin_slot slot(int rank, int loop, int number, std::string* bytes = nullptr) const {
    hvdft_rejoin_slot found;
    const void* data;
    CHECK(hvdft_rejoin_slot_of(handle, rank, loop, number, &found, &data) == HVDFT_OK);
    CHECK((data != nullptr) == (found.word != 0 && found.bytes > 0));
    if (bytes != nullptr && data != nullptr) {
      bytes->assign(static_cast<const char*>(data), found.bytes);
    }
    return found;
  }
  // The slot from which a rank starts again; -1: none.
  int published(int rank, int loop) const {
    bool first = slot(rank, loop, 0).published != 0, second = slot(rank, loop, 1).published != 0;
    CHECK(!first || !second);
    return first ? 0 : second ? 1 : -1;
  }

  hvdft_rejoining* handle;
};

// As a worker does: its own values, then its stripe of what it shares.
void publish(Side& side, int loop, int slot, uint64_t cut) {
  auto file = RankFile::open(side.dir, "mirror", kRank, true);
  std::string data = contents(cut, kOwn) + std::string(kStripe, 's');
  CHECK(grow_slot(*side.node, *file, {kRank, loop, slot}, data.size()) == HVDFT_OK);
  CHECK(pwrite(file->fd(), data.data(), data.size(),
               static_cast<off_t>(slot_offset(file->limit(), loop, slot))) ==
        static_cast<ssize_t>(data.size()));
  Loop& of = side.node->rank(kRank).loops[loop];
  of.positions[slot] = 10 * cut;
  of.bytes[slot] = data.size();
  of.stripes[slot] = kOwn;
  of.slots[slot] = slot_word(cut, 7);
  of.published = (10 * cut + 1) << 1 | static_cast<uint64_t>(slot);
}

void carry_all(Side& from, Side& to) {
  for (int piece = 0; piece < 4; ++piece) carry(from, to);
}

std::unique_ptr<Side> new_host(Side& zero) {
  auto side = std::make_unique<Side>(kRank, 1, 0, kRank);
  CHECK(RankFile::create(side->dir, "mirror", kRank, kLimit) == HVDFT_OK);
  // Another generation may have gone before it.
  side->header().generation = zero.header().generation.load();
  return side;
}

// The loop has begun, and nothing is published: neither slot may be taken for a snapshot.
void before_the_first_snapshot(Side& zero, Side& one) {
  for (int loop : {0, 1}) one.node->rank(kRank).loops[loop].begin = 3;
  carry_all(one, zero);
  for (Side* side : {&zero, &one}) {
    Rejoining node(*side);
    CHECK(node.published(kRank, 0) == -1 && node.published(kRank, 1) == -1);
    hvdft_rejoin_slot slot = node.slot(kRank, 0, 0);
    CHECK(slot.begin == 3 && slot.ended == 0 && slot.word == 0 && slot.bytes == 0);
    CHECK(node.published(kRank, 2) == -1 && node.slot(kRank, 2, 0).begin == 0);
  }
}

// The buddy has this cut, whole, and no other that could be taken for it.
void check_cut(Side& zero, int loop, uint64_t cut) {
  Rejoining node(zero);
  int number = node.published(kRank, loop);
  CHECK(number >= 0);
  std::string bytes;
  hvdft_rejoin_slot slot = node.slot(kRank, loop, number, &bytes);
  CHECK(slot.word == slot_word(cut, 7) && slot.position == 10 * cut && slot.begin == 3);
  CHECK(slot.bytes == kOwn && slot.stripe == kOwn && bytes == contents(cut, kOwn));
}

// What node_rejoin.py does, its way; `killed`: the first time it does not come to its end.
void bring_back(Side& zero, Side& fresh, uint64_t cut, bool killed) {
  Rejoining from(zero), to(fresh);
  for (int loop : {0, 1}) {
    int number = from.published(kRank, loop);
    std::string part;
    hvdft_rejoin_slot slot = from.slot(kRank, loop, std::max(number, 0), &part);
    if (number < 0) {
      slot.word = slot.bytes = 0;
      hvdft_rejoin_slot_publish(to.handle, kRank, loop, 0, &slot);
      continue;
    }
    void* room;
    CHECK(hvdft_rejoin_slot_room(to.handle, kRank, loop, number, kOwn + kStripe, &room) ==
          HVDFT_OK);
    std::string whole = part + std::string(kStripe, 's');
    std::memcpy(room, whole.data(), killed ? whole.size() / 2 : whole.size());
    if (killed) return;
    slot.bytes = whole.size();
    slot.stripe = part.size();
    hvdft_rejoin_slot_publish(to.handle, kRank, loop, number, &slot);
    const Loop& mine = fresh.node->rank(kRank).loops[loop];
    CHECK(mine.begin == 3 && mine.published == ((10 * cut + 1) << 1 | uint64_t(number)));
    CHECK(mine.slots[number] == slot_word(cut, 7) && mine.published_cut == cut);
    CHECK(mine.positions[number] == 10 * cut && mine.stripes[number] == kOwn);
    std::string bytes;
    to.slot(kRank, loop, number, &bytes);
    CHECK(bytes == whole && to.published(kRank, loop) == number);
  }
  CHECK(fresh.node->rank(kRank).loops[1].begin == 3 && to.published(kRank, 1) == -1);
}

// A damaged account of a slot is said, and nothing behind the file's end is mapped.
void a_slot_that_is_damaged(Side& zero) {
  Rejoining node(zero);
  int number = node.published(kRank, 0);
  uint64_t& bytes = zero.node->rank(kRank).loops[0].bytes[number];
  uint64_t was = std::exchange(bytes, kLimit + 1);
  hvdft_rejoin_slot found;
  const void* data;
  CHECK(hvdft_rejoin_slot_of(node.handle, kRank, 0, number, &found, &data) == HVDFT_EINVAL);
  CHECK(data == nullptr);
  bytes = was;
}

}  // namespace

int main() {
  Side zero(0, 2, kRank, 3);
  for (int rank : {0, 1}) CHECK(RankFile::create(zero.dir, "mirror", rank, kLimit) == HVDFT_OK);
  auto host = new_host(zero);
  renew(zero, *host);
  before_the_first_snapshot(zero, *host);
  uint64_t cut = 1;
  publish(*host, 0, 1, cut);
  carry_all(*host, zero);
  check_cut(zero, 0, cut);
  a_slot_that_is_damaged(zero);
  for (int lost = 0; lost < 3; ++lost) {
    // The next snapshot is on its way when the host is lost: its half is nothing.
    Loop& theirs = host->node->rank(kRank).loops[0];
    publish(*host, 0, 1 - static_cast<int>(theirs.published & 1), cut + 1);
    carry(*host, zero);
    check_cut(zero, 0, cut);
    int half = 1 - Rejoining(zero).published(kRank, 0);
    CHECK(Rejoining(zero).slot(kRank, 0, half).word == 0);
    host = new_host(zero);
    if (lost > 0) bring_back(zero, *host, cut, true);
    bring_back(zero, *host, cut, false);
    renew(zero, *host);
    check_cut(zero, 0, cut);
    carry(*host, zero);  // the same part once more, and whole until it is
    check_cut(zero, 0, cut);
    carry_all(*host, zero);
    check_cut(zero, 0, cut);
    ++cut;
    publish(*host, 0, static_cast<int>(cut % 2), cut);
    carry_all(*host, zero);
    check_cut(zero, 0, cut);
  }
}
