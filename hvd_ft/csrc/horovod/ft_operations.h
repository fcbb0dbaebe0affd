// Horovod's operations through the arena: what is to be copied in and out. The controller carries
// them out. An op that an earlier incarnation took part in is served
// the same way; only what is there already is not done again.
#ifndef HOROVOD_FT_OPERATIONS_H
#define HOROVOD_FT_OPERATIONS_H

#include "../ops/collective_operations.h"
#include "ft_in_flight.h"

namespace horovod {
namespace common {

// What Horovod's two operations that reduce have in common.
template <class Operation> class FtReduction : public Operation {
public:
  using Operation::Operation;

protected:
  // Reads the tensors, times the factor that they have before the reduction.
  std::unique_ptr<InFlightOp> NewReduction(std::vector<TensorTableEntry>& entries,
                                         const Response& response);
  // Copies bytes of an entry's type, times the factor.
  void CopyScaled(double factor, TensorTableEntry& e, const char* from, char* to, uint64_t bytes);
};

class FtAllreduce : public FtReduction<AllreduceOp> {
public:
  using FtReduction::FtReduction;
  Status Execute(std::vector<TensorTableEntry>& entries, const Response& response) override;
  bool Enabled(const ParameterManager& param_manager,
               const std::vector<TensorTableEntry>& entries,
               const Response& response) const override;
};

class FtAllgather : public AllgatherOp {
public:
  using AllgatherOp::AllgatherOp;
  Status Execute(std::vector<TensorTableEntry>& entries, const Response& response) override;
  bool Enabled(const ParameterManager& param_manager,
               const std::vector<TensorTableEntry>& entries,
               const Response& response) const override;

private:
  Status CopyOut(InFlightOp& in_flight, const Response& response);
};

class FtBroadcast : public BroadcastOp {
public:
  using BroadcastOp::BroadcastOp;
  Status Execute(std::vector<TensorTableEntry>& entries, const Response& response) override;
  bool Enabled(const ParameterManager& param_manager,
               const std::vector<TensorTableEntry>& entries,
               const Response& response) const override;
};

// A reduction of the whole tensors, of which each rank copies its slices out: so the log has what
// every rank got.
class FtReducescatter : public FtReduction<ReducescatterOp> {
public:
  using FtReduction::FtReduction;
  Status Execute(std::vector<TensorTableEntry>& entries, const Response& response) override;
  bool Enabled(const ParameterManager& param_manager,
               const std::vector<TensorTableEntry>& entries,
               const Response& response) const override;
};

// Likewise all that anybody sends to anybody, one rank's after the other's.
class FtAlltoall : public AlltoallOp {
public:
  using AlltoallOp::AlltoallOp;
  Status Execute(std::vector<TensorTableEntry>& entries, const Response& response) override;
  bool Enabled(const ParameterManager& param_manager,
               const std::vector<TensorTableEntry>& entries,
               const Response& response) const override;

private:
  Status CopyOut(InFlightOp& in_flight, const Response& response);
};

// All ranks have joined, the log says so.
class FtJoin : public JoinOp {
public:
  using JoinOp::JoinOp;
  Status Execute(std::vector<TensorTableEntry>& entries, const Response& response,
                 ProcessSet& process_set) override;
};

// An error is an entry of the log like any other op.
class FtError : public ErrorOp {
public:
  using ErrorOp::ErrorOp;
  Status Execute(std::vector<TensorTableEntry>& entries, const Response& response) override;
};

} // namespace common
} // namespace horovod

#endif // HOROVOD_FT_OPERATIONS_H
