// A kernel for the core's threads, in virtual time: one thread runs at a time, until it waits for a
// futex, yields or sleeps; then the clock jumps to the next moment at which one can go on. Nothing
// but waiting takes time. With the same seed the same happens again.
//
// A thread that is killed is never resumed: it ends between two instructions, with nothing undone,
// as under SIGKILL. Its files are closed.
#ifndef HVD_FT_TESTS_LARGE_KERNEL_H
#define HVD_FT_TESTS_LARGE_KERNEL_H

#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <queue>
#include <set>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../simulator/ring_sim_wire.h"

namespace large {

using ring_sim::Random;

constexpr uint64_t kForever = UINT64_MAX;
constexpr uint64_t kWakeNs = 5000;    // from a notification until the thread runs
constexpr uint64_t kYieldNs = 10000;  // how soon a thread that yields runs again, at the latest

constexpr uint64_t kMostNs = 300000000000;  // a run that takes longer never ends

enum class Kind { kDirector, kLeader, kWorker };

struct Task {
  enum State { kReady, kRuns, kFutex, kYields, kSleeps, kDead };

  Task(int of_node, Kind of_kind) : node(of_node), kind(of_kind) { sem_init(&go, 0, 0); }

  const int node;
  const Kind kind;
  State state = kReady;
  uint64_t epoch = 0;  // of its latest wait: events of earlier ones do not concern it
  const void* address = nullptr;
  uint32_t bits = 0;
  bool notified = false, poked = false;
  int64_t fuse = -1;    // it is killed at this point of those that come; -1: it is not
  int shields = 0;      // it holds what all threads share, so it is not killed here
  std::set<int> files;  // descriptors
  sem_t go;
};

class Kernel {
 public:
  // `jitter`: threads are held up at random.
  Kernel(int nodes, uint64_t seed, bool jitter) : by_node_(nodes), random_(seed), jitter_(jitter) {
    mine_ = &tasks_.emplace_back(-1, Kind::kDirector);
    mine_->state = Task::kRuns;
  }

  static Kernel* running() { return running_; }
  void run() { running_ = this; }

  uint64_t now() const { return clock_; }
  Random& random() { return random_; }
  uint64_t wakeups(Kind kind) const { return wakeups_[static_cast<int>(kind)]; }

  // A thread of a node begins. It need not end.
  Task* spawn(int node, Kind kind, std::function<void()> act) {
    Task* task = add(node, kind);
    start([this, task, act = std::move(act)] {
      mine_ = task;
      sem_wait(&task->go);
      act();
      kill(task);
      hand_on();
    });
    push(clock_, task);
    return task;
  }

  // `act` starts one thread that knows nothing of this kernel, and is this task from its first call
  // on.
  template <typename Act>
  Task* adopt(int node, Kind kind, Act act) {
    Task* task = adopted_ = opens_ = add(node, kind);
    act();
    sem_wait(&adopted_is_there_);
    opens_ = nullptr;
    push(clock_, task);
    return task;
  }

  void sleep(uint64_t ns) { park(Task::kSleeps, clock_ + ns); }

  // What a thread does first in each call: whether it is one of the kernel's.
  void enters() {
    if (mine_ != nullptr) return;
    mine_ = adopted_;
    sem_post(&adopted_is_there_);
    sem_wait(&mine_->go);
  }

  // Not between these two: it holds what all threads share.
  void shield(bool on) { mine_->shields += on ? 1 : -1; }

  // A point at which a thread can be killed or held up.
  void point() {
    Task& me = *mine_;
    if (me.shields > 0 || me.kind == Kind::kDirector) return;
    if (me.fuse >= 0 && me.fuse-- == 0) end(false);
    if (jitter_ && random_.below(64) == 0) sleep(random_.below(20000));
  }

  // This thread is killed here.
  [[noreturn]] void end(bool by_itself) {
    Task& me = *mine_;
    if (by_itself) ends_itself(&me);
    kill(&me);
    hand_on();
    for (;;) sem_wait(&me.go);
  }
  std::function<void(const Task*)> ends_itself = [](const Task*) {};

  void kill(Task* task) {
    forget(task);
    for (int file : std::exchange(task->files, {})) close(file);
    task->state = Task::kDead;
    ++task->epoch;
  }

  void opened(int file) { (opens_ != nullptr ? opens_ : mine_)->files.insert(file); }
  void closes(int file) { (opens_ != nullptr ? opens_ : mine_)->files.erase(file); }

  // False: it was not notified in time.
  bool wait(const void* address, uint64_t until, uint32_t bits) {
    Task& me = *mine_;
    me.address = address;
    me.bits = bits;
    waiting_[address].push_back(&me);
    activity(me.node, kWakeNs / 5);
    park(Task::kFutex, until);
    ++wakeups_[static_cast<int>(me.kind)];
    forget(&me);
    return me.notified;
  }
  void wake(const void* address, uint32_t bits) {
    activity(mine_->node, kWakeNs / 5);
    auto found = waiting_.find(address);
    if (found == waiting_.end()) return;
    for (Task* task : found->second) {
      if ((task->bits & bits) == 0 || task->notified) continue;
      task->notified = true;
      push(clock_ + kWakeNs, task);
    }
  }
  void yield() {
    mine_->poked = false;
    park(Task::kYields, clock_ + kYieldNs);
  }

  // Something arrives at a node: its threads that yield see it, those that sleep do not.
  void arrives(int node, uint64_t at) { events_.push({at, 0, ++events_so_far_, nullptr, node, 0}); }

 private:
  struct Event {
    uint64_t time, order, number;
    Task* task;  // or nullptr: something arrives at the node
    int node;
    uint64_t epoch;
    bool operator<(const Event& other) const {  // the least one is the queue's top
      return std::tie(time, order, number) > std::tie(other.time, other.order, other.number);
    }
  };

  Task* add(int node, Kind kind) {
    Task* task = &tasks_.emplace_back(node, kind);
    by_node_[static_cast<size_t>(node)].push_back(task);
    return task;
  }

  template <typename Act>
  static void start(Act act) {
    std::thread(act).detach();
  }

  void push(uint64_t time, Task* task) {
    events_.push({time, random_.below(1 << 20), ++events_so_far_, task, task->node, task->epoch});
  }

  // A node's threads that yield see what another one has done.
  void activity(int node, uint64_t after) {
    if (node < 0) return;
    for (Task* task : by_node_[static_cast<size_t>(node)]) {
      if (task->state != Task::kYields || task->poked) continue;
      task->poked = true;
      push(clock_ + after, task);
    }
  }

  void park(Task::State state, uint64_t until) {
    Task& me = *mine_;
    me.state = state;
    me.notified = false;
    ++me.epoch;
    if (until != kForever) push(until, &me);
    if (hand_on() != &me) sem_wait(&me.go);
    me.state = Task::kRuns;
  }

  // Lets the next thread run, which may be this one.
  const Task* hand_on() {
    Task* next = nullptr;
    while (next == nullptr) {
      if (events_.empty() || clock_ > kMostNs) {
        std::fprintf(stderr, "hang: nobody can go on\n");
        std::_Exit(1);
      }
      Event event = events_.top();
      events_.pop();
      clock_ = std::max(clock_, event.time);
      if (event.task == nullptr) {
        activity(event.node, 0);
      } else if (event.task->epoch == event.epoch) {
        next = event.task;
      }
    }
    if (next != mine_) sem_post(&next->go);
    return next;
  }

  void forget(Task* task) {
    auto found = waiting_.find(task->address);
    if (found == waiting_.end()) return;
    auto& tasks = found->second;
    tasks.erase(std::remove(tasks.begin(), tasks.end(), task), tasks.end());
    if (tasks.empty()) waiting_.erase(found);
  }

  static inline Kernel* running_ = nullptr;
  static inline thread_local Task* mine_ = nullptr;

  std::deque<Task> tasks_;
  std::vector<std::vector<Task*>> by_node_;
  std::priority_queue<Event> events_;
  std::unordered_map<const void*, std::vector<Task*>> waiting_;
  Random random_;
  const bool jitter_;
  Task *adopted_ = nullptr, *opens_ = nullptr;  // whose files are being opened, if not this one's
  sem_t adopted_is_there_{};
  uint64_t clock_ = 1000000000, events_so_far_ = 0;
  uint64_t wakeups_[3] = {};
};

}  // namespace large

#endif  // HVD_FT_TESTS_LARGE_KERNEL_H
