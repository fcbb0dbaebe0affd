// How the data of ops travels: in segments, many of them at once.
//
// The segments of all ops, one op after the other, are numbered through, and so are the bytes of
// their inputs. A rank's input area is a window that is reused, so that its contents are still in
// the processor's cache when they are read; byte b lies at b % the window's bytes. When all ranks
// have contributed to a segment, any worker may *claim* it and reduce it: a worker that is already
// running does the work, and no worker has to be woken. The claim is one word in shared memory and
// names its owner, so an agent can repeat what its dead worker had claimed.
//
// A state machine: it knows numbers only. op.cc drives it with what it sees in shared memory;
// segments_test.cc tries every interleaving.
#ifndef HVD_FT_SEGMENTS_H
#define HVD_FT_SEGMENTS_H

#include <algorithm>
#include <cstdint>

#include "hvd_ft_limits.h"
#include "protocol/byte_range.h"

namespace hvdft {

// Bytes of a segment, which the op log has of each op, and of a window, which the arenas have.
constexpr uint64_t kNodeSegmentBytes = HVDFT_NODE_SEGMENT;
constexpr uint64_t kLeastNodeSegment = HVDFT_LEAST_NODE_SEGMENT;
constexpr uint64_t kMostNodeSegment = HVDFT_MOST_NODE_SEGMENT;
constexpr uint64_t kNodeWindowBytes = HVDFT_NODE_WINDOW;
constexpr uint64_t kLeastNodeWindow = HVDFT_LEAST_NODE_WINDOW;
constexpr uint64_t kMostNodeWindow = HVDFT_MOST_NODE_WINDOW;
constexpr uint64_t kClaims = HVDFT_MOST_SEGMENTS_OF_WINDOW;

constexpr bool is_node_window(uint64_t bytes) {
  return bytes >= kLeastNodeWindow && bytes <= kMostNodeWindow && (bytes & (bytes - 1)) == 0;
}

// Whether a window is good for segments of this size: one is copied in while another is summed, and
// there are claims for all that lie in it.
constexpr bool holds(uint64_t window, uint64_t segment_bytes) {
  return window >= HVDFT_LEAST_SEGMENTS_OF_WINDOW * segment_bytes &&
         window <= kClaims * segment_bytes;
}

// A *position*: an op's id and a segment of it, packed into one word. How far a rank has
// contributed.
constexpr uint64_t kSegmentBits = 28;  // of a position: an op of 4 TiB in the smallest segments

constexpr uint64_t position(uint64_t op, uint64_t segment) { return op << kSegmentBits | segment; }
constexpr uint64_t op_of(uint64_t position) { return position >> kSegmentBits; }
constexpr uint64_t segment_of(uint64_t position) { return position & ((1 << kSegmentBits) - 1); }

// An op without data has one segment too, so that it can be complete.
constexpr uint64_t segments_of(uint64_t bytes, uint64_t segment_bytes) {
  return bytes == 0 ? 1 : (bytes + segment_bytes - 1) / segment_bytes;
}

// The position after segment `segment` of `segments` of op `op`.
constexpr uint64_t position_after(uint64_t op, uint64_t segment, uint64_t segments) {
  return segment + 1 < segments ? position(op, segment + 1) : position(op + 1, 0);
}

constexpr ByteRange segment_range(uint64_t segment, uint64_t bytes, uint64_t segment_bytes) {
  return overlap({segment * segment_bytes, (segment + 1) * segment_bytes}, {0, bytes});
}

// Where the input of an op begins if those before it end at byte `at`: its segments do not straddle
// multiples of their size, so the window's end tears none of them.
constexpr uint64_t input_begin(uint64_t at, uint64_t bytes, uint64_t segment_bytes) {
  uint64_t room = segment_bytes - at % segment_bytes;
  return bytes <= room || room == segment_bytes ? at : at + room;
}

// ---------------------------------------------------------------- claims
// Segment n's claim is word n % kClaims: number + 1 of the segment that was claimed there last, its
// owner, and whether it is reduced. It only ever grows.

constexpr uint64_t kOwnerBits = 12;  // for every rank: see kMaxRanks

constexpr uint64_t claim_word(uint64_t number, int owner, bool reduced) {
  return (number + 1) << (kOwnerBits + 1) | static_cast<uint64_t>(owner) << 1 | (reduced ? 1 : 0);
}
constexpr uint64_t claimed_end(uint64_t word) { return word >> (kOwnerBits + 1); }  // number + 1
constexpr int owner_of(uint64_t word) {
  return static_cast<int>(word >> 1 & ((1 << kOwnerBits) - 1));
}
constexpr bool in_work(uint64_t word) { return word != 0 && (word & 1) == 0; }

constexpr bool reduced(uint64_t word, uint64_t number) {
  return claimed_end(word) > number + 1 || (claimed_end(word) == number + 1 && !in_work(word));
}

// Claims segment `number` for `rank` and reduces it; false if another worker was faster. `word` is
// its claim: an atomic, or what stands for one in tests.
template <typename Word, typename Reduce>
bool claim_and_reduce(Word&& word, uint64_t number, int rank, Reduce reduce) {
  uint64_t before = word.load();
  if (claimed_end(before) > number ||
      !word.compare_exchange_strong(before, claim_word(number, rank, false))) {
    return false;
  }
  reduce(number);
  word.store(claim_word(number, rank, true));
  return true;
}

// The worker of `rank` is dead: reduces the segment that it had claimed there, if any. Inputs stay
// unchanged until the segment is reduced, so it does not matter how far the worker had come.
template <typename Word, typename Reduce>
bool take_over(Word&& word, int rank, Reduce reduce) {
  uint64_t claimed = word.load();
  if (!in_work(claimed) || owner_of(claimed) != rank) return false;
  uint64_t number = claimed_end(claimed) - 1;
  reduce(number);
  word.store(claim_word(number, rank, true));
  return true;
}

// How far a rank may be ahead.
struct Window {
  uint64_t claims;
  uint64_t bytes;

  // Whether there is room for segment n while those from `from` on are in use; `bytes_of(from, n)`
  // is the size of all of these.
  template <typename Bytes>
  bool fits(uint64_t from, uint64_t n, Bytes bytes_of) const {
    return n < from + claims && bytes_of(from, n) <= bytes;
  }
};

// ---------------------------------------------------------------- a worker's steps

// The state of a segment.
enum class Stage { kOpen, kClaimable, kClaimed, kReduced };

// `word` is the segment's claim. When all ranks have contributed, the segment claimed there before
// is reduced, as otherwise they could not have.
template <typename Contributed>
Stage stage_of(uint64_t number, uint64_t word, Contributed all_contributed) {
  if (reduced(word, number)) return Stage::kReduced;
  if (claimed_end(word) == number + 1) return Stage::kClaimed;
  return all_contributed() ? Stage::kClaimable : Stage::kOpen;
}

enum class Step { kContribute, kReduce, kTake, kWait };

// The segments of the ops that a worker has begun and not yet finished.
struct SegmentSchedule {
  uint64_t given = 0;   // the next to contribute to
  uint64_t looked = 0;  // all before it are claimed by somebody
  uint64_t freed = 0;   // all before it are reduced
  uint64_t taken = 0;   // the next whose result is to be taken
  uint64_t end = 0;     // after the last op begun
  bool across = false;  // the job has several nodes

  // Op `op` begins, whose first segment is number `first`. `contributed` is the position that this
  // rank's contributions have reached: an earlier incarnation may have contributed all or some
  // segments.
  void begin(uint64_t op, uint64_t first, uint64_t segments, uint64_t contributed) {
    if (taken == end) given = looked = freed = taken = first;  // no other is under way
    end = first + segments;
    if (op_of(contributed) > op) {
      given = end;
    } else if (op_of(contributed) == op) {
      given = first + segment_of(contributed);
    }
  }

  // The next step. `stage(n)` returns the state of segment n, `final(n)` whether its result can be
  // taken. Contributing comes first, as others wait for it. `fits(from, n)` returns whether there
  // is room for segment n while those from `from` on are not reduced. (On one node results that
  // this rank has not taken count too, so that it finds them in the cache. Across nodes results
  // take long to become final, and inputs must not wait for them.)
  template <typename StageOf, typename FinalOf, typename Fits>
  Step next(StageOf stage, FinalOf final, Fits fits) {
    // What is taken is reduced, though it may have been open when it was looked at last: nothing of
    // it is asked again, as its op may be over.
    freed = std::max(freed, taken);
    looked = std::max(looked, taken);
    while (across && freed < given && stage(freed) == Stage::kReduced) ++freed;
    if (given < end && fits(freed, given)) return Step::kContribute;
    while (looked < given && stage(looked) >= Stage::kClaimed) ++looked;
    if (looked < given && stage(looked) == Stage::kClaimable) return Step::kReduce;
    return taken < given && final(taken) ? Step::kTake : Step::kWait;
  }

  // Whether that step means that this node has done its part: it waits for others'.
  bool waits_for_nodes(Step step) const {
    return step == Step::kWait && across && taken < given && freed == given;
  }
};

}  // namespace hvdft

#endif  // HVD_FT_SEGMENTS_H
