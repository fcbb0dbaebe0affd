#include "mpi/idle_poker.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

namespace hvdft {

namespace {

std::mutex endpoints_mutex;
std::multiset<int> used_numbers;  // by ops of all rings

}  // namespace

IdlePoker::IdlePoker(std::vector<Endpoint*> endpoints)
    : endpoints_(std::move(endpoints)), thread_([this] { run(); }) {}

IdlePoker::~IdlePoker() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void IdlePoker::op_begins(const std::vector<Endpoint*>& used) {
  used_ = used;
  {
    std::lock_guard<std::mutex> lock(endpoints_mutex);
    for (Endpoint* endpoint : used_) used_numbers.insert(endpoint->number());
  }
  notify(used_.size() == endpoints_.size());
}

void IdlePoker::op_ends() {
  {
    std::lock_guard<std::mutex> lock(endpoints_mutex);
    for (Endpoint* endpoint : used_) used_numbers.erase(used_numbers.find(endpoint->number()));
  }
  notify(false);
}

// An op that leaves nothing to poke need not wake the thread.
void IdlePoker::notify(bool all_used) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    all_used_ = all_used;
    changed_now_ = !all_used;
  }
  if (!all_used) changed_.notify_all();
}

void IdlePoker::run() {
  constexpr std::chrono::microseconds kFirst{100}, kLast{100000};
  auto pause = kFirst;
  auto changed = [&] { return ending_ || changed_now_; };
  std::unique_lock<std::mutex> lock(mutex_);
  while (!ending_) {
    if (all_used_) changed_.wait(lock, changed);
    if (changed_.wait_for(lock, pause, changed)) {
      changed_now_ = false;
      pause = kFirst;
    } else if (!all_used_) {
      poke();
      pause = std::min(2 * pause, kLast);
    }
  }
}

void IdlePoker::poke() {
  std::lock_guard<std::mutex> lock(endpoints_mutex);
  for (Endpoint* endpoint : endpoints_) {
    if (used_numbers.count(endpoint->number()) == 0) endpoint->poke();
  }
}

}  // namespace hvdft
