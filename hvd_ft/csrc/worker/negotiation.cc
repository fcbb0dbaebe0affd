#include "worker/negotiation.h"

#include <cstring>

#include "base/error.h"
#include "base/failpoint.h"
#include "protocol/enter_request.h"

namespace hvdft {

bool Negotiation::entered() const {
  return wants_to_enter() &&
         node_.rank(rank_).entered.load(std::memory_order_acquire) == enter_request_.load();
}

void Negotiation::enter(uint64_t log_length) {
  uint64_t request = enter_request(incarnation_, session_, log_length);
  enter_request_.store(request);
  if (node_.rank(rank_).enter_request.exchange(request) != request) {
    failpoint(HVDFT_AT_JOIN, log_.cursor());
    node_.notify_log_writer();
  }
}

void Negotiation::leave() {
  ++session_;
  enter_request_.store(0);
}

int Negotiation::announce(uint64_t term, const void* blob, uint64_t bytes) {
  RankBlock& block = node_.rank(rank_);
  if (bytes > kMailBytes) {
    return fail(HVDFT_EINVAL, "an announcement of %lu bytes is over the mailbox's %lu", bytes,
                kMailBytes);
  }
  uint64_t sequence = block.mail_sequence.load();
  if (sequence % 2 == 1) {
    ++sequence;  // an earlier incarnation was killed while writing
  } else if (block.mail_taken.load() != sequence && block.mail_term.load() == term) {
    block.mail_awaited.store(1);  // and only then look again
    if (block.mail_taken.load() != sequence) return HVDFT_AGAIN;
  }
  withdraw(block.mail_sequence, sequence + 1);
  block.mail_term.store(term, std::memory_order_relaxed);
  block.mail_bytes.store(bytes, std::memory_order_relaxed);
  write_torn(node_.mail(rank_), static_cast<const char*>(blob), bytes);
  failpoint(HVDFT_AT_ANNOUNCE, log_.cursor());
  block.mail_sequence.store(sequence + 2, std::memory_order_seq_cst);
  node_.notify_worker(0);
  return HVDFT_OK;
}

int64_t Negotiation::take(int rank, uint64_t term, const void** blob) {
  RankBlock& from = node_.rank(rank);
  uint64_t sequence = from.mail_sequence.load(std::memory_order_seq_cst);
  if (sequence % 2 == 1 || from.mail_taken.load() == sequence) return HVDFT_AGAIN;
  uint64_t bytes = from.mail_bytes.load(std::memory_order_relaxed);
  if (from.mail_term.load(std::memory_order_relaxed) != term || bytes > kMailBytes) {
    return HVDFT_AGAIN;
  }
  taken_.resize(bytes);
  copy_torn(taken_.data(), node_.mail(rank), bytes);
  // In a new term the owner may overwrite what was not taken: then this copy is invalid.
  std::atomic_thread_fence(std::memory_order_acquire);
  if (from.mail_sequence.load(std::memory_order_seq_cst) != sequence) return HVDFT_AGAIN;
  from.mail_taken.store(sequence, std::memory_order_seq_cst);
  // An owner on another node sees it through the mirror.
  if (from.mail_awaited.exchange(0) != 0 || !node_.is_local(rank)) node_.notify_worker(rank);
  node_.header().announcements.fetch_add(1, std::memory_order_relaxed);
  node_.header().announced_bytes.fetch_add(bytes, std::memory_order_relaxed);
  *blob = taken_.data();
  return static_cast<int64_t>(bytes);
}

bool Negotiation::may_propose() const {
  auto& h = node_.header();
  return h.answered.load(std::memory_order_acquire) >= h.proposed.load();
}

int Negotiation::propose(uint64_t term, const hvdft_op* ops, int count) {
  int code = write_proposal(ops, count);
  if (code != HVDFT_OK) return code;
  auto& h = node_.header();
  h.proposal_term = term;
  h.proposal_count = static_cast<uint32_t>(count);
  failpoint(HVDFT_AT_PROPOSE, log_.cursor());
  h.proposed.store(h.proposed.load() + 1, std::memory_order_release);
  failpoint(HVDFT_AT_PROPOSED, log_.cursor());
  node_.notify_log_writer();
  return HVDFT_OK;
}

int Negotiation::write_proposal(const hvdft_op* ops, int count) {
  char *at = node_.proposal(), *end = at + kProposalBytes;
  for (int i = 0; i < count; ++i) {
    const hvdft_op& op = ops[i];
    uint64_t blocks = op.block_bytes != nullptr ? static_cast<uint64_t>(node_.size()) : 0;
    OpHead head{op.kind,
                op.dtype,
                op.reduce,
                op.root,
                op.result_bytes,
                op.response_bytes,
                std::strlen(op.signature) + 1,
                blocks,
                op.factor,
                op.viewed,
                op.common};
    uint64_t block_bytes = blocks * sizeof(uint64_t);
    uint64_t tail = head.tail_bytes();
    if (static_cast<uint64_t>(end - at) < sizeof head + tail + 8) {
      return fail(HVDFT_ENOSPACE,
                  "%d ops agreed at once are over the proposal's %lu bytes; lower "
                  "HOROVOD_FUSION_THRESHOLD",
                  count, kProposalBytes);
    }
    std::memcpy(at, &head, sizeof head);
    at += sizeof head;
    if (block_bytes > 0) std::memcpy(at, op.block_bytes, block_bytes);
    std::memcpy(at + block_bytes, op.response, head.response_bytes);
    std::memcpy(at + block_bytes + head.response_bytes, op.signature, head.signature_bytes);
    at += align_up(tail, 8);
  }
  return HVDFT_OK;
}

}  // namespace hvdft
