#include "ft_signature.h"

#include <sstream>

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

} // namespace

std::string FtSignature(const Request& request) {
  std::ostringstream text;
  text.precision(17);
  if (request.request_type() == Request::BARRIER) {
    return FtIsProcessSetChange(request) ? FtProcessSetChange(request) : "barrier";
  }
  if (request.request_type() == Request::JOIN) {
    return "join";
  }
  text << Request::RequestType_Name(request.request_type());
  if (request.request_type() == Request::ALLREDUCE) {
    text << ' ' << ReduceName(request.reduce_op());
  } else if (request.request_type() == Request::BROADCAST) {
    text << " from " << request.root_rank();
  }
  text << ' ' << DataType_Name(request.tensor_type()) << " [";
  const auto& shape = request.tensor_shape();
  for (size_t i = 0; i < shape.size(); ++i) {
    text << (i > 0 ? ", " : "");
    if (i == 0 && (request.request_type() == Request::ALLGATHER ||
                   request.request_type() == Request::ALLTOALL)) {
      text << '*';
    } else {
      text << shape[i];
    }
  }
  text << ']';
  if (request.prescale_factor() != 1.0) {
    text << " prescale " << request.prescale_factor();
  }
  if (request.postscale_factor() != 1.0) {
    text << " postscale " << request.postscale_factor();
  }
  text << ' ' << request.tensor_name();
  return text.str();
}

} // namespace common
} // namespace horovod
