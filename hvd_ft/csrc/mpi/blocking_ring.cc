#include "mpi/blocking_ring.h"

#include <vector>

#include "base/reduce.h"
#include "protocol/ring_plan.h"

namespace hvdft {

namespace {

struct Step {
  const char* out;
  char* in;
  uint64_t out_bytes, in_bytes;
  int to, from;
};

void irecv_send_wait(Endpoint& endpoint, const Step& step) {
  Transfer incoming = endpoint.begin_receive(step.in, step.in_bytes, step.from);
  endpoint.send(step.out, step.out_bytes, step.to);
  endpoint.wait(&incoming);
}

// A sender starts only when its receiver waits: nothing is buffered ahead, and a member has one
// direction at a time. Neighbours begin with different ones; in an odd ring the last two begin
// alike, so the last edge waits for the others.
void serial(Endpoint& endpoint, const Step& step) {
  char token = 0;
  auto send = [&] {
    endpoint.receive(&token, 1, step.to);
    endpoint.synchronous_send(step.out, step.out_bytes, step.to);
  };
  auto receive = [&] {
    endpoint.send(&token, 1, step.from);
    endpoint.receive(step.in, step.in_bytes, step.from);
  };
  if (endpoint.member() % 2 == 0) {
    send();
    receive();
  } else {
    receive();
    send();
  }
}

}  // namespace

void blocking_allreduce(Endpoint& endpoint, Exchange exchange, void* data, uint64_t bytes,
                        uint32_t dtype, uint32_t op) {
  auto members = static_cast<uint64_t>(endpoint.members());
  auto member = static_cast<uint64_t>(endpoint.member());
  RingPlan plan(members, bytes, bytes);  // a segment takes a whole chunk
  std::vector<char> received(plan.chunk(0).bytes());
  char* all = static_cast<char*>(data);
  int to = static_cast<int>((member + 1) % members);
  int from = static_cast<int>(plan.edge_to(member));
  for (uint64_t position = 0; position < plan.positions(); ++position) {
    bool adds = plan.step_at(position).phase == Phase::kReduceScatter;
    ByteRange out = plan.on_edge(member, position);
    ByteRange in = plan.on_edge(plan.edge_to(member), position);
    char* own = all + in.from;
    Step step{all + out.from, adds ? received.data() : own, out.bytes(), in.bytes(), to, from};
    exchange == Exchange::kSerial ? serial(endpoint, step) : irecv_send_wait(endpoint, step);
    if (!adds) continue;
    const void* inputs[] = {received.data(), own};
    reduce(dtype, op, inputs, 2, own, in.bytes() / element_bytes(dtype));
  }
}

}  // namespace hvdft
