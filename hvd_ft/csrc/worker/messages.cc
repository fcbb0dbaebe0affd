#include "worker/messages.h"

#include <algorithm>
#include <cstring>

#include "arena/memory.h"
#include "base/crc32c.h"
#include "base/doorbell.h"
#include "base/error.h"
#include "base/failpoint.h"
#include "worker/worker.h"

namespace hvdft {

namespace {

// How often a waiter checks whether the job is stopped, its peer has ended, or the notifying
// process was killed.
constexpr int kLookMs = 100;

Shared<uint64_t>& word_of(const Node& node, int rank, bool sends, int peer) {
  return (sends ? node.sends_to(rank) : node.receives_from(rank))[peer / 64];
}

constexpr uint64_t bit_of(int peer) { return uint64_t{1} << peer % 64; }

}  // namespace

Messages::Messages(const Node& node, int rank) : node_(node), rank_(rank), block_(node.rank(rank)) {
  for (auto& ends : ends_) ends.resize(static_cast<size_t>(node.size()));
}

Messages::End* Messages::end(Direction direction, int peer) {
  std::lock_guard<std::mutex> guard(mutex_);
  auto& end = ends_[direction][static_cast<size_t>(peer)];
  if (!end) end = attach(direction, peer);
  return end.get();
}

std::unique_ptr<Messages::End> Messages::attach(Direction direction, int peer) const {
  auto end = std::make_unique<End>();
  end->sends = direction == kOut;
  int source = end->sends ? rank_ : peer, dest = end->sends ? peer : rank_;
  end->file = PairFile::open(node_, source, dest, true);
  if (!end->file) return nullptr;
  PairHeader& header = end->file->header();
  end->mine = end->sends ? &header.sender : &header.receiver;
  auto& known = word_of(node_, rank_, end->sends, peer);
  if ((known.load() & bit_of(peer)) == 0) {
    // Loops that began earlier had no message then.
    for (int l = 0; block_.loop(l).begin.load() != 0; ++l) {
      if (end->file->grow_loops(*end->mine, l) != HVDFT_OK) return nullptr;
      end->mine->loops[l].begin.store(1, std::memory_order_release);
    }
    end->mine->changes.fetch_add(1);
    known.fetch_or(bit_of(peer));
  }
  return end;
}

int Messages::attach_known() {
  for (int peer = 0; peer < node_.size(); ++peer) {
    for (Direction direction : {kOut, kIn}) {
      bool known = (word_of(node_, rank_, direction == kOut, peer).load() & bit_of(peer)) != 0;
      if (known && end(direction, peer) == nullptr) return HVDFT_EINVAL;
    }
  }
  return HVDFT_OK;
}

std::vector<Messages::End*> Messages::ends() {
  std::lock_guard<std::mutex> guard(mutex_);
  std::vector<End*> all;
  for (auto& direction : ends_) {
    for (auto& end : direction) {
      if (end) all.push_back(end.get());
    }
  }
  return all;
}

// ---------------------------------------------------------------- sending and receiving

int Messages::send(int dest, MessageHead& head, const char* data) {
  End* end = this->end(kOut, dest);
  if (end == nullptr) return HVDFT_ESYS;
  const PairFile& file = *end->file;
  head.checksum = crc32c(data, head.bytes);
  int code = 0;
  if (is_repeated(end->position, file.sent())) {
    code = repeat(*end, head);
    notify(file.header().doorbell);  // its sender may have been killed before notifying
  } else {
    file.settle();
    code = file.room(head.bytes, &head.offset);
    if (code == HVDFT_OK) code = file.write(head.offset, data, head.bytes);
    if (code != HVDFT_OK) return code;
    failpoint(HVDFT_AT_SEND, end->position.count);
    file.publish(head);
    failpoint(HVDFT_AT_SENT, end->position.count);
    code = 1;
  }
  if (code < 0) return code;
  if (!node_.is_local(dest)) node_.notify_mirror();
  uint64_t count = end->position.count + 1;
  end->position = {count, count, count};
  bytes_ += head.bytes;
  return code;
}

int Messages::repeat(const End& end, const MessageHead& head) const {
  uint64_t number = end.position.count;
  const MessageHead& sent = end.file->message(number);
  uint32_t dest = end.file->header().file.size;
  const char* rule = "a restarted script must send the same messages in the same order";
  if (!end.file->see(number).there) {
    if (int code = end.file->why_not_there(number); code != HVDFT_OK) return code;
    return fail(HVDFT_ETRUNCATED,
                "rank %d cannot be replayed: it sends message %lu to rank %u again, "
                "which lies before its snapshot; %s",
                rank_, number, dest, rule);
  }
  const char* what = sent.tag != head.tag                     ? "its tag"
                     : std::strcmp(sent.form, head.form) != 0 ? "its type or shape"
                     : sent.checksum != head.checksum         ? "its data"
                                                              : nullptr;
  if (what == nullptr) return 0;
  return fail(
      HVDFT_EINVAL,
      "rank %d cannot be replayed: message %lu to rank %u is not what it sent "
      "before, %s differs: the log has %s with tag %d and checksum %08x, the script sends %s "
      "with tag %d and checksum %08x; %s",
      rank_, number, dest, what, sent.form, sent.tag, sent.checksum, head.form, head.tag,
      head.checksum, rule);
}

int Messages::find(int source, int32_t tag, hvdft_message* out) {
  End* end = this->end(kIn, source);
  if (end == nullptr) return HVDFT_ESYS;
  const PairFile& file = *end->file;
  Found found = find_message(end->position, end->fresh, file.sent(), tag,
                             [&](uint64_t n) { return file.see(n); });
  if (found.what == Finding::kNothing) return HVDFT_AGAIN;
  const MessageHead& head = file.message(found.number);
  const char* rule = "a restarted script must receive the same messages in the same order";
  if (found.what == Finding::kDropped) {
    if (int code = file.why_not_there(found.number); code != HVDFT_OK) return code;
    return fail(HVDFT_ETRUNCATED,
                "rank %d cannot be replayed: it asks for message %lu of rank %d, which "
                "lies before its snapshot; %s",
                rank_, found.number, source, rule);
  }
  if (head.tag != tag) {
    return fail(HVDFT_EINVAL,
                "rank %d cannot be replayed: its receive %lu from rank %d was of tag "
                "%d, and now the script asks for tag %d; %s",
                rank_, end->position.count, source, head.tag, tag, rule);
  }
  *out = {found.number, head.bytes, head.form};
  return HVDFT_OK;
}

uint32_t Messages::ticket(int source) {
  End* end = this->end(kIn, source);
  return end == nullptr ? 0 : end->file->header().doorbell.load();
}

bool Messages::wait(int source, uint32_t ticket, int timeout_ms) {
  auto& doorbell = end(kIn, source)->file->header().doorbell;
  return yield_for_doorbell(doorbell, ticket) || wait_doorbell(doorbell, ticket, timeout_ms);
}

int Messages::take(int source, uint64_t number, char* to) {
  End* end = this->end(kIn, source);
  const PairFile& file = *end->file;
  MessageHead& head = file.message(number);
  int code = file.read(head.offset, to, head.bytes);
  if (code == HVDFT_OK) code = file.check_data(number, to);
  if (code != HVDFT_OK) return code;
  uint64_t mine = end->position.count + 1;
  if (head.taken.load() != mine) {
    failpoint(HVDFT_AT_RECEIVE, end->position.count);
    head.taken.store(mine, std::memory_order_release);
    end->mine->count.store(mine, std::memory_order_release);
    end->fresh = true;
    failpoint(HVDFT_AT_RECEIVED, end->position.count);
  }
  bytes_ += head.bytes;
  move_on(&end->position, number, [&](uint64_t n) { return file.see(n).taken; });
  return HVDFT_OK;
}

// ---------------------------------------------------------------- snapshots

int Messages::loop_begins(int loop) {
  if (attach_known() != HVDFT_OK) return HVDFT_ESYS;
  for (End* end : ends()) {
    if (int code = end->file->grow_loops(*end->mine, loop); code != HVDFT_OK) return code;
    auto& begin = end->mine->loops[loop].begin;
    uint64_t mark = end->position.reach + 1;
    if (begin.load() == 0) begin.store(mark, std::memory_order_release);
    end->mine->changes.fetch_add(1);  // a killed incarnation may not have done this
    if (begin.load() == mark) continue;
    const FileHeader& pair = end->file->header().file;
    return fail(HVDFT_EINVAL,
                "training loop %d began after %lu messages of rank %u to rank %u, but "
                "the restarted script reaches it after %lu; the script must send and receive the "
                "same before the loop on every start",
                loop, begin.load() - 1, pair.rank, pair.size, mark - 1);
  }
  return HVDFT_OK;
}

void Messages::snapshot_begins(int loop, int slot) {
  for (End* end : ends()) {
    end->mine->loops[loop].at[slot] = end->position;
    if (end->sends) end->file->settle();
  }
  bytes_ = 0;
}

// Publish the marks after the snapshot, never before: messages may be dropped from then on.
void Messages::snapshot_published(int loop, int slot) {
  for (End* end : ends()) {
    auto& mine = end->mine->loops[loop];
    mine.past.store(mine.at[slot].first, std::memory_order_release);
    end->mine->changes.fetch_add(1);
  }
}

void Messages::go_back(int loop, int slot) {
  for (End* end : ends()) {
    end->position = end->mine->loops[loop].at[slot];
    end->fresh = false;
  }
  snapshot_published(loop, slot);  // a killed incarnation may not have done this
}

}  // namespace hvdft

using hvdft::fail;
using hvdft::the_worker;
using hvdft::Worker;

namespace {

// The worker has reached a message that no earlier incarnation reached. A script that also does
// collectives is back when these have caught up (hvdft_worker_caught_up).
void catch_up(Worker& w) {
  if (!w.negotiation.wants_to_enter()) w.log.catch_up();
}

}  // namespace

int hvdft_worker_send(int dest, int32_t tag, const char* form, const void* data, uint64_t bytes) {
  Worker& w = *the_worker();
  if (w.stopped()) return fail(HVDFT_ESTOPPED, "the job is being stopped");
  hvdft::MessageHead head{};
  head.bytes = bytes;
  head.tag = tag;
  if (std::strlen(form) >= sizeof head.form) {
    return fail(HVDFT_EINVAL,
                "an array of %s has too many dimensions for a message; send it "
                "reshaped",
                form);
  }
  std::strcpy(head.form, form);
  int code = w.messages.send(dest, head, static_cast<const char*>(data));
  if (code == 1) catch_up(w);
  return code;
}

int hvdft_worker_await_message(int source, int32_t tag, int timeout_ms, hvdft_message* out) {
  Worker& w = *the_worker();
  uint64_t end = hvdft::now_ns() + static_cast<uint64_t>(timeout_ms) * 1000000;
  auto* wait = w.messages.wait_for(source);
  if (wait == nullptr) return HVDFT_ESYS;
  hvdft::Blocked blocked(w.times);
  for (;;) {
    uint32_t ticket = w.messages.ticket(source);
    bool ended = w.node->rank(source).state.load(std::memory_order_acquire) == HVDFT_DONE;
    int code = w.messages.find(source, tag, out);
    if (code != HVDFT_AGAIN || ended) w.state.progressed(*wait);
    if (code != HVDFT_AGAIN) return code;
    catch_up(w);
    if (w.stopped()) return fail(HVDFT_ESTOPPED, "the job is being stopped");
    if (ended) {
      return fail(HVDFT_EINVAL,
                  "rank %d has ended, but rank %d waits for a message with tag %d from "
                  "it; a rank must send what others wait for before it ends",
                  source, w.rank, tag);
    }
    uint64_t now = hvdft::now_ns();
    if (now >= end) return HVDFT_AGAIN;
    w.state.about_to_wait(*wait);
    blocked.since(now);
    auto left = static_cast<int>((end - now + 999999) / 1000000);
    w.messages.wait(source, ticket, std::min(left, hvdft::kLookMs));
  }
}

void hvdft_worker_message_room(uint64_t* own_bytes, uint64_t* share_bytes) {
  Worker& w = *the_worker();
  uint64_t used = hvdft::used_bytes(*w.node), limit = w.node->limit();
  auto locals = static_cast<uint64_t>(w.node->end_local() - w.node->first_local());
  *own_bytes = w.messages.bytes_since_snapshot();
  *share_bytes = limit > used ? (limit - used) / locals : 0;
}

int hvdft_worker_take_message(int source, const hvdft_message* message, void* to) {
  return the_worker()->messages.take(source, message->number, static_cast<char*>(to));
}
