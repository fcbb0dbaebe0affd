// Nodes that lose their arenas, one after the other or two at once, with leaders killed at a store
// in the middle of an op: agents fill new ones by the calls of hvd_ft_rejoin.h, as node_rejoin.py
// makes them, and are killed at a store of that as well. Results keep the bits of an undisturbed
// job.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "hvd_ft_rejoin.h"
#include "protocol/shared_snapshot.h"
#include "killed_leaders.h"

using namespace hvdft;

namespace {

const Script kOps{{kLeastNodeSegment, 400, kLeastRingSegment, 0},
                  {{HVDFT_REDUCE, 100000},
                   {HVDFT_REDUCE, 80},
                   {HVDFT_COPY, 40000},
                   {HVDFT_REDUCE, 0},
                   {HVDFT_REDUCE, 400},
                   {HVDFT_REDUCE, 3 * 16384 + 64}},
                  1,
                  false,
                  1};
// Whether a rejoin has copied the log, and goes on.
bool has_copied = false;

// What the first agents of all nodes do together.
class Rejoin {
 public:
  explicit Rejoin(LeadingJob& job) : generation_(job.latest_generation() + 1) {
    for (int n = 0; n < kNodes; ++n) {
      nodes_.push_back(hvdft_rejoin_open(job.place(n).dir.c_str(), kJob));
      CHECK(nodes_.back() != nullptr);
      hvdft_rejoin_look(nodes_.back(), &states_.emplace_back());
    }
  }
  ~Rejoin() {
    for (auto* node : nodes_) hvdft_rejoin_close(node);
  }

  void run() {
    hvdft_rejoin plan;
    hvdft_rejoin_verdict(states_.data(), kNodes, &plan);
    if (plan.needed == 0) return;
    CHECK(plan.possible != 0);
    for (size_t n = 0; n < kNodes; ++n) {
      if (lost(n)) copy(plan.log_from, n);
    }
    has_copied = true;
    for (auto* node : nodes_) hvdft_rejoin_note(node, plan.op);
    renew(plan.log_from);
    bring_back_snapshots(plan.log_from);
    for (size_t n = 0; n < kNodes; ++n) {
      uint64_t begin = states_[lost(n) ? plan.log_from : n].op;
      for (uint64_t op = begin; op < plan.op; ++op) take_result(plan.results_from, n, op);
    }
    hvdft_rejoin_resume at{plan.op, 0, 0};
    for (auto& state : states_) at.term = std::max(at.term, state.term);
    for (auto* node : nodes_) hvdft_rejoin_resume_at(node, &at);
    agree_on_events();
    has_copied = false;
  }

 private:
  bool lost(size_t n) const { return states_[n].lost != 0; }

  void copy(size_t from, size_t to) {
    std::vector<uint64_t> ranges(2 * 256);
    int64_t count = hvdft_rejoin_ranges(nodes_[from], states_[from].op, ranges.data(), 256);
    CHECK(count > 0 && count <= 256);
    const void* head = hvdft_rejoin_at(nodes_[from], 0);
    CHECK(hvdft_rejoin_make_room(nodes_[to], head) == HVDFT_OK);
    for (size_t i = 0; i < 2 * static_cast<size_t>(count); i += 2) {
      std::memcpy(hvdft_rejoin_at(nodes_[to], ranges[i]), hvdft_rejoin_at(nodes_[from], ranges[i]),
                  ranges[i + 1]);
    }
    CHECK(hvdft_rejoin_adopt(nodes_[to], head, generation_, 0) == HVDFT_OK);
  }

  void renew(size_t log_from) {
    size_t judge = lost(0) ? log_from : 0;
    for (int rank = 0; rank < kNodes; ++rank) {
      if (!lost(static_cast<size_t>(rank))) continue;
      int renewal = hvdft_rejoin_renewal(nodes_[judge], rank, 0);
      for (auto* node : nodes_) hvdft_rejoin_renew(node, rank, renewal);
    }
  }

  // Where the log has been cut. (What is in them is no matter here.)
  void bring_back_snapshots(size_t log_from) {
    if (states_[log_from].dropped == 0) return;
    for (size_t n = 0; n < kNodes; ++n) {
      hvdft_rejoin_slot slot{1, 0, 1, slot_word(1, 1), states_[log_from].dropped, 0, 0};
      if (lost(n)) hvdft_rejoin_slot_publish(nodes_[n], static_cast<int>(n), 0, 0, &slot);
    }
  }

  void take_result(size_t from, size_t to, uint64_t op) {
    void *theirs, *mine;
    int64_t bytes = hvdft_rejoin_result(nodes_[from], op, &theirs);
    CHECK(bytes >= 0 && hvdft_rejoin_result(nodes_[to], op, &mine) == bytes);
    std::memmove(mine, theirs, static_cast<size_t>(bytes));
  }

  void agree_on_events() {
    for (size_t there = 0; there < kNodes; ++there) {
      hvdft_rejoin_state state;
      hvdft_rejoin_look(nodes_[there], &state);
      for (size_t here = 0; here < kNodes; ++here) {
        if (!lost(there) && !lost(here)) continue;
        hvdft_rejoin_heard(nodes_[here], static_cast<int>(there), state.events);
      }
    }
  }

  const uint64_t generation_;
  std::vector<hvdft_rejoining*> nodes_;
  std::vector<hvdft_rejoin_state> states_;
};

// Their hosts are gone, with the ranks there; others take their places.
void lose(LeadingJob& job, const std::vector<int>& numbers) {
  for (int number : numbers) {
    Place& place = job.place(number);
    place.remove();
    place.make();
    auto* node = hvdft_rejoin_open(place.dir.c_str(), kJob);
    CHECK(node != nullptr);
    hvdft_rejoin_lose(node);
    hvdft_rejoin_close(node);
  }
}

void rejoin(LeadingJob& job) {
  job.before_leaders([&] { Rejoin(job).run(); });
  for (int n = 0; n < kNodes; ++n) {
    if (!job.place(n).worker) job.place(n).start_worker();
  }
}

void rejoin_and_run(LeadingJob& job) {
  rejoin(job);
  job.run();
}

struct Deaths {
  uint64_t of_leaders, in_the_rejoin, again;  // stores
  std::vector<int> lost, lost_again;          // nodes
  bool when_copied = false;  // in the rejoin only stores count after it has copied the log
};

// Returns how many of the three deaths there were.
int lost_twice(const Deaths& deaths, Others others) {
  wires::keeps_copies = deaths.of_leaders % 2 == 1;
  LeadingJob job(kOps);
  if (!killed_at_store(job, Of::kRing, deaths.of_leaders, others)) return 0;
  lose(job, deaths.lost);
  int killed = 1;
  auto counts = [&] { return has_copied || !deaths.when_copied; };
  killed += killed_before_store(job, deaths.in_the_rejoin, counts, [] {}, [&] { rejoin(job); });
  rejoin(job);
  killed += killed_at_store(job, Of::kRing, deaths.again, others, [&] { rejoin_and_run(job); });
  lose(job, deaths.lost_again);
  rejoin_and_run(job);
  return killed;
}

// Only one node's receiving half still goes on, when another's is at a store of the last op: the
// first one's rank is done, others know it, and lack results that need its input again.
bool lost_when_done(uint64_t at, uint64_t distance, bool* needed) {
  LeadingJob job(kOps);
  uint64_t last = kOps.ops.size() - 1;
  auto counts = [&] {
    const ActedLeader* leader = job.acting != nullptr ? job.acting_at->leader.get() : nullptr;
    return leader != nullptr && job.acting == &*leader->receiver &&
           job.acting_at->header().pair_log.received.at().op == last;
  };
  auto one_goes_on = [&] {
    const Place& lucky = job.place(job.acting_at->leader->member.after(distance));
    job.others_go_on([&](const Place& place, const LeaderPart* part) {
      return &place == &lucky || part != &*place.leader->receiver;
    });
  };
  if (!killed_before_store(job, at, counts, one_goes_on, [&] { job.run(); })) return false;
  for (int done = 0; done < kNodes; ++done) {
    if (job.place(done).node().rank(done).state != HVDFT_DONE) continue;
    uint64_t furthest = 0, told = 0;
    for (uint64_t d = 1; d < kNodes; ++d) {
      Place& other = job.place((done + static_cast<int>(d)) % kNodes);
      furthest = std::max(furthest, other.header().pair_log.received.at().op);
      told += other.node().rank(done).state == HVDFT_DONE;
    }
    *needed = furthest == last && told == 2;
    lose(job, {done});
    break;
  }
  rejoin_and_run(job);
  return true;
}

const std::vector<std::vector<int>> kLost = {{2}, {1}, {0}, {1, 2}, {0, 2}, {0, 1}};

}  // namespace

int main(int argc, char**) {
  uint64_t stride = argc > 1 ? 13 : 1, cases = 0, least = UINT64_MAX;
  for (uint64_t at = 0;; at += stride) {
    const auto &lost = kLost[cases % kLost.size()], &again = kLost[(cases / 2 + 1) % kLost.size()];
    if (lost_twice({at, at * 13 % 400, at * 5 % 90, lost, again},
                   cases % 4 < 2 ? Others::kGoOn : Others::kDie) == 0) {
      break;
    }
    ++cases;
  }
  CHECK(cases > 25);
  for (const auto& lost : kLost) {  // at stores of filling them
    uint64_t at = 0;
    while (lost_twice({100, at, 30, lost, {}}, Others::kDie) == 3) at += 80 * stride;
    least = std::min(least, at);
  }
  CHECK(least > 100);
  for (size_t i = 0; i < kLost.size(); ++i) {
    uint64_t step = argc > 1 ? 7 : 1, at = i;
    while (lost_twice({at * 37 % 290, at, 30, kLost[i], {}, true}, Others::kGoOn) == 3) at += step;
    std::printf("and at some of %lu when the log is copied\n", at);
    CHECK(at > 20);
  }
  int needed = 0;
  for (uint64_t distance : {1, 2}) {
    bool is_needed = false;
    for (uint64_t at = 0; lost_when_done(at, distance, &is_needed); ++at) {
      needed += std::exchange(is_needed, false);
    }
  }
  std::printf("ranks that were done had to come back in %d cases\n", needed);
  CHECK(needed > 0);
  std::printf("lost at %lu stores, and at one of at least %lu stores of the rejoin\n", cases,
              least);
}
