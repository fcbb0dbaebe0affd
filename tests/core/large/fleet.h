// A simulated job: real arenas, production's leaders and workers, each a thread of the simulated
// kernel, and a director that does what the launcher and the agents' supervisors do.
#ifndef HVD_FT_TESTS_LARGE_FLEET_H
#define HVD_FT_TESTS_LARGE_FLEET_H

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "fleet_script.h"
#include "mpi/leader.h"
#include "mpi/nap.h"
#include "plan.h"

namespace large {

constexpr uint64_t kLimit = 512 << 20;        // of a node's arena
constexpr uint64_t kMostGathered = 16 << 10;  // HOROVOD_FT_GATHER_BYTES's default
constexpr uint64_t kDetectNs = 1000000;       // until a death is noticed
constexpr uint64_t kRestartNs = 20000000;     // until a new process works
constexpr uint64_t kSettleNs = 5000000000, kIdleNs = 10000000000;

class Fleet : public Progress {
 public:
  Fleet(const Case& made, std::string dir)
      : case_(made),
        dir_(std::move(dir)),
        random_(made.seed + 77),
        kernel_(made.nodes(), made.seed, made.deaths > 0),
        network_(kernel_, made.nodes(), made.model),
        workers_(static_cast<size_t>(made.ranks)),
        executed_(workers_.size()) {}

  Outcome run() {
    if (case_.deaths > 0) order_drills();
    make_arenas();
    kernel_.run();
    network_.run();
    for (int r = 0; r < case_.ranks; ++r) announce_start(r, 0);
    start_leaders();
    for (int r = 0; r < case_.ranks; ++r) start_worker(r, 0);
    strike_all();
    while (done_ < case_.ranks || returning_ > 0) kernel_.sleep(10000000);
    measure_idle();
    check_mirrors();
    struct stat info{};
    CHECK(stat((dir_of(case_.nodes() - 1) + "/node.arena").c_str(), &info) == 0);
    outcome_.arena_bytes = static_cast<double>(info.st_blocks) * 512;
    outcome_.most_under_way = network_.most_under_way();
    outcome_.well = true;
    return outcome_;
  }

  // ---------------------------------------------------------------- told by the workers

  void begins(int phase) override {
    if (begun_[phase]) return;
    begun_[phase] = true;
    before_ = counts();
  }
  void executed(int rank, uint64_t op, uint64_t hash) override {
    uint64_t& known = outcome_.hashes[op];
    if (known == 0) known = hash;
    CHECK(known == hash);  // the same bits on all ranks, and again in a replay
    uint64_t& mine = executed_[static_cast<size_t>(rank)];
    if (op < mine) return;
    mine = op + 1;
    latest_ = std::max(latest_, mine);
    int phase = phase_of(op);
    if (op + 1 == ops_before(phase + 1) && ++ended_[phase] == case_.ranks) {
      outcome_.phases[phase] = since(before_, static_cast<double>(kPhases[phase].ops));
    }
  }
  void ends(int rank) override {
    hvdft_worker_orderly_exit();
    done_ += executed_[static_cast<size_t>(rank)] == kOps ? 1 : 0;
  }
  void pause() override { kernel_.sleep(kPauseNs); }
  void shield(bool on) override { kernel_.shield(on); }

 private:
  struct WorkerTask {
    Task* task = nullptr;
    uint32_t incarnation = 0;
    bool dies = false;
  };

  std::string dir_of(int node) const { return dir_ + "/" + std::to_string(node); }
  int node_of(int rank) const { return rank / case_.per_node; }

  void make_arenas() {
    for (int node = 0; node < case_.nodes(); ++node) {
      std::filesystem::create_directory(dir_of(node));
      std::string dir = dir_of(node);
      int first = node * case_.per_node;
      must(hvdft_create_node(dir.c_str(), kJob, case_.ranks, case_.nodes(), node, first,
                             case_.per_node, kLimit, hvdft::kNodeWindowBytes));
      for (int r = first; r < first + case_.per_node; ++r) {
        must(hvdft_create_rank(dir.c_str(), kJob, r, kLimit, hvdft::kNodeWindowBytes));
      }
      nodes_.push_back(hvdft::Node::open(dir, kJob, hvdft::Node::kAgent));
    }
  }

  static void must(int code) {
    if (code != HVDFT_OK) std::fprintf(stderr, "%s\n", hvdft_error());
    CHECK(code == HVDFT_OK);
  }

  // As agent `rank` of this generation.
  template <typename Act>
  void as_agent(int rank, Act act) {
    hvdft_agent* agent = hvdft_agent_open(dir_of(node_of(rank)).c_str(), kJob, rank, generation_);
    must(agent != nullptr ? HVDFT_OK : HVDFT_EINVAL);
    act(agent);
    hvdft_agent_close(agent);
  }

  void announce_start(int rank, uint32_t incarnation) {
    as_agent(rank, [&](hvdft_agent* agent) {
      hvdft_agent_started(agent, static_cast<int>(incarnation), 1000 + incarnation);
    });
  }

  void start_worker(int rank, uint32_t incarnation) {
    Task* task = kernel_.spawn(node_of(rank), Kind::kWorker, [this, rank, incarnation] {
      FleetScript script(*this, case_.ranks, case_.per_node);
      script.work(dir_of(node_of(rank)), rank, incarnation);
    });
    workers_[static_cast<size_t>(rank)] = {task, incarnation, false};
  }

  void start_leaders() {
    std::vector<int> firsts;
    for (int node = 0; node <= case_.nodes(); ++node) firsts.push_back(node * case_.per_node);
    leaders_.clear();
    for (int node = 0; node < case_.nodes(); ++node) {
      leaders_.push_back(kernel_.adopt(node, Kind::kLeader, [&] {
        auto arenas =
            hvdft::Arenas::open(dir_of(node), kJob, hvdft::Node::kAgent, node * case_.per_node);
        must(arenas != nullptr ? HVDFT_OK : HVDFT_EINVAL);
        // Never closed: its thread may be killed.
        new hvdft::Leader(
            std::move(arenas), network_.communicator(node, generation_), firsts,
            {1, static_cast<uint32_t>(case_.connections), static_cast<uint32_t>(case_.transfers),
             static_cast<uint32_t>(case_.below), hvdft::kYieldNs, hvdft::kBusyNs},
            {hvdft::kNodeSegmentBytes, kMostGathered, hvdft::kRingSegmentBytes, 0});
      }));
    }
  }

  // ---------------------------------------------------------------- deaths

  // One after the other, spread over all ops, each within the time of about an op.
  void strike_all() {
    for (int death = 0; death < case_.deaths; ++death) {
      uint64_t share = kOps * static_cast<uint64_t>(death) / static_cast<uint64_t>(case_.deaths);
      while (latest_ < share) kernel_.sleep(kDetectNs / 4);
      kernel_.sleep(random_.below(kDetectNs));
      if (death % 3 == 2) {
        agents_die();
      } else {
        worker_dies(death == 0 ? 0 : static_cast<int>(random_.below(workers_.size())));
      }
    }
  }

  // Drills: the first worker to come to such a point in such an op dies there, between two accesses
  // to the arena.
  void order_drills() {
    std::string list;
    for (int point : {HVDFT_AT_COPY_IN, HVDFT_AT_REDUCE, HVDFT_AT_CONTRIBUTE, HVDFT_AT_COPY_OUT}) {
      uint64_t op = kBeforeLoop + random_.below(kOps - kBeforeLoop);
      list += std::to_string(point) + ":" + std::to_string(op) + ":-1:s:9:op " +
              std::to_string(op) + ", point " + std::to_string(point) + ";";
    }
    setenv("HOROVOD_FT_INJECT", list.c_str(), 1);
    kernel_.ends_itself = [this](const Task* task) {
      auto worker = std::find_if(workers_.begin(), workers_.end(),
                                 [&](const WorkerTask& one) { return one.task == task; });
      await_death(static_cast<int>(worker - workers_.begin()));
    };
  }

  // Its task is still on its way to the point where it dies when this returns.
  void worker_dies(int rank) {
    WorkerTask& worker = workers_[static_cast<size_t>(rank)];
    if (worker.task->state == Task::kDead || worker.dies) return;  // done, or on its way back
    worker.task->fuse = static_cast<int64_t>(random_.below(30));
    await_death(rank);
  }

  void await_death(int rank) {
    bool& dies = workers_[static_cast<size_t>(rank)].dies;
    if (dies) return;
    dies = true;
    ++returning_;
    kernel_.spawn(node_of(rank), Kind::kDirector, [this, rank] { restart(rank); });
  }

  void restart(int rank) {
    WorkerTask& worker = workers_[static_cast<size_t>(rank)];
    while (worker.task->state != Task::kDead) kernel_.sleep(kDetectNs);
    if (executed_[static_cast<size_t>(rank)] < kOps) {
      ++outcome_.worker_deaths;
      as_agent(rank, [](hvdft_agent* agent) { hvdft_agent_failed(agent, 9); });
      kernel_.sleep(kRestartNs);
      announce_start(rank, worker.incarnation + 1);
      start_worker(rank, worker.incarnation + 1);
    }
    --returning_;
  }

  // An agent dies, and MPI with it: all agents are started again. Workers live on.
  void agents_die() {
    size_t victim = random_.below(leaders_.size());
    leaders_[victim]->fuse = static_cast<int64_t>(random_.below(200));
    while (leaders_[victim]->state != Task::kDead) kernel_.sleep(kDetectNs);
    for (Task* leader : leaders_) {
      kernel_.sleep(random_.below(50000));
      if (leader->state != Task::kDead) kernel_.kill(leader);
    }
    kernel_.sleep(kRestartNs);
    ++generation_;
    ++outcome_.generations;
    for (int r = 0; r < case_.ranks; ++r) as_agent(r, [](hvdft_agent*) {});
    start_leaders();
  }

  // ---------------------------------------------------------------- what is counted

  Counts counts() const {
    Counts all;
    all.ns = static_cast<double>(kernel_.now());
    for (int node = 0; node < case_.nodes(); ++node) {
      const Traffic& sent = network_.sent_by(node);
      for (int part = 0; part < kParts; ++part) {
        all.messages[part] += static_cast<double>(sent.messages[part]);
        all.bytes[part] += static_cast<double>(sent.bytes[part]);
        double depth = static_cast<double>(network_.depth(node, static_cast<Part>(part)));
        all.hops[part] = std::max(all.hops[part], depth);
      }
      double bytes = static_cast<double>(sent.bytes[kMirror] + sent.bytes[kRing]);
      all.most_bytes = std::max(all.most_bytes, bytes);
      const auto& header = nodes_[static_cast<size_t>(node)]->header();
      all.looks += static_cast<double>(header.looks.load());
    }
    all.leader_wakeups = static_cast<double>(kernel_.wakeups(Kind::kLeader));
    all.worker_wakeups = static_cast<double>(kernel_.wakeups(Kind::kWorker));
    return all;
  }

  Counts since(const Counts& before, double share) const {
    Counts now = counts();
    auto* values = reinterpret_cast<double*>(&now);
    auto* older = reinterpret_cast<const double*>(&before);
    for (size_t i = 0; i < sizeof now / sizeof *values; ++i) {
      values[i] = (values[i] - older[i]) / share;
    }
    return now;
  }

  // Every node knows how every rank is.
  void check_mirrors() const {
    for (int rank = 0; rank < case_.ranks; ++rank) {
      const auto& there = nodes_[static_cast<size_t>(node_of(rank))]->rank(rank);
      for (const auto& node : nodes_) {
        const auto& seen = node->rank(rank);
        CHECK(seen.contributed.load() == there.contributed.load());
        CHECK(seen.incarnation.load() == there.incarnation.load());
        CHECK(seen.orderly_exit.load() == there.orderly_exit.load());
        CHECK(seen.state.load() == there.state.load());
      }
    }
  }

  void measure_idle() {
    kernel_.sleep(kSettleNs);
    Counts before = counts();
    kernel_.sleep(kIdleNs);
    outcome_.idle = since(before, static_cast<double>(kIdleNs) / 1e9);
  }

  static constexpr const char* kJob = "fleet";
  static constexpr uint64_t kPauseNs = 300000000;  // between phases: what is lazy has been sent

  const Case case_;
  const std::string dir_;
  Random random_;
  Kernel kernel_;
  Network network_;
  std::vector<std::unique_ptr<hvdft::Node>> nodes_;
  std::vector<WorkerTask> workers_;
  std::vector<Task*> leaders_;
  std::vector<uint64_t> executed_;
  uint64_t latest_ = 0;  // ops that some rank has executed
  uint64_t generation_ = 0;
  int done_ = 0, returning_ = 0;
  bool begun_[kPhaseCount] = {};
  int ended_[kPhaseCount] = {};
  Counts before_;
  Outcome outcome_;
};

}  // namespace large

#endif  // HVD_FT_TESTS_LARGE_FLEET_H
