// Views of the log: a worker's tensors that are results where they lie, instead of copies of them.
//
// They are read through a second mapping of the node's heap, in which nothing can be written. What
// lies before a snapshot may be truncated, and its place be used anew; but never before this rank
// has published a snapshot there. So before that, what is still viewed is *detached*: its pages get
// copies of their own, at the same addresses, until nobody views them any more. Mostly there is
// nothing: gradients do not outlive their step.
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
  // Maps the heap. Once in a process's life: views may be there till its end.
  int open(const Node& node);

  // Where `bytes`, at least one, at `result` in the node's heap can be read until they are
  // released; nullptr if one of their pages is detached. They belong to op `id`, and nobody views
  // them yet.
  const void* view(uint64_t id, const char* result, uint64_t bytes);
  void release(const void* view);

  // All views of ops before `position` are independent of the log after it.
  int detach(uint64_t position);
  // Is called before, without a lock.
  void before_detach(void (*release_unused)()) { release_unused_.store(release_unused); }

  // A child has all views, too, but nobody asks it before the log is truncated: so all are
  // detached.
  void before_fork();
  void after_fork() { mutex_.unlock(); }

 private:
  struct View {
    uint64_t end, id;
  };
  using Places = std::map<uint64_t, uint64_t>;  // begin → end, none touches another's bytes

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
  Places detached_;                 // pages
};

}  // namespace hvdft

#endif  // HVD_FT_VIEWS_H
