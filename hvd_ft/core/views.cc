#include "views.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "error.h"
#include "worker.h"

namespace hvdft {

namespace {

uint64_t page_of(uint64_t offset) { return offset / kPage * kPage; }

// The first of `places` that ends after `begin`.
template <typename Places, typename EndOf>
auto first_after(const Places& places, uint64_t begin, EndOf end_of) {
  auto found = places.upper_bound(begin);
  if (found == places.begin()) return found;
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
    return fail(HVDFT_ESYS, "mapping %lu bytes of the arena failed: %s; lower "
                "HOROVOD_FT_ARENA_BYTES", bytes, strerror(errno));
  }
  node_ = &node;
  base_ = static_cast<char*>(base);
  return HVDFT_OK;
}

const void* Views::view(uint64_t id, const char* result, uint64_t bytes) {
  std::lock_guard<std::mutex> guard(mutex_);
  auto begin = static_cast<uint64_t>(result - node_->heap()), end = begin + bytes;
  auto apart = first_after(apart_, page_of(begin), end_of_pages);
  if (apart != apart_.end() && apart->first < end) return nullptr;
  views_[begin] = {end, id};
  return base_ + begin;
}

void Views::release(const void* view) {
  std::lock_guard<std::mutex> guard(mutex_);
  auto found = views_.find(static_cast<uint64_t>(static_cast<const char*>(view) - base_));
  uint64_t begin = page_of(found->first), end = align_up(found->second.end, kPage);
  views_.erase(found);
  for (auto apart = first_after(apart_, begin, end_of_pages);
       apart != apart_.end() && apart->first < end;) {
    auto [from, to] = *apart++;
    if (!is_viewed(from, to)) give_back(from, to);
  }
}

bool Views::is_viewed(uint64_t begin, uint64_t end) const {
  auto first = first_after(views_, begin, [](const View& view) { return view.end; });
  return first != views_.end() && first->first < end;
}

int Views::set_apart(uint64_t position) {
  let_go_.load()();
  std::lock_guard<std::mutex> guard(mutex_);
  return set_apart_locked(position);
}

void Views::before_fork() {
  let_go_.load()();
  mutex_.lock();
  set_apart_locked(UINT64_MAX);
}

int Views::set_apart_locked(uint64_t position) {
  for (auto& [begin, view] : views_) {
    if (view.id >= position) continue;
    int code = set_pages_apart(page_of(begin), align_up(view.end, kPage));
    if (code != HVDFT_OK) return code;
  }
  return HVDFT_OK;
}

// Those of the pages that are not set apart already.
int Views::set_pages_apart(uint64_t begin, uint64_t end) {
  while (begin < end) {
    auto apart = first_after(apart_, begin, end_of_pages);
    uint64_t until = apart == apart_.end() ? end : std::min(end, std::max(begin, apart->first));
    if (begin < until) {
      int code = copy_pages(begin, until);
      if (code != HVDFT_OK) return code;
      apart_[begin] = until;
    }
    begin = until == end ? end : apart->second;
  }
  return HVDFT_OK;
}

// Who reads there meanwhile reads the same bytes before and after.
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
  return fail(HVDFT_ESYS, "no memory (%s) for %lu bytes of results of collectives that the script "
              "still holds at a snapshot; hold fewer of them", strerror(errno), bytes);
}

// If it cannot be done they stay apart, and what will lie there is copied instead of viewed.
void Views::give_back(uint64_t begin, uint64_t end) {
  void* back = mmap(base_ + begin, end - begin, PROT_READ, MAP_SHARED | MAP_NORESERVE | MAP_FIXED,
                    node_->fd(), static_cast<off_t>(node_->heap_offset() + begin));
  if (back != MAP_FAILED) apart_.erase(begin);
}

}  // namespace hvdft

using hvdft::the_worker;

// A rank that is replayed copies: the log may be cut before a snapshot of an earlier incarnation.
const void* hvdft_worker_view(uint64_t id, const void* result, uint64_t bytes) {
  hvdft::Worker& w = *the_worker();
  if (!w.caught_up.load()) return nullptr;
  return w.views.view(id, static_cast<const char*>(result), bytes);
}

void hvdft_worker_view_release(const void* view) { the_worker()->views.release(view); }

void hvdft_worker_before_setting_apart(void (*let_go)(void)) {
  the_worker()->views.before_setting_apart(let_go);
}
