// A worker's small script over the C ABI, in the manner of Horovod's ft backend: a prologue, a
// training loop with snapshots, then an end. Every result is checked by every worker: rank r
// contributes (op + 1) * 2^r to each element, so a contribution missing or taken twice shows.
#ifndef HVD_FT_TESTS_SMALL_SCRIPT_H
#define HVD_FT_TESTS_SMALL_SCRIPT_H

#include <cstring>
#include <deque>
#include <string>

#include "check.h"
#include "hvd_ft.h"
#include "protocol/segments.h"
#include "take_snapshot.h"

constexpr uint64_t kTogether = 3;  // ops that are announced, agreed and under way at once, at most
constexpr uint64_t kPrologue = 3;  // ops before the loop
constexpr uint64_t kSnapshotOps = 6;

// Some ops have one segment, some more than the window: kills strike between segments too.
inline uint64_t elements(uint64_t op) {
  constexpr uint64_t segment = hvdft::kNodeSegmentBytes / sizeof(uint64_t);
  return op % 5 == 0 ? hvdft::kNodeWindowBytes / sizeof(uint64_t) + 2 * segment + 1
                     : op % 5 * segment / 3 + 1;
}

// One op under way, and whose it is.
struct Flight {
  uint64_t op;
  hvdft_record record;
  static void give(void* self, uint64_t, uint64_t bytes, void* to) {
    uint64_t value = (static_cast<Flight*>(self)->op + 1) << hvdft_worker_rank();
    auto* mine = static_cast<uint64_t*>(to);
    for (uint64_t i = 0; i < bytes / sizeof value; ++i) mine[i] = value;
  }
  static void take(void* self, uint64_t, uint64_t bytes, const void* from) {
    uint64_t expected = (static_cast<Flight*>(self)->op + 1) * ((1u << hvdft_worker_size()) - 1);
    auto* result = static_cast<const uint64_t*>(from);
    for (uint64_t i = 0; i < bytes / sizeof expected; ++i) CHECK(result[i] == expected);
  }
};

// What a worker carries from op to op: wrong after a bad replay.
inline uint64_t mixed(uint64_t state, uint64_t result) {
  return state * 6364136223846793005u + result;
}

struct Script {
  virtual ~Script() = default;

  uint64_t ops = 0, snapshot_ops = kSnapshotOps, together = kTogether;
  uint64_t state = 0, next = 0;
  uint64_t term = 0, announced = 0;
  // Coordinator: ranks that announced the next ops. As in Horovod, whose tensors have the
  // same names in every step, an announcement does not say which op it is for.
  int counted = 0;

  // What other scripts do in another way.
  virtual uint64_t elements_of(uint64_t op) const { return elements(op); }
  virtual uint32_t dtype_of(uint64_t) const { return HVDFT_INT64; }
  virtual void wait(uint32_t ticket) { hvdft_worker_wait(ticket, 10000); }
  virtual void at_boundary() {
    if ((next - kPrologue) % snapshot_ops == 0) snapshot();
  }
  virtual void at_end() {}

  void follow_term(uint64_t now) {
    if (now == term) return;
    term = now;
    announced = 0;
    counted = 0;
  }

  void announce() {
    if (announced == next + 1) return;
    if (hvdft_worker_rank() == 0) {
      ++counted;
    } else {
      int code = hvdft_worker_announce(term, "g", 1);
      if (code == HVDFT_AGAIN) return;
      CHECK(code == HVDFT_OK);
    }
    announced = next + 1;
  }

  void coordinate() {
    for (int r = 1; r < hvdft_worker_size(); ++r) {
      const void* blob;
      while (hvdft_worker_take(r, term, &blob) == 1) ++counted;
    }
    if (counted < hvdft_worker_size()) return;
    CHECK(counted == hvdft_worker_size());
    counted = 0;
    hvdft_op ops[kTogether]{};
    std::string signatures[kTogether];
    for (uint64_t i = 0; i < together; ++i) {
      hvdft_op& op = ops[i];
      op.kind = HVDFT_REDUCE;
      op.dtype = dtype_of(next + i);
      op.result_bytes = elements_of(next + i) * sizeof(int64_t);
      op.response = "";
      signatures[i] = "op " + std::to_string(next + i);
      op.signature = signatures[i].c_str();
    }
    CHECK(hvdft_worker_propose(term, ops, static_cast<int>(together)) == HVDFT_OK);
  }

  hvdft_record agreed(uint64_t id) {
    for (;;) {
      uint32_t ticket = hvdft_worker_ticket();
      uint64_t now = hvdft_worker_term();  // before the log: see hvd_ft.h
      hvdft_record record;
      int code = hvdft_worker_record(id, &record);
      if (code == HVDFT_OK) return record;
      CHECK(code == HVDFT_AGAIN);
      if (!hvdft_worker_entered()) {
        hvdft_worker_enter(id);
      } else {
        hvdft_worker_caught_up();
        follow_term(now);
        announce();
        if (hvdft_worker_rank() == 0) coordinate();
      }
      wait(ticket);
    }
  }

  void step() {
    std::deque<Flight> flights;
    for (uint64_t op = next; op < next + together; ++op) {
      flights.push_back({op, agreed(op)});
      CHECK("op " + std::to_string(op) == flights.back().record.signature);
      hvdft_copies copies{Flight::give, Flight::take, &flights.back()};
      CHECK(hvdft_worker_begin(op, &copies) == HVDFT_OK);
    }
    while (!flights.empty()) {
      uint32_t ticket = hvdft_worker_ticket();
      int code = hvdft_worker_advance();
      if (code == 1) {
        state = mixed(state, *static_cast<const uint64_t*>(flights.front().record.result));
        hvdft_worker_executed(next++);
        flights.pop_front();
        continue;
      }
      CHECK(code == HVDFT_AGAIN);
      wait(ticket);
    }
  }

  void snapshot() {
    uint64_t content[] = {next, state};
    take_snapshot(next, content, sizeof content);
  }

  virtual void restore() {
    const void* data;
    hvdft_snapshot snapshot;
    uint64_t content[2];
    if (hvdft_worker_snapshot_get(0, &data, &snapshot) != 1) return;
    CHECK(snapshot.bytes == sizeof content);
    std::memcpy(content, data, sizeof content);
    next = content[0];
    state = content[1];
    CHECK(next == snapshot.position);
    CHECK(hvdft_worker_jump(0) == HVDFT_OK);
  }

  int run() {
    if (hvdft_worker_open() != HVDFT_OK) {
      std::fprintf(stderr, "%s\n", hvdft_error());
      return 1;
    }
    while (next < kPrologue) step();
    uint64_t begin;
    CHECK(hvdft_worker_loop_begin(0, &begin) == HVDFT_OK);
    CHECK(begin == kPrologue);
    restore();
    while (next < ops) {
      step();
      at_boundary();
    }
    at_end();
    uint64_t expected = 0;
    for (uint64_t op = 0; op < ops; ++op) {
      expected = mixed(expected, (op + 1) * ((1u << hvdft_worker_size()) - 1));
    }
    CHECK(state == expected);
    return 0;
  }
};

#endif  // HVD_FT_TESTS_SMALL_SCRIPT_H
