// The invariants of every run, stated independently of the protocol.
#ifndef HVD_FT_TESTS_RING_SIM_CHECK_H
#define HVD_FT_TESTS_RING_SIM_CHECK_H

#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "protocol/ring_plan.h"
#include "ring_sim_case.h"

namespace ring_sim {

// Why a run is not well; the text begins with one of: wrong, hang, old, order, redone, record.
struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Member r gives 2^r, with the op and the element in the higher bits; so the lowest two bytes of a
// sum show that each contribution is in it once, of up to 16 members. Floats are such that another
// order gives other bits.
inline uint64_t integer(uint64_t op, uint64_t member, uint64_t i) {
  return (op * 1000003 + i) << 16 | uint64_t{1} << member;
}
inline float real(uint64_t op, uint64_t member, uint64_t i) {
  uint64_t mixed = (op * 8191 + i * 131 + member + 1) * 2654435761 % 1000003;
  return static_cast<float>(mixed) / 7.0f * (member % 2 ? -1.0f : 1.0f);
}

inline std::string input_of(const SimOp& op, uint64_t number, uint64_t member) {
  std::string bytes(op.bytes(), '\0');
  for (uint64_t i = 0; i < op.elements; ++i) {
    if (op.floats) {
      float value = real(number, member, i);
      std::memcpy(&bytes[i * sizeof value], &value, sizeof value);
    } else {
      uint64_t value = integer(number, member, i);
      std::memcpy(&bytes[i * sizeof value], &value, sizeof value);
    }
  }
  return bytes;
}

// True if `bytes` is the sum: exactly, of integers; nearly, of floats.
inline bool is_sum(const SimOp& op, uint64_t number, uint64_t members, const std::string& bytes) {
  for (uint64_t i = 0; i < op.elements; ++i) {
    if (op.floats) {
      double sum = 0, size = 0;
      for (uint64_t m = 0; m < members; ++m) {
        sum += real(number, m, i);
        size += std::fabs(real(number, m, i));
      }
      float value;
      std::memcpy(&value, &bytes[i * sizeof value], sizeof value);
      if (!(std::fabs(value - sum) <= size * 1e-6)) return false;
    } else {
      uint64_t sum = 0, value;
      for (uint64_t m = 0; m < members; ++m) sum += integer(number, m, i);
      std::memcpy(&value, &bytes[i * sizeof value], sizeof value);
      if (value != sum) return false;
    }
  }
  return true;
}

class Checker {
 public:
  // `reference`: the results of an undisturbed run, or none, when this is it.
  Checker(const Case& made, const std::vector<std::string>* reference)
      : case_(made),
        reference_(reference),
        accepted_(made.members),
        generations_(made.members),
        entered_(made.members),
        again_(made.members),
        record_(made.members),
        final_(made.members) {}

  void enters(uint64_t member, uint64_t generation) {
    if (generation <= entered_[member]) throw Violation("record: a generation is entered twice");
    entered_[member] = generation;
    ++generations_[member];
  }

  // Of its `segments` each is accepted once; every further generation may bring one of them again.
  void accepts(uint64_t member, uint64_t generation, uint64_t segments) {
    std::string who = "member " + std::to_string(member);
    if (generation != entered_[member]) {
      throw Violation("old: " + who + " in generation " + std::to_string(entered_[member]) +
                      " accepts a message of generation " + std::to_string(generation));
    }
    if (++accepted_[member] >= segments + generations_[member] + again_[member]) {
      throw Violation("redone: " + who + " accepts more than it needs");
    }
  }

  // What was sent in this generation is what is awaited, not what the receiver has already.
  void refuses(uint64_t member, uint64_t generation) {
    if (generation != entered_[member]) return;
    throw Violation("order: member " + std::to_string(member) + " gets what it does not await");
  }

  // It does an op over, from here on, and so accepts its segments again.
  void rejoins(uint64_t member, hvdft::EdgePosition at, uint64_t segments) {
    record_[member] = at;
    again_[member] += segments;
  }

  void lost(uint64_t member) { final_[member].clear(); }

  // What was final before must still be, whatever is being written.
  void is_still_final(uint64_t member, uint64_t op, const std::string& result) {
    for (auto& [of, bytes] : final_[member]) {
      if (of == op) compare(member, op, bytes, result);
    }
  }

  void records(uint64_t member, hvdft::EdgePosition at) {
    if (at < record_[member]) throw Violation("record: it goes back");
    record_[member] = at;
  }

  // A stretch of a result is published as final: it may be read from now on.
  void is_final(uint64_t member, uint64_t op, hvdft::ByteRange bytes, const std::string& result) {
    compare(member, op, bytes, result);
    final_[member].emplace_back(op, bytes);
  }

  void is_result(uint64_t member, uint64_t op, const std::string& result) {
    bool well = reference_ ? result == (*reference_)[op] : true;
    if (!well || !is_sum(case_.ops[op], op, case_.members, result)) {
      throw Violation("wrong: the result of member " + std::to_string(member) + " in op " +
                      std::to_string(op));
    }
  }

 private:
  void compare(uint64_t member, uint64_t op, hvdft::ByteRange bytes, const std::string& result) {
    if (reference_ == nullptr) return;
    if (result.compare(bytes.from, bytes.bytes(), (*reference_)[op], bytes.from, bytes.bytes())) {
      throw Violation("wrong: what member " + std::to_string(member) + " takes for final in op " +
                      std::to_string(op));
    }
  }

  const Case& case_;
  const std::vector<std::string>* reference_;
  std::vector<uint64_t> accepted_, generations_, entered_, again_;
  std::vector<hvdft::EdgePosition> record_;
  std::vector<std::vector<std::pair<uint64_t, hvdft::ByteRange>>> final_;  // op, bytes
};

}  // namespace ring_sim

#endif  // HVD_FT_TESTS_RING_SIM_CHECK_H
