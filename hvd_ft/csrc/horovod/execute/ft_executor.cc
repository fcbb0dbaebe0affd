#include "ft_executor.h"

#include "ft_stop.h"

namespace horovod {
namespace common {

uint64_t FtExecutor::NextOp() const {
  return ft().worker_next() + in_flight_.size() + handed_over_.size();
}

void FtExecutor::PassOver(const hvdft_record& record) {
  auto op = std::make_unique<InFlightOp>(record, std::vector<TensorTableEntry>());
  op->of_others = true;
  Begin(std::move(op));
}

hvdft_record FtExecutor::TakeRecord() {
  hvdft_record record = handed_over_.front();
  handed_over_.pop_front();
  return record;
}

void FtExecutor::Begin(std::unique_ptr<InFlightOp> op) {
  hvdft_copies copies{[](void* op, uint64_t from, uint64_t bytes, void* to) {
                        auto& copy = static_cast<InFlightOp*>(op)->copy_in;
                        if (copy) {
                          copy(from, bytes, static_cast<char*>(to));
                        }
                      },
                      [](void* op, uint64_t from, uint64_t bytes, const void* result) {
                        auto& copy = static_cast<InFlightOp*>(op)->copy_out;
                        if (copy) {
                          copy(from, bytes, static_cast<const char*>(result));
                        }
                      },
                      op.get()};
  FtCheck(ft().worker_begin(op->record.id, &copies));
  in_flight_.push_back(std::move(op));
}

bool FtExecutor::Advance() {
  int code = IsIdle() ? HVDFT_AGAIN : ft().worker_advance();
  if (code == HVDFT_AGAIN) {
    return false;
  }
  FtCheck(code);
  auto op = std::move(in_flight_.front());
  in_flight_.pop_front();
  Finish(*op);
  return true;
}

void FtExecutor::Finish(InFlightOp& op) {
  if (op.of_others) {
    ft().worker_passed(op.record.id);
    return;
  }
  Status status = op.finish();
  timeline_->ActivityEndAll(op.entries);
  ft().worker_pend(-static_cast<int64_t>(op.tensors));
  ft().worker_executed(op.record.id); // before the callbacks, which let the script go on
  for (auto& e : op.entries) {
    timeline_->End(e.tensor_name, status.ok() ? e.output : nullptr);
    e.FinishWithCallback(status);
  }
}

void FtExecutor::Barrier() {
  auto op = std::make_unique<InFlightOp>(TakeRecord(), std::vector<TensorTableEntry>());
  op->tensors = 1; // Horovod calls it back itself
  Begin(std::move(op));
  while (!IsIdle()) {
    uint32_t ticket = ft().worker_ticket();
    if (!Advance()) {
      FtCheck(ft().worker_wait(ticket, kFtWaitMs));
    }
  }
}

void FtExecutor::ShowWaiting() {
  if (IsIdle() || !ft().worker_waits() || in_flight_.front()->shown_waiting) {
    return;
  }
  InFlightOp& op = *in_flight_.front();
  op.shown_waiting = true;
  timeline_->ActivityEndAll(op.entries);
  timeline_->ActivityStartAll(op.entries, "FT_WAIT_PEER");
}

} // namespace common
} // namespace horovod
