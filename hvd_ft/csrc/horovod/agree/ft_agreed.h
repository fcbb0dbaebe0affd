// The part of an op log record that Horovod's side writes: a response and its process set.
// Announcements are written in the same way.
#ifndef HOROVOD_FT_AGREED_H
#define HOROVOD_FT_AGREED_H

#include <cstdint>
#include <cstring>
#include <string>

#include "../message.h"
#include "ft_library.h"

namespace horovod {
namespace common {

template <typename Message> std::string FtWrite(const Message& message, int32_t process_set) {
  std::string bytes;
  Message::SerializeToString(message, bytes);
  return bytes.append(reinterpret_cast<const char*>(&process_set), sizeof process_set);
}

template <typename Message> struct FtRead {
  FtRead(const void* data, uint64_t bytes) {
    auto* from = static_cast<const uint8_t*>(data);
    Message::ParseFromBytes(message, from);
    std::memcpy(&process_set, from + bytes - sizeof process_set, sizeof process_set);
  }
  Message message;
  int32_t process_set;
};

inline FtRead<Response> FtReadResponse(const hvdft_record& record) {
  return {record.response, record.response_bytes};
}

// A note that the coordinator proposes, as an op of its own; see hvdft_worker_note().
struct FtNote {
  uint32_t kind;
  std::string bytes, signature;
  // Valid as long as the note.
  hvdft_op Op() const {
    hvdft_op op{};
    op.kind = kind;
    op.response = bytes.data();
    op.response_bytes = bytes.size();
    op.signature = signature.c_str();
    return op;
  }
};

// Whether the op is a note, and so no rank's.
inline bool FtIsNote(const hvdft_record& record) {
  return record.kind >= HVDFT_FIRST_NOTE && record.kind <= HVDFT_LAST_NOTE;
}

} // namespace common
} // namespace horovod

#endif // HOROVOD_FT_AGREED_H
