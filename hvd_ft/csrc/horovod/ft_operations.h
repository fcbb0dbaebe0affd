// Horovod's operations through the arena: what is to be copied in and out. The executor carries
// them out. An op that an earlier incarnation took part in is served the same way; only what is
// there already is not done again.
#ifndef HOROVOD_FT_OPERATIONS_H
#define HOROVOD_FT_OPERATIONS_H

#include "../ops/collective_operations.h"
#include "ft_executor.h"

namespace horovod {
namespace common {

// What all of them have in common.
template <class Operation> class FtOperation : public Operation {
public:
  FtOperation(FtExecutor& executor, HorovodGlobalState* state)
      : Operation(state), executor_(executor) {}

protected:
  // The op that Horovod begins now.
  std::unique_ptr<InFlightOp> NewInFlightOp(std::vector<TensorTableEntry>& entries,
                                            FtLayout layout = FtLayout::Packed());
  // Hands the op over: the executor finishes it, and calls its entries back.
  Status Begin(std::unique_ptr<InFlightOp> op, const char* activity);

private:
  FtExecutor& executor_;
};

// One that Horovod chooses among others.
template <class Operation> class FtCollective : public FtOperation<Operation> {
public:
  using FtOperation<Operation>::FtOperation;
  bool Enabled(const ParameterManager&, const std::vector<TensorTableEntry>&,
               const Response&) const override {
    return true;
  }
};

// What Horovod's two operations that reduce have in common.
template <class Operation> class FtReduction : public FtCollective<Operation> {
public:
  using FtCollective<Operation>::FtCollective;

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

// A reduction of the whole tensors, of which each rank copies its slices out: so the log has what
// every rank got.
class FtReducescatter : public FtReduction<ReducescatterOp> {
public:
  using FtReduction::FtReduction;
  Status Execute(std::vector<TensorTableEntry>& entries, const Response& response) override;
};

// Likewise all that anybody sends to anybody, one rank's after the other's.
class FtAlltoall : public FtCollective<AlltoallOp> {
public:
  using FtCollective::FtCollective;
  Status Execute(std::vector<TensorTableEntry>& entries, const Response& response) override;

private:
  Status CopyOut(InFlightOp& in_flight, const Response& response);
};

// All ranks have joined, the log says so.
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
