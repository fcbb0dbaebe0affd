// Requests that were agreed before, by number. Ops in the log number them (HVDFT_REQUESTS), so a
// number means the same to all ranks, in all process sets, terms and incarnations: it stands for
// the request's contents, and which rank it is of goes without saying.
//
// The coordinator has requests numbered when it agrees on them for the second time, as those of a
// training step are and those with a new name in every step are not. A rank that does not know of a
// number yet announces the request itself, which is the same.
#ifndef HOROVOD_FT_KNOWN_REQUESTS_H
#define HOROVOD_FT_KNOWN_REQUESTS_H

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "../message.h"

namespace horovod {
namespace common {

class FtKnownRequests {
public:
  // Reads what the log has numbered since.
  void Follow();
  bool Find(const Request& request, uint32_t& number) const;
  // As this rank of the process set would ask for it.
  Request Of(uint32_t number, int rank);
  const Request& At(uint32_t number);

  // The coordinator's: it is agreed. To be called for every one; true if it is to be numbered.
  bool IsToBeNumbered(const Request& agreed);
  // Whether the log takes another op that numbers requests.
  bool HasRoom() const;

private:
  std::vector<Request> requests_;                                    // by number
  std::unordered_map<std::string, std::vector<uint32_t>> by_tensor_; // numbers
  uint64_t ops_ = 0;                                                 // that were read
  std::unordered_map<std::string, Request> once_; // by tensor: agreed, and has no number
};

} // namespace common
} // namespace horovod

#endif // HOROVOD_FT_KNOWN_REQUESTS_H
