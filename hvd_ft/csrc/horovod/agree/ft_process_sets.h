// Process sets are added and removed by an op in the log, a barrier of all ranks: so all ranks do
// it at the same point of the log, and a restarted rank finds it there again. Rosters (roster.h of
// the core) begin in the same way.
#ifndef HOROVOD_FT_PROCESS_SETS_H
#define HOROVOD_FT_PROCESS_SETS_H

#include <cstdint>
#include <string>
#include <vector>

#include "../message.h"
#include "../tensor_queue.h"

namespace horovod {
namespace common {

// Requests the change through the global process set's queue. When all ranks have, and this one has
// reached that op, FtEngine::TakeChange returns true once.
Status FtRequestAddition(TensorQueue& queue, const std::vector<int>& ranks);
Status FtRequestRemoval(TensorQueue& queue, int32_t process_set);

bool FtIsProcessSetChange(const Request& request);
bool FtIsProcessSetChange(const Response& response);

// Likewise, begins a roster of the core's; `done` is called when all ranks have asked for it.
Status FtRequestRoster(TensorQueue& queue, uint64_t number, StatusCallback done);
bool FtIsRoster(const Request& request);
bool FtIsRoster(const Response& response);
uint64_t FtRosterNumber(const Request& request);

// "add process set [0, 2]", "remove process set 1".
std::string FtProcessSetChange(const Request& request);

// "[0, 2]"
std::string FtRankList(const std::vector<int>& ranks);

} // namespace common
} // namespace horovod

#endif // HOROVOD_FT_PROCESS_SETS_H
