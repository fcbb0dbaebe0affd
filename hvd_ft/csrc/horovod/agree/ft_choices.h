// The choices of autotuning on their way into the op log, which has each choice once and in order.
//
// The coordinator proposes its choices with ops that all ranks execute. If a new term begins before
// a proposal is answered, it may be void: then the coordinator reads the log and proposes the
// missing choices again. Choices that a coordinator has not logged die with it; the next
// coordinator continues from the log.
//
// A rule only: no memory that others see, threads or clock. ft_choices_test.cc tries every
// interleaving with deaths.
#ifndef HOROVOD_FT_CHOICES_H
#define HOROVOD_FT_CHOICES_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace horovod {
namespace common {

// Written into the log as it is.
struct FtChoice {
  double threshold_mb; // HOROVOD_FUSION_THRESHOLD, in Horovod's tuner's unit
  double score;        // of the choice before, in bytes a microsecond; 0 for the first one
  uint64_t over;       // 1: the best one, and tuning is over; else 0
};

class FtChoices {
public:
  // Those in the log, as far as it was read, and this coordinator's behind them.
  const std::vector<FtChoice>& All() const { return all_; }
  size_t Logged() const { return logged_; }

  void Add(const FtChoice& choice) { all_.push_back(choice); }

  // The log's next one.
  void Read(const FtChoice& choice) {
    if (logged_ == all_.size()) {
      all_.push_back(choice);
    }
    proposed_ = std::max(proposed_, ++logged_);
  }

  // Proposals of older terms are in the log, or void. To be called before the log is read.
  void StartTerm() { proposed_ = logged_; }

  // Those that go with the next proposal of this term.
  std::vector<FtChoice> TakeUnproposed() {
    std::vector<FtChoice> taken(all_.begin() + static_cast<long>(proposed_), all_.end());
    proposed_ = all_.size();
    return taken;
  }

private:
  std::vector<FtChoice> all_;
  size_t logged_ = 0;   // the log has those before
  size_t proposed_ = 0; // those before are logged, or proposed in this term
};

} // namespace common
} // namespace horovod

#endif // HOROVOD_FT_CHOICES_H
