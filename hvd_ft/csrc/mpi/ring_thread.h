// A thread of a ring's member, which does one piece of work at a time.
#ifndef HVD_FT_RING_THREAD_H
#define HVD_FT_RING_THREAD_H

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace hvdft {

class RingThread {
 public:
  RingThread() : thread_([this] { run(); }) {}
  ~RingThread() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  RingThread(const RingThread&) = delete;
  RingThread& operator=(const RingThread&) = delete;

  // `work` throws nothing.
  void begin(std::function<void()> work) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      work_ = std::move(work);
    }
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return !work_; });
  }

 private:
  void run() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return ending_ || work_; });
      if (ending_) return;
      lock.unlock();
      work_();  // nobody else touches it until it is done
      lock.lock();
      work_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;
  bool ending_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace hvdft

#endif  // HVD_FT_RING_THREAD_H
