// A job of several nodes of one rank each, in one process: production's parts of leaders, on wires
// in the place of MPI, in real arenas with acted workers. Only what leaders do is a step, at which
// a test kills them, or lets others act.
#ifndef HVD_FT_TESTS_LEADERS_LEADING_JOB_H
#define HVD_FT_TESTS_LEADERS_LEADING_JOB_H

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../fresh_directory.h"
#include "acted_worker.h"
#include "mpi/leader_part.h"
#include "stepped.h"
#include "wires.h"

constexpr int kNodes = 3;
const int members_on_wires = kNodes;

namespace hvdft {

constexpr char kJob[] = "leaders";
constexpr uint64_t kLimit = 32 << 20;
inline const std::vector<int> kFirsts = {0, 1, 2, 3};

// The leader of a node, as Leader makes it.
struct ActedLeader {
  ActedLeader(const Arenas& arenas, int number, const Script& script) : member{arenas, kNodes} {
    Node& node = arenas.node();
    if (number == 0) {
      parts.push_back(&log_writer.emplace(node, script.rules));
    } else {
      store.emplace(node);
    }
    auto endpoint = [&](int thread) -> Endpoint& {
      return *endpoints.emplace_back(std::make_unique<Endpoint>(number, thread));
    };
    auto edge = [&](int of) {
      std::vector<Endpoint*> all;
      for (uint64_t i = 0; i < script.connections; ++i) {
        all.push_back(&endpoint(10 * static_cast<int>(i + 1) + colour_of_edge(of, kNodes)));
      }
      return Edge(all, 2);
    };
    auto edges = mirror_edges(MirrorTree(kNodes, 1), number, kFirsts);
    parts.push_back(&mirror.emplace(node, store ? &*store : nullptr, endpoint(4), kFirsts, edges));
    parts.push_back(&sender.emplace(member, edge(number)));
    parts.push_back(&receiver.emplace(member, edge((number + kNodes - 1) % kNodes), endpoint(5)));
  }
  // Whether this part is in the thread of the other one where every role has one.
  bool share_a_thread(const LeaderPart* a, const LeaderPart* b) const {
    auto ring = [&](const LeaderPart* part) { return part == &*sender || part == &*receiver; };
    return a == b || (!ring(a) && !ring(b));
  }

  NodeMember member;
  std::optional<LogWriterPart> log_writer;
  std::optional<LogStore> store;
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  std::optional<MirrorPart> mirror;
  std::optional<RingPart<NodeSender>> sender;
  std::optional<RingPart<NodeReceiver>> receiver;
  std::vector<LeaderPart*> parts;
};

struct Place {
  Place(int number, const Script& script) : number(number), script(script) { make(); }
  ~Place() { remove(); }
  Node& node() const { return arenas->node(); }
  NodeHeader& header() const { return node().header(); }

  void make() {
    dir = fresh_directory();
    CHECK(Node::create(dir, kJob, kNodes, kNodes, number, number, 1, kLimit) == HVDFT_OK);
    CHECK(RankFile::create(dir, kJob, number, kLimit) == HVDFT_OK);
    open();
  }
  void open() {
    arenas = Arenas::open(dir, kJob, Node::kAgent, number);
    CHECK(arenas != nullptr);
  }
  void start_worker() {
    worker = std::make_unique<ActedWorker>(script, dir, kJob, *arenas, number);
  }
  void remove() {
    worker.reset();
    leader.reset();
    arenas.reset();
    remove_directory(dir);
  }

  const int number;
  const Script& script;
  std::string dir;
  std::unique_ptr<Arenas> arenas;
  std::unique_ptr<ActedWorker> worker;
  std::unique_ptr<ActedLeader> leader;
};

class LeadingJob {
 public:
  explicit LeadingJob(const Script& script) : script_(script) {
    for (int n = 0; n < kNodes; ++n) places_.push_back(std::make_unique<Place>(n, script_));
    for (auto& place : places_) place->start_worker();
  }

  Place& place(int number) { return *places_[static_cast<size_t>(number)]; }
  // What happens at the leaders' steps; see stepped.h.
  std::function<void(bool written)> at_leaders_step;
  // The part whose step it is, and its place; nullptr while leaders are made.
  const LeaderPart* acting = nullptr;
  const Place* acting_at = nullptr;
  // The node whose worker acts only when nothing else has anything to do, one op after the other.
  int late = -1;

  // The agents' next generation: its leaders know only what the arenas have.
  void begin() {
    wires::forget();
    uint64_t generation = latest_generation() + 1;
    for (auto& place : places_) place->header().generation = generation;
    for (auto& place : places_) place->worker->again();
    for (auto& place : places_) {
      acting_at = place.get();
      place->leader.reset();
      watch();
      place->leader = std::make_unique<ActedLeader>(*place->arenas, place->number, script_);
      at_step = nullptr;
    }
  }

  // Until everything is done and all leaders have parted.
  void run() {
    begin();
    run_on([this] { return is_done(); });
    for (auto& place : places_) place->leader->mirror->leave();
    run_on(
        [this] { return all_of([](Place& place) { return place.leader->mirror->all_said(); }); });
    CHECK(all_of([](Place& place) {
      return !place.leader->sender->under_way() && !place.leader->receiver->under_way();
    }));
    check_end();
  }

  // Until `end`; nobody may wait for ever.
  template <typename End>
  void run_on(End end) {
    for (int idle = 0; !end(); ++idle) {
      if (idle == 100) say_where_all_are();
      CHECK(idle < 100);
      uint64_t carried = wires::carried;
      bool moved = round([](const Place&, const LeaderPart*) { return true; });
      if (moved || wires::carried > carried) idle = 0;
    }
  }

  // The parts that `may` step until they have nothing to do. To be called at a step.
  template <typename May>
  void others_go_on(May may) {
    auto* part = std::exchange(acting, nullptr);
    auto* at = std::exchange(acting_at, nullptr);
    undisturbed_ = true;
    for (int quiet = 0; quiet < 3; ++quiet) {
      if (round(may)) quiet = 0;
    }
    undisturbed_ = false;
    acting = part;
    acting_at = at;
  }

  bool is_done() {
    bool told = !script_.talks || taken_by_coordinator() == kNodes * script_.ops.size();
    return told && all_of([](Place& place) {  // as hvdft_agent_wait() finds
             bool done = true;
             for (int r = 0; r < kNodes; ++r) done &= place.node().rank(r).state == HVDFT_DONE;
             return done;
           });
  }

  uint64_t latest_generation() const {
    uint64_t latest = 0;
    for (auto& place : places_) latest = std::max(latest, place->header().generation.load());
    return latest;
  }
  // What stands for a step of leaders in what agents do before they begin.
  template <typename Act>
  void before_leaders(Act act) {
    watch();
    act();
    at_step = nullptr;
  }

 private:
  void watch() {
    if (!at_leaders_step || undisturbed_) return;
    at_step = [this](bool written) { at_leaders_step(written); };
  }

  void say_where_all_are() {
    for (auto& place : places_) {
      const NodeHeader& h = place->header();
      const RankBlock& block = place->node().rank(place->number);
      EdgePosition received = h.pair_log.received.at(), sent = h.pair_log.sent.at();
      std::fprintf(
          stderr,
          "node %d: generation %lu, log %lu, received %lu.%lu, sent %lu.%lu, final %lu; its "
          "rank: state %u, contributed %lu.%lu, executed %lu\n",
          place->number, h.generation.load(), h.log_length.load(), received.op, received.position,
          sent.op, sent.position, h.final_segments.load(), block.state.load(),
          op_of(block.contributed), segment_of(block.contributed), block.executed.load());
    }
  }

  template <typename Is>
  bool all_of(Is is) {
    return std::all_of(places_.begin(), places_.end(), [&](auto& place) { return is(*place); });
  }

  template <typename May>
  bool round(May may) {
    now_ += 5000000;
    bool moved = false;
    for (auto& place : places_) {
      if (!place->leader) continue;
      for (LeaderPart* part : place->leader->parts) {
        if (!may(*place, part)) continue;
        acting = part;
        acting_at = place.get();
        watch();
        moved |= part->step(now_);
        at_step = nullptr;
        acting = nullptr;
      }
      bool acted = place->number != late && place->worker->act();
      if (place->number == 0) acted |= coordinate();
      moved |= acted;
    }
    return moved || (late >= 0 && place(late).worker->act(1));
  }

  // Rank 0's worker: it proposes the ops in two parts, and takes what all announce.
  bool coordinate() {
    Node& node = place(0).node();
    NodeHeader& h = node.header();
    bool any = false;
    for (int r = 0; script_.talks && r < kNodes; ++r) {
      RankBlock& block = node.rank(r);
      uint64_t sequence = block.mail_sequence;
      if (sequence % 2 == 1 || sequence == block.mail_taken) continue;
      CHECK(sequence == block.mail_taken + 2);  // none is lost
      std::string expected = ActedWorker::announcement(r, sequence / 2 - 1);
      CHECK(std::string(node.mail(r), block.mail_bytes) == expected);
      block.mail_taken = sequence;
      node.notify_mirror();
      any = true;
    }
    for (int r = 0; r < kNodes; ++r) {
      if (node.rank(r).entered == 0) return any;
    }
    uint64_t half = script_.ops.size() / 2, length = h.log_length;
    bool may = length < half || (length < script_.ops.size() && node.rank(0).executed + 1 >= half);
    if (!may || h.proposed != h.answered) return any;
    propose(node, length, length < half ? half : script_.ops.size());
    return true;
  }

  void propose(Node& node, uint64_t from, uint64_t to) {
    constexpr char kTail[] = "respsig";
    NodeHeader& h = node.header();
    char* at = node.proposal();
    for (uint64_t op = from; op < to; ++op) {
      auto [kind, bytes] = script_.ops[op];
      OpHead head{kind, HVDFT_FLOAT32, HVDFT_SUM, kind == HVDFT_COPY ? kRoot : 0, bytes, 4, 4, 0};
      std::memcpy(at, &head, sizeof head);
      std::memcpy(at + sizeof head, kTail, head.tail_bytes());
      at += sizeof head + align_up(head.tail_bytes(), 8);
    }
    h.proposal_term = h.term;
    h.proposal_count = static_cast<uint32_t>(to - from);
    h.proposed.fetch_add(1);
    node.notify_log_writer();
  }

  uint64_t taken_by_coordinator() {
    uint64_t taken = 0;
    for (int r = 0; r < kNodes; ++r) taken += place(0).node().rank(r).mail_taken / 2;
    return taken;
  }

  void check_end() {
    for (auto& at : places_) {
      CHECK(at->header().stop == 0 && at->header().log_length == script_.ops.size());
      for (int r = 0; r < kNodes; ++r) {
        int dest = (r + 1) % kNodes;
        if (!script_.talks || (at->number != r && at->number != dest)) continue;
        auto file = PairFile::open(at->node(), r, dest, true);
        CHECK(file && file->sent() == script_.ops.size());
      }
      if (script_.snapshot_after < script_.ops.size()) {
        CHECK(at->header().truncated == script_.snapshot_after + 1);
      }
    }
    if (script_.talks) check_report();
    if (latest_generation() > 1) return;
    for (auto& at : places_) {
      const PairLog& log = at->header().pair_log;
      CHECK(log.sent.at() == last_sent(*at, false) && log.gathered.at() == last_sent(*at, true));
    }
  }

  // What the logs have of a node that has sent everything.
  EdgePosition last_sent(const Place& at, bool gathered) const {
    for (uint64_t op = script_.ops.size(); op-- > 0;) {
      const Record* record = at.node().record(op);
      if (record == nullptr) break;
      RingPlan plan = at.node().plan(*record);
      if (plan.gathered() != gathered) continue;
      uint64_t end = plan.positions();
      auto is_empty = [&](uint64_t position) {
        return plan.on_edge(at.node().number(), position).bytes() == 0;
      };
      while (!gathered && end > 0 && is_empty(end - 1)) --end;
      if (end > 0) return {op, end};
    }
    return {};
  }

  // Nothing is lost or told twice; but for the one that was being written when an agent died.
  void check_report() {
    const Node& node = place(0).node();
    std::vector<uint64_t> next(kNodes);
    for (uint64_t n = 0; n < node.header().report_count; ++n) {
      const Event& slot = node.report_slots()[n];
      if (slot.published != n + 1 || slot.event.type != HVDFT_EV_SHARE) continue;
      uint64_t& expected = next[slot.event.rank];
      bool again = expected > 0 && slot.event.detail == expected - 1;
      CHECK(again || slot.event.detail == expected);
      expected = slot.event.detail + 1;
    }
    for (uint64_t events : next) CHECK(events == script_.ops.size());
  }

  const Script script_;
  std::vector<std::unique_ptr<Place>> places_;
  uint64_t now_ = 1000000000;
  bool undisturbed_ = false;
};

}  // namespace hvdft

#endif  // HVD_FT_TESTS_LEADERS_LEADING_JOB_H
