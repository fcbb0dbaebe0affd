// Requests that were agreed before, by number. Ops in the log number them (HVDFT_REQUESTS), so a
// number means the same to all ranks, in all process sets, terms and incarnations: it stands for
// the contents of the request; the announcement tells which rank has made it.
//
// The coordinator has requests numbered when it agrees on them for the second time. So those of a
// training step get numbers, and those with a new name in every step do not. A rank that does not
// know a number yet announces the request itself, with the same effect.
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
