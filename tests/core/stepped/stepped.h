// The atomic in shared memory of core code compiled for these tests: each access is a step, and
// between any two steps a test can look, let others act, or kill.
#ifndef HVD_FT_TESTS_STEPPED_H
#define HVD_FT_TESTS_STEPPED_H

#include <atomic>
#include <functional>
#include <utility>

namespace hvdft {

// What a test does at the steps of the code under test: before and after each store (`written`),
// and before each load. What it accesses itself is no step.
inline std::function<void(bool written)> at_step;

inline void step(bool written) {
  if (!at_step) return;
  auto act = std::exchange(at_step, nullptr);
  act(written);
  at_step = std::move(act);
}

template <typename T>
class Stepped : public std::atomic<T> {
 public:
  using Order = std::memory_order;
  static constexpr Order kStrict = std::memory_order_seq_cst;

  constexpr Stepped() = default;
  constexpr Stepped(T value) : Base(value) {}
  Stepped(const Stepped&) = delete;

  T load(Order order = kStrict) const {
    step(false);
    return Base::load(order);
  }
  operator T() const { return load(); }
  void store(T value, Order order = kStrict) {
    writing([&] { return Base::store(value, order), 0; });
  }
  T operator=(T value) { return store(value), value; }
  T exchange(T value, Order order = kStrict) {
    return writing([&] { return Base::exchange(value, order); });
  }
  T fetch_add(T value, Order order = kStrict) {
    return writing([&] { return Base::fetch_add(value, order); });
  }
  T fetch_sub(T value, Order order = kStrict) {
    return writing([&] { return Base::fetch_sub(value, order); });
  }
  T fetch_or(T value, Order order = kStrict) {
    return writing([&] { return Base::fetch_or(value, order); });
  }
  bool compare_exchange_strong(T& expected, T value, Order order = kStrict) {
    return writing([&] { return Base::compare_exchange_strong(expected, value, order); });
  }
  bool compare_exchange_weak(T& expected, T value, Order order = kStrict) {
    return compare_exchange_strong(expected, value, order);
  }

 private:
  using Base = std::atomic<T>;
  template <typename Act>
  auto writing(Act act) {
    step(true);
    auto result = act();
    step(true);
    return result;
  }
};

}  // namespace hvdft

#endif  // HVD_FT_TESTS_STEPPED_H
