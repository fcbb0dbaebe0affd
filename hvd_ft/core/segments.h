// How an op's data travels: in segments, several of them on their way at once.
//
// A rank's input area is a window of a few segments that is used again and again, so that
// what one process writes there the next one still finds in the processor's cache. The agents
// share a segment: each reduces a slice of it. A *place* is an op id and a segment packed into
// one word: how far a rank has contributed, how far an agent has reduced.
//
// A state machine: it knows numbers only. worker and engine drive it with what they see in
// shared memory; tests try every interleaving.
#ifndef HVD_FT_SEGMENTS_H
#define HVD_FT_SEGMENTS_H

#include <algorithm>
#include <cstdint>

namespace hvdft {

constexpr uint64_t kSegmentBytes = 512 << 10;  // measured: docs/performance.md
constexpr uint64_t kWindow = 4;                // segments a rank may be ahead of the agents
constexpr uint64_t kSliceBytes = 64 << 10;     // the least
constexpr uint64_t kInputBytes = kWindow * kSegmentBytes;

constexpr uint64_t kSegmentBits = 24;  // of a place; 4 TiB in one op

constexpr uint64_t place(uint64_t op, uint64_t segment) { return op << kSegmentBits | segment; }
constexpr uint64_t op_of(uint64_t place) { return place >> kSegmentBits; }
constexpr uint64_t segment_of(uint64_t place) { return place & ((1 << kSegmentBits) - 1); }

// An op without data has one segment too, so that it is complete at some time.
constexpr uint64_t segments_of(uint64_t bytes) {
  return bytes == 0 ? 1 : (bytes + kSegmentBytes - 1) / kSegmentBytes;
}

// A stretch of an op's result, in bytes.
struct Range {
  uint64_t from, to;
  uint64_t bytes() const { return to - from; }
};

constexpr Range overlap(Range a, Range b) {
  uint64_t from = std::max(a.from, b.from);
  return {from, std::max(from, std::min(a.to, b.to))};
}

constexpr Range segment_range(uint64_t segment, uint64_t bytes) {
  return overlap({segment * kSegmentBytes, (segment + 1) * kSegmentBytes}, {0, bytes});
}

// The agents share a segment: each reduces a slice. A short one is not worth waking all of them
// for: so many, those of the first ranks, have a slice.
constexpr uint64_t slices_of(uint64_t segment_bytes, uint64_t size) {
  return std::clamp(segment_bytes / kSliceBytes, uint64_t{1}, size);
}

// The slice of agent `agent`, in bytes of the segment; slices begin at cache lines' boundaries.
constexpr Range slice_range(uint64_t segment_bytes, uint64_t agent, uint64_t size) {
  uint64_t slices = slices_of(segment_bytes, size);
  if (agent >= slices) return {segment_bytes, segment_bytes};
  constexpr uint64_t line = 64;
  uint64_t lines = (segment_bytes + line - 1) / line;
  return {lines * agent / slices * line,
          std::min(lines * (agent + 1) / slices * line, segment_bytes)};
}

constexpr uint64_t next_place(uint64_t at, uint64_t segments) {
  return segment_of(at) + 1 < segments ? at + 1 : place(op_of(at) + 1, 0);
}

enum class Step { kContribute, kTake, kWait, kFinished };

// What a worker does next in an op of which it has contributed the first `contributed`
// segments and taken the results of the first `taken`; `complete(s)` tells whether segment s
// is reduced. Contributing comes first, as others wait for it; but a place in the window is
// free only when the segment that lay there is reduced.
template <typename Complete>
Step next_step(uint64_t segments, uint64_t contributed, uint64_t taken, Complete complete,
               uint64_t window = kWindow) {
  if (taken == segments) return Step::kFinished;
  if (contributed < segments && (contributed < window || complete(contributed - window))) {
    return Step::kContribute;
  }
  return complete(taken) ? Step::kTake : Step::kWait;
}

}  // namespace hvdft

#endif  // HVD_FT_SEGMENTS_H
