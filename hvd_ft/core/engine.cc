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
    if (!busy) wait_bell(bell, ticket, -1);
  }
}

// The next op, if every rank has contributed. True if there was one.
bool Engine::reduce_next() {
  RankBlock& mine = node_->rank(rank_);
  uint64_t id = mine.reduced.load(std::memory_order_relaxed);
  for (int r = 0; r < node_->size(); ++r) {
    if (node_->rank(r).contributed.load(std::memory_order_seq_cst) <= id) return false;
  }
  const Record* record = node_->record(id);
  if (record != nullptr) work_on(*record);
  mine.reduced.store(id + 1, std::memory_order_seq_cst);
  bool complete = true;
  for (int r = 0; r < node_->size(); ++r) {
    complete &= node_->rank(r).reduced.load(std::memory_order_seq_cst) > id;
  }
  if (complete) node_->ring_workers();
  return true;
}

void Engine::work_on(const Record& record) {
  const OpHead& op = record.op;
  char* result = node_->heap() + record.result_offset;
  auto size = static_cast<uint64_t>(node_->size()), me = static_cast<uint64_t>(rank_);
  if (op.kind == HVDFT_CONCAT) {
    auto* blocks = reinterpret_cast<const uint64_t*>(&record + 1);
    uint64_t before = 0;
    for (uint64_t r = 0; r < me; ++r) before += blocks[r];
    std::memcpy(result + before, files_[me]->input(), blocks[me]);
    return;
  }
  // Slices end at page boundaries, so that two agents never write to one page.
  uint64_t pages = align_up(op.result_bytes, kPage) / kPage;
  uint64_t from = std::min(pages * me / size * kPage, op.result_bytes);
  uint64_t to = std::min(pages * (me + 1) / size * kPage, op.result_bytes);
  if (from == to) return;
  if (op.kind == HVDFT_COPY) {
    std::memcpy(result + from, files_[op.root]->input() + from, to - from);
  } else if (op.kind == HVDFT_REDUCE) {
    const void* inputs[kMaxRanks];
    for (size_t r = 0; r < files_.size(); ++r) inputs[r] = files_[r]->input() + from;
    reduce(op.dtype, op.reduce, inputs, static_cast<int>(files_.size()), result + from,
           (to - from) / element_bytes(op.dtype));
  }
}

}  // namespace hvdft
