// Where tensors lie in an op: every byte once, and in which chunk depends on its tensor alone.
#include "horovod/execute/ft_layout.h"

#include "check.h"
#include "protocol/ring_plan.h"

using horovod::common::FtLayout;

namespace {

using Sizes = std::vector<uint64_t>;

// The chunk of each byte of each tensor; walked in stretches of so many bytes.
std::vector<Sizes> chunks_of_bytes(const Sizes& sizes, uint64_t chunks, uint64_t stretch) {
  FtLayout layout(chunks);
  for (uint64_t bytes : sizes) layout.Add(bytes);
  hvdft::RingPlan plan(chunks, layout.Bytes(), 256);
  std::vector<Sizes> seen;
  for (uint64_t bytes : sizes) seen.emplace_back(bytes, UINT64_MAX);
  for (uint64_t from = 0; from < layout.Bytes(); from += stretch) {
    uint64_t bytes = std::min(stretch, layout.Bytes() - from);
    layout.Each(from, bytes, [&](size_t tensor, uint64_t at, uint64_t n, uint64_t of) {
      CHECK(n > 0 && of + n <= bytes && at + n <= sizes[tensor]);
      for (uint64_t i = 0; i < n; ++i) {
        uint64_t chunk = 0;
        while (from + of + i >= plan.chunk(chunk).to) ++chunk;
        CHECK(seen[tensor][at + i] == UINT64_MAX);
        seen[tensor][at + i] = chunk;
      }
    });
  }
  for (auto& tensor : seen) {
    for (uint64_t chunk : tensor) CHECK(chunk < chunks);
  }
  return seen;
}

}  // namespace

int main() {
  const Sizes sizes = {4, 0, 64, 1000, 4096, 100, 64 * 3, 12345 * 4};
  for (uint64_t chunks : {1, 2, 3, 5}) {
    for (uint64_t stretch : {64, 1000, 1 << 20}) {
      auto fused = chunks_of_bytes(sizes, chunks, stretch);
      for (size_t t = 0; t < sizes.size() && chunks > 1; ++t) {
        CHECK(fused[t] == chunks_of_bytes({sizes[t]}, chunks, stretch)[0]);
      }
    }
  }
  CHECK(chunks_of_bytes({}, 3, 64).empty());
  FtLayout one(1);
  one.Add(4);
  one.Add(100);
  CHECK(one.Bytes() == 164);  // nothing behind the last
  CHECK(one.Begin(0) == 0 && one.Begin(1) == 64);
}
