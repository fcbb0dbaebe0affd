// One announcement of a rank for a process set: requests that are known by number, and others.
#ifndef HOROVOD_FT_ANNOUNCEMENT_H
#define HOROVOD_FT_ANNOUNCEMENT_H

#include <string>
#include <vector>

#include "ft_agreed.h"
#include "ft_numbers.h"

namespace horovod {
namespace common {

struct FtAnnouncement {
  std::vector<uint32_t> numbers;
  RequestList others;
};

inline std::string FtWrite(const FtAnnouncement& announcement, int32_t process_set) {
  std::string others = FtWrite(announcement.others, process_set);
  if (announcement.others.requests().empty()) {
    others.erase(0, others.size() - sizeof process_set);
  }
  return FtWriteNumbers(announcement.numbers) + others;
}

template <> struct FtRead<FtAnnouncement> {
  FtRead(const void* data, uint64_t bytes) {
    uint64_t at = FtReadNumbers(data, message.numbers);
    auto* others = static_cast<const uint8_t*>(data) + at;
    if (bytes - at > sizeof process_set) {
      RequestList::ParseFromBytes(message.others, others);
    }
    std::memcpy(&process_set, others + (bytes - at) - sizeof process_set, sizeof process_set);
  }
  FtAnnouncement message;
  int32_t process_set;
};

} // namespace common
} // namespace horovod

#endif // HOROVOD_FT_ANNOUNCEMENT_H
