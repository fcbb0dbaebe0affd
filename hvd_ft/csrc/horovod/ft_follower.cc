#include "ft_follower.h"

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "ft_agreed.h"
#include "ft_controller.h"
#include "ft_process_sets.h"
#include "ft_stop.h"

namespace horovod {
namespace common {

namespace {

constexpr int kWaitMs = 1000; // for the stall inspector; all else notifies

} // namespace

FtFollower& ft_follower() {
  static auto* follower = new FtFollower; // the background thread may outlive static objects
  return *follower;
}

void FtFollower::Start(Timeline& timeline, ParameterManager& parameter_manager) {
  timeline_ = &timeline;
  parameter_manager_ = &parameter_manager;
  const char* timeout = std::getenv("HOROVOD_FT_REPLAY_TIMEOUT_SECONDS"); // checked by the agent
  replay_timeout_ = std::chrono::duration<double>(timeout ? std::strtod(timeout, nullptr) : 60);
  replay_moved_ = Clock::now();
  change_ = ended_ = false;
}

void FtFollower::End() { ended_ = true; }

void FtFollower::Add(int32_t process_set, FtController& controller) {
  controllers_[process_set] = &controller;
}

void FtFollower::Remove(int32_t process_set) {
  auto removed = controllers_.find(process_set);
  if (removed != controllers_.end() && !ended_) { // Horovod has called its requests back
    ft().worker_pend(-static_cast<int64_t>(removed->second->Requests().size()));
  }
  controllers_.erase(process_set);
}

void FtFollower::Wake() { ft().worker_notify(); }

bool FtFollower::Next(bool shutdown_requested, HorovodGlobalState& state) {
  for (;;) {
    uint32_t ticket = ft().worker_ticket();
    uint64_t term = ft().worker_term(); // before the log, see hvd_ft.h
    shutdown_requested |= state.shut_down;
    Collect();
    if (HandOver(shutdown_requested)) {
      return true;
    }
    if (Advance()) {
      continue;
    }
    if (shutdown_requested && in_flight_.empty()) {
      Leave();
      return false;
    }
    uint64_t log_length = ft().worker_log_length();
    if (NextOp() < log_length) {
      CheckReplayMoves(log_length);
    } else if (!ft().worker_entered()) {
      FtCheck(ft().worker_enter(log_length));
    } else {
      ft().worker_caught_up();
      FollowTerm(term);
      if (MoreToCome(ticket)) {
        continue;
      }
      Negotiate(state);
    }
    CheckPeers();
    ShowWaiting();
    FtCheck(ft().worker_wait(ticket, kWaitMs));
  }
}

// The timeline tells a wait for a rank that is restarted from an op that takes long.
void FtFollower::ShowWaiting() {
  if (in_flight_.empty() || !ft().worker_waits() || in_flight_.front()->shown_waiting) {
    return;
  }
  InFlightOp& in_flight = *in_flight_.front();
  in_flight.shown_waiting = true;
  timeline_->ActivityEndAll(in_flight.entries);
  timeline_->ActivityStartAll(in_flight.entries, "FT_WAIT_PEER");
}

void FtFollower::Collect() {
  bool waited = std::any_of(controllers_.begin(), controllers_.end(),
                            [](auto& each) { return each.second->HasUnannounced(); });
  bool any = false;
  for (auto& each : controllers_) {
    any |= each.second->Collect();
  }
  if (any) {
    replay_moved_ = Clock::now();
    unannounced_since_ = waited ? unannounced_since_ : replay_moved_;
  }
}

bool FtFollower::Waits() const {
  return std::any_of(controllers_.begin(), controllers_.end(),
                     [](auto& each) { return !each.second->Requests().empty(); });
}

// Others learn of it by the state of this rank: they have nothing to do for it.
void FtFollower::Leave() {
  CheckReplayedToTheEnd();
  ft().worker_caught_up();
  ft().worker_leave();
}

// What this rank waits for may be something that a rank which has ended cannot give any more.
void FtFollower::CheckPeers() {
  for (auto& each : controllers_) {
    auto& requests = each.second->Requests();
    int peer = requests.empty() ? -1 : ft().worker_ended_peer();
    if (peer >= 0) {
      ft().worker_stop_for_peer(peer, each.second->Signature(requests.begin()->second).c_str());
    }
  }
}

bool FtFollower::TakeChange() {
  bool change = change_;
  change_ = false;
  return change || ended_;
}

// ---------------------------------------------------------------- following the log

uint64_t FtFollower::NextOp() const {
  return ft().worker_next() + in_flight_.size() + executing_.size();
}

bool FtFollower::HandOver(bool leaving) {
  FtController* to = nullptr;
  while (FtController* next = NextFromLog(to, leaving)) {
    to = next;
  }
  return to != nullptr;
}

// Hands the log's next op over, to the same controller as the one before. Returns it, or nullptr.
FtController* FtFollower::NextFromLog(const FtController* before, bool leaving) {
  while (!change_) { // until that is done it is not known which sets there are
    hvdft_record record;
    int code = ft().worker_record(NextOp(), &record);
    // Cut: the script is on its way to the loop, from where it jumps to its snapshot.
    if (code == HVDFT_AGAIN || (code == HVDFT_ETRUNCATED && !Waits())) {
      return nullptr;
    }
    FtCheck(code);
    auto agreed = FtReadResponse(record);
    FtController& controller = ControllerOf(agreed.process_set, record);
    if (before != nullptr && before != &controller) {
      return nullptr;
    }
    if (controller.IsInitialized()) { // this rank is in that process set
      if (!controller.TakeResponse(record, agreed.message)) {
        return nullptr;
      }
      change_ = FtIsProcessSetChange(agreed.message);
      executing_.push_back(record);
      replay_moved_ = Clock::now();
      return &controller;
    }
    // Before it has joined, a script that asks for nothing may be about to jump to its snapshot.
    if (!ft().worker_entered() && !Waits() && !leaving) {
      return nullptr;
    }
    auto in_flight = std::make_unique<InFlightOp>(record, std::vector<TensorTableEntry>());
    in_flight->of_others = true;
    Begin(std::move(in_flight));
    replay_moved_ = Clock::now();
  }
  return nullptr;
}

FtController& FtFollower::ControllerOf(int32_t process_set, const hvdft_record& record) {
  auto found = controllers_.find(process_set);
  if (found == controllers_.end()) {
    FtStop("op " + std::to_string(record.id) + " is one of process set " +
           std::to_string(process_set) + ", which this rank has not added; the restarted script "
           "must add and remove process sets outside of training loops");
  }
  return *found->second;
}

hvdft_record FtFollower::TakeRecord() {
  hvdft_record record = executing_.front();
  executing_.pop_front();
  return record;
}

void FtFollower::Begin(std::unique_ptr<InFlightOp> in_flight) {
  hvdft_copies copies{
      [](void* f, uint64_t from, uint64_t bytes, void* to) {
        auto& copy = static_cast<InFlightOp*>(f)->copy_in;
        if (copy) {
          copy(from, bytes, static_cast<char*>(to));
        }
      },
      [](void* f, uint64_t from, uint64_t bytes, const void* result) {
        auto& copy = static_cast<InFlightOp*>(f)->copy_out;
        if (copy) {
          copy(from, bytes, static_cast<const char*>(result));
        }
      },
      in_flight.get()};
  FtCheck(ft().worker_begin(in_flight->record.id, &copies));
  in_flight_.push_back(std::move(in_flight));
}

// Does what can be done for the ops under way; true if one of them is finished now.
bool FtFollower::Advance() {
  int code = in_flight_.empty() ? HVDFT_AGAIN : ft().worker_advance();
  if (code == HVDFT_AGAIN) {
    return false;
  }
  FtCheck(code);
  auto in_flight = std::move(in_flight_.front());
  in_flight_.pop_front();
  Finish(*in_flight);
  return true;
}

void FtFollower::Finish(InFlightOp& in_flight) {
  if (in_flight.of_others) {
    ft().worker_passed(in_flight.record.id);
    return;
  }
  Status status = in_flight.finish();
  timeline_->ActivityEndAll(in_flight.entries);
  ft().worker_pend(-static_cast<int64_t>(in_flight.tensors));
  ft().worker_executed(in_flight.record.id); // before the callbacks: the script goes on with them
  for (auto& e : in_flight.entries) {
    timeline_->End(e.tensor_name, status.ok() ? e.output : nullptr);
    e.FinishWithCallback(status);
  }
}

void FtFollower::Barrier() {
  auto in_flight = std::make_unique<InFlightOp>(TakeRecord(), std::vector<TensorTableEntry>());
  in_flight->tensors = 1; // Horovod calls it back itself
  Begin(std::move(in_flight));
  while (!in_flight_.empty()) {
    uint32_t ticket = ft().worker_ticket();
    if (!Advance()) {
      FtCheck(ft().worker_wait(ticket, kWaitMs));
    }
  }
}

// ---------------------------------------------------------------- negotiation

void FtFollower::FollowTerm(uint64_t term) {
  if (term == term_) {
    return;
  }
  term_ = term;
  for (auto& each : controllers_) {
    each.second->StartTerm();
  }
}

// Tensors that are announced together are agreed on together, and fused. So while this process's
// other threads, given the CPU, queue more of them it is not yet time; but no longer than a cycle.
bool FtFollower::MoreToCome(uint32_t ticket) {
  bool any = std::any_of(controllers_.begin(), controllers_.end(),
                         [](auto& each) { return each.second->HasUnannounced(); });
  auto cycle = std::chrono::duration<double, std::milli>(parameter_manager_->CycleTimeMs());
  if (!any || Clock::now() - unannounced_since_ > cycle) {
    return false;
  }
  std::this_thread::yield();
  return ft().worker_ticket() != ticket;
}

// Rank 0 finds out for every process set what its ranks are ready for, whether it is in there or not.
void FtFollower::Negotiate(HorovodGlobalState& state) {
  if (ft().worker_rank() != 0) {
    for (auto& each : controllers_) {
      each.second->Announce(term_);
    }
    return;
  }
  for (auto& each : controllers_) {
    each.second->CountOwn();
  }
  TakeAnnouncements();
  for (auto& each : controllers_) {
    each.second->Coordinate(term_, state);
  }
}

void FtFollower::TakeAnnouncements() {
  for (int rank = 1; rank < ft().worker_size(); ++rank) {
    const void* data;
    int64_t bytes;
    while ((bytes = ft().worker_take(rank, term_, &data)) >= 0) {
      FtRead<RequestList> announced(data, static_cast<uint64_t>(bytes));
      // Its process set may have been removed since.
      auto found = controllers_.find(announced.process_set);
      if (found != controllers_.end()) {
        found->second->Count(announced.message);
      }
    }
  }
}

} // namespace common
} // namespace horovod
