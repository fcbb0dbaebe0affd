// Views of the log: a worker's tensors whose memory is the result in the log, not a copy.
//
// They are read through a second mapping of the node's heap, in which nothing can be written.
// Results before a snapshot may be truncated and their memory reused, but never before this rank
// has published that snapshot. So before publishing, results that are still viewed are *detached*:
// their pages become private copies at the same addresses, until the views are released. Usually
// there are none: gradients do not outlive their step.
#ifndef HVD_FT_VIEWS_H
#define HVD_FT_VIEWS_H

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

#include "arena/arena.h"

namespace hvdft {

class Views {
 public:
  // Maps the heap, once in a process's life: views may exist until its end.
  int open(const Node& node);

  // Returns a view of `bytes`, at least one, at `result` in the node's heap, valid until released;
  // nullptr if one of their pages is detached. They belong to op `id`, and are not viewed yet.
  const void* view(uint64_t id, const char* result, uint64_t bytes);
  void release(const void* view);

  // Detaches all views of ops before `position`: afterwards they do not depend on the log.
  int detach(uint64_t position);
  // Called before detaching, without a lock.
  void before_detach(void (*release_unused)()) { release_unused_.store(release_unused); }

  // A forked child has all views too, but is not asked before the log is truncated: so all are
  // detached.
  void before_fork();
  void after_fork() { mutex_.unlock(); }

 private:
  struct View {
    uint64_t end, id;
  };
  using Ranges = std::map<uint64_t, uint64_t>;  // begin → end, without overlap

  int detach_locked(uint64_t position);
  int copy_pages(uint64_t begin, uint64_t end) const;
  int detach_pages(uint64_t begin, uint64_t end);
  void give_back(uint64_t begin, uint64_t end);
  bool is_viewed(uint64_t begin, uint64_t end) const;

  std::atomic<void (*)()> release_unused_{[] {}};
  std::mutex mutex_;
  const Node* node_ = nullptr;
  char* base_ = nullptr;
  std::map<uint64_t, View> views_;  // by their offset in the heap
  Ranges detached_;                 // pages
};

}  // namespace hvdft

#endif  // HVD_FT_VIEWS_H
