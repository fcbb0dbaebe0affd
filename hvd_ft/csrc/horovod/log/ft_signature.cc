#include "ft_signature.h"

#include <cstdio>

#include "ft_process_sets.h"

namespace horovod {
namespace common {

namespace {

const char* ReduceName(ReduceOp op) {
  switch (op) {
  case ReduceOp::AVERAGE: return "average";
  case ReduceOp::SUM: return "sum";
  case ReduceOp::ADASUM: return "adasum";
  case ReduceOp::MIN: return "min";
  case ReduceOp::MAX: return "max";
  case ReduceOp::PRODUCT: return "product";
  }
  return "?";
}

void AppendFactor(const char* name, double factor, std::string& text) {
  if (factor != 1.0) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.17g", factor);
    text.append(name).append(digits);
  }
}

} // namespace

// It is built for every tensor of every step, so without a stream.
std::string FtSignature(const Request& request) {
  auto type = request.request_type();
  if (type == Request::BARRIER) {
    if (FtIsRoster(request)) {
      return "roster " + std::to_string(FtRosterNumber(request));
    }
    return FtIsProcessSetChange(request) ? FtProcessSetChange(request) : "barrier";
  }
  if (type == Request::JOIN) {
    return "join";
  }
  std::string text = Request::RequestType_Name(type);
  if (type == Request::ALLREDUCE) {
    text.append(" ").append(ReduceName(request.reduce_op()));
  } else if (type == Request::BROADCAST) {
    text.append(" from ").append(std::to_string(request.root_rank()));
  }
  text.append(" ").append(DataType_Name(request.tensor_type())).append(" [");
  const auto& shape = request.tensor_shape();
  bool ragged = type == Request::ALLGATHER || type == Request::ALLTOALL;
  for (size_t i = 0; i < shape.size(); ++i) {
    text.append(i > 0 ? ", " : "");
    text.append(i == 0 && ragged ? "*" : std::to_string(shape[i]));
  }
  text.append("]");
  AppendFactor(" prescale ", request.prescale_factor(), text);
  AppendFactor(" postscale ", request.postscale_factor(), text);
  return text.append(" ").append(request.tensor_name());
}

} // namespace common
} // namespace horovod
