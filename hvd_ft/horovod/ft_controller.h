// Negotiation of the ft backend.
//
// Instead of a lockstep cycle every rank announces its tensors to the coordinator (rank 0)
// when it has some; when all have announced a tensor the coordinator proposes responses, the
// agents append them to the op log, and every rank executes the log in order. A restarted
// rank does just the same: the log's first part is only older. Horovod's own code still
// matches requests, builds responses and fuses them.
#ifndef HOROVOD_FT_CONTROLLER_H
#define HOROVOD_FT_CONTROLLER_H

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "../controller.h"
#include "ft_flight.h"
#include "ft_joined.h"

namespace horovod {
namespace common {

class FtController : public Controller {
public:
  FtController(ResponseCache& response_cache, TensorQueue& tensor_queue, Timeline& timeline,
               ParameterManager& parameter_manager, GroupTable& group_table,
               TimelineController& timeline_controller);

  // Waits until the log has a next op that this rank is ready for; returns that one.
  ResponseList ComputeResponseList(bool shutdown_requested, HorovodGlobalState& state,
                                   ProcessSet& process_set) override;

  // Ends a wait of ComputeResponseList: there is something new to look at in this process.
  static void Wake();

  // The log's record of the op that is being executed; ops call it once, in order.
  hvdft_record TakeRecord();
  // Carries the op out while it does other things, and calls its entries back.
  void Begin(std::unique_ptr<FtFlight> flight);

  int GetTypeSize(DataType dtype) override;
  void Barrier(Communicator communicator) override;

  // Steps of Horovod's own cycle, which the ft backend does not have.
  void CrossRankBitwiseAnd(std::vector<long long>& bitvector, int count) override;
  void CrossRankBitwiseOr(std::vector<long long>& bitvector, int count) override;
  void Bcast(void* buffer, size_t size, int root_rank, Communicator communicator) override;
  void AlltoallGetRecvSplits(const std::vector<int32_t>& splits,
                             std::vector<int32_t>& recvsplits) override;
  void Allgather2Ints(std::array<int, 2> values, std::vector<int>& recv_values) override;

protected:
  void DoInitialization() override;
  void RecvReadyTensors(std::vector<std::string>& ready_to_reduce,
                        std::vector<RequestList>& ready_list) override;
  void SendReadyTensors(RequestList& message_list) override;
  void SendFinalTensors(ResponseList& response_list) override;
  void RecvFinalTensors(ResponseList& response_list) override;

private:
  using Clock = std::chrono::steady_clock;

  void CollectQueued();
  uint64_t NextOp() const;
  bool NextFromLog(ResponseList& list, ProcessSet& process_set);
  bool Advance();
  void Finish(FtFlight& flight);
  bool Requested(const Response& response) const;
  bool Joined() const;
  void Leave();
  void CheckPeers();
  void FollowTerm(uint64_t term);
  bool MoreToCome(uint32_t ticket);
  void Announce();
  Request WithSplits(const Request& request) const;
  void Coordinate(HorovodGlobalState& state);
  void TakeAnnouncements(std::vector<std::string>& ready);
  void Count(const Request& announced, std::vector<std::string>& ready);
  Request TakeSplits(const Request& announced);
  bool AllJoined() const;
  std::vector<int> Absent(const std::string& name) const;
  Response Agree(const std::string& name);
  void Fuse(const std::vector<std::string>& ready, HorovodGlobalState& state,
            ResponseList& list);
  void Propose(const ResponseList& list);

  // In ft_replay.cc: whether a restarted script asks for what the log has. They stop the job.
  void CheckSignature(const hvdft_record& record, const Response& response);
  void CheckReplayMoves(uint64_t log_length);
  void CheckReplayedToTheEnd();

  // Requests this rank has made and not yet executed; the announced ones among them may
  // have to be announced again in a new term.
  std::unordered_map<std::string, Request> requested_;
  std::deque<std::string> unannounced_;
  Clock::time_point unannounced_since_; // the first of them
  std::deque<hvdft_record> executing_; // handed to Horovod, which has not yet begun them
  std::deque<std::unique_ptr<FtFlight>> flights_;
  uint64_t term_ = 0;

  // The coordinator's, of this term; Horovod's message table belongs to them.
  FtJoined joined_;
  std::unordered_map<std::string, std::vector<int64_t>> splits_; // of alltoalls, [from][to]
  std::unordered_map<std::string, std::string> signatures_;      // of what is about to be proposed
  Clock::time_point replay_moved_;
  std::chrono::duration<double> replay_timeout_{60};
};

} // namespace common
} // namespace horovod

#endif // HOROVOD_FT_CONTROLLER_H
