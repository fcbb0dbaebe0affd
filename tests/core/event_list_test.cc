// Where events go, and what of them is kept: what a node keeps does not depend on the number of the
// job's ranks, and only rank 0's node, which writes the report, has all.
#include <cstdio>
#include <thread>

#include "hvd_ft_checkpoints.h"
#include "joined_nodes.h"

using namespace hvdft;

namespace {

constexpr int kOfNode = 2;

hvdft_event event_of(int rank, uint32_t type, uint32_t incarnation, uint64_t detail = 0) {
  return {1, type, static_cast<uint32_t>(rank), incarnation, 0, detail};
}

uint64_t lost(const EventList& list, uint64_t count) {
  uint64_t lost = 0;
  hvdft_event event;
  for (uint64_t i = 0; i < count; ++i) {
    CHECK(list.read(i, &event, 1) == 1);
    lost += event.type == HVDFT_EV_LOST;
  }
  return lost;
}

void start(JoinedNodes& job, int size) {
  for (int r = 0; r < size; ++r) {
    job.node_of(r).push_event(event_of(r, HVDFT_EV_STARTED, 0));
    job.node_of(r).push_event(event_of(r, HVDFT_EV_ATTACHED, 0));
    job.node_of(r).push_event(event_of(r, HVDFT_EV_JOINED, 0));
  }
}

// A job starts, takes snapshots, and loses the last rank once.
void what_a_node_keeps_does_not_grow_with_the_job() {
  constexpr int kSnapshots = 20;
  for (int nodes : {2, 4, 8, 16}) {
    int size = nodes * kOfNode, last = size - 1;
    JoinedNodes job(nodes, kOfNode);
    start(job, size);
    for (int i = 0; i < kSnapshots; ++i) {
      for (int r = 0; r < size; ++r) {
        job.node_of(r).push_event(event_of(r, HVDFT_EV_SNAPSHOT, 0, static_cast<uint64_t>(i)));
      }
      job.carry();
    }
    job.node_of(last).push_event(event_of(last, HVDFT_EV_FAILED, 0));
    job.node_of(last).push_event(event_of(last, HVDFT_EV_STARTED, 1));
    job.node_of(last).push_event(event_of(last, HVDFT_EV_JOINED, 1));
    job.carry();
    CHECK(job.told[FrameKind::kEvent] == 2 * static_cast<uint64_t>(nodes - 2));
    uint64_t own = kOfNode * (3 + kSnapshots);
    for (int n = 0; n < nodes; ++n) {
      uint64_t more = n == nodes - 1 ? 3 : 2;  // its own, or those for all
      CHECK(job.node(n).header().event_count == own + more);
      CHECK(job.node(n).header().report_count == (n == 0 ? nodes * own + 3 : 0));
    }
    std::printf("%d ranks: %lu events on a node, %lu in the report\n", size, own + 2,
                job.node(0).header().report_count.load());
  }
}

// The types that processes elsewhere act on: hvd_ft/worker/peer_hooks.py, hvd_ft/checkpointer.
void those_for_all_go_to_all() {
  JoinedNodes job(3, kOfNode);
  uint64_t for_all = 0;
  for (uint32_t type : {HVDFT_EV_FAILED, HVDFT_EV_JOINED, HVDFT_EV_DIVERGED}) {
    job.node(1).push_event(event_of(2, type, 1, ++for_all));
  }
  for (uint32_t type : {HVDFT_EV_CHECKPOINT, HVDFT_EV_SHARE, HVDFT_EV_CHECKPOINTED}) {
    job.node(1).push_event(event_of(2, type, 0, ++for_all));
  }
  job.node(0).push_event(event_of(0, HVDFT_EV_CHECKPOINT, 0, ++for_all));
  job.carry();
  hvdft_event events[8];
  for (int n : {0, 2}) {
    CHECK(job.node(n).events().read(0, events, 8) == static_cast<int>(for_all));
  }
  CHECK(events[1].type == HVDFT_EV_FAILED && events[1].rank == 2 && events[1].detail == 1);
}

// The report of many ranks is longer than a list, but rank 0's node looks back to its own ranks'.
void the_report_does_not_overwrite_what_a_node_looks_back_to() {
  JoinedNodes job(3, kOfNode);
  start(job, 3 * kOfNode);
  for (uint64_t i = 0; i < kEvents; ++i) {
    job.node(1).push_event(event_of(2, HVDFT_EV_SNAPSHOT, 0, i));
    if (i % 1000 == 0) job.carry();
  }
  job.carry();
  const NodeHeader& h = job.node(0).header();
  CHECK(h.event_count == 3 * kOfNode && lost(job.node(0).events(), h.event_count) == 0);
  CHECK(h.report_count == kEvents + 9 * kOfNode);
  CHECK(lost(job.node(0).report(), h.report_count) == 9 * kOfNode);
}

// Rank 0's agent writes the report: it wakes for events that are only there, and no other agent.
void who_wakes_for_the_report() {
  JoinedNodes job(2, kOfNode);
  const char* dir = job.node(0).dir().c_str();
  const Node& node = job.node(0);
  for (int r : {0, 1}) {
    CHECK(hvdft_create_rank(dir, "nodes", r, node.limit(), node.window()) == HVDFT_OK);
  }
  for (int r : {0, 1}) {
    hvdft_agent* agent = hvdft_agent_open(dir, "nodes", r, 0);
    CHECK(agent != nullptr);
    uint64_t seen = hvdft_agent_event_count(agent);
    job.node(1).push_event(event_of(2, HVDFT_EV_SNAPSHOT, 0));
    job.carry();
    CHECK(hvdft_agent_wait(agent, seen, 0) == (r == 0 ? 3 : 0));
    hvdft_agent_close(agent);
  }
}

// One that is overwritten while it is read is lost; what is read is one event, whole.
void an_event_is_read_whole_or_not_at_all() {
  JoinedNodes job(1, kOfNode);
  EventList list = job.node(0).events();
  constexpr uint64_t kPushed = 20 * kEvents;
  std::thread writer([&] {
    for (uint64_t n = 0; n < kPushed; ++n) {
      auto word = static_cast<uint32_t>(n);
      list.push({n, HVDFT_EV_SNAPSHOT, word, word, 0, n});
    }
  });
  uint64_t whole = 0, lost = 0;
  for (uint64_t count = 0; count < kPushed;) {
    count = job.node(0).header().event_count.load();
    // The oldest ones, of which the first is overwritten next.
    for (uint64_t n = count > kEvents ? count - kEvents : 0, i = 0; n < count && i < 8; ++n, ++i) {
      hvdft_event event;
      CHECK(list.read(n, &event, 1) == 1);
      (event.type == HVDFT_EV_LOST ? lost : whole) += 1;
      if (event.type == HVDFT_EV_LOST) continue;
      auto word = static_cast<uint32_t>(n);
      CHECK(event.time_ns == n && event.detail == n);
      CHECK(event.rank == word && event.incarnation == word);
    }
  }
  writer.join();
  std::printf("%lu events read, %lu lost\n", whole, lost);
  CHECK(whole > 0);
}

}  // namespace

int main() {
  an_event_is_read_whole_or_not_at_all();
  what_a_node_keeps_does_not_grow_with_the_job();
  those_for_all_go_to_all();
  the_report_does_not_overwrite_what_a_node_looks_back_to();
  who_wakes_for_the_report();
}
