// Leaders that are killed between two of their stores.
#ifndef HVD_FT_TESTS_LEADERS_KILLED_LEADERS_H
#define HVD_FT_TESTS_LEADERS_KILLED_LEADERS_H

#include "../stepped/steps.h"
#include "leading_job.h"

namespace hvdft {

// Whose stores are counted: those of the ring's halves, of the log writer, or of both and the
// mirror but for the ring's.
enum class Of { kRing, kLogWriter, kRest };
// Whether the leaders of other nodes go on as far as they can before they die too.
enum class Others { kDie, kGoOn };

// A store that was not made is one that no reader waits for any longer: it takes a second.
inline void find_lost(LeadingJob& job) {
  auto find = [](Event* slots, uint64_t count) {
    for (uint64_t n = 0; n < count; ++n) {
      if (slots[n].published == n + 1) continue;
      slots[n].event = hvdft_event{};
      slots[n].published = n + 1;
    }
  };
  for (int n = 0; n < kNodes; ++n) {
    Place& place = job.place(n);
    find(place.node().event_slots(), place.header().event_count);
    if (n == 0) find(place.node().report_slots(), place.header().report_count);
  }
}

inline bool is_of(const LeadingJob& job, Of of) {
  const ActedLeader* leader = job.acting != nullptr ? job.acting_at->leader.get() : nullptr;
  bool log_writer = leader && leader->log_writer && job.acting == &*leader->log_writer;
  if (of == Of::kLogWriter) return log_writer;
  bool ring = leader && (job.acting == &*leader->sender || job.acting == &*leader->receiver);
  return ring == (of == Of::kRing);
}

// A generation whose leaders are killed before their `number`th store of those that count, when
// `last` has been called.
template <typename Counts, typename Last, typename Act>
bool killed_before_store(LeadingJob& job, uint64_t number, Counts counts, Last last, Act act) {
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    job.at_leaders_step = [&, before = false](bool written) mutable {
      if (written) before = !before;
      if (!written || !before || !counts() || number-- != 0) return;
      last();
      kill(getpid(), SIGKILL);
    };
    act();
    _exit(0);
  }
  bool killed = was_killed(pid);
  find_lost(job);
  return killed;
}

template <typename Act>
bool killed_at_store(LeadingJob& job, Of of, uint64_t number, Others others, Act act) {
  auto last = [&] {
    const Place* dead = job.acting_at;
    if (others == Others::kDie || job.acting == nullptr) return;
    job.others_go_on([&](const Place& place, const LeaderPart*) { return &place != dead; });
  };
  return killed_before_store(job, number, [&] { return is_of(job, of); }, last, act);
}
inline bool killed_at_store(LeadingJob& job, Of of, uint64_t number, Others others) {
  return killed_at_store(job, of, number, others, [&] { job.run(); });
}

}  // namespace hvdft

#endif  // HVD_FT_TESTS_LEADERS_KILLED_LEADERS_H
