// Counts, for the coordinator, which ranks of a process set have announced a tensor by a number
// (see ft_known_requests.h). A tensor is counted by one number, or by name: Horovod's own count,
// which compares what the ranks ask for. So when a rank does not announce it by the same number,
// the ranks counted so far move to the count by name.
//
// A rule only: no memory that others see, threads or clock. ft_counts_test.cc drives it, and
// negotiation_test.cc in every interleaving with deaths.
#ifndef HOROVOD_FT_COUNTS_H
#define HOROVOD_FT_COUNTS_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace horovod {
namespace common {

class FtCounts {
public:
  // An announcement by number that is to be counted by name.
  struct Named {
    uint32_t number;
    int rank;
  };

  // Of a set of so many ranks; nothing is announced.
  void Start(size_t ranks) {
    ranks_ = ranks;
    by_tensor_.clear();
    counts_.clear();
  }

  // A rank has announced this tensor by a number. If no rank has by that number before, may() tells
  // whether it can be counted so. True if all ranks have by now; then it is counted no more. Those
  // that are to be counted by name are appended to `named`.
  template <typename May>
  bool Count(uint32_t number, const std::string& tensor, int rank, May may,
             std::vector<Named>& named) {
    if (!Has(number) && (by_tensor_.count(tensor) > 0 || !may())) {
      Move(tensor, named);
      named.push_back({number, rank});
      return false;
    }
    if (!Has(number)) {
      Begin(number, tensor);
    }
    OneTensor& count = counts_[number];
    auto announced = count.announced[static_cast<size_t>(rank)];
    count.ranks += announced ? 0 : 1;
    announced = true;
    if (count.ranks < ranks_) {
      return false;
    }
    End(count);
    return true;
  }

  // This tensor is counted by name from now on.
  void Move(const std::string& tensor, std::vector<Named>& named) {
    auto found = by_tensor_.find(tensor);
    if (found == by_tensor_.end()) {
      return;
    }
    uint32_t number = found->second;
    EachRank(number, [&](int rank) { named.push_back({number, rank}); });
    End(counts_[number]);
  }

  // Whether a rank has announced a tensor by this number, and not all have.
  bool Has(uint32_t number) const { return number < counts_.size() && counts_[number].ranks > 0; }

  // Those tensors, and their numbers.
  const std::unordered_map<std::string, uint32_t>& Tensors() const { return by_tensor_; }
  template <typename Act> void EachRank(uint32_t number, Act act) const {
    for (size_t rank = 0; rank < ranks_; ++rank) {
      if (counts_[number].announced[rank]) {
        act(static_cast<int>(rank));
      }
    }
  }

private:
  struct OneTensor {
    std::string tensor;
    size_t ranks = 0; // that have announced it
    std::vector<bool> announced;
  };

  void Begin(uint32_t number, const std::string& tensor) {
    if (number >= counts_.size()) {
      counts_.resize(number + 1);
    }
    by_tensor_[tensor] = number;
    counts_[number] = {tensor, 0, std::vector<bool>(ranks_, false)};
  }
  void End(OneTensor& count) {
    count.ranks = 0;
    by_tensor_.erase(count.tensor);
  }

  size_t ranks_ = 0;
  std::vector<OneTensor> counts_; // by number
  std::unordered_map<std::string, uint32_t> by_tensor_;
};

} // namespace common
} // namespace horovod

#endif // HOROVOD_FT_COUNTS_H
