#include "ft_negotiator.h"

#include <algorithm>
#include <thread>

namespace horovod {
namespace common {

bool FtNegotiator::HasUnannounced() const {
  return std::any_of(sets_.begin(), sets_.end(),
                     [](auto& each) { return each.second.requests.HasUnannounced(); });
}

bool FtNegotiator::Collect() {
  bool waited = HasUnannounced(), any = false;
  for (auto& each : sets_) {
    any |= each.second.requests.Collect();
  }
  if (any && !waited) {
    unannounced_since_ = Clock::now();
  }
  return any;
}

void FtNegotiator::FollowTerm(uint64_t term) {
  if (term == term_) {
    return;
  }
  term_ = term;
  tuner_.StartTerm();
  for (auto& each : sets_) {
    each.second.requests.StartTerm();
    each.second.coordinator.StartTerm();
  }
}

bool FtNegotiator::MoreToCome(uint32_t ticket) const {
  auto cycle = std::chrono::duration<double, std::milli>(parameter_manager_->CycleTimeMs());
  if (!HasUnannounced() || Clock::now() - unannounced_since_ > cycle) {
    return false;
  }
  std::this_thread::yield();
  return ft().worker_ticket() != ticket;
}

void FtNegotiator::Negotiate(HorovodGlobalState& state) {
  if (ft().worker_rank() != 0) {
    for (auto& each : sets_) {
      each.second.requests.Announce(term_);
    }
    return;
  }
  known_.Follow();
  tuner_.Follow();
  for (auto& each : sets_) {
    FtAnnouncement own;
    own.others.set_requests(each.second.requests.TakeUnannounced());
    each.second.coordinator.Count(0, own);
  }
  TakeAnnouncements();
  for (auto& each : sets_) {
    each.second.coordinator.Coordinate(term_, state);
  }
}

void FtNegotiator::TakeAnnouncements() {
  for (int rank = 1; rank < ft().worker_size(); ++rank) {
    const void* data;
    int64_t bytes;
    while ((bytes = ft().worker_take(rank, term_, &data)) >= 0) {
      FtRead<FtAnnouncement> announced(data, static_cast<uint64_t>(bytes));
      // Its process set may have been removed since.
      auto found = sets_.find(announced.process_set);
      if (found != sets_.end()) {
        found->second.coordinator.Count(rank, announced.message);
      }
    }
  }
}

} // namespace common
} // namespace horovod
