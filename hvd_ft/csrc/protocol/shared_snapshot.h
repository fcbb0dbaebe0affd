// Snapshots that the ranks of a node store together: which slot a rank may overwrite, and from
// which snapshot it can start again.
//
// A *cut* is a step boundary of a training loop; its number is the step + 1. A rank has two slots
// for each loop. For a shared snapshot of a cut it *delivers* its own part into one of them: its
// own data, and its stripe of the data that is equal on all ranks of the node. The snapshot is
// *complete* when all ranks have delivered the same cut with the same *agreement* about what is
// equal. Each rank notices that by itself, and *publishes* the slot: from then on it starts again
// there, and the log may be truncated there. A snapshot without an agreement is the rank's alone,
// and complete at once.
//
// A rank that cannot deliver a cut *gives it up*, for ever. The others may then drop what they have
// delivered of it, and give it up as well.
//
// A rank overwrites a slot only if no rank can start again from its contents: they were never
// complete and never will be, or all ranks have published something newer. Hence the invariant: all
// parts of each rank's published snapshot, or of its newer complete one, exist.
//
// Ranks of other nodes have the same shared contents in slots of their own. If a node is lost, its
// ranks start again from these, at the snapshot that they published last. So a shared slot stays
// also until all ranks of the job have published something newer (`newer_elsewhere`).
//
// Rules only: no memory, threads or clock. snapshot.cc applies them to the arena;
// shared_snapshot_test.cc tries every interleaving.
#ifndef HVD_FT_SHARED_SNAPSHOT_H
#define HVD_FT_SHARED_SNAPSHOT_H

#include <algorithm>
#include <cstdint>
#include <vector>

namespace hvdft {

// What a slot holds, in one word. 0: nothing, or it is being written. `agreement` 0: the rank's
// own.
constexpr uint64_t slot_word(uint64_t cut, uint32_t agreement) { return cut << 32 | agreement; }
constexpr uint64_t cut_of(uint64_t word) { return word >> 32; }
constexpr bool is_alone(uint64_t word) { return static_cast<uint32_t>(word) == 0; }

// A rank's words of a loop, read in this order: a rank that has given a cut up will not deliver it,
// so a cut that its slots lack then will always be missing.
struct RankSlots {
  uint64_t given_up;   // the latest cut
  uint64_t published;  // likewise
  uint64_t slots[2];
  bool holds(uint64_t word) const { return slots[0] == word || slots[1] == word; }
  // Whether it will never hold `word`, or not again: it has given the cut up, has delivered another
  // one since, or has delivered this one by another agreement.
  bool lacks(uint64_t word) const {
    uint64_t latest = std::max(cut_of(slots[0]), cut_of(slots[1]));
    return !holds(word) && std::max(given_up, latest) >= cut_of(word);
  }
};

// What is to be done about the slot that is not published.
enum class SlotUse {
  kFree,    // it may be overwritten
  kNeeded,  // it has to stay until other ranks have delivered their parts, or published a newer one
  kHeld,    // it has to stay until other ranks have a newer one, which they have not begun
  kComplete  // it is to be published
};

// `word`: of that slot; `published`: of the other one, or 0; `ranks`: of the node, this one
// included; `newer_elsewhere`: see above.
inline SlotUse use_of(uint64_t word, uint64_t published, const std::vector<RankSlots>& ranks,
                      bool newer_elsewhere = true) {
  bool newer = cut_of(word) > cut_of(published);
  if (word == 0 || is_alone(word)) return newer ? SlotUse::kComplete : SlotUse::kFree;
  bool complete = true, all_beyond = true, all_soon = true;
  for (const RankSlots& rank : ranks) {
    if (rank.lacks(word)) return SlotUse::kFree;
    bool beyond = rank.published > cut_of(word);
    complete = complete && rank.holds(word);
    all_beyond = all_beyond && beyond;
    all_soon = all_soon && (beyond || rank.holds(published));
  }
  if (newer) return complete ? SlotUse::kComplete : SlotUse::kNeeded;
  if (all_beyond) return newer_elsewhere ? SlotUse::kFree : SlotUse::kNeeded;
  return all_soon ? SlotUse::kNeeded : SlotUse::kHeld;
}

}  // namespace hvdft

#endif  // HVD_FT_SHARED_SNAPSHOT_H
