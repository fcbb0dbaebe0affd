// Every interleaving of ranks that take shared snapshots, cut after cut, read each other's words
// one by one, give cuts up, and die: what a rank starts again from always has all its parts, and no
// snapshot is awaited for ever.
#include "protocol/shared_snapshot.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <unordered_set>
#include <vector>

#include "check.h"

using namespace hvdft;

namespace {

constexpr uint32_t kAgreement = 7;

// What outlives a worker: its words in the arena.
struct Arena {
  uint64_t slots[2] = {0, 0}, given_up = 0, published_cut = 0;
  int published = -1;
  uint64_t fingerprints[2] = {0, 0};  // of the latest two cuts
  int other() const { return published < 0 ? 0 : 1 - published; }
  uint64_t published_word() const { return published < 0 ? 0 : slots[published]; }
  void add_to(std::vector<uint64_t>* key) const {
    key->insert(key->end(), {slots[0], slots[1], given_up, published_cut,
                             static_cast<uint64_t>(published), fingerprints[0], fingerprints[1]});
  }
};

enum class Phase { kIdle, kSettling, kBeginning, kBegun };

struct Rank {
  Arena arena;
  Phase phase = Phase::kSettling;
  uint64_t cut = 1;  // the next one that it comes to
  size_t loads = 0;  // of other ranks' words, while it looks at them
  uint64_t seen[12] = {};
  void add_to(std::vector<uint64_t>* key) const {
    arena.add_to(key);
    key->insert(key->end(), {static_cast<uint64_t>(phase), cut, loads});
    key->insert(key->end(), seen, seen + loads);
  }
};

struct World {
  std::vector<Rank> ranks;
  int deaths = 0, refusals = 0;
  // All of it, as bytes.
  std::string key() const {
    std::vector<uint64_t> words;
    for (const Rank& rank : ranks) rank.add_to(&words);
    words.insert(words.end(), {static_cast<uint64_t>(deaths), static_cast<uint64_t>(refusals)});
    return {reinterpret_cast<const char*>(words.data()), words.size() * sizeof words[0]};
  }
};

RankSlots slots_of(const Arena& a) {
  return {a.given_up, a.published_cut, {a.slots[0], a.slots[1]}};
}

SlotUse use_now(const World& world, const Rank& rank) {
  std::vector<RankSlots> all;
  for (const Rank& r : world.ranks) all.push_back(slots_of(r.arena));
  return use_of(rank.arena.slots[rank.arena.other()], rank.arena.published_word(), all);
}

// From what it would start again now: all parts of it have to be there.
void check_restorable(const World& world) {
  for (const Rank& rank : world.ranks) {
    const Arena& a = rank.arena;
    bool newer = use_now(world, rank) == SlotUse::kComplete;
    uint64_t word = newer ? a.slots[a.other()] : a.published_word();
    if (word == 0 || is_alone(word)) continue;
    for (const Rank& other : world.ranks) CHECK(slots_of(other.arena).holds(word));
  }
}

class Explorer {
 public:
  Explorer(size_t ranks, uint64_t cuts, int deaths, int refusals)
      : cuts_(cuts), word_by_word_(ranks == 2) {
    World first;
    first.ranks.resize(ranks);
    first.deaths = deaths;
    first.refusals = refusals;
    add(first);
    while (!open_.empty()) {
      World world = open_.back();
      open_.pop_back();
      check_restorable(world);
      size_t before = moves_;
      for (size_t r = 0; r < ranks; ++r) act(world, r);
      if (moves_ == before) check_end(world);
      for (size_t r = 0; r < ranks; ++r) die(world, r);
    }
    std::printf("%zu ranks, %lu cuts: %zu states\n", ranks, cuts, known_.size());
    std::fflush(stdout);
  }

 private:
  void add(const World& world) {
    ++moves_;
    if (known_.insert(world.key()).second) open_.push_back(world);
  }

  // Nobody is left behind: what is awaited would be so for ever.
  void check_end(const World& world) const {
    for (const Rank& rank : world.ranks) {
      CHECK(rank.cut > cuts_);
      const Arena& a = rank.arena;
      bool newer = cut_of(a.slots[a.other()]) > a.published_cut;
      CHECK(!newer || use_now(world, rank) == SlotUse::kFree);
    }
  }

  void act(World world, size_t r) {
    Rank& rank = world.ranks[r];
    switch (rank.phase) {
      case Phase::kIdle:
        if (rank.cut > cuts_ && use_now(world, rank) == SlotUse::kFree) return;
        rank.phase = rank.cut > cuts_ ? Phase::kSettling : Phase::kBeginning;
        rank.loads = 0;
        return add(world);
      case Phase::kSettling:
      case Phase::kBeginning:
        return look(world, r);
      case Phase::kBegun:
        return deliver(world, r);
    }
  }

  // One load of another rank's word; after the last one the rank knows what is pending.
  void look(World world, size_t r) {
    Rank& rank = world.ranks[r];
    size_t all = 4 * world.ranks.size();
    while (rank.loads < all) {
      RankSlots of = slots_of(world.ranks[rank.loads / 4].arena);
      uint64_t words[] = {of.given_up, of.published, of.slots[0], of.slots[1]};
      rank.seen[rank.loads] = words[rank.loads % 4];
      bool others = rank.loads / 4 != r;  // who alone writes theirs
      ++rank.loads;
      if (others && rank.loads < all && (word_by_word_ || rank.loads % 4 == 0)) return add(world);
    }
    std::vector<RankSlots> seen;
    for (size_t i = 0; i < all; i += 4) {
      seen.push_back({rank.seen[i], rank.seen[i + 1], {rank.seen[i + 2], rank.seen[i + 3]}});
    }
    Arena& a = rank.arena;
    SlotUse found = use_of(a.slots[a.other()], a.published_word(), seen);
    rank.loads = 0;
    if (a.published_cut != cut_of(a.published_word())) {  // published, and perhaps killed since
      a.published_cut = cut_of(a.published_word());
      return add(world);
    }
    if (found == SlotUse::kComplete) {
      a.published = a.other();
      if (rank.phase == Phase::kSettling && rank.cut <= cuts_) {
        rank.cut = cut_of(a.published_word()) + 1;  // it starts there
      }
      return add(world);
    }
    if (rank.phase == Phase::kSettling) {
      if (found == SlotUse::kNeeded && rank.cut > cuts_) {  // it will look again
        add(world);
        if (use_now(world, rank) == SlotUse::kNeeded) --moves_;  // and see the same
        return;
      }
      rank.phase = Phase::kIdle;
      return add(world);
    }
    if (found != SlotUse::kFree) {  // this cut is left out
      a.given_up = std::max(a.given_up, rank.cut++);
      rank.phase = Phase::kIdle;
      return add(world);
    }
    uint64_t held = cut_of(a.slots[a.other()]);
    if (held > a.published_cut) a.given_up = std::max(a.given_up, held);
    a.slots[a.other()] = 0;
    a.fingerprints[a.fingerprints[0] <= a.fingerprints[1] ? 0 : 1] = rank.cut;
    rank.phase = Phase::kBegun;
    add(world);
  }

  void deliver(World world, size_t r) {
    bool all = world.ranks[r].arena.given_up < world.ranks[r].cut;
    for (const Rank& other : world.ranks) {
      const Arena& a = other.arena;
      all = all && a.given_up < world.ranks[r].cut &&
            (a.fingerprints[0] == world.ranks[r].cut || a.fingerprints[1] == world.ranks[r].cut);
    }
    if (all) finish(world, r, kAgreement);
    // It may have waited long enough, or have to, as others never come.
    if (world.refusals > 0 || !all) {
      if (all) --world.refusals;
      Rank& rank = world.ranks[r];
      rank.arena.given_up = std::max(rank.arena.given_up, rank.cut);
      add(world);
      finish(world, r, 0);
    }
  }

  void finish(World world, size_t r, uint32_t agreement) {
    Rank& rank = world.ranks[r];
    rank.arena.slots[rank.arena.other()] = slot_word(rank.cut, agreement);
    ++rank.cut;
    rank.phase = Phase::kSettling;
    rank.loads = 0;
    add(world);
  }

  void die(World world, size_t r) {
    if (world.deaths == 0) return;
    --world.deaths;
    Rank& rank = world.ranks[r];
    Arena arena = rank.arena;
    rank = Rank{};
    rank.arena = arena;
    rank.cut = cut_of(arena.published_word()) + 1;
    add(world);
  }

  const uint64_t cuts_;
  const bool word_by_word_;
  size_t moves_ = 0;
  std::vector<World> open_;
  std::unordered_set<std::string> known_;
};

void the_rules_one_by_one() {
  uint64_t shared = slot_word(5, kAgreement), alone = slot_word(5, 0), newer = slot_word(6, 1);
  CHECK(cut_of(shared) == 5 && !is_alone(shared) && is_alone(alone));
  RankSlots holds{0, 0, {shared, 0}}, not_yet{0, 0, {slot_word(4, 1), 0}};
  RankSlots given_up{5, 0, {0, 0}}, later{0, 0, {newer, 0}}, otherwise{0, 0, {slot_word(5, 8), 0}};
  CHECK(use_of(shared, 0, {holds, holds}) == SlotUse::kComplete);
  CHECK(use_of(shared, 0, {holds, not_yet}) == SlotUse::kNeeded);
  CHECK(use_of(shared, 0, {holds, given_up}) == SlotUse::kFree);
  CHECK(use_of(shared, 0, {holds, later}) == SlotUse::kFree);
  CHECK(use_of(shared, 0, {holds, otherwise}) == SlotUse::kFree);
  CHECK(use_of(alone, 0, {not_yet, not_yet}) == SlotUse::kComplete);
  CHECK(use_of(alone, newer, {not_yet, not_yet}) == SlotUse::kFree);
  CHECK(use_of(0, 0, {holds, holds}) == SlotUse::kFree);
  RankSlots beyond{0, 6, {shared, newer}}, behind{0, 5, {shared, newer}};
  CHECK(use_of(shared, newer, {beyond, behind}) == SlotUse::kNeeded);
  RankSlots content{0, 5, {shared, 0}};
  CHECK(use_of(shared, newer, {beyond, content}) == SlotUse::kHeld);
  CHECK(use_of(shared, newer, {beyond, beyond}) == SlotUse::kFree);
  // Ranks of other nodes may have to start from it.
  CHECK(use_of(shared, newer, {beyond, beyond}, false) == SlotUse::kNeeded);
  CHECK(use_of(alone, newer, {beyond, beyond}, false) == SlotUse::kFree);
}

}  // namespace

int main(int argc, char**) {
  bool small = argc > 1;
  the_rules_one_by_one();
  Explorer(2, 3, 0, 0);
  Explorer(2, small ? 2 : 3, 1, 0);
  if (!small) Explorer(2, 2, 2, 1);
  Explorer(3, small ? 1 : 2, 0, 0);
}
