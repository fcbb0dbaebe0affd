#include "worker/result_views.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace hvdft {

namespace {

uint64_t page_of(uint64_t offset) { return offset / kPage * kPage; }

// The first of `ranges` that ends after `begin`.
template <typename Ranges, typename EndOf>
auto first_after(const Ranges& ranges, uint64_t begin, EndOf end_of) {
  auto found = ranges.upper_bound(begin);
  if (found == ranges.begin()) return found;
  auto before = std::prev(found);
  return end_of(before->second) > begin ? before : found;
}

uint64_t end_of_pages(uint64_t end) { return end; }

}  // namespace

int Views::open(const Node& node) {
  uint64_t bytes = align_up(node.limit(), kPage);
  void* base = mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, node.fd(),
                    static_cast<off_t>(node.heap_offset()));
  if (base == MAP_FAILED) {
    return fail(HVDFT_ESYS,
                "mapping %lu bytes of the arena failed: %s; lower "
                "HOROVOD_FT_ARENA_BYTES",
                bytes, strerror(errno));
  }
  node_ = &node;
  base_ = static_cast<char*>(base);
  return HVDFT_OK;
}

const void* Views::view(uint64_t id, const char* result, uint64_t bytes) {
  std::lock_guard<std::mutex> guard(mutex_);
  auto begin = static_cast<uint64_t>(result - node_->heap()), end = begin + bytes;
  auto detached = first_after(detached_, page_of(begin), end_of_pages);
  if (detached != detached_.end() && detached->first < end) return nullptr;
  views_[begin] = {end, id};
  return base_ + begin;
}

void Views::release(const void* view) {
  std::lock_guard<std::mutex> guard(mutex_);
  auto found = views_.find(static_cast<uint64_t>(static_cast<const char*>(view) - base_));
  uint64_t begin = page_of(found->first), end = align_up(found->second.end, kPage);
  views_.erase(found);
  for (auto detached = first_after(detached_, begin, end_of_pages);
       detached != detached_.end() && detached->first < end;) {
    auto [from, to] = *detached++;
    if (!is_viewed(from, to)) give_back(from, to);
  }
}

bool Views::is_viewed(uint64_t begin, uint64_t end) const {
  auto first = first_after(views_, begin, [](const View& view) { return view.end; });
  return first != views_.end() && first->first < end;
}

int Views::detach(uint64_t position) {
  release_unused_.load()();
  std::lock_guard<std::mutex> guard(mutex_);
  return detach_locked(position);
}

void Views::before_fork() {
  release_unused_.load()();
  mutex_.lock();
  detach_locked(UINT64_MAX);
}

int Views::detach_locked(uint64_t position) {
  for (auto& [begin, view] : views_) {
    if (view.id >= position) continue;
    int code = detach_pages(page_of(begin), align_up(view.end, kPage));
    if (code != HVDFT_OK) return code;
  }
  return HVDFT_OK;
}

// The pages that are not detached yet.
int Views::detach_pages(uint64_t begin, uint64_t end) {
  while (begin < end) {
    auto detached = first_after(detached_, begin, end_of_pages);
    uint64_t until =
        detached == detached_.end() ? end : std::min(end, std::max(begin, detached->first));
    if (begin < until) {
      int code = copy_pages(begin, until);
      if (code != HVDFT_OK) return code;
      detached_[begin] = until;
    }
    begin = until == end ? end : detached->second;
  }
  return HVDFT_OK;
}

// A concurrent reader reads the same bytes before and after.
int Views::copy_pages(uint64_t begin, uint64_t end) const {
  uint64_t bytes = end - begin;
  void* copy = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy != MAP_FAILED) {
    std::memcpy(copy, base_ + begin, bytes);
    mprotect(copy, bytes, PROT_READ);
    if (mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, base_ + begin) != MAP_FAILED) {
      return HVDFT_OK;
    }
    munmap(copy, bytes);
  }
  return fail(HVDFT_ESYS,
              "no memory (%s) for %lu bytes of results of collectives that the script "
              "still holds at a snapshot; release them earlier",
              strerror(errno), bytes);
}

// If that fails they stay detached, and later results there are copied instead of viewed.
void Views::give_back(uint64_t begin, uint64_t end) {
  void* back = mmap(base_ + begin, end - begin, PROT_READ, MAP_SHARED | MAP_NORESERVE | MAP_FIXED,
                    node_->fd(), static_cast<off_t>(node_->heap_offset() + begin));
  if (back != MAP_FAILED) detached_.erase(begin);
}

}  // namespace hvdft
