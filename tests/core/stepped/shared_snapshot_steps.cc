// Ranks that take their snapshots together: each of them is killed at every store, two of them at
// pairs of stores, and come back. At every kill each rank can start again from what it has
// published, or from a newer snapshot that is complete: all stripes are there with the right bytes.
// And the job comes to its end: also if a killed rank refuses the newer one because it is damaged.
// An argument makes it every fifth store.
#include <sys/mman.h>
#include <time.h>

#include <cstdio>
#include <random>

#include "../op_rules.h"
#include "../shared_script.h"
#include "protocol/shared_snapshot.h"
#include "steps.h"

using namespace hvdft;

namespace {

constexpr uint64_t kOps = 7 * kTogether;  // the prologue's, and six steps

// When a rank comes back: at once; when the others can do no more without it; or these do so only
// when it has restored its snapshot, and before it goes on from there.
enum Return { kAtOnce, kAtRest, kWhileItReplays };

struct Kill {
  int rank;
  uint64_t store;
  Return back;
  bool refuses = false;
};

// How often that was done, by all processes.
int* const refusals = static_cast<int*>(
    mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));

void work(const Job& job, int rank, int incarnation, bool stops, bool refuses) {
  job.become(rank, incarnation);
  SharedScript script;
  script.ops = kOps;
  if (rank == 0) script.skipped_step = 2;
  if (rank == 1) script.refused_step = 4;
  script.between_writes = [] { step(true); };
  script.refuses = refuses;
  script.after_refusal = [] { ++*refusals; };
  if (stops) script.after_restore = [] { raise(SIGSTOP); };
  CHECK(script.run() == 0);
}

uint64_t published_word(const Loop& loop) {
  uint64_t published = loop.published;
  return published == 0 ? 0 : loop.slots[published & 1].load();
}

// The slot of a rank that holds a snapshot; -1: none.
int slot_with(const Loop& loop, uint64_t word) {
  return loop.slots[0] == word ? 0 : loop.slots[1] == word ? 1 : -1;
}

void check_bytes(const Job& job, int rank, int slot, bool shared) {
  const Loop& loop = job.node->rank(rank).loops[0];
  auto file = RankFile::open(job.dir, "steps", rank, false);
  CHECK(file != nullptr);
  Mapping mapping;
  CHECK(mapping.map(file->fd(), slot_offset(file->limit(), 0, slot), loop.bytes[slot], false) ==
        HVDFT_OK);
  uint64_t position = loop.positions[slot];
  int count = job.node->size();
  uint64_t from = shared ? stripe_begin(rank, count) : 0;
  uint64_t to = shared ? stripe_begin(rank + 1, count) : kSharedBytes;
  check_own(mapping.data(), rank, position);
  check_shared(mapping.data() + (shared ? loop.stripes[slot] : kOwnBytes), rank, position, from,
               to);
}

// Nobody acts now. What each rank would start again from has all its parts, and the log goes on
// from there. A rank that has refused a snapshot has no part of it until it has taken it again, and
// then its own if the others have gone on: what they published of it cannot be restored.
void check_restorable(const Job& job, int refuser = -1) {
  std::vector<RankSlots> all;
  for (int r = 0; r < job.node->size(); ++r) {
    const Loop& loop = job.node->rank(r).loops[0];
    all.push_back({loop.given_up, loop.published_cut, {loop.slots[0], loop.slots[1]}});
  }
  for (int r = 0; r < job.node->size(); ++r) {
    const Loop& loop = job.node->rank(r).loops[0];
    uint64_t published = published_word(loop);
    int other = loop.published == 0 ? 0 : 1 - static_cast<int>(loop.published & 1);
    uint64_t newer = loop.slots[other];
    bool complete = use_of(newer, published, all) == SlotUse::kComplete;
    uint64_t word = complete ? newer : published;
    uint64_t from = word == 0 ? kPrologue : loop.positions[slot_with(loop, word)];
    for (uint64_t op = from; op < job.node->header().log_length; ++op) {
      CHECK(job.node->record(op) != nullptr);
    }
    if (word == 0) continue;
    if (is_alone(word)) {
      check_bytes(job, r, slot_with(loop, word), false);
      continue;
    }
    for (int peer = 0; peer < job.node->size(); ++peer) {
      const Loop& theirs = job.node->rank(peer).loops[0];
      int slot = slot_with(theirs, word);
      if (slot < 0 && peer == refuser) continue;
      CHECK(slot >= 0 && theirs.positions[slot] == from);
      check_bytes(job, peer, slot, true);
    }
  }
}

// A job some of whose ranks are killed, each at one store of its first incarnation.
class Run {
 public:
  Run(int ranks, const std::vector<Kill>& kills)
      : job_(ranks), kills_(kills), pids_(ranks), incarnations_(ranks) {
    for (int r = 0; r < ranks; ++r) {
      agents_.push_back(hvdft_agent_open(job_.dir.c_str(), "steps", r, 0));
      CHECK(agents_.back() != nullptr);
    }
    // Before the log writer has a thread: it is not in a child.
    for (int r = 0; r < ranks; ++r) {
      uint64_t at = kNever;
      for (const Kill& kill : kills_) at = kill.rank == r ? kill.store : at;
      begin(r, at);
    }
    for (hvdft_agent* agent : agents_) hvdft_agent_start(agent, &kOpRules);
    for (int left = ranks; left > 0;) {
      int r = await_end();
      if (!killed_) {
        --left;
        hvdft_agent_done(agents_[r], 0);
        continue;
      }
      ++killed;
      for (const Kill& kill : kills_) {
        if (kill.rank == r) come_back(kill);
      }
    }
    check_restorable(job_, killed > 0 && kills_[0].refuses ? kills_[0].rank : -1);
    for (int r = 0; r < ranks; ++r) {
      const Loop& loop = job_.node->rank(r).loops[0];
      CHECK(loop.ended == 1);
      shared_end = shared_end && !is_alone(published_word(loop)) && loop.published >> 1 == kOps + 1;
    }
    for (hvdft_agent* agent : agents_) hvdft_agent_close(agent);
  }

  int killed = 0;
  bool shared_end = true;  // all start again from the last snapshot of the loop

 private:
  void begin(int rank, uint64_t at, bool stops = false, bool refuses = false) {
    int incarnation = incarnations_[rank];
    pids_[rank] = start_mortal(at, [&] { work(job_, rank, incarnation, stops, refuses); });
    hvdft_agent_started(agents_[rank], incarnation, static_cast<uint64_t>(pids_[rank]));
  }

  // Waits until some rank has ended or was killed; which.
  int await_end() {
    int status = 0;
    pid_t pid = waitpid(-1, &status, 0);
    for (size_t r = 0; r < pids_.size(); ++r) {
      if (pids_[r] != pid) continue;
      pids_[r] = 0;
      killed_ = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
      bool well = killed_ || (WIFEXITED(status) && WEXITSTATUS(status) == 0);
      if (!well) describe();
      CHECK(well);
      return static_cast<int>(r);
    }
    CHECK(false);
    return -1;
  }

  void come_back(const Kill& kill) {
    auto [rank, store, back, refuses] = kill;
    stop_all();
    check_restorable(job_);
    // Before its loop it replays ops that are not complete without the others.
    bool replays = back == kWhileItReplays && job_.node->rank(rank).loops[0].begin != 0;
    if (!replays) signal_all(SIGCONT);
    if (back == kAtRest) come_to_rest();
    hvdft_agent_failed(agents_[rank], SIGKILL);
    ++incarnations_[rank];
    begin(rank, kNever, replays, refuses);
    if (!replays) return;
    int status = 0;
    CHECK(waitpid(pids_[rank], &status, WUNTRACED) == pids_[rank] && WIFSTOPPED(status));
    pid_t pid = std::exchange(pids_[rank], 0);
    signal_all(SIGCONT);
    come_to_rest();
    pids_[rank] = pid;
    CHECK(::kill(pid, SIGCONT) == 0);
  }

  // What a failure was, to be tried again.
  void describe() const {
    for (const Kill& kill : kills_) {
      std::fprintf(stderr, "rank %d killed at store %lu, back %d\n", kill.rank, kill.store,
                   kill.back);
    }
    for (int r = 0; r < job_.node->size(); ++r) {
      const RankBlock& block = job_.node->rank(r);
      const Loop& loop = block.loops[0];
      std::fprintf(stderr,
                   "rank %d: step %lu, cuts %lu and %lu, published %lu, given up %lu, passed %lu, "
                   "ended %u\n",
                   r, block.step.load(), cut_of(loop.slots[0]), cut_of(loop.slots[1]),
                   cut_of(published_word(loop)), loop.given_up.load(), loop.passed_cut.load(),
                   loop.ended.load());
    }
  }

  void signal_all(int number) const {
    for (pid_t pid : pids_) {
      if (pid != 0) kill(pid, number);
    }
  }

  void stop_all() const {
    signal_all(SIGSTOP);
    for (pid_t pid : pids_) {
      int status;
      siginfo_t ended;
      if (pid == 0) continue;
      CHECK(waitid(P_PID, static_cast<id_t>(pid), &ended, WSTOPPED | WEXITED | WNOWAIT) == 0);
      if (ended.si_code == CLD_STOPPED) CHECK(waitpid(pid, &status, WUNTRACED) == pid);
    }
  }

  // Whoever needs the dead rank waits for it without end: a moment is enough to come to that.
  static void come_to_rest() {
    timespec moment{0, 3000000};
    nanosleep(&moment, nullptr);
  }

  Job job_;
  const std::vector<Kill> kills_;
  std::vector<hvdft_agent*> agents_;
  std::vector<pid_t> pids_;
  std::vector<int> incarnations_;
  bool killed_ = false;
};

// The number of a rank's stores.
uint64_t kill_at_every_store(int ranks, int victim, uint64_t first, uint64_t stride, bool refuses,
                             int* shared_ends) {
  for (uint64_t at = first;; at += stride) {
    Run run(ranks, {{victim, at, static_cast<Return>(at / stride % 3), refuses}});
    *shared_ends += run.shared_end;
    if (run.killed == 0) return at;
  }
}

void kill_at_pairs(int ranks, uint64_t stores, int count) {
  std::mt19937 random(1);
  int twice = 0;
  for (int i = 0; i < count; ++i) {
    int first = static_cast<int>(random() % static_cast<unsigned>(ranks));
    int second =
        (first + 1 + static_cast<int>(random() % static_cast<unsigned>(ranks - 1))) % ranks;
    twice += Run(ranks, {{first, random() % stores, static_cast<Return>(random() % 3)},
                         {second, random() % stores, static_cast<Return>(random() % 3)}})
                 .killed == 2;
  }
  std::printf("%d ranks: two killed at each of %d pairs of stores\n", ranks, twice);
  CHECK(twice > count / 2);
}

// Rank 0 has delivered its part of a cut. What rank 1 has passed without delivering never comes.
void who_has_passed_a_cut_is_not_awaited() {
  Job job(2);
  CHECK(!killed_at(kNever, [&] {
    job.become(0, 0);
    Loop& theirs = job.node->rank(1).loops[0];
    uint64_t begin;
    void* room;
    CHECK(hvdft_worker_loop_begin(0, &begin) == HVDFT_OK);
    CHECK(hvdft_worker_snapshot_begin(0, 2, begin) == HVDFT_OK);
    CHECK(hvdft_worker_snapshot_room(0, 1, &room) == HVDFT_OK);
    hvdft_snapshot snapshot{2, begin, 1, 1, 7};
    CHECK(hvdft_worker_snapshot_deliver(0, &snapshot) == HVDFT_OK);
    CHECK(hvdft_worker_snapshot_settle(0) == HVDFT_AGAIN);
    theirs.passed_cut = 1;
    CHECK(hvdft_worker_snapshot_settle(0) == HVDFT_AGAIN);
    theirs.passed_cut = 2;
    CHECK(hvdft_worker_snapshot_settle(0) == HVDFT_OK);
    CHECK(job.node->rank(0).loops[0].published == 0);
  }));
}

}  // namespace

int main(int argc, char**) {
  who_has_passed_a_cut_is_not_awaited();
  uint64_t stride = argc > 1 ? 5 : 1;
  Run undisturbed(2, {});
  CHECK(undisturbed.killed == 0 && undisturbed.shared_end);
  uint64_t stores = 0;
  for (int victim = 0; victim < 2; ++victim) {
    int shared_ends = 0;
    stores = kill_at_every_store(2, victim, 0, stride, false, &shared_ends);
    std::printf("rank %d: %lu stores, killed at each that %lu divides; %d shared ends\n", victim,
                stores, stride, shared_ends);
    CHECK(stores > 300 && *refusals == 0);
  }
  for (int victim = 0; victim < 2; ++victim) {
    int shared_ends = 0;
    *refusals = 0;
    // Few stores lead to one, other ones in each run: the others are tried until one has happened.
    for (uint64_t first = 0; first < stride && (first == 0 || *refusals == 0); ++first) {
      kill_at_every_store(2, victim, first, stride, true, &shared_ends);
    }
    std::printf("rank %d: likewise, %d refusals; %d shared ends\n", victim, *refusals, shared_ends);
    CHECK(*refusals > 0);
    *refusals = 0;
  }
  kill_at_pairs(2, stores, 200 / static_cast<int>(stride));
  kill_at_pairs(3, stores, 200 / static_cast<int>(stride));
}
