// Negotiation of the ft backend, for one process set.
//
// Instead of a lockstep cycle every rank announces its tensors to the coordinator (rank 0, whether
// it is in the set or not) when it has some; when all of the set have announced a tensor the
// coordinator proposes responses, the agents append them to the op log, and every rank executes the
// log in order (FtFollower). Horovod's own code still matches requests, builds responses and fuses
// them.
#ifndef HOROVOD_FT_CONTROLLER_H
#define HOROVOD_FT_CONTROLLER_H

#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "../controller.h"
#include "ft_joined.h"
#include "ft_library.h"

namespace horovod {
namespace common {

class FtController : public Controller {
public:
  FtController(int32_t process_set, ResponseCache& response_cache, TensorQueue& tensor_queue,
               Timeline& timeline, ParameterManager& parameter_manager, GroupTable& group_table,
               TimelineController& timeline_controller);
  ~FtController() override;

  // The set has these ranks; none are all. Returns whether this rank is one of them.
  bool Start(std::vector<int>& ranks);

  // The next ops of the log, if they are this set's; the global set's waits for some.
  ResponseList ComputeResponseList(bool shutdown_requested, HorovodGlobalState& state,
                                   ProcessSet& process_set) override;

  // What follows is for FtFollower.

  // Takes what the script has asked for since; true if there was anything.
  bool Collect();
  // Requests this rank has made and not yet executed.
  const std::unordered_map<std::string, Request>& Requests() const { return requests_; }
  bool HasUnannounced() const { return !unannounced_.empty(); }
  // The log's next op is this one: true if the rank is ready for it, and it will be computed next,
  // with those that are to be computed already. What it gives zeros to is computed alone.
  bool TakeResponse(const hvdft_record& record, const Response& response);
  // What was announced is void.
  void StartTerm();
  void Announce(uint64_t term);
  std::string Signature(const Request& request) const;

  // Of the coordinator: counts its own requests and those of others, and proposes what all ranks
  // have announced.
  void CountOwn();
  void Count(const RequestList& announced);
  void Coordinate(uint64_t term, HorovodGlobalState& state);

  int GetTypeSize(DataType dtype) override;
  void Barrier(Communicator communicator) override;
  // What all ranks have, if they agree by way of the log; used for changes of process sets only.
  void Allgather2Ints(std::array<int, 2> values, std::vector<int>& recv_values) override;

  // Steps of Horovod's own cycle, which the ft backend does not have.
  void CrossRankBitwiseAnd(std::vector<long long>& bitvector, int count) override;
  void CrossRankBitwiseOr(std::vector<long long>& bitvector, int count) override;
  void Bcast(void* buffer, size_t size, int root_rank, Communicator communicator) override;
  void AlltoallGetRecvSplits(const std::vector<int32_t>& splits,
                             std::vector<int32_t>& recvsplits) override;

protected:
  void DoInitialization() override;
  void RecvReadyTensors(std::vector<std::string>& ready_to_reduce,
                        std::vector<RequestList>& ready_list) override;
  void SendReadyTensors(RequestList& message_list) override;
  void SendFinalTensors(ResponseList& response_list) override;
  void RecvFinalTensors(ResponseList& response_list) override;

private:
  bool HasRequested(const Response& response) const;
  bool IsAbsent(const Response& response) const;
  bool Joined() const;
  // In ft_replay.cc.
  void CheckSignature(const hvdft_record& record, const Response& response) const;

  Request WithSplits(const Request& request) const;
  void Count(const Request& announced);
  Request TakeSplits(const Request& announced);
  void FindReadyByJoins();
  bool AllJoined() const;
  std::vector<int> Absent(const std::string& name) const;
  void CheckChange(const std::vector<Request>& requests, bool absent) const;
  Response Agree(const std::string& name);
  Response AgreeOnJoin();
  void Fuse(HorovodGlobalState& state, ResponseList& list);
  void Propose(uint64_t term, const ResponseList& list);
  hvdft_op CoreOp(const Response& response, std::vector<uint64_t>& blocks) const;
  std::vector<uint64_t> Blocks(const Response& response) const;

  const int32_t process_set_;
  // The announced ones among them may have to be announced again in a new term.
  std::unordered_map<std::string, Request> requests_;
  std::deque<std::string> unannounced_;
  ResponseList computed_;
  bool gives_zeros_ = false; // to what is computed, as it has joined; or that ends the join

  // The coordinator's, of this term; Horovod's message table belongs to them.
  struct Agreed {
    std::string signature;
    uint64_t row_bytes; // of a tensor's slice at one place of its first dimension
    uint64_t bytes;
    uint32_t root; // of a broadcast
  };
  FtJoined joined_;
  std::unordered_map<std::string, std::vector<int64_t>> splits_; // of alltoalls, [from][to]
  std::vector<std::string> ready_; // tensors that all ranks have announced
  std::unordered_map<std::string, Agreed> agreed_; // what is about to be proposed
};

} // namespace common
} // namespace horovod

#endif // HOROVOD_FT_CONTROLLER_H
