// Checks frames of the mirror's streams. Another process has written them, perhaps on a host with
// damaged memory, so a frame is applied only if it could have been sent.
#ifndef HVD_FT_FRAME_CHECK_H
#define HVD_FT_FRAME_CHECK_H

#include "arena/arena.h"
#include "replication/mirror_frames.h"

namespace hvdft {

// More than any frame has: of a proposal's record, all ranks' facts, a mail, a piece of a part.
constexpr uint64_t kMostFrameBytes = 16 << 20;

// Whether applying a frame stays inside of this node's arena and of the frame. Not of those of
// message logs: see MessageMirrorReceiver::is_possible(). `log_length`: of the log that it is for;
// 0 on rank 0's node, to which nobody sends records.
bool is_possible(const Node& node, uint64_t log_length, bool has_log, const FrameHead& frame,
                 const char* payload);

}  // namespace hvdft

#endif  // HVD_FT_FRAME_CHECK_H
