// The layout of a job's shared files (except those of pairs of ranks: message_file.h).
//
// node.arena, one per node: header, one block per rank, events, the log's index, mailboxes, the
// report, and a heap that holds log records and results. rank-<r>.arena, one per rank: the snapshot
// slots and its input area. Both are sparse: the sizes below are address space, not memory.
// Mailboxes and fingerprints of ranks elsewhere have memory only on the nodes that read them, and
// only as much as has arrived; a rank's training loops, as many as it has begun (grow_mail(),
// grow_fingerprints(), grow_loops() in memory.h).
//
// Any process can be killed between any two instructions, so there is no lock here. Each
// field has one writer and is published by a single atomic store.
#ifndef HVD_FT_LAYOUT_H
#define HVD_FT_LAYOUT_H

#include <cstddef>
#include <cstdint>

#include "hvd_ft.h"
#include "protocol/op_times.h"
#include "protocol/pair_log.h"
#include "protocol/ring_plan.h"
#include "protocol/segments.h"
#include "base/shared.h"

namespace hvdft {

constexpr uint64_t kNodeMagic = 0x444f4e5446445648;  // "HVDFTNOD"
constexpr uint64_t kRankMagic = 0x4b4e525446445648;  // "HVDFTRNK"
constexpr uint64_t kPairMagic = 0x474f4c5446445648;  // "HVDFTLOG"
constexpr uint32_t kLayoutVersion = 29;

// The roles of a leader that its doorbell can notify.
constexpr uint32_t kMirrorRole = 1, kRingRole = 2;

// Who may stop the job for a rank: its worker, its agent, or the leader of its node.
constexpr int kStoppers = 3;

constexpr int kMaxRanks = HVDFT_MOST_RANKS;
// A bound only, as a loop costs the memory of its last snapshot; its number fits into cut_key() and
// pack_mark().
constexpr int kMaxLoops = 1 << 15;
constexpr int kLoopsAtFirst = 16;            // have memory from the beginning
constexpr int kOldest = 64;                  // loops of which `oldest` is known, the latest ones
constexpr uint64_t kRosters = 64;            // later ones than the first
constexpr uint64_t kEvents = 16384;          // of each list, the latest ones
constexpr uint64_t kDivergences = 64;        // the latest ones
constexpr uint64_t kIndexEntries = 1 << 18;  // the most ops between two snapshots
constexpr uint64_t kKeptEntries = 1 << 16;
constexpr uint64_t kMailBytes = 1 << 20;
constexpr uint64_t kKeptMailBytes = 16 << 10;  // of a mailbox whose owner is elsewhere
constexpr uint64_t kProposalBytes = 4 << 20;
constexpr uint64_t kPage = 4096;
constexpr uint64_t kLastWordsBytes = HVDFT_LAST_WORDS;
constexpr uint64_t kStopTextBytes = HVDFT_STOP_TEXT;
constexpr uint64_t kMemoryWords = sizeof(hvdft_memory) / sizeof(uint64_t);

constexpr uint64_t align_up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

// Never changes; make_file() computes its checksum.
struct FileHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t rank;  // rank.arena only
  // node.arena only: the job's ranks and nodes, which node this is, and which ranks are on it.
  uint32_t size, nodes, node, first_local, locals;
  uint32_t uid;
  uint64_t limit_bytes;
  uint64_t window_bytes;  // of an input area; 0: the file has none
  char job[64];
  uint64_t checksum;  // of what is before it
};

// A loop's snapshots. `published` packs (position + 1) << 1 | slot: position and slot must
// be read together, or a reader could truncate the log at a position not yet published.
// On the buddy's node (private_parts.h) the slots of ranks elsewhere are those of their parts.
struct Loop {
  Shared<uint64_t> begin;  // op id + 1; 0: not begun
  Shared<uint64_t> published;
  Shared<uint32_t> ended;
  // Written by the mirror on rank 0's node for its own ranks: `published` whose private part the
  // second node has.
  Shared<uint64_t> held;
  // What each slot holds, and the latest cuts that were given up and published: see
  // shared_snapshot.h.
  Shared<uint64_t> slots[2], given_up, published_cut;
  Shared<uint64_t> passed_cut;  // up to here the rank takes part in no cut any more
  uint64_t begun_position;      // the cursor at the latest snapshot that it has begun, …
  Shared<uint64_t> begun_cut;   // … and the cut
  uint64_t positions[2];        // the cursor at each slot's snapshot, …
  uint64_t bytes[2];            // … its bytes, …
  uint64_t stripes[2];          // … and where in these this rank's stripe begins
  // Bytes of each slot that have memory, and those that have it or are being given it; what of
  // them the latest snapshot filled. See memory.h.
  Shared<uint64_t> backed[2], claimed[2], contents[2];
};

// The fingerprints of a rank's variables at one cut. `cut` is 0 while they are being written.
struct Fingerprints {
  Shared<uint64_t> cut;  // see cut_key()
  uint64_t bytes;
  char data[HVDFT_FINGERPRINTS];
};
// Writes a cut's over the older of a rank's two.
inline void publish_fingerprints(Fingerprints* both, uint64_t cut, const char* data,
                                 uint64_t bytes) {
  uint64_t cuts[2] = {both[0].cut.load(), both[1].cut.load()};
  // A restarted worker may come to a cut again, with the same fingerprints.
  Fingerprints& to = both[cuts[0] == cut || (cuts[1] != cut && cuts[0] <= cuts[1]) ? 0 : 1];
  withdraw(to.cut);
  to.bytes = bytes;
  write_torn(to.data, data, bytes);
  to.cut.store(cut, std::memory_order_seq_cst);
}
constexpr uint64_t cut_key(int loop, uint64_t cut) {
  return static_cast<uint64_t>(loop + 1) << 48 | cut;
}
static_assert(kMaxLoops < 1 << 16, "a loop's number fits into the key");

// Why a process stops the job. Each process that may has its own place for that (see Node::stop),
// so it can be killed while it writes; another process's message then counts.
struct StopText {
  uint32_t rank;
  int32_t code;
  char text[kStopTextBytes];
};

struct alignas(kPage) RankBlock {
  alignas(64) Shared<uint32_t> worker_doorbell;  // anyone notifies

  // Written by the worker. Its agent clears `asleep`, `executed`, `pending` and `sessions` of a
  // dead one.
  Shared<uint64_t> asleep;                   // 1 << 32 | its ticket; 0: awake
  alignas(64) Shared<uint64_t> contributed;  // position up to which it has contributed its input
  alignas(64) Shared<uint64_t> executed;
  Shared<uint64_t> step;
  Shared<uint64_t> enter_request;  // see enter_request.h
  Shared<uint32_t> orderly_exit;   // incarnation + 1
  Shared<uint64_t> mail_sequence;  // odd while the mail is being written
  Shared<uint64_t> mail_term, mail_bytes;
  Shared<int64_t> pending;         // tensors
  Shared<uint64_t> left_ns;        // when the latest session ended
  Shared<uint64_t> left_at;        // last op before which a session ever ended; + 1
  Shared<uint32_t> sessions;       // ended sessions, each from hvd.init to hvd.shutdown
  Shared<uint32_t> last_words_of;  // incarnation + 1
  char last_words[kLastWordsBytes];
  StopText stops[kStoppers];  // written by the rank's worker, its agent, and the node's leader
  Shared<uint64_t> snapshot_count, snapshot_steps;  // see hvdft_snapshots
  Shared<uint64_t> training_ns, stall_ns, copy_ns;
  Shared<uint64_t> step_bytes;    // see hvdft_status
  Shared<uint64_t> slot_bytes;    // all of its claims
  Shared<uint64_t> mark_request;  // see Sequencer::mark; position + 1
  Shared<uint64_t> loops_done;    // see loops_begun()
  Shared<uint64_t> returns;       // see waits_in(); also written before the worker is started
  Shared<uint64_t> rounds, compute_ns, wait_ns, moving_ns, network_ns;  // see hvdft_times

  // Elsewhere only on rank 0's node, and only if the job's ops are traced: copies by the mirror.
  OpTimes op_times;
  OpTimes ring_times;  // of a node's first rank; written by the node's leader

  // Written by the mirror for the first rank of another node: its ends of the ring's edges, as in
  // that node's pair log, + 1; 0 for all other ranks.
  Shared<uint64_t> ring_received, ring_sent;
  // Likewise: how far this node's clock is ahead of that node's.
  Shared<int64_t> clock_ahead_ns;
  // Likewise, on rank 0's node: that node's memory, now and at most, each as an hvdft_memory.
  Shared<uint64_t> memory[2][kMemoryWords];

  // Written by the agent; `state` also by its live worker.
  alignas(64) Shared<uint32_t> state;
  Shared<uint32_t> incarnation;
  Shared<uint64_t> since_ns;
  Shared<uint64_t> pid;

  // Written by the sequencer (rank 0's agent), and by the coordinator (rank 0's worker).
  alignas(64) Shared<uint64_t> entered;  // the join request granted last
  Shared<uint64_t> mail_taken;
  Shared<uint32_t> mail_awaited;  // set by its owner, which has more to announce

  // Written by the mirror for the first rank of another node: how many of that node's events it has
  // copied.
  Shared<uint64_t> events_heard;
  // Written by the mirror for a rank of another node: the bytes of its mailbox here that have
  // memory, and whether its fingerprints have.
  Shared<uint64_t> mail_backed, fingerprints_backed;

  // Written, as the loops are, by the rank's worker, and on other nodes by the mirror: how often
  // one that had ended has changed, and the bytes of `loops` that have memory, beyond kBytesAtFirst
  // of this block.
  Shared<uint64_t> loop_changes, loops_backed;
  Loop loops[kMaxLoops];  // only the first loops_there() have memory

  static const uint64_t kBytesAtFirst;
  int loops_there() const;
  const Loop& loop(int number) const;  // whether or not it has memory
};

constexpr uint64_t RankBlock::kBytesAtFirst =
    align_up(offsetof(RankBlock, loops) + kLoopsAtFirst * sizeof(Loop), kPage);

inline int RankBlock::loops_there() const {
  uint64_t end = kBytesAtFirst + loops_backed.load(std::memory_order_acquire);
  uint64_t there = (end - offsetof(RankBlock, loops)) / sizeof(Loop);
  return there < kMaxLoops ? static_cast<int>(there) : kMaxLoops;
}

inline const Loop kNotBegun{};
inline const Loop& RankBlock::loop(int number) const {
  return number < loops_there() ? loops[number] : kNotBegun;
}

// Ops to which it has contributed all of its input.
inline uint64_t ops_contributed(const RankBlock& block) { return op_of(block.contributed.load()); }

static_assert(1 << kOwnerBits >= kMaxRanks, "every rank's number fits into a claim");

struct Event {
  Shared<uint64_t> published;  // number of the event + 1
  hvdft_event event;
};

// One of the latest divergences; `published` is its number + 1.
struct Divergence {
  Shared<uint64_t> published;
  hvdft_divergence found;
};

// The worker that reduces, or has reduced, a segment. Written by workers, and by the agent of a
// dead owner.
struct alignas(64) Claim {
  Shared<uint64_t> word;
};

// One of the later rosters: see protocol/roster.h. Written by the sequencer, but for `since`, which
// the log store of each node writes.
struct Roster {
  Shared<uint64_t> mark;   // see pack_mark(); 0: this roster is not announced
  Shared<uint64_t> since;  // id of the op that begins it, + 1; 0: it is not in the log
  Shared<uint64_t> present[kMaxRanks / 64];
};

// Asks that ranks leave at the next step boundary. The sequencer answers.
struct LeaveRequest {
  Shared<uint64_t> number;
  Shared<uint64_t> leaving[kMaxRanks / 64];
  Shared<uint64_t> answered;  // the number of the latest
};

// By an op's kind: whether it is a note; the number of the kind among those of notes.
constexpr uint32_t kNoteKinds = HVDFT_LAST_NOTE - HVDFT_FIRST_NOTE + 1;
constexpr bool is_note(uint32_t kind) {
  return kind >= HVDFT_FIRST_NOTE && kind <= HVDFT_LAST_NOTE;
}
constexpr uint32_t note_kind(uint32_t kind) { return kind - HVDFT_FIRST_NOTE; }

struct NodeHeader {
  FileHeader file;
  Shared<uint64_t> generation;                       // of the agents, which write it; it only grows
  Shared<uint32_t> traces_ops;                       // see hvdft_agent_trace_ops()
  alignas(64) Shared<uint32_t> log_writer_doorbell;  // anyone notifies; see notify_log_writer()

  // In a job on several nodes: anyone notifies one role of the leader, which counts its sleeping
  // threads per role. `mirror_news` counts changes that other nodes must see.
  alignas(64) Shared<uint32_t> leader_doorbell, mirror_news;
  Shared<uint64_t> mirror_asleep, ring_asleep;
  PairLog pair_log;                             // written by them
  alignas(64) Shared<uint64_t> final_segments;  // every segment before it is final

  // See rejoin.h. Written by the agent of the node's first rank before the generation begins.
  Shared<uint32_t> lost;       // this arena is new, and is to be filled
  Shared<uint64_t> done_over;  // the latest op that was to be done over, + 1
  // The most of a rank's loops_backed.
  Shared<uint64_t> loops_backed;
  // Where the job's ranks that are in a loop may have to start again, at the oldest: a cut_key() of
  // position + 1, in the loop's place. Written by the sequencer, and sent by the mirror.
  Shared<uint64_t> oldest[kOldest];

  Claim claims[kClaims];

  // Written by the sequencer.
  alignas(64) Shared<uint64_t> term;
  Shared<uint64_t> log_length;
  Shared<uint64_t> mark;            // position of the latest + 1; 0: none
  Shared<uint64_t> kept;            // entries of the kept index
  Shared<uint64_t> truncated;       // records, so far
  Shared<uint64_t> decided_before;  // op id: those before are truncated or kept
  Shared<uint64_t> log_bytes;       // bytes of the heap that truncation can free, …
  Shared<uint64_t> log_room;        // … and how many of those the limit allows now
  Shared<uint64_t> answered;        // number of the proposal
  Shared<uint64_t> backed;          // bytes of the heap that have memory, …
  Shared<uint64_t> heap_claimed;    // … and those that have it or are being given it
  Shared<uint64_t> kept_bytes;      // bytes of the heap that nothing will free
  // Behind the truncated ops: where the segments, and inputs, of the next op may begin.
  Shared<uint64_t> dropped_segments, dropped_inputs;

  Roster rosters[kRosters];  // 1 and later
  // The notes of each kind, in the log's order: id + 1 of each, 0 behind the last one. Written by
  // each node's log store.
  Shared<uint64_t> notes[kNoteKinds][HVDFT_NOTES];

  LeaveRequest leave_requests[2];  // on rank 0's node: of its worker, for a drill; of its agent

  // Written by the checkpoint writer of rank 0's node, which asks for a mark; position + 1.
  Shared<uint64_t> mark_wanted;

  // Written by the coordinator; see hvdft_announced.
  Shared<uint64_t> announcements, announced_bytes;
  alignas(64) Shared<uint64_t> proposed;  // number of the proposal
  uint64_t proposal_term;
  uint64_t proposal_bytes;
  uint32_t proposal_count;

  alignas(64) Shared<uint32_t> stop;  // the StopText that counts: its place + 1; 0: none

  alignas(64) Shared<uint32_t> snapshot_doorbell;  // of workers that write a snapshot together
  alignas(64) Shared<uint32_t> event_doorbell;
  Shared<uint64_t> event_count, report_count;  // see event_list.h
  Shared<uint64_t> divergence_count;  // written by rank 0's worker; on other nodes by the mirror
  Shared<uint64_t> message_bytes;
  Shared<uint64_t> most[kMemoryWords];  // an hvdft_memory; see memory.h

  // Written by the leader: what it has sent to other nodes, and of that what is ops' data; how
  // often its threads have napped, and how often the mirror has looked at a rank for one of its
  // links.
  alignas(64) Shared<uint64_t> sent_messages, sent_bytes, data_messages, data_bytes, naps, looks;
};

// The agreed description of an op; block_bytes[], the response and the signature follow it.
struct OpHead {
  uint32_t kind, dtype, reduce, root;
  uint64_t result_bytes;
  uint64_t response_bytes;
  uint64_t signature_bytes;  // with its zero
  uint64_t blocks;
  double factor = 0;    // see hvdft_op
  uint64_t viewed = 0;  // 1 or 0
  uint64_t common = 0;  // 1 or 0: see hvdft_op
  // 1 or 0, decided by the log writer: nodes gather it (gather_plan.h) instead of passing it round
  // the ring.
  uint64_t gathered = 0;
  uint64_t ring_segment = kRingSegmentBytes;  // of the ring between nodes; likewise
  uint64_t node_segment = kNodeSegmentBytes;  // in which a node's ranks sum it; likewise
  // 1 or 0, decided by the log writer: the network is left out for measurements, and every node's
  // result is the sum of its own ranks.
  uint64_t ablated = 0;
  uint64_t tail_bytes() const {
    return blocks * sizeof(uint64_t) + response_bytes + signature_bytes;
  }
  // The bytes of its result, and of a partial one: at least what nodes send each other, so that an
  // op without data is complete when all nodes have reached it.
  uint64_t heap_bytes() const { return result_bytes > 0 ? result_bytes : kCacheLine; }
};

// An entry of the log, in the heap; its tail behind it.
struct Record {
  uint64_t id;
  uint64_t first_segment;  // its number
  uint64_t first_input;    // the number of the first byte of its input
  uint64_t result_offset;
  // The sum of this node's ranks; with one node that is the result. Of a gathered op: the slots, of
  // which it is the first.
  uint64_t partial_offset;
  uint64_t first_given, first_taken;  // segments: see node_order.h
  OpHead op;
  uint64_t checksum;  // of what is before it and of the tail; see LogStore::append()
  uint64_t end_segment() const { return first_segment + segments(); }
  // The last segment may be short, and be contributed in the middle; it then takes the room of a
  // whole one.
  uint64_t end_input() const {
    uint64_t bytes = first_given > 0 ? segments() * op.node_segment : op.result_bytes;
    return align_up(first_input + bytes, kCacheLine);
  }
  uint64_t segments() const { return segments_of(op.result_bytes, op.node_segment); }
  // The segment that is contributed, and the one that is taken, under a number.
  ByteRange given(uint64_t number) const { return range_of(first_given, number); }
  ByteRange taken(uint64_t number) const { return range_of(first_taken, number); }
  // The bytes of a segment's input, by the segment's number.
  uint64_t input_of(uint64_t number) const {
    return first_input + (number - first_segment) * op.node_segment;
  }
  uint64_t bytes() const { return sizeof(Record) + op.tail_bytes(); }
  uint64_t heap_bytes() const { return op.heap_bytes(); }

 private:
  ByteRange range_of(uint64_t first, uint64_t number) const {
    uint64_t segment = (first + number - first_segment) % segments();
    return segment_range(segment, op.result_bytes, op.node_segment);
  }
};

// The part of an op's result to which a rank's input goes: its block, or all of it, or nothing.
inline ByteRange contribution(const Record& record, int rank) {
  const OpHead& op = record.op;
  auto* blocks = reinterpret_cast<const uint64_t*>(&record + 1);
  if (op.kind == HVDFT_REDUCE) return {0, op.blocks > 0 ? blocks[rank] : op.result_bytes};
  if (op.kind == HVDFT_COPY) {
    return {0, op.root == static_cast<uint32_t>(rank) ? op.result_bytes : 0};
  }
  if (op.kind != HVDFT_CONCAT) return {0, 0};
  uint64_t before = 0;
  for (int r = 0; r < rank; ++r) before += blocks[r];
  return {before, before + blocks[rank]};
}

// A bit for each rank, in words.
constexpr uint64_t peer_words(int size) { return (static_cast<uint64_t>(size) + 63) / 64; }

struct NodeOffsets {
  uint64_t ranks, peers, events, divergences, index, kept, mail, fingerprints, report, proposal,
      heap;
};

// position + 1; 0: not known, or not any more.
inline uint64_t oldest_in(const NodeHeader& h, int loop) {
  uint64_t word = h.oldest[loop % kOldest].load(std::memory_order_seq_cst);
  return word >> 48 == cut_key(loop, 0) >> 48 ? word & ((uint64_t{1} << 48) - 1) : 0;
}

constexpr NodeOffsets node_offsets(int size) {
  NodeOffsets o{};
  o.ranks = align_up(sizeof(NodeHeader), kPage);
  o.peers = o.ranks + sizeof(RankBlock) * static_cast<uint64_t>(size);
  uint64_t peers_bytes = 2 * sizeof(uint64_t) * peer_words(size) * static_cast<uint64_t>(size);
  o.events = align_up(o.peers + peers_bytes, kPage);
  o.divergences = o.events + sizeof(Event) * kEvents;
  o.index = align_up(o.divergences + sizeof(Divergence) * kDivergences, kPage);
  o.kept = o.index + sizeof(uint64_t) * kIndexEntries;
  o.mail = o.kept + sizeof(uint64_t) * kKeptEntries;
  o.fingerprints = o.mail + kMailBytes * static_cast<uint64_t>(size);
  o.report = o.fingerprints + 2 * sizeof(Fingerprints) * static_cast<uint64_t>(size);
  o.proposal = align_up(o.report + sizeof(Event) * kEvents, kPage);
  o.heap = o.proposal + kProposalBytes;
  return o;
}

// rank.arena: header page, two slots per loop, each with room for the limit, then the input area.
constexpr uint64_t slot_offset(uint64_t limit, int loop, int slot) {
  return kPage + align_up(limit, kPage) * static_cast<uint64_t>(2 * loop + slot);
}
constexpr uint64_t input_offset(uint64_t limit) { return slot_offset(limit, kMaxLoops, 0); }

}  // namespace hvdft

#endif  // HVD_FT_LAYOUT_H
