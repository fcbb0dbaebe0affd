#include "arena/message_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "arena/arena_file.h"
#include "arena/memory.h"
#include "base/crc32c.h"
#include "base/doorbell.h"
#include "base/error.h"

namespace hvdft {

namespace {

constexpr uint64_t kHeads = align_up(sizeof(PairHeader), kPage);  // their offsets in the file
constexpr uint64_t kData = kHeads + kMostMessages * sizeof(MessageHead);

// Its maker may be killed, and both ends may make it at once: the file gets its name when it is
// complete.
int make(const Node& node, const std::string& path, int source, int dest) {
  std::string unfinished = path + "." + std::to_string(getpid());
  unlink(unfinished.c_str());
  FileHeader header = header_for(kPairMagic, node.file().job, source, node.limit());
  header.size = static_cast<uint32_t>(dest);
  uint64_t sender = offsetof(PairHeader, sender), receiver = offsetof(PairHeader, receiver);
  std::vector<ByteRange> backed{{0, kPage}, {sender, sender + kPage}, {receiver, receiver + kPage}};
  uint64_t bytes = backed.size() * kPage;
  claim_messages(node, bytes);
  int code = make_file(unfinished, kData, backed, header);
  if (code == HVDFT_OK && link(unfinished.c_str(), path.c_str()) == 0) {
    unlink(unfinished.c_str());
    return HVDFT_OK;
  }
  int error = errno;
  unclaim_messages(node, bytes);
  if (code != HVDFT_OK) return code;
  unlink(unfinished.c_str());
  return error == EEXIST
             ? HVDFT_OK
             : fail(HVDFT_ESYS, "%s: cannot be made: %s", path.c_str(), strerror(error));
}

uint32_t checksum_of(const MessageHead& head) {
  uint64_t words[] = {head.number, head.offset, head.bytes,
                      uint64_t{head.checksum} << 32 | static_cast<uint32_t>(head.tag)};
  return crc32c(head.form, kFormBytes, crc32c(words, sizeof words));
}

template <typename Transfer>
int transfer_all(uint64_t bytes, Transfer transfer) {
  for (uint64_t done = 0; done < bytes;) {
    ssize_t moved = transfer(done);
    if (moved > 0) {
      done += static_cast<uint64_t>(moved);
    } else if (moved == 0 || errno != EINTR) {
      return fail(HVDFT_ESYS,
                  "a message log cannot be read or written: %s; the job's directory was "
                  "changed from outside, start the job again",
                  moved == 0 ? "its end is missing" : strerror(errno));
    }
  }
  return HVDFT_OK;
}

}  // namespace

PairFile::~PairFile() {
  if (fd_ >= 0) close(fd_);
}

std::unique_ptr<PairFile> PairFile::open(const Node& node, int source, int dest, bool make_it) {
  std::string path =
      node.dir() + "/messages-" + std::to_string(source) + "-" + std::to_string(dest) + ".log";
  if (make_it && access(path.c_str(), F_OK) != 0 && make(node, path, source, dest) != HVDFT_OK) {
    return nullptr;
  }
  FileHeader header{};
  auto file = std::make_unique<PairFile>();
  file->node_ = &node;
  file->path_ = path;
  file->fd_ = open_file(path, kPairMagic, node.file().job, make_it, &header);
  if (file->fd_ < 0 || check_length(file->fd_, path, kData) != HVDFT_OK ||
      file->control_.map(file->fd_, 0, kHeads, make_it) != HVDFT_OK ||
      file->heads_.map(file->fd_, kHeads, kData - kHeads, make_it) != HVDFT_OK ||
      check_length(file->fd_, path, kData + file->data_end()) != HVDFT_OK) {
    return nullptr;
  }
  if (uint64_t most = file->header().heads_backed.load() / sizeof(MessageHead);
      file->sent() > std::min(most, kMostMessages)) {
    fail(HVDFT_EINVAL, "%s is damaged: it has room for %lu messages, not for %lu; %s", path.c_str(),
         most, file->sent(), kStartAgain);
    return nullptr;
  }
  if (header.rank != static_cast<uint32_t>(source) || header.size != static_cast<uint32_t>(dest)) {
    fail(HVDFT_EINVAL, "%s is the log of ranks %u and %u; start the job again", path.c_str(),
         header.rank, header.size);
    return nullptr;
  }
  return file;
}

SeenMessage PairFile::see(uint64_t number) const {
  const MessageHead& head = message(number);
  uint64_t taken = head.taken.load(std::memory_order_acquire);
  return {head.number == number + 1 && head.head_checksum == checksum_of(head), taken, head.tag};
}

int PairFile::why_not_there(uint64_t number) const {
  bool dropped = message(number).number == 0 && number < header().decided_before.load();
  return dropped ? HVDFT_OK : damaged(number, "head");
}

int PairFile::check_data(uint64_t number, const char* data) const {
  const MessageHead& head = message(number);
  return crc32c(data, head.bytes) == head.checksum ? HVDFT_OK : damaged(number, "data");
}

int PairFile::damaged(uint64_t number, const char* what) const {
  return fail(HVDFT_EINVAL,
              "%s is damaged: the %s of message %lu of rank %u to rank %u is not as "
              "written; %s",
              path_.c_str(), what, number, header().file.rank, header().file.size, kStartAgain);
}

int PairFile::room(uint64_t bytes, uint64_t* offset) const {
  PairHeader& h = header();
  uint64_t number = sent();
  if (number == kMostMessages) {
    return fail(HVDFT_ENOSPACE,
                "rank %u has sent %lu messages to rank %u, and there can be no more "
                "in a job; send fewer, larger ones",
                h.file.rank, number, h.file.size);
  }
  *offset = align_up(h.data_end.load(), kCacheLine);
  int code = grow(h.heads_backed, kHeads, (number + 1) * sizeof(MessageHead));
  return code == HVDFT_OK ? grow(h.data_backed, kData, *offset + bytes) : code;
}

int PairFile::grow(Shared<uint64_t>& backed, uint64_t base, uint64_t end) const {
  uint64_t had = backed.load(), size = align_up(end, kPage);
  if (size <= had) return HVDFT_OK;
  int code = grow_messages(*node_, fd_, base, had, size);
  if (code == HVDFT_OK) backed.store(size);
  return code;
}

int PairFile::grow_loops(PairEnd& end, int loop) const {
  if (loop < end.loops_there()) return HVDFT_OK;
  auto base = static_cast<uint64_t>(reinterpret_cast<char*>(&end) - control_.data()) + kPage;
  uint64_t bytes = offsetof(PairEnd, loops) + static_cast<uint64_t>(loop + 1) * sizeof *end.loops;
  return grow(end.loops_backed, base, bytes - kPage);
}

int PairFile::write(uint64_t offset, const char* data, uint64_t bytes) const {
  return transfer_all(bytes, [&](uint64_t done) {
    return pwrite(fd_, data + done, bytes - done, static_cast<off_t>(kData + offset + done));
  });
}

int PairFile::read(uint64_t offset, char* data, uint64_t bytes) const {
  return transfer_all(bytes, [&](uint64_t done) {
    return pread(fd_, data + done, bytes - done, static_cast<off_t>(kData + offset + done));
  });
}

uint64_t PairFile::memory_bytes() const {
  struct stat info{};
  fstat(fd_, &info);
  return static_cast<uint64_t>(info.st_blocks) * 512;
}

void PairFile::publish(const MessageHead& head) const {
  PairHeader& h = header();
  uint64_t number = sent();
  MessageHead& to = message(number);
  to.offset = head.offset;
  to.bytes = head.bytes;
  to.tag = head.tag;
  to.checksum = head.checksum;
  std::memcpy(to.form, head.form, kFormBytes);
  to.number = number + 1;
  to.head_checksum = checksum_of(to);
  h.data_end.store(head.offset + head.bytes);
  h.sender.count.store(number + 1, std::memory_order_release);
  notify(h.doorbell);
}

void PairFile::settle() const {
  PairHeader& h = header();
  for (uint64_t n = h.decided_before.load(); n < sent(); ++n) {
    Fate fate = fate_of(h.sender.fate(n), h.receiver.fate(n));
    if (fate == Fate::kOpen) return;
    const MessageHead& head = message(n);
    uint64_t from = head.offset, to = head.offset + head.bytes;
    if (fate == Fate::kPast) {
      free_to(h.data_hole, kData, to);
      free_to(h.heads_hole, kHeads, (n + 1) * sizeof head);
    } else {  // the next hole begins behind it
      free_to(h.data_hole, kData, from);
      h.data_hole.store(std::max(h.data_hole.load(), align_up(to, kPage)));
      h.heads_hole.store(align_up((n + 1) * sizeof head, kPage));
    }
    h.decided_before.store(n + 1);
  }
}

// Releases the whole pages between the end of the last hole and `end`. A process killed in here
// only leaks some room.
void PairFile::free_to(Shared<uint64_t>& hole, uint64_t base, uint64_t end) const {
  uint64_t from = hole.load(), to = end / kPage * kPage;
  if (to <= from) return;
  hole.store(to);
  fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(base + from),
            static_cast<off_t>(to - from));
  unclaim_messages(*node_, to - from);
}

}  // namespace hvdft
