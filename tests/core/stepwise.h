// Runs production code one access to shared memory at a time, so that a test can let others run, or
// kill it, between any two.
//
// Code that is a template over its memory is run again from its beginning for each of its steps:
// what its first accesses gave is played back, one more is done for real, and the next one ends
// the run. So where it is in its work is a list of values, which can be copied and compared.
#ifndef HVD_FT_TESTS_STEPWISE_H
#define HVD_FT_TESTS_STEPWISE_H

#include <cstdint>
#include <vector>

// The values of the accesses that have been done.
using History = std::vector<uint64_t>;

class Stepwise {
 public:
  explicit Stepwise(History* history) : history_(history) {}

  // One access; `act` does it and gives its value.
  template <typename Act>
  uint64_t access(Act act) {
    if (at_ < history_->size()) return (*history_)[at_++];
    if (moved_) throw NotYet{};
    moved_ = true;
    ++at_;
    history_->push_back(act());
    return history_->back();
  }

  // Does one step of `code`; true if that was its last.
  template <typename Code>
  static bool step(History* history, Code code) {
    Stepwise run(history);
    try {
      code(run);
    } catch (NotYet) {
      return false;
    }
    history->clear();
    return true;
  }

 private:
  struct NotYet {};
  History* history_;
  size_t at_ = 0;
  bool moved_ = false;
};

// Stands for a std::atomic<uint64_t>.
class SteppedWord {
 public:
  SteppedWord(Stepwise& run, uint64_t* word) : run_(run), word_(word) {}

  uint64_t load() {
    return run_.access([&] { return *word_; });
  }
  void store(uint64_t value) {
    run_.access([&] { return *word_ = value; });
  }
  bool compare_exchange_strong(uint64_t& expected, uint64_t value) {
    return run_.access([&]() -> uint64_t {
      if (*word_ != expected) return 0;
      *word_ = value;
      return 1;
    }) != 0;
  }

 private:
  Stepwise& run_;
  uint64_t* word_;
};

#endif  // HVD_FT_TESTS_STEPWISE_H
