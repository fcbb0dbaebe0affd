// The agent's side of the C ABI.
#include <cstring>

#include "base/doorbell.h"
#include "arena/node_arenas.h"
#include "arena/records.h"
#include "arena/rosters.h"
#include "base/error.h"
#include "hvd_ft_times.h"
#include "oplog/log_writer.h"

using hvdft::Arenas;
using hvdft::LogWriter;
using hvdft::Node;
using hvdft::notify;
using hvdft::RankBlock;

struct hvdft_agent {
  int rank;
  std::unique_ptr<Arenas> arenas;
  std::unique_ptr<LogWriter> log_writer;  // only rank 0's agent; with several nodes its leader
  RankBlock& block() { return node().rank(rank); }
  Node& node() { return arenas->node(); }
  // Of what it reads: rank 0's agent writes the report.
  uint64_t event_count() {
    const auto& h = node().header();
    return h.event_count.load() + (rank == 0 ? h.report_count.load() : 0);
  }
  void event(uint32_t type, uint64_t detail) {
    node().push_event({hvdft::now_ns(), type, static_cast<uint32_t>(rank),
                       block().incarnation.load(), 0, detail});
  }
  // The worker has ended. Others may wait for a segment that it had claimed, or for a notification
  // that it did not send.
  void take_over_dead(uint32_t state) {
    arenas->take_over(rank);
    block().pid.store(0);
    block().since_ns.store(hvdft::now_ns());
    block().state.store(state, std::memory_order_release);
    node().notify_workers();
  }
};

int hvdft_create_node(const char* dir, const char* job, int size, int nodes, int node,
                      int first_local, int locals, uint64_t limit_bytes, uint64_t window_bytes) {
  return Node::create(dir, job, size, nodes, node, first_local, locals, limit_bytes, window_bytes);
}

int hvdft_create_rank(const char* dir, const char* job, int rank, uint64_t limit_bytes,
                      uint64_t window_bytes) {
  return hvdft::RankFile::create(dir, job, rank, limit_bytes, hvdft::RankFile::kLocal,
                                 window_bytes);
}

hvdft_agent* hvdft_agent_open(const char* dir, const char* job, int rank, uint64_t generation) {
  auto arenas = Arenas::open(dir, job, Node::kAgent, rank);
  if (!arenas) return nullptr;
  if (!arenas->node().is_local(rank)) {
    hvdft::fail(HVDFT_EINVAL,
                "rank %d has moved: the arenas on this host belong to other ranks; start the "
                "job again",
                rank);
    return nullptr;
  }
  // Nothing writes to the log between the agents of two generations.
  if (rank == arenas->node().first_local() && hvdft::check_log(arenas->node()) != HVDFT_OK) {
    return nullptr;
  }
  auto& newest = arenas->node().header().generation;
  uint64_t before = newest.load();
  while (before < generation && !newest.compare_exchange_weak(before, generation)) {
  }
  if (before > generation) {
    hvdft::fail(HVDFT_EINVAL,
                "agents of generation %lu have taken this job over from generation "
                "%lu",
                before, generation);
    return nullptr;
  }
  auto* agent = new hvdft_agent{rank, std::move(arenas), nullptr};
  if (generation > 0) agent->event(HVDFT_EV_ADOPTED, generation);
  return agent;
}

int hvdft_agent_start(hvdft_agent* agent, const hvdft_op_rules* rules) {
  if (agent->rank != 0 || agent->node().several()) return HVDFT_OK;
  if (int code = hvdft::check_rules(*rules, agent->node().window()); code != HVDFT_OK) return code;
  agent->log_writer = std::make_unique<LogWriter>(agent->node(), *rules);
  agent->log_writer->start();
  return HVDFT_OK;
}

void hvdft_agent_close(hvdft_agent* agent) { delete agent; }

void hvdft_agent_started(hvdft_agent* agent, int incarnation, uint64_t pid) {
  auto number = static_cast<uint32_t>(incarnation);
  agent->block().incarnation.store(number);
  agent->block().pid.store(pid);
  agent->event(HVDFT_EV_STARTED, pid);
}

void hvdft_agent_failed(hvdft_agent* agent, int status) {
  // The worker is dead: clear the fields that describe this one process, not its rank.
  agent->block().executed.store(0);
  agent->block().pending.store(0);
  agent->block().asleep.store(0);
  agent->block().sessions.store(0);
  agent->take_over_dead(HVDFT_RESTARTING);
  agent->event(HVDFT_EV_FAILED, static_cast<uint32_t>(status));
}

void hvdft_agent_done(hvdft_agent* agent, int status) {
  // Before the state: who sees that all are done writes the end of the report.
  agent->event(HVDFT_EV_DONE, static_cast<uint32_t>(status));
  agent->take_over_dead(HVDFT_DONE);
  agent->node().notify_log_writer();  // if it has left, the log may be truncatable now
  notify(agent->node().header().snapshot_doorbell);
  notify(agent->node().header().event_doorbell);
}

void hvdft_agent_fatal(hvdft_agent* agent, int exit_code, const char* message) {
  agent->node().stop(agent->rank, exit_code, message);
}

int hvdft_agent_wait(hvdft_agent* agent, uint64_t seen, int timeout_ms) {
  auto& h = agent->node().header();
  for (bool again = false;; again = true) {
    uint32_t ticket = h.event_doorbell.load();
    if (h.stop.load(std::memory_order_acquire) != 0) return 1;
    bool done = true;
    for (int r = 0; r < agent->node().size(); ++r) {
      done &= agent->node().rank(r).state.load() == HVDFT_DONE;
    }
    if (done) return 2;
    if (agent->event_count() > seen) return 3;
    if (again) return 0;
    hvdft::wait_doorbell(h.event_doorbell, ticket, timeout_ms);
  }
}

void hvdft_agent_ask_to_leave(hvdft_agent* agent, const uint64_t* leaving) {
  write_leave_request(agent->node().header().leave_requests[1], leaving);
  agent->node().notify_log_writer();
}

void hvdft_agent_trace_ops(hvdft_agent* agent) { agent->node().header().traces_ops.store(1); }

void hvdft_agent_wake(hvdft_agent* agent) { notify(agent->node().header().event_doorbell); }

int hvdft_agent_orderly_exit(hvdft_agent* agent) {
  return agent->block().orderly_exit.load() == agent->block().incarnation.load() + 1;
}

void hvdft_agent_last_words(hvdft_agent* agent, char* out, int capacity) {
  RankBlock& block = agent->block();
  bool said = block.last_words_of.load(std::memory_order_acquire) == block.incarnation.load() + 1;
  strncpy(out, said ? block.last_words : "", static_cast<size_t>(capacity) - 1);
  out[capacity - 1] = '\0';
}

uint64_t hvdft_agent_event_count(hvdft_agent* agent) { return agent->event_count(); }

int hvdft_agent_fatal_text(hvdft_agent* agent, char* out, int capacity, int* exit_code, int* rank) {
  const hvdft::StopText* why = agent->node().stopped();
  if (why == nullptr) return 0;
  strncpy(out, why->text, static_cast<size_t>(capacity) - 1);
  out[capacity - 1] = '\0';
  *exit_code = why->code;
  *rank = static_cast<int>(why->rank);
  return 1;
}
