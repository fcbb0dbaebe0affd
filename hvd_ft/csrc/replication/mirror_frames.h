// The frames of the mirror's streams: a head, then a payload.
#ifndef HVD_FT_MIRROR_FRAMES_H
#define HVD_FT_MIRROR_FRAMES_H

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include "arena/layout.h"

namespace hvdft {

enum class FrameKind : uint32_t {
  kHello,    // HelloFrame
  kNow,      // the clock of the node with this first rank
  kFacts,    // of some ranks, by that clock: see put_changes()
  kLoop,     // LoopFrame
  kMail,     // MailHead, a MailRun for each run of ranks that have announced this, then what it is
  kEvent,    // EventFrame, of the list of the node with this first rank, then the
             // hvdft_divergence if it tells of one
  kStop,     // StopHead, then the text
  kRecord,   // OpHead and its tail
  kDecided,  // op id: those before are truncated, except the ids that follow
  kJoined,   // RankRun: the join request that was granted
  kTaken,    // RankRun: sequence of the mail that was taken
  kTerm,
  kMark,          // position + 1
  kRoster,        // RosterFrame
  kFingerprints,  // cut_key(), then the fingerprints
  kMemory,        // an hvdft_memory of now and one of the most, of the node with this first rank
  kCuts,          // CutsFrame, of a rank whose fingerprints the other end waits for
  kPart,          // PartHead, then a piece: see private_parts.h
  kHeld,          // LoopWord, `published`: of a rank of the other end's node, whose part is here
  kOldest,        // LoopWord: see NodeHeader::oldest
  kOps,           // OpsHead, then an OpMoments of each op, of the node with this first rank
  kBye,
  kPiece,  // of a message between workers; for this and what follows see mirror_messages.cc
  kPairMark,
  kReceived
};

struct FrameHead {
  FrameKind kind;
  uint32_t rank;
  uint64_t bytes;
};

// The first frame: the generation, and how much of the other end's log and events has already
// arrived. Downwards an EventsHeard follows for each node of the other end's subtree.
struct HelloFrame {
  uint64_t generation, log_length, gone, events;
};
// So many events of the node with this first rank have arrived on rank 0's node.
struct EventsHeard {
  uint64_t first, events;
};
struct LoopFrame {
  uint64_t loop, begin, published, ended;
};
struct CutsFrame {
  uint64_t loop, given_up, passed, ended;
};
struct LoopWord {
  uint64_t loop, word;
};
struct OpsHead {
  uint64_t rank, of_ring;  // 1: of the node's member of the ring
};
struct RosterFrame {
  uint64_t number, mark, present[kMaxRanks / 64];
};
// The same word for so many ranks from the frame's on.
struct RankRun {
  uint64_t ranks, word;
};
struct MailHead {
  uint64_t term, runs;
};
struct MailRun {
  uint64_t first, ranks, sequence;
};
struct EventFrame {
  uint64_t number;  // on the sender's node
  hvdft_event event;
};

inline void put_frame(std::string* out, FrameKind kind, int rank, const void* data, uint64_t bytes,
                      const void* more = nullptr, uint64_t more_bytes = 0) {
  FrameHead head{kind, static_cast<uint32_t>(rank), bytes + more_bytes};
  out->append(reinterpret_cast<const char*>(&head), sizeof head);
  out->append(static_cast<const char*>(data), bytes);
  if (more_bytes > 0) out->append(static_cast<const char*>(more), more_bytes);
}

template <typename T>
void put_frame(std::string* out, FrameKind kind, int rank, const T& value) {
  put_frame(out, kind, rank, &value, sizeof value);
}

// A frame for each run of ranks of [first, end) with the same word; `news` gives a rank's, if it is
// to be sent.
template <typename News>
void put_runs(std::string* out, FrameKind kind, int first, int end, News news) {
  RankRun run{0, 0};
  for (int r = first; r <= end; ++r) {
    std::optional<uint64_t> news_of_rank;
    if (r < end) news_of_rank = news(r);
    bool any = news_of_rank.has_value();
    uint64_t word = news_of_rank.value_or(0);
    if (run.ranks > 0 && !(any && word == run.word)) {
      put_frame(out, kind, r - static_cast<int>(run.ranks), run);
      run.ranks = 0;
    }
    if (any) run = {run.ranks + 1, word};
  }
}

inline void put_frame(std::string* out, const FrameHead& frame, const char* payload) {
  out->append(reinterpret_cast<const char*>(&frame), sizeof frame);
  out->append(payload, frame.bytes);
}

// Reads a value from a payload, at any alignment.
template <typename T>
T get(const char* payload) {
  T value;
  std::memcpy(&value, payload, sizeof value);
  return value;
}

}  // namespace hvdft

#endif  // HVD_FT_MIRROR_FRAMES_H
