#include "replication/private_parts.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "arena/memory.h"
#include "protocol/shared_snapshot.h"
#include "replication/mirror_frames.h"

namespace hvdft {

namespace {

constexpr uint64_t kPieceBytes = 1 << 20;

off_t place(const RankFile& file, uint64_t loop, uint64_t slot, uint64_t offset) {
  uint64_t begin = slot_offset(file.limit(), static_cast<int>(loop), static_cast<int>(slot));
  return static_cast<off_t>(begin + offset);
}

}  // namespace

const RankFile* PartSender::file_of(int rank) {
  auto& file = files_[rank];
  if (!file) file = RankFile::open(node_.dir(), node_.file().job, rank, false);
  return file.get();
}

uint64_t PartSender::collect(int rank, int loop, bool may_send, std::string* out) {
  Sent& sent = sent_[{rank, loop}];
  uint64_t published = node_.rank(rank).loops[loop].published.load(std::memory_order_acquire);
  if (published == sent.complete || !may_send) return sent.complete;
  if (published != sent.under_way) {
    sent.under_way = published;
    sent.bytes = 0;
  }
  if (send_piece(rank, loop, &sent, out)) sent.complete = published;
  return sent.complete;
}

// True when that was the last one.
bool PartSender::send_piece(int rank, int loop, Sent* sent, std::string* out) {
  const Loop& from = node_.rank(rank).loops[loop];
  uint64_t slot = sent->under_way & 1, word = from.slots[slot].load(std::memory_order_seq_cst);
  if (word == 0) return true;  // nothing
  uint64_t own = is_alone(word) ? from.bytes[slot] : from.stripes[slot];
  PartHead head{static_cast<uint64_t>(loop), word, from.positions[slot], own, sent->bytes};
  std::string piece(std::min(own - std::min(own, sent->bytes), kPieceBytes), '\0');
  const RankFile* file = file_of(rank);
  bool read = file != nullptr && pread(file->fd(), piece.data(), piece.size(),
                                       place(*file, head.loop, slot, sent->bytes)) ==
                                     static_cast<ssize_t>(piece.size());
  std::atomic_thread_fence(std::memory_order_acquire);
  // The rank goes on meanwhile: what is published stays only as long as nothing newer is.
  bool stays = from.published.load(std::memory_order_seq_cst) == sent->under_way &&
               from.slots[slot].load(std::memory_order_seq_cst) == word;
  if (!read || !stays) {
    sent->under_way = 0;
    return false;
  }
  put_frame(out, FrameKind::kPart, rank, &head, sizeof head, piece.data(), piece.size());
  sent->bytes += piece.size();
  return sent->bytes == own;
}

const RankFile* PartReceiver::file_of(int rank) {
  auto& file = files_[rank];
  const char* job = node_.file().job;
  if (!file) file = RankFile::open(node_.dir(), job, rank, true, RankFile::kParts);
  if (!file && RankFile::create(node_.dir(), job, rank, node_.limit(), RankFile::kParts) == 0) {
    file = RankFile::open(node_.dir(), job, rank, true, RankFile::kParts);
  }
  return file.get();
}

void PartReceiver::apply(int rank, const char* payload, uint64_t bytes) {
  auto head = get<PartHead>(payload);
  bytes -= sizeof head;
  Loop& loop = node_.rank(rank).loops[head.loop];
  int& slot = slots_[{rank, head.loop}];
  if (head.offset == 0) slot = 1 - static_cast<int>(loop.published.load() & 1);
  auto number = static_cast<int>(head.loop);
  const RankFile* file = file_of(rank);
  if (head.offset == 0) {
    withdraw(loop.slots[slot]);
    loop.bytes[slot] = 0;
    if (file == nullptr || grow_slot(node_, *file, {rank, number, slot}, head.bytes) != HVDFT_OK) {
      return say_left_out(rank);
    }
  }
  bool follows = file != nullptr && loop.bytes[slot] == head.offset;
  if (!follows || pwrite(file->fd(), payload + sizeof head, bytes,
                         place(*file, head.loop, static_cast<uint64_t>(slot), head.offset)) !=
                      static_cast<ssize_t>(bytes)) {
    return;
  }
  loop.bytes[slot] += bytes;
  if (loop.bytes[slot] < head.bytes) return;
  loop.positions[slot] = head.position;
  loop.stripes[slot] = head.bytes;
  note_contents(node_, {rank, number, slot}, {cut_of(head.word), head.position, head.bytes, 0, 0});
  loop.slots[slot].store(head.word, std::memory_order_seq_cst);
}

void PartReceiver::say_left_out(int rank) {
  if (said_) return;
  said_ = true;
  std::fprintf(
      stderr,
      "hvdft: this host keeps no copy of what only rank %d has, so the loss of that rank's "
      "host would end the job: %s\n",
      rank, hvdft_error());
}

uint64_t PartReceiver::published_here(int rank, uint64_t number, uint64_t published) const {
  const Loop& loop = node_.rank(rank).loops[number];
  uint64_t slot = loop.slots[0].load() == 0 ? 0 : 1;  // an empty one, if the part was left out
  for (uint64_t s : {0, 1}) {
    if (loop.slots[s].load() != 0 && loop.positions[s] + 1 == published >> 1) slot = s;
  }
  return published >> 1 << 1 | slot;
}

}  // namespace hvdft
