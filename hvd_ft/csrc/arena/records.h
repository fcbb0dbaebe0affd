// Checks that the op log's records are as they were written. Results are not checked: a checksum of
// so much data would slow every op.
#ifndef HVD_FT_RECORDS_H
#define HVD_FT_RECORDS_H

#include "arena/arena.h"

namespace hvdft {

// Of a record whose tail may be elsewhere yet.
uint64_t checksum_of(const Record& record, const void* tail);

// Whether an op can be as somebody has described it, with its tail in `room` bytes.
bool is_possible(const Node& node, const OpHead& op, uint64_t room);

// The bytes behind a record, up to the heap's end.
uint64_t room_of(const Node& node, const Record& record);

// HVDFT_OK, or HVDFT_EINVAL and an error that says which record is damaged. `record` is in the
// node's heap, as Node::record() finds it.
int check_record(const Node& node, const Record& record);

// All records of the log, to be called when nothing writes to it.
int check_log(const Node& node);

}  // namespace hvdft

#endif  // HVD_FT_RECORDS_H
