// A small script whose ranks take their snapshots together, as training_loop.py and
// snapshot_writer.py do: at marks, by fingerprints, while training goes on. There is no time in it:
// what never comes hangs, and fails.
#ifndef HVD_FT_TESTS_SHARED_SCRIPT_H
#define HVD_FT_TESTS_SHARED_SCRIPT_H

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "arena/layout.h"
#include "hvd_ft_snapshots.h"
#include "small_script.h"

constexpr int kLooks = 20000;  // of 1 ms; a wait that takes more never ends

// What the ranks store of a boundary: a part of their own, and behind it a stripe of what they
// share, or all of it if it is not equal on all of them.
constexpr uint64_t kOwnBytes = 3000, kSharedBytes = 10000, kStripe = hvdft::kPage;

inline bool are_equal(uint64_t position) { return position / kTogether % 3 != 0; }

inline char own_byte(int rank, uint64_t position, uint64_t at) {
  return static_cast<char>(position * 31 + static_cast<uint64_t>(rank) * 7 + at);
}

inline char shared_byte(int rank, uint64_t position, uint64_t at) {
  uint64_t variety = are_equal(position) ? 0 : static_cast<uint64_t>(rank) + 1;
  return static_cast<char>(position * 17 + at * 3 + at / 251 + variety * 5);
}

inline uint64_t stripe_begin(int number, int count) {
  return kSharedBytes * static_cast<uint64_t>(number) / static_cast<uint64_t>(count);
}

// The head of a rank's own part.
struct Carried {
  uint64_t next, state, step;
};

// Whether a rank's part of a snapshot of `position` is what it is to be.
inline void check_own(const char* data, int rank, uint64_t position) {
  for (uint64_t i = sizeof(Carried); i < kOwnBytes; ++i) {
    CHECK(data[i] == own_byte(rank, position, i));
  }
}

inline void check_shared(const char* data, int rank, uint64_t position, uint64_t from,
                         uint64_t to) {
  for (uint64_t i = from; i < to; ++i) CHECK(data[i - from] == shared_byte(rank, position, i));
}

struct SharedScript : Script {
  // The step at which this rank has no room for its part, and the one whose boundary it leaves out.
  uint64_t refused_step = 0, skipped_step = 0;
  std::function<void()> between_writes = [] {}, after_restore = [] {}, after_refusal = [] {};
  bool refuses = false;  // what it would start again from, if it may

  uint64_t elements_of(uint64_t op) const override { return op % 5 * 40 + 1; }

  void wait(uint32_t ticket) override {
    poll();
    hvdft_worker_wait(ticket, phase_ == kNone ? 10000 : 1);
  }

  void at_boundary() override {
    ++step_;
    hvdft_worker_set_step(step_);
    hvdft_worker_cuts_passed(0, std::min(2 * step_, phase_ == kNone ? UINT64_MAX : cut_ - 1));
    if (hvdft_worker_incarnation() > 0) hvdft_worker_snapshot_settle(0);
    int passed = hvdft_worker_mark_passed(0, snapshot_op_);
    CHECK(passed >= 0);
    if (passed == 0 && phase_ == kNone && hvdft_worker_snapshot_settle(0) == HVDFT_OK) {
      hvdft_worker_mark_request(next);
    }
    if (passed == 1 && step_ != skipped_step) take(2 * step_ + 1);
  }

  void at_end() override {
    take(2 * step_ + 2);
    settle();
    CHECK(hvdft_worker_loop_end(0) == HVDFT_OK);
  }

  void restore() override {
    snapshot_op_ = next;
    const void* data;
    hvdft_snapshot snapshot;
    int found = hvdft_worker_snapshot_get(0, &data, &snapshot);
    if (refuses && hvdft_worker_snapshot_refuse(0) == 1) {
      after_refusal();
      uint64_t refused = snapshot.cut;
      found = hvdft_worker_snapshot_get(0, &data, &snapshot);
      CHECK(found == 0 || snapshot.cut < refused);
      CHECK(hvdft_worker_snapshot_refuse(0) == 0);  // the log may be truncated there
    }
    CHECK(found >= 0);
    if (found == 0) return after_restore();
    Carried carried;
    std::memcpy(&carried, data, sizeof carried);
    uint64_t position = snapshot.position;
    CHECK(carried.next == position);
    auto* bytes = static_cast<const char*>(data);
    check_own(bytes, hvdft_worker_rank(), position);
    if (snapshot.agreement == 0) {
      check_shared(bytes + kOwnBytes, hvdft_worker_rank(), position, 0, kSharedBytes);
    } else {
      check_stripes(position);
    }
    next = carried.next;
    state = carried.state;
    step_ = carried.step;
    snapshot_op_ = next;
    CHECK(hvdft_worker_jump(0) == HVDFT_OK);
    after_restore();
  }

 private:
  enum Phase { kNone, kBegun, kComparing, kSettling };
  struct Fingerprint {
    uint64_t about, shared;
  };

  static void check_stripes(uint64_t position) {
    int count = hvdft_worker_size();
    for (int r = 0; r < count; ++r) {
      const void* data;
      uint64_t bytes;
      CHECK(hvdft_worker_snapshot_stripe(0, r, &data, &bytes) == HVDFT_OK);
      uint64_t from = stripe_begin(r, count), to = stripe_begin(r + 1, count);
      CHECK(bytes == to - from);
      check_shared(static_cast<const char*>(data), r, position, from, to);
    }
  }

  // SnapshotWriter.write: the rank stands still until its snapshot has begun.
  void take(uint64_t cut) {
    settle();
    cut_ = cut;
    carried_ = {next, state, step_};
    snapshot_op_ = next;
    int code = HVDFT_AGAIN;
    await([&] { return (code = hvdft_worker_snapshot_begin(0, cut_, next)) != HVDFT_AGAIN; });
    CHECK(code >= 0);
    // Or it is left out, or was delivered before this rank died.
    phase_ = code == HVDFT_OK ? kBegun : kSettling;
  }

  // What the thread that copies does, in between.
  void poll() {
    if (phase_ == kBegun) publish();
    if (phase_ == kComparing) compare();
    if (phase_ != kSettling) return;
    int code = hvdft_worker_snapshot_settle(0);
    if (code == HVDFT_AGAIN) return;
    if (code == 1) hvdft_worker_mark_request(next);
    phase_ = kNone;
  }

  void publish() {
    Fingerprint own{hvdft::cut_key(0, cut_) * 1000 + carried_.next,
                    static_cast<uint64_t>(shared_byte(hvdft_worker_rank(), carried_.next, 0))};
    CHECK(hvdft_worker_fingerprints_publish(0, cut_, &own, sizeof own) == HVDFT_OK);
    phase_ = kComparing;
  }

  void compare() {
    int count = hvdft_worker_size();
    std::vector<Fingerprint> found(static_cast<size_t>(count));
    for (int r = 0; r < count; ++r) {
      int64_t bytes = hvdft_worker_fingerprints(r, 0, cut_, &found[r], sizeof found[r]);
      if (bytes == HVDFT_AGAIN) return;
      if (bytes == HVDFT_ETRUNCATED) {
        hvdft_worker_snapshot_give_up(0, cut_);
        return deliver(0);
      }
      CHECK(bytes == sizeof found[r]);
    }
    uint64_t agreement = 7;
    bool equal = true;
    for (const Fingerprint& of : found) {
      CHECK(of.about == found[0].about);  // all are at the same boundary
      equal = equal && of.shared == found[0].shared;
      agreement = agreement * 1000003 + of.shared;
    }
    CHECK(equal == are_equal(carried_.next));
    deliver(equal ? static_cast<uint32_t>(agreement) | 1 : 0);
  }

  void deliver(uint32_t agreement) {
    phase_ = kNone;
    int rank = hvdft_worker_rank(), count = hvdft_worker_size();
    uint64_t from = 0, to = kSharedBytes, at = kOwnBytes;
    if (agreement != 0) {
      from = stripe_begin(rank, count);
      to = stripe_begin(rank + 1, count);
      at = kStripe;
    }
    hvdft_snapshot snapshot{cut_, carried_.next, at + to - from, agreement != 0 ? at : 0,
                            agreement};
    void* room;
    CHECK(hvdft_worker_snapshot_room(0, snapshot.bytes, &room) == HVDFT_OK);
    if (carried_.step == refused_step) {
      CHECK(hvdft_worker_snapshot_give_up(0, cut_) == HVDFT_OK);
      return;
    }
    auto* bytes = static_cast<char*>(room);
    std::memcpy(bytes, &carried_, sizeof carried_);
    for (uint64_t i = sizeof carried_; i < kOwnBytes; ++i) {
      bytes[i] = own_byte(rank, carried_.next, i);
    }
    between_writes();
    for (uint64_t i = from; i < to; ++i) bytes[at + i - from] = shared_byte(rank, carried_.next, i);
    between_writes();
    CHECK(hvdft_worker_snapshot_deliver(0, &snapshot) == HVDFT_OK);
    if (agreement != 0) phase_ = kSettling;
  }

  void settle() {
    await([&] { return poll(), phase_ == kNone; });
  }

  template <typename Done>
  void await(Done done) {
    for (int looks = 0;; ++looks) {
      uint32_t ticket = hvdft_worker_snapshot_ticket();
      if (done()) return;
      CHECK(looks < kLooks);
      hvdft_worker_snapshot_wait(ticket, 1);
    }
  }

  Phase phase_ = kNone;
  uint64_t step_ = 0, snapshot_op_ = 0, cut_ = 0;
  Carried carried_{};
};

#endif  // HVD_FT_TESTS_SHARED_SCRIPT_H
