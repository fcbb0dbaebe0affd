// One process set's negotiation in the ft backend, as Horovod sees it.
//
// There is no lockstep cycle: every rank announces its tensors to the coordinator (rank 0, whether
// it is in the set or not) when it has some. When all ranks of the set have announced a tensor, the
// coordinator proposes responses, the agents append them to the op log, and every rank executes the
// log in order (FtEngine). Horovod's own code still matches requests, builds responses and fuses
// them; only a controller can call it: ft_coordinator.cc.
#ifndef HOROVOD_FT_CONTROLLER_H
#define HOROVOD_FT_CONTROLLER_H

#include <atomic>
#include <string>
#include <unordered_map>
#include <vector>

#include "../controller.h"
#include "ft_counts.h"
#include "ft_engine.h"
#include "ft_joined.h"

namespace horovod {
namespace common {

class FtController : public Controller, private FtCoordinator {
public:
  FtController(FtEngine& engine, int32_t process_set, ResponseCache& response_cache,
               TensorQueue& tensor_queue, Timeline& timeline, ParameterManager& parameter_manager,
               GroupTable& group_table, TimelineController& timeline_controller);
  ~FtController() override;

  // The set has these ranks; none are all. Returns whether this rank is one of them.
  bool Start(std::vector<int>& ranks);

  // The next ops of the log, if they are this set's; the global set waits for some.
  ResponseList ComputeResponseList(bool shutdown_requested, HorovodGlobalState& state,
                                   ProcessSet& process_set) override;

  int GetTypeSize(DataType dtype) override;
  void Barrier(Communicator communicator) override;
  // Bits that all ranks have set, agreed on through the log; only changes of process sets use it.
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
  void StartTerm() override;
  void Count(int by, const FtAnnouncement& announced) override;
  void Coordinate(uint64_t term, HorovodGlobalState& state) override;
  void Follow(const std::vector<int>& present) override;

  void Count(const Request& announced);
  void CountNumber(uint32_t number, int rank);
  bool MayCountNumber(const std::string& tensor) const;
  void MoveToNames(const std::string& tensor);
  void CountByName(const std::vector<FtCounts::Named>& named);
  void CountByName(const Request& announced);
  void NoteStalled();
  Request TakeSplits(const Request& announced);
  void FindReadyByJoins();
  bool AllJoined() const;
  std::vector<int> Absent(const std::string& name) const;
  void CheckChange(const std::vector<Request>& requests, bool absent) const;
  Response Agree(const std::string& name);
  Response AgreeOnNumber(const std::string& name, uint32_t number);
  Response AgreeOnJoin();
  void Fuse(HorovodGlobalState& state, ResponseList& list);
  void Propose(uint64_t term, const ResponseList& list);
  RequestList ToBeNumbered(const ResponseList& list);
  std::vector<FtNote> Notes(const ResponseList& list);
  hvdft_op CoreOp(const Response& response, std::vector<uint64_t>& blocks) const;
  std::vector<uint64_t> Blocks(const Response& response) const;

  void SetRanks(std::vector<int> places, const std::vector<int>& present);
  void SetOwnPlace(const std::vector<int>& present);
  Status Admit(const Request& request) const;

  FtEngine& engine_;
  const int32_t process_set_;
  FtRequests requests_;
  // The set's ranks, as they were numbered when the job began; for Horovod they have the numbers
  // that the present ones have among each other.
  std::vector<int> places_;
  std::vector<int> ranks_;                 // by such a number: the rank in the set, or -1
  std::vector<int>* registered_ = nullptr; // Horovod's list of these
  std::atomic<int> lost_{-1};              // a rank of the set that has left the job

  // The coordinator's, of this term; Horovod's message table belongs to them.
  struct Agreed {
    std::string signature;
    uint64_t row_bytes; // of a slice of a tensor along its first dimension
    uint64_t bytes;
    uint32_t root;   // of a broadcast; the number of a roster
    Request request; // rank 0's of the set, or another one
  };
  // What Horovod has built of requests that are known by number, when all ranks asked for that.
  struct Answer {
    Response response;
    Agreed agreed;
  };
  FtJoined joined_;
  std::unordered_map<std::string, std::vector<int64_t>> splits_; // of alltoalls, [from][to]
  std::vector<std::string> ready_;                               // tensors announced by all ranks
  std::unordered_map<std::string, Agreed> agreed_;               // what is about to be proposed
  FtCounts counts_;
  std::unordered_map<std::string, uint32_t> by_number_; // tensors that all announced by number
  std::unordered_map<uint32_t, Answer> answers_;        // by number
};

} // namespace common
} // namespace horovod

#endif // HOROVOD_FT_CONTROLLER_H
