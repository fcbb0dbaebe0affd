#include "engine.h"

#include <algorithm>
#include <cstring>

#include "bell.h"
#include "reduce.h"

namespace hvdft {

std::unique_ptr<Engine> Engine::open(const std::string& dir, const char* job, int rank) {
  auto engine = std::make_unique<Engine>();
  engine->rank_ = rank;
  engine->node_ = Node::open(dir, job, Node::kAgent);
  if (!engine->node_) return nullptr;
  for (int r = 0; r < engine->node_->size(); ++r) {
    engine->files_.push_back(RankFile::open(dir, job, r, false));
    if (!engine->files_.back()) return nullptr;
  }
  if (rank == 0) engine->keeper_ = std::make_unique<LogKeeper>(*engine->node_);
  return engine;
}

Engine::~Engine() {
  if (!thread_.joinable()) return;
  closing_ = true;
  ring(node_->rank(rank_).agent_bell);
  thread_.join();
}

void Engine::start() {
  thread_ = std::thread([this] { run(); });
}

void Engine::run() {
  auto& bell = node_->rank(rank_).agent_bell;
  while (!closing_) {
    uint32_t ticket = bell.load(std::memory_order_seq_cst);
    bool busy = keeper_ && keeper_->step();
    busy = reduce_next() || busy;
    if (busy) continue;
    if (passed_by_) ring(node_->rank(0).agent_bell);  // now more may be cut
    passed_by_ = false;
    if (!yield_for_bell(bell, ticket)) wait_bell(bell, ticket, -1);
  }
}

// This agent's slice of the next segment, if every rank has contributed to it; false if it has to
// wait.
bool Engine::reduce_next() {
  RankBlock& mine = node_->rank(rank_);
  auto size = static_cast<uint64_t>(node_->size()), me = static_cast<uint64_t>(rank_);
  uint64_t at = mine.reduced.load(std::memory_order_relaxed);
  if (op_of(at) >= node_->header().log_length.load(std::memory_order_acquire)) return false;
  const Record& record = *node_->record(op_of(at));
  uint64_t bytes = record.op.result_bytes, segments = segments_of(bytes);
  Range segment = segment_range(segment_of(at), bytes);
  uint64_t slices = slices_of(segment.bytes(), size);
  if (me >= slices) {  // nothing in this segment is for this agent
    mine.reduced.store(next_place(at, segments), std::memory_order_seq_cst);
    passed_by_ = true;
    return true;
  }
  if (!all_contributed(at)) return false;
  work_on(record, segment_of(at), slice_range(segment.bytes(), me, size));
  mine.reduced.store(next_place(at, segments), std::memory_order_seq_cst);
  for (uint64_t r = 0; r < slices; ++r) {
    if (node_->rank(static_cast<int>(r)).reduced.load(std::memory_order_seq_cst) <= at) return true;
  }
  node_->ring_workers();  // whoever sees that it is the last one
  return true;
}

bool Engine::all_contributed(uint64_t at) const {
  for (int r = 0; r < node_->size(); ++r) {
    if (node_->rank(r).contributed.load(std::memory_order_seq_cst) <= at) return false;
  }
  return true;
}

void Engine::work_on(const Record& record, uint64_t segment, Range slice) {
  const OpHead& op = record.op;
  uint64_t begin = segment * kSegmentBytes;
  Range range{begin + slice.from, begin + slice.to};
  char* result = node_->heap() + record.result_offset + range.from;
  auto input = [&](size_t rank) {
    return files_[rank]->input() + segment % kWindow * kSegmentBytes + slice.from;
  };
  if (op.kind == HVDFT_CONCAT) {
    for (size_t r = 0; r < files_.size(); ++r) {
      Range part = overlap(range, contribution(record, static_cast<int>(r)));
      uint64_t at = part.from - range.from;
      if (part.bytes() > 0) std::memcpy(result + at, input(r) + at, part.bytes());
    }
  } else if (op.kind == HVDFT_COPY) {
    std::memcpy(result, input(op.root), range.bytes());
  } else if (op.kind == HVDFT_REDUCE) {
    const void* inputs[kMaxRanks];
    for (size_t r = 0; r < files_.size(); ++r) inputs[r] = input(r);
    reduce(op.dtype, op.reduce, inputs, static_cast<int>(files_.size()), result,
           range.bytes() / element_bytes(op.dtype));
  }
}

}  // namespace hvdft
