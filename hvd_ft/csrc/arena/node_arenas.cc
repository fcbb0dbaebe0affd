#include "arena/node_arenas.h"

#include <cstring>

#include "arena/rosters.h"
#include "base/error.h"
#include "base/failpoint.h"
#include "base/reduce.h"

namespace hvdft {

namespace {

// A result of so many bytes is written past the cache; a smaller one is still in it when ranks read
// it.
constexpr uint64_t kStreamedBytes = 1 << 20;

}  // namespace

std::unique_ptr<Arenas> Arenas::open(const std::string& dir, const char* job, Node::Role role,
                                     int rank) {
  auto arenas = std::make_unique<Arenas>();
  arenas->node_ = Node::open(dir, job, role);
  if (!arenas->node_) return nullptr;
  const Node& node = *arenas->node_;
  arenas->files_.resize(static_cast<size_t>(node.size()));
  for (int r = node.first_local(); r < node.end_local(); ++r) {
    bool mine = role == Node::kWorker && r == rank;
    auto& file = arenas->files_[static_cast<size_t>(r)];
    file = RankFile::open(dir, job, r, mine);
    if (!file) return nullptr;
    if (file->window() != node.window()) {
      fail(HVDFT_EINVAL,
           "arena %s: rank %d's window has %lu bytes, its node's have %lu; start the job again",
           dir.c_str(), r, file->window(), node.window());
      return nullptr;
    }
  }
  return arenas;
}

bool Arenas::all_contributed(uint64_t position) const {
  for (int r = node_->first_local(); r < node_->end_local(); ++r) {
    if (node_->rank(r).contributed.load(std::memory_order_seq_cst) <= position &&
        is_present(*node_, r, op_of(position))) {
      return false;
    }
  }
  return true;
}

Stage Arenas::stage(const Record& record, uint64_t number) const {
  return stage_of(number, claim(number).load(std::memory_order_seq_cst), [&] {
    return all_contributed(position(record.id, number - record.first_segment));
  });
}

bool Arenas::is_reduced(uint64_t number) const {
  return reduced(claim(number).load(std::memory_order_seq_cst), number);
}

bool Arenas::is_final(uint64_t number) const {
  return node_->several() ? node_->header().final_segments.load() > number : is_reduced(number);
}

bool Arenas::claim_and_reduce(const Record& record, uint64_t number, int rank) const {
  bool done = hvdft::claim_and_reduce(claim(number), number, rank, [&](uint64_t n) {
    failpoint(HVDFT_AT_REDUCE, record.id);
    reduce_segment(record, n);
  });
  if (done) node_->notify_ring();
  return done;
}

bool Arenas::is_input_ready(const Record& record, uint64_t number) const {
  if (is_reduced(number)) return true;
  for (int r = node_->first_local(); r < node_->end_local(); ++r) {
    if (is_present(*node_, r, record.id)) return false;
  }
  std::lock_guard<std::mutex> guard(reducing_);
  auto& word = claim(number);
  if (is_reduced(number)) return true;
  if (in_work(word.load())) return false;  // by one of the ranks that have left since
  reduce_segment(record, number);
  // Not claimed before: an agent that is killed leaves nothing that others would wait for.
  word.store(claim_word(number, node_->first_local(), true));
  return true;
}

void Arenas::take_over(int rank) const {
  for (Claim& of_some : node_->header().claims) {
    bool done =
        hvdft::take_over(of_some.word, rank, [&](uint64_t n) { reduce_segment(record_of(n), n); });
    if (done) node_->notify_ring();
  }
}

// An incomplete op is one of the last: no rank has executed it.
const Record& Arenas::record_of(uint64_t number) const {
  uint64_t id = node_->header().log_length.load(std::memory_order_acquire) - 1;
  while (node_->record(id)->first_segment > number) --id;
  return *node_->record(id);
}

void Arenas::reduce_segment(const Record& record, uint64_t number) const {
  const OpHead& op = record.op;
  ByteRange range = record.given(number);
  uint64_t offset = record.input_of(number) % node_->window();
  char* result = node_->heap() + record.partial_offset + range.from;
  auto input = [&](int rank) { return files_[static_cast<size_t>(rank)]->input() + offset; };
  int first = node_->first_local(), end = node_->end_local();
  if (op.kind == HVDFT_REDUCE) {
    std::vector<const void*> inputs;
    inputs.reserve(static_cast<size_t>(end - first));
    for (int r = first; r < end; ++r) {
      if (contribution(record, r).bytes() > 0) inputs.push_back(input(r));
    }
    Finish finish;
    if (op.viewed != 0) finish = {op.factor, op.result_bytes >= kStreamedBytes};
    uint64_t elements = range.bytes() / element_bytes(op.dtype);
    reduce(op.dtype, op.reduce, inputs.data(), static_cast<int>(inputs.size()), result, elements,
           finish);
    return;
  }
  // The nodes' parts are added up, so a node without a part contributes zeros.
  if (node_->several()) std::memset(result, 0, range.bytes());
  for (int r = first; r < end; ++r) {
    ByteRange part = overlap(range, contribution(record, r));
    uint64_t at = part.from - range.from;
    if (part.bytes() > 0) std::memcpy(result + at, input(r) + at, part.bytes());
  }
}

}  // namespace hvdft
