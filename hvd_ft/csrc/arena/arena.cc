#include "arena/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstddef>
#include <cstring>

#include "arena/arena_file.h"
#include "arena/numa.h"
#include "base/crc32c.h"
#include "base/doorbell.h"
#include "base/error.h"

namespace hvdft {

namespace {

uint64_t checksum_of(const FileHeader& header) {
  return crc32c(&header, offsetof(FileHeader, checksum));
}

// The parts of node.arena before the heap that have memory from the beginning: not later training
// loops, nor mailboxes and fingerprints of ranks elsewhere, nor report and proposal where rank 0 is
// not.
std::vector<ByteRange> control_ranges(const FileHeader& file) {
  NodeOffsets at = node_offsets(static_cast<int>(file.size));
  auto of_locals = [&](uint64_t offset, uint64_t bytes) -> ByteRange {
    offset += bytes * file.first_local;
    return {offset, offset + bytes * file.locals};
  };
  std::vector<ByteRange> ranges{{0, at.ranks},
                                {at.peers, at.mail},
                                of_locals(at.mail, kMailBytes),
                                of_locals(at.fingerprints, 2 * sizeof(Fingerprints))};
  for (uint64_t r = 0; r < file.size; ++r) {
    uint64_t block = at.ranks + r * sizeof(RankBlock);
    ranges.push_back({block, block + RankBlock::kBytesAtFirst});
  }
  if (file.first_local == 0) ranges.push_back({at.report, at.heap});
  return ranges;
}

uint64_t control_bytes_of(const FileHeader& file) {
  uint64_t bytes = 0;
  for (const ByteRange& part : control_ranges(file)) bytes += part.bytes();
  return bytes;
}

}  // namespace

int make_file(const std::string& path, uint64_t bytes, const std::vector<ByteRange>& backed,
              FileHeader header) {
  header.checksum = checksum_of(header);
  int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return fail(HVDFT_ESYS, "%s: cannot be made: %s", path.c_str(), strerror(errno));
  place_file(fd, bytes);
  int code = HVDFT_OK;
  errno = 0;
  for (const ByteRange& part : backed) {
    if (errno != 0 || part.bytes() == 0) continue;
    errno = posix_fallocate(fd, static_cast<off_t>(part.from), static_cast<off_t>(part.bytes()));
  }
  if (errno != 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0 ||
      pwrite(fd, &header, sizeof header, 0) != sizeof header) {
    code = fail(HVDFT_ENOSPACE,
                "%s: cannot be made: %s; free some space or set "
                "HOROVOD_FT_ARENA_DIR",
                path.c_str(), strerror(errno));
    unlink(path.c_str());
  }
  close(fd);
  return code;
}

FileHeader header_for(uint64_t magic, const char* job, int rank, uint64_t limit) {
  FileHeader header{};
  header.magic = magic;
  header.version = kLayoutVersion;
  header.rank = static_cast<uint32_t>(rank);
  header.uid = getuid();
  header.limit_bytes = limit;
  strncpy(header.job, job, sizeof header.job - 1);
  return header;
}

int open_file(const std::string& path, uint64_t magic, const char* job, bool writable,
              FileHeader* header) {
  const char* name = path.c_str();
  int fd = ::open(name, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) {
    return fail(HVDFT_ESYS, "arena %s cannot be opened: %s; start the script with 'hvdft run'",
                name, strerror(errno));
  }
  struct stat info;
  int code = HVDFT_OK;
  if (fstat(fd, &info) != 0 || pread(fd, header, sizeof *header, 0) != sizeof *header ||
      header->magic != magic) {
    code =
        fail(HVDFT_EINVAL, "%s is not an arena of hvd_ft; start the script with 'hvdft run'", name);
  } else if (info.st_uid != geteuid() || (info.st_mode & 077) != 0) {
    code = fail(HVDFT_EINVAL,
                "arena %s belongs to user %u with mode %o, expected user %u and "
                "mode 600; remove it and start the job again",
                name, info.st_uid, info.st_mode & 0777, geteuid());
  } else if (header->version != kLayoutVersion) {
    code = fail(HVDFT_EINVAL,
                "arena %s has layout version %u, this hvd_ft has %u; use one "
                "version of hvd_ft on all sides",
                name, header->version, kLayoutVersion);
  } else if (header->checksum != checksum_of(*header)) {
    code = fail(HVDFT_EINVAL, "arena %s is damaged: its header does not match its checksum; %s",
                name, kStartAgain);
  } else if (job != nullptr && strncmp(header->job, job, sizeof header->job) != 0) {
    code = fail(HVDFT_EINVAL,
                "arena %s belongs to job '%.63s', not to '%s'; start the script "
                "with 'hvdft run'",
                name, header->job, job);
  }
  if (code == HVDFT_OK) return fd;
  close(fd);
  return code;
}

int check_length(int fd, const std::string& path, uint64_t bytes) {
  struct stat info{};
  if (fstat(fd, &info) == 0 && static_cast<uint64_t>(info.st_size) >= bytes) return HVDFT_OK;
  return fail(HVDFT_EINVAL, "arena %s is damaged: it has %lu of its %lu bytes; %s", path.c_str(),
              static_cast<uint64_t>(info.st_size), bytes, kStartAgain);
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

int Mapping::map(int fd, uint64_t offset, uint64_t bytes, bool writable) {
  void* data = mmap(nullptr, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ,
                    MAP_SHARED | MAP_NORESERVE, fd, static_cast<off_t>(offset));
  if (data == MAP_FAILED) {
    return fail(HVDFT_ESYS,
                "mapping %" PRIu64
                " bytes of the arena failed: %s; lower "
                "HOROVOD_FT_ARENA_BYTES",
                bytes, strerror(errno));
  }
  data_ = data;
  bytes_ = bytes;
  return HVDFT_OK;
}

Node::~Node() {
  if (fd_ >= 0) close(fd_);
}

int Node::create(const std::string& dir, const char* job, int size, int nodes, int node,
                 int first_local, int locals, uint64_t limit, uint64_t window) {
  if (size < 1 || size > kMaxRanks) {
    return fail(HVDFT_EINVAL, "a job takes 1 to %d ranks, not %d; start fewer", kMaxRanks, size);
  }
  if (!is_node_window(window)) {
    return fail(HVDFT_EINVAL,
                "a rank's window cannot have %" PRIu64 " bytes: give a power of two from %" PRIu64
                " to %" PRIu64 " as HOROVOD_FT_NODE_WINDOW_BYTES",
                window, kLeastNodeWindow, kMostNodeWindow);
  }
  FileHeader header = header_for(kNodeMagic, job, 0, 0);
  header.window_bytes = window;
  header.size = static_cast<uint32_t>(size);
  header.nodes = static_cast<uint32_t>(nodes);
  header.node = static_cast<uint32_t>(node);
  header.first_local = static_cast<uint32_t>(first_local);
  header.locals = static_cast<uint32_t>(locals);
  uint64_t control = control_bytes_of(header) + window * static_cast<uint64_t>(locals);
  if (limit <= control) {
    return fail(HVDFT_ENOSPACE,
                "the arena's limit of %" PRIu64
                " bytes is too small, its control area and windows of %" PRIu64
                " bytes take %" PRIu64
                "; raise HOROVOD_FT_ARENA_BYTES, or lower HOROVOD_FT_NODE_WINDOW_BYTES",
                limit, window, control);
  }
  // The control area and the input areas are charged to the limit by lowering it.
  header.limit_bytes = limit - control;
  uint64_t bytes = node_offsets(size).heap + align_up(header.limit_bytes, kPage);
  return make_file(dir + "/node.arena", bytes, control_ranges(header), header);
}

std::unique_ptr<Node> Node::open(const std::string& dir, const char* job, Role role) {
  FileHeader header{};
  int fd = open_file(dir + "/node.arena", kNodeMagic, job, role != kObserver, &header);
  if (fd < 0) return nullptr;
  auto node = std::make_unique<Node>();
  node->stopper_ = role == kWorker ? 0 : role == kLeader ? 2 : 1;
  node->dir_ = dir;
  node->fd_ = fd;
  node->file_ = header;
  node->offsets_ = node_offsets(static_cast<int>(header.size));
  uint64_t bytes = node->offsets_.heap + align_up(header.limit_bytes, kPage);
  if (check_length(fd, dir + "/node.arena", bytes) != HVDFT_OK ||
      node->control_.map(fd, 0, node->offsets_.heap, role != kObserver) != HVDFT_OK ||
      node->heap_.map(fd, node->offsets_.heap, align_up(header.limit_bytes, kPage),
                      role != kObserver) != HVDFT_OK) {
    return nullptr;
  }
  return node;
}

const Record* Node::record_at(uint64_t entry) const {
  bool inside = entry > 0 && entry <= heap_bytes() - sizeof(Record);
  inside = inside && (entry - 1) % alignof(Record) == 0;  // or it is damaged
  return inside ? reinterpret_cast<const Record*>(heap() + entry - 1) : nullptr;
}

const Record* Node::record(uint64_t id) const {
  const Record* latest = record_at(index()[id % kIndexEntries].load(std::memory_order_acquire));
  if (latest != nullptr && latest->id == id) return latest;
  uint64_t kept_count = std::min(header().kept.load(std::memory_order_acquire), kKeptEntries);
  auto* first = kept();
  auto* found = std::lower_bound(
      first, first + kept_count, id, [&](const Shared<uint64_t>& entry, uint64_t wanted) {
        const Record* at = record_at(entry.load(std::memory_order_relaxed));
        return at != nullptr && at->id < wanted;
      });
  if (found == first + kept_count) return nullptr;
  const Record* record = record_at(found->load(std::memory_order_relaxed));
  return record != nullptr && record->id == id ? record : nullptr;
}

uint64_t Node::control_bytes() const { return control_bytes_of(file_); }

void Node::notify_worker(int r) const {
  if (is_local(r)) {
    notify(rank(r).worker_doorbell, rank(r).asleep);
  } else {
    notify_mirror();
  }
}

void Node::notify_workers() const {
  notify_local_workers();
  notify_mirror();
}

void Node::notify_local_workers() const {
  for (int r = first_local(); r < end_local(); ++r) notify_worker(r);
}

void Node::notify_log_writer() const {
  if (!several()) return notify(header().log_writer_doorbell);
  if (is_local(0)) header().log_writer_doorbell.fetch_add(1, std::memory_order_seq_cst);
  notify_mirror();  // the leader looks at both
}

void Node::notify_mirror() const {
  if (!several()) return;
  header().mirror_news.fetch_add(1, std::memory_order_seq_cst);
  notify(header().leader_doorbell, header().mirror_asleep, kMirrorRole);
}

void Node::notify_ring() const {
  if (several()) notify(header().leader_doorbell, header().ring_asleep, kRingRole);
}

void Node::push_event(const hvdft_event& event) const {
  events().push(event);
  if (is_local(0)) report().push(event);
  notify_mirror();
}

void Node::hear_event(const hvdft_event& event) const {
  if (is_local(0)) report().push(event);
  if (!is_for_all(event)) return;
  events().push(event);
  notify_mirror();
}

void Node::put_divergence(uint64_t number, const hvdft_divergence& found) const {
  Divergence& slot = divergences()[number % kDivergences];
  withdraw(slot.published);
  write_torn(reinterpret_cast<char*>(&slot.found), reinterpret_cast<const char*>(&found),
             sizeof found);
  slot.published.store(number + 1, std::memory_order_seq_cst);
  if (header().divergence_count.load() <= number) header().divergence_count.store(number + 1);
}

int Node::read_divergence(uint64_t number, hvdft_divergence* out) const {
  const Divergence& slot = divergences()[number % kDivergences];
  bool before = slot.published.load(std::memory_order_seq_cst) == number + 1;
  copy_torn(reinterpret_cast<char*>(out), reinterpret_cast<const char*>(&slot.found), sizeof *out);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (before && slot.published.load(std::memory_order_seq_cst) == number + 1) return HVDFT_OK;
  return fail(HVDFT_EINVAL, "divergence %lu is not among the latest %lu", number, kDivergences);
}

const StopText* Node::stopped() const {
  uint32_t place = header().stop.load(std::memory_order_acquire);
  if (place == 0 || place > kStoppers * file_.size) return nullptr;
  auto r = static_cast<int>((place - 1) / kStoppers);
  return &this->rank(r).stops[(place - 1) % kStoppers];
}

// No claim goes before the text: it would die with its owner, and the job could not be stopped any
// more. A process has several threads, but one place; once a text counts, none is written any more.
void Node::stop(int rank, int code, const char* text) const {
  NodeHeader& h = header();
  std::lock_guard<std::mutex> guard(stopping_);
  if (h.stop.load(std::memory_order_acquire) == 0) {
    StopText& own = this->rank(rank).stops[stopper_];
    own.rank = static_cast<uint32_t>(rank);
    own.code = code;
    char padded[kStopTextBytes] = {};
    strncpy(padded, text, sizeof padded - 1);
    write_torn(own.text, padded, sizeof padded);
    uint32_t none = 0;
    h.stop.compare_exchange_strong(none, static_cast<uint32_t>(rank * kStoppers + stopper_ + 1),
                                   std::memory_order_acq_rel);
  }
  notify(h.event_doorbell);
  notify_workers();
}

RankFile::~RankFile() {
  if (fd_ >= 0) close(fd_);
}

std::string RankFile::path(const std::string& dir, int rank, Kind kind) {
  return dir + (kind == kLocal ? "/rank-" : "/parts-") + std::to_string(rank) + ".arena";
}

int RankFile::create(const std::string& dir, const char* job, int rank, uint64_t limit, Kind kind,
                     uint64_t window) {
  FileHeader header = header_for(kRankMagic, job, rank, limit);
  header.window_bytes = kind == kLocal ? window : 0;
  uint64_t input = input_offset(limit), end = input + header.window_bytes;
  return make_file(path(dir, rank, kind), end, {{0, kPage}, {input, end}}, header);
}

std::unique_ptr<RankFile> RankFile::open(const std::string& dir, const char* job, int rank,
                                         bool writable, Kind kind) {
  std::string name = path(dir, rank, kind);
  FileHeader header{};
  int fd = open_file(name, kRankMagic, job, writable, &header);
  if (fd < 0) return nullptr;
  auto file = std::make_unique<RankFile>();
  file->fd_ = fd;
  file->rank_ = header.rank;
  file->limit_ = header.limit_bytes;
  file->window_ = header.window_bytes;
  if (header.rank != static_cast<uint32_t>(rank)) {
    fail(HVDFT_EINVAL, "arena %s belongs to rank %u, not %d; start the job again", name.c_str(),
         header.rank, rank);
    return nullptr;
  }
  uint64_t input = input_offset(header.limit_bytes), window = header.window_bytes;
  if (check_length(fd, name, input + window) != HVDFT_OK ||
      (window > 0 && file->input_.map(fd, input, window, writable) != HVDFT_OK)) {
    return nullptr;
  }
  return file;
}

int RankFile::check_slot(uint64_t bytes, uint64_t stripe) const {
  if (bytes <= limit_ && stripe <= bytes) return HVDFT_OK;
  return fail(HVDFT_EINVAL,
              "node.arena is damaged: by its account a snapshot of rank %u has %lu bytes, of which "
              "its stripe begins at %lu; %s",
              rank_, bytes, stripe, kStartAgain);
}

}  // namespace hvdft
