#include "ft_engine.h"

#include "ft_context.h"
#include "ft_stop.h"

namespace horovod {
namespace common {

FtContext::FtContext() : engine(*new FtEngine) {}

void FtEngine::Start(Timeline& timeline, ParameterManager& parameter_manager) {
  executor_.Start(timeline);
  negotiator_.Start(parameter_manager);
  tuner_.Start(parameter_manager);
  replay_.Start();
  reader_.Start();
  roster_ = ft().worker_roster();
  ended_ = false;
}

void FtEngine::End() {
  std::lock_guard<std::mutex> guard(mutex_);
  ended_ = true;
  changed_.notify_all();
}

// Where the log has come to another roster, or the script has jumped there.
void FtEngine::FollowRoster() {
  uint64_t now = ft().worker_roster();
  if (now == roster_) {
    return;
  }
  // One after the other: a process set stays ended even if the rank that had left is back.
  for (uint64_t number = roster_ + 1; number <= now; ++number) {
    std::vector<int> present(static_cast<size_t>(ft().worker_size()));
    present.resize(static_cast<size_t>(ft().worker_present(number, present.data())));
    for (auto& each : sets_) {
      each.second.coordinator.Follow(present);
    }
  }
  std::lock_guard<std::mutex> guard(mutex_);
  roster_ = now;
  changed_.notify_all();
}

bool FtEngine::AwaitRoster() {
  Wake();
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return ended_ || roster_ == ft().worker_roster(); });
  return !ended_;
}

bool FtEngine::HasLeft() const { return !sets_.at(0).requests.InSet(); }

void FtEngine::Remove(int32_t number) {
  auto removed = sets_.find(number);
  if (removed == sets_.end()) {
    return;
  }
  if (!ended_) { // Horovod has called its requests back
    ft().worker_pend(-static_cast<int64_t>(removed->second.requests.Pending().size()));
  }
  sets_.erase(removed);
}

bool FtEngine::Next(bool shutdown_requested, HorovodGlobalState& state) {
  for (;;) {
    uint32_t ticket = ft().worker_ticket();
    uint64_t term = ft().worker_term(); // before the log, see hvd_ft.h
    shutdown_requested |= state.shut_down;
    FollowRoster();
    if (negotiator_.Collect()) {
      replay_.Moved();
    }
    if (reader_.HandOver(shutdown_requested)) {
      return true;
    }
    if (executor_.Advance()) {
      continue;
    }
    if (shutdown_requested && executor_.IsIdle()) {
      Leave();
      return false;
    }
    uint64_t log_length = ft().worker_log_length();
    if (HasLeft()) {
      // It takes part in nothing any more, and its script ends.
    } else if (executor_.NextOp() < log_length) {
      replay_.Check(executor_.NextOp(), log_length);
    } else if (!ft().worker_entered()) {
      FtCheck(ft().worker_enter(log_length));
    } else {
      ft().worker_caught_up();
      negotiator_.FollowTerm(term);
      if (negotiator_.MoreToCome(ticket)) {
        continue;
      }
      negotiator_.Negotiate(state);
    }
    CheckPeers();
    executor_.ShowWaiting();
    FtCheck(ft().worker_wait(ticket, kFtWaitMs));
  }
}

// The others see it in this rank's state; they have nothing to do.
void FtEngine::Leave() {
  FtCheckReplayedToTheEnd();
  ft().worker_caught_up();
  ft().worker_leave();
}

// This rank may wait for an input of a rank that has ended.
void FtEngine::CheckPeers() {
  for (auto& each : sets_) {
    auto& requests = each.second.requests;
    int peer = requests.Pending().empty() ? -1 : ft().worker_ended_peer();
    if (peer >= 0) {
      auto& wanted = requests.Pending().begin()->second;
      ft().worker_stop_for_peer(peer, requests.Signature(wanted).c_str());
    }
  }
}

} // namespace common
} // namespace horovod
