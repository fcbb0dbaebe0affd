// The mirror: copies the words that agents and workers publish in their node's arena to the arenas
// of the other nodes, so that each process finds everything in its own node's arena.
//
// The nodes form a tree below that of rank 0, where the log is kept (protocol/mirror_tree.h). Over
// each of its edges a stream of frames goes in each direction. A node sends:
//
//   up    how its own ranks fare (facts, events), their announcements, join requests and snapshots'
//         positions, its memory, and that the job is to stop; and what has come from below
//   down  the states of all ranks that are not there, the log's records and how far it is
//         truncated, who has entered, the term, and that the job is to stop
//
// Frames from below are passed up unchanged, so rank 0's node gets the same stream from each node
// as if both were joined directly. Downwards a node sends the contents of its own arena, which come
// from above and from other nodes below; only data that rank 0 compares is passed on unchanged.
//
// Order matters. A rank's contributions are read after its state, and applied before it: if a rank
// is seen to be done, all its contributions are seen too. The term is read before the log, and
// applied after it (see hvd_ft.h). Fingerprints are read after that, and applied before that, which
// says that none will come. Ops leave a node's log when the nodes below have been sent them.
//
// Messages between workers (mirror_messages.h) go both ways, to wherever their dest is. So do the
// private parts of snapshots (private_parts.h).
//
// The next generation of agents begins anew: frames under way are lost, and everything published in
// the arenas is sent again. Records of the log and events, which must not arrive twice, continue
// from where the other end's hello says it is.
//
// No network, threads or clock: mirror_test.cc joins two arenas in one process. On a node one
// thread has all its ends of edges.
#ifndef HVD_FT_MIRROR_H
#define HVD_FT_MIRROR_H

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "arena/arena.h"
#include "oplog/log_store.h"
#include "protocol/mirror_tree.h"
#include "replication/mirror_frames.h"
#include "replication/mirror_messages.h"
#include "replication/mirror_news.h"
#include "replication/private_parts.h"

namespace hvdft {

class MirrorSender {
 public:
  MirrorSender(const Node& node, MirrorNews& news, const MirrorEdge& edge);

  // Whether the other end's hello has arrived.
  void resume(const HelloFrame& theirs);

  // Appends the changes since the last call to `out`; MirrorNews has to look before.
  void collect(uint64_t now_ns, std::string* out);
  // Nothing more will come.
  void bye(std::string* out);

 private:
  bool tells_of(int rank) const;
  bool is_beyond(int rank) const;
  void collect_passing(size_t most, std::string* out);
  uint64_t kept_id(uint64_t number) const;
  bool is_time_for_counters(uint64_t now_ns);
  void collect_ranks(bool counters, std::string* out);
  bool collect_rank(int rank, std::string* changes);
  void collect_loops(int rank, bool may_send_parts, std::string* out);
  bool waits_for(int rank) const;
  void collect_cuts(int rank, std::string* out);
  void collect_held(std::string* out);
  void collect_oldest(std::string* out);
  void collect_mails(std::string* out);
  bool read_mail(int rank, uint64_t* term, uint64_t* sequence, std::string* bytes) const;
  void collect_fingerprints(int rank, std::string* out);
  void collect_log(uint64_t decided_before, std::string* out);
  void collect_rosters(std::string* out);
  void collect_decided(uint64_t decided_before, std::string* out);
  void collect_answers(std::string* out);
  void collect_events(std::string* out);
  void collect_stop(std::string* out);
  void collect_memory(std::string* out);
  void collect_ops(std::string* out);
  void collect_ops(int rank, bool of_ring, std::string* out);

  // What has ended, and is told, changes only if the rank goes through its loops again, which is
  // counted. So an edge looks at the others only, however many loops a rank has had.
  struct LoopsSeen {
    uint64_t changes = 0;
    int from = 0;  // all before have ended and are told
  };
  // Calls `tell` for each loop that may have changed; it returns whether all of it is told, if it
  // does not change any more.
  template <typename Tell>
  static void each_open_loop(const RankBlock& block, LoopsSeen* seen, Tell tell);
  struct LoopSent {
    uint64_t begin = 0, published = 0, ended = 0, held = 0;
    CutsFrame cuts{};
  };
  struct Sent {  // of one rank
    RankFacts facts{};
    uint64_t mail = 0, entered = 0, mail_taken = 0, fingerprints = 0;
    bool due = false;  // it is in due_
    std::vector<LoopSent> loops;
    LoopSent& loop(size_t number) {  // most ranks have none here
      if (number >= loops.size()) loops.resize(number + 1);
      return loops[number];
    }
    LoopsSeen seen, seen_cuts, seen_held;
  };

  const Node& node_;
  const MirrorNews& news_;
  const MirrorEdge edge_;
  const bool to_buddy_;  // the other end has, or passes on to, the buddy of this node's ranks
  std::string& passing_;
  std::vector<Sent> sent_;
  uint64_t counters_at_ns_ = 0;              // when they are sent
  uint64_t seen_all_ = 0, seen_urgent_ = 0;  // of the news
  std::vector<int> due_;                     // ranks of which something is still to be sent
  PartSender parts_;
  MessageMirrorSender messages_;
  uint64_t term_ = 0, mark_ = 0, log_length_ = 0, decided_before_ = 0, kept_ = 0, events_ = 0;
  std::vector<uint64_t> roster_marks_ = std::vector<uint64_t>(kRosters, UINT64_MAX);  // as sent
  hvdft_memory memory_[2] = {};
  std::unordered_map<int, ToldOps> told_ops_, told_ring_;  // by rank
  uint64_t oldest_[kOldest] = {};
  bool stop_ = false;
};

class MirrorReceiver {
 public:
  // `store`: the log of this node, if it is not rank 0's.
  MirrorReceiver(Node& node, MirrorNews& news, LogStore* store, const MirrorEdge& edge)
      : node_(node),
        news_(news),
        store_(store),
        messages_(node, news),
        parts_(node),
        edge_(edge),
        gone_(store ? store->gone() : 0) {}

  // The first frame for the other end. Downwards it needs what rank 0's node has heard of the nodes
  // there, and perhaps others.
  void say_hello(std::string* out, const std::vector<EventsHeard>& heard = {}) const;
  const std::optional<HelloFrame>& hello() const { return hello_; }  // of the other end, …
  const std::vector<EventsHeard>& heard() const { return heard_; }   // … with what it has said

  // The next bytes of the stream, cut anywhere.
  void feed(uint64_t now_ns, const char* data, uint64_t bytes);
  bool bye() const { return bye_; }
  // Does what had to wait until the ends downwards have collected.
  void settle();

 private:
  bool relays() const { return edge_.down && store_ != nullptr; }
  bool can_be(const FrameHead& frame, const char* payload) const;
  void refuse(const FrameHead& frame);
  bool pass_on(const FrameHead& frame, const char* payload);
  void apply(const FrameHead& frame, const char* payload);
  void apply_hello(const char* payload, uint64_t bytes);
  void apply_event(int first, const char* payload, uint64_t bytes);
  void apply_changes(int first, const char* payload, uint64_t bytes);
  void apply_facts(int first, int rank, const RankFacts& before, const RankFacts& facts);
  void apply_mails(const char* payload, uint64_t bytes);
  void apply_mail(int rank, uint64_t sequence, uint64_t term, const char* data, uint64_t bytes);
  void apply_fingerprints(int rank, const char* payload, uint64_t bytes);
  void apply_memory(int rank, const char* payload);
  void apply_ops(int first, const char* payload, uint64_t bytes);
  void apply_record(const char* payload);
  void apply_decided(const char* payload, uint64_t bytes);
  bool has_loop(int rank, uint64_t number);  // it has memory here, or the job is stopped
  void check(int code);
  uint64_t local_time(int first, uint64_t theirs) const;
  void ring_whom_it_concerns();

  Node& node_;
  MirrorNews& news_;
  LogStore* store_;
  MessageMirrorReceiver messages_;
  PartReceiver parts_;
  const MirrorEdge edge_;
  std::optional<HelloFrame> hello_;
  std::vector<EventsHeard> heard_;
  std::string rest_;  // of a frame that is not complete
  uint64_t now_ns_ = 0;
  // By a node's first rank: this clock minus its clock, shortest time on the way.
  std::unordered_map<int, int64_t> clocks_differ_ns_;
  uint64_t gone_;
  std::vector<std::string> decided_;  // frames that wait for settle()
  // By rank. Not the arena's state: an agent that was killed there may not have notified of it.
  std::unordered_map<int, RankFacts> facts_;
  // To be notified: a needless wake-up costs more than everything else here.
  bool log_writer_ = false, workers_ = false, coordinator_ = false, agents_ = false,
       snapshots_ = false;
  bool bye_ = false;
  bool refused_ = false;  // the stream is damaged, and the job is stopped
};

}  // namespace hvdft

#endif  // HVD_FT_MIRROR_H
