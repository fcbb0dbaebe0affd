// Horovod's operations through the arena: they define what is copied in and out, and the executor
// executes them. An op in which an earlier incarnation took part is executed in the same way,
// except that existing results are not computed again.
#ifndef HOROVOD_FT_OPERATIONS_H
#define HOROVOD_FT_OPERATIONS_H

#include "../ops/collective_operations.h"
#include "ft_executor.h"

namespace horovod {
namespace common {

// The part that all operations share.
template <class Operation> class FtOperation : public Operation {
public:
  FtOperation(FtExecutor& executor, HorovodGlobalState* state)
      : Operation(state), executor_(executor) {}

protected:
  // The op that Horovod begins now.
  std::unique_ptr<InFlightOp> NewInFlightOp(std::vector<TensorTableEntry>& entries,
                                            FtLayout layout = FtLayout::Packed());
  // Hands over the op: the executor finishes it, and calls its entries' callbacks.
  Status Begin(std::unique_ptr<InFlightOp> op, const char* activity);

private:
  FtExecutor& executor_;
};

// An operation that Horovod chooses among several.
template <class Operation> class FtCollective : public FtOperation<Operation> {
public:
  using FtOperation<Operation>::FtOperation;
  bool Enabled(const ParameterManager&, const std::vector<TensorTableEntry>&,
               const Response&) const override {
    return true;
  }
};

// The part that Horovod's two reducing operations share.
template <class Operation> class FtReduction : public FtCollective<Operation> {
public:
  using FtCollective<Operation>::FtCollective;

protected:
  // Reads the tensors, multiplied by their prescale factor.
  std::unique_ptr<InFlightOp> NewReduction(std::vector<TensorTableEntry>& entries,
                                           const Response& response);
  // Copies elements of an entry's type, multiplied by the factor.
  void CopyScaled(double factor, TensorTableEntry& e, const char* from, char* to, uint64_t bytes);
};

class FtAllreduce : public FtReduction<AllreduceOp> {
public:
  using FtReduction::FtReduction;
  Status Execute(std::vector<TensorTableEntry>& entries, const Response& response) override;
};

class FtAllgather : public FtCollective<AllgatherOp> {
public:
  using FtCollective::FtCollective;
  Status Execute(std::vector<TensorTableEntry>& entries, const Response& response) override;

private:
  Status CopyOut(InFlightOp& in_flight, const Response& response);
};

class FtBroadcast : public FtCollective<BroadcastOp> {
public:
  using FtCollective::FtCollective;
  Status Execute(std::vector<TensorTableEntry>& entries, const Response& response) override;
};

// A reduction of the whole tensors, from which each rank copies its slices: so the log holds every
// rank's result.
class FtReducescatter : public FtReduction<ReducescatterOp> {
public:
  using FtReduction::FtReduction;
  Status Execute(std::vector<TensorTableEntry>& entries, const Response& response) override;
};

// Likewise the blocks of all pairs of ranks, by sender.
class FtAlltoall : public FtCollective<AlltoallOp> {
public:
  using FtCollective::FtCollective;
  Status Execute(std::vector<TensorTableEntry>& entries, const Response& response) override;

private:
  Status CopyOut(InFlightOp& in_flight, const Response& response);
};

// All ranks have joined, as recorded in the log.
class FtJoin : public FtOperation<JoinOp> {
public:
  using FtOperation::FtOperation;
  Status Execute(std::vector<TensorTableEntry>& entries, const Response& response,
                 ProcessSet& process_set) override;
};

// An error is an entry of the log like any other op.
class FtError : public FtOperation<ErrorOp> {
public:
  using FtOperation::FtOperation;
  Status Execute(std::vector<TensorTableEntry>& entries, const Response& response) override;
};

} // namespace common
} // namespace horovod

#endif // HOROVOD_FT_OPERATIONS_H
