// The shared files of a job, mapped: making them, and checking that a file is this job's. memory.h
// gives memory to their sparse parts.
#ifndef HVD_FT_ARENA_H
#define HVD_FT_ARENA_H

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "arena/event_list.h"
#include "arena/layout.h"
#include "protocol/node_order.h"

namespace hvdft {

class Mapping {
 public:
  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  // [offset, offset + bytes) of the file; nullptr data() and an error on failure.
  int map(int fd, uint64_t offset, uint64_t bytes, bool writable);
  char* data() const { return static_cast<char*>(data_); }

 private:
  void* data_ = nullptr;
  uint64_t bytes_ = 0;
};

class Node {
 public:
  ~Node();
  static int create(const std::string& dir, const char* job, int size, int nodes, int node,
                    int first_local, int locals, uint64_t limit,
                    uint64_t window = kNodeWindowBytes);

  enum Role { kObserver, kWorker, kAgent, kLeader };
  // `job` may be nullptr for a viewer. On failure nullptr, and an error is set.
  static std::unique_ptr<Node> open(const std::string& dir, const char* job, Role role);

  NodeHeader& header() const { return *reinterpret_cast<NodeHeader*>(control_.data()); }
  RankBlock& rank(int r) const {
    return reinterpret_cast<RankBlock*>(control_.data() + offsets_.ranks)[r];
  }
  // The ranks to which a rank has sent messages, or from which it has received some: a bit for
  // each, in peer_words().
  Shared<uint64_t>* sends_to(int r) const { return peers(2 * r); }
  Shared<uint64_t>* receives_from(int r) const { return peers(2 * r + 1); }
  bool has_peer(const Shared<uint64_t>* peers, int peer) const {
    return (peers[peer / 64].load() >> peer % 64 & 1) != 0;
  }
  // As the file was when it was opened and checked.
  const FileHeader& file() const { return file_; }
  int size() const { return static_cast<int>(file_.size); }
  // The ranks on this node are first_local() to end_local() - 1.
  int first_local() const { return static_cast<int>(file_.first_local); }
  int end_local() const { return first_local() + static_cast<int>(file_.locals); }
  bool is_local(int r) const { return r >= first_local() && r < end_local(); }
  bool several() const { return file_.nodes > 1; }
  uint64_t number() const { return file_.node; }  // a member of the ring of nodes
  RingPlan plan(const Record& record) const {
    uint64_t members = record.op.ablated != 0 ? 1 : file_.nodes;
    return {members, record.heap_bytes(), record.op.ring_segment, record.op.gathered != 0};
  }
  NodeOrder order(const Record& record, const RingPlan& plan) const {
    return {plan, number(), record.op.node_segment};
  }
  // Of the note of this kind with this number: its id + 1; 0: there is none.
  uint64_t note(uint32_t kind, uint64_t number) const {
    if (!is_note(kind) || number >= HVDFT_NOTES) return 0;
    uint64_t entry = header().notes[note_kind(kind)][number].load(std::memory_order_acquire);
    return entry <= header().log_length.load(std::memory_order_acquire) ? entry : 0;
  }
  uint64_t limit() const { return file_.limit_bytes; }
  uint64_t window() const { return file_.window_bytes; }  // of each rank's input area
  const std::string& dir() const { return dir_; }
  EventList events() const {
    return {event_slots(), header().event_count, header().event_doorbell};
  }
  Event* event_slots() const { return reinterpret_cast<Event*>(control_.data() + offsets_.events); }
  EventList report() const {  // on rank 0's node
    return {report_slots(), header().report_count, header().event_doorbell};
  }
  Event* report_slots() const {
    return reinterpret_cast<Event*>(control_.data() + offsets_.report);
  }
  Divergence* divergences() const {
    return reinterpret_cast<Divergence*>(control_.data() + offsets_.divergences);
  }
  Shared<uint64_t>* index() const { return words(offsets_.index); }
  Shared<uint64_t>* kept() const { return words(offsets_.kept); }
  char* mail(int r) const { return control_.data() + mail_offset(r); }
  // The latest two cuts' of a rank, in turn.
  Fingerprints* fingerprints(int r) const {
    return reinterpret_cast<Fingerprints*>(control_.data() + fingerprints_offset(r));
  }
  char* proposal() const { return control_.data() + offsets_.proposal; }
  char* heap() const { return heap_.data(); }
  uint64_t heap_bytes() const { return align_up(limit(), kPage); }
  uint64_t heap_offset() const { return offsets_.heap; }
  uint64_t rank_offset(int r) const {
    return offsets_.ranks + sizeof(RankBlock) * static_cast<uint64_t>(r);
  }
  uint64_t mail_offset(int r) const {
    return offsets_.mail + kMailBytes * static_cast<uint64_t>(r);
  }
  uint64_t fingerprints_offset(int r) const {
    return offsets_.fingerprints + 2 * sizeof(Fingerprints) * static_cast<uint64_t>(r);
  }
  // Of the part before the heap: what has memory from the beginning.
  uint64_t control_bytes() const;
  int fd() const { return fd_; }

  // What an entry of an index points to; nullptr if there is nothing, or the entry is damaged.
  const Record* record_at(uint64_t entry) const;
  // The log's entry of op `id`, or nullptr if it is truncated or not yet there.
  const Record* record(uint64_t id) const;

  // Ranks on other nodes are notified through the mirror.
  void notify_worker(int rank) const;
  void notify_workers() const;
  void notify_local_workers() const;
  void notify_log_writer() const;
  void notify_mirror() const;
  void notify_ring() const;                         // the ring's threads may have something to send
  void push_event(const hvdft_event& event) const;  // of one of this node's ranks
  void hear_event(const hvdft_event& event) const;  // of a rank elsewhere
  void put_divergence(uint64_t number, const hvdft_divergence& found) const;
  // HVDFT_EINVAL if it has been overwritten, or is not there yet.
  int read_divergence(uint64_t number, hvdft_divergence* out) const;
  // Stops the job; the first message counts. One process a role does so for a rank.
  void stop(int rank, int code, const char* text) const;
  const StopText* stopped() const;  // why; nullptr: it is not

 private:
  Shared<uint64_t>* peers(int row) const {
    return words(offsets_.peers) + peer_words(size()) * static_cast<uint64_t>(row);
  }
  Shared<uint64_t>* words(uint64_t offset) const {
    return reinterpret_cast<Shared<uint64_t>*>(control_.data() + offset);
  }

  std::string dir_;
  int fd_ = -1;
  FileHeader file_{};
  NodeOffsets offsets_{};
  Mapping control_;
  Mapping heap_;
  int stopper_ = 0;  // this process's place among a rank's
  mutable std::mutex stopping_;
};

class RankFile {
 public:
  ~RankFile();
  // Of a rank of this node; or only the private parts of snapshots of a rank elsewhere.
  enum Kind { kLocal, kParts };
  static int create(const std::string& dir, const char* job, int rank, uint64_t limit,
                    Kind kind = kLocal, uint64_t window = kNodeWindowBytes);
  // Its input area is mapped, if it has one; only the rank's own worker can write to it.
  static std::unique_ptr<RankFile> open(const std::string& dir, const char* job, int rank,
                                        bool writable, Kind kind = kLocal);
  char* input() const { return input_.data(); }
  int fd() const { return fd_; }
  uint64_t limit() const { return limit_; }
  uint64_t window() const { return window_; }
  // Whether a slot can be what node.arena says of it: mapped without a check, it might lie behind
  // the file's end.
  int check_slot(uint64_t bytes, uint64_t stripe) const;

 private:
  static std::string path(const std::string& dir, int rank, Kind kind);

  int fd_ = -1;
  uint32_t rank_ = 0;
  uint64_t limit_ = 0, window_ = 0;
  Mapping input_;
};

}  // namespace hvdft

#endif  // HVD_FT_ARENA_H
