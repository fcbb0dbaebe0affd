// Which items have changed, for several readers, each of which continues from its own position. The
// cost for a reader depends on the number of changes, not on the number of items.
#ifndef HVD_FT_CHANGES_H
#define HVD_FT_CHANGES_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hvdft {

class Changes {
 public:
  // All of them have changed once, in the order of their numbers.
  explicit Changes(int items) : links_(static_cast<size_t>(items) + 1), at_(links_.size()) {
    for (int item = 0; item <= items; ++item) links_[slot(item)] = {item, item};
    for (int item = 0; item < items; ++item) note(item);
  }

  // An item has changed: it is the latest from now on.
  void note(int item) {
    Link& mine = links_[slot(item)];
    links_[slot(mine.before)].after = mine.after;
    links_[slot(mine.after)].before = mine.before;
    Link& end = links_[slot(the_end())];
    mine = {end.before, the_end()};
    links_[slot(end.before)].after = item;
    end.before = item;
    at_[slot(item)] = ++count_;
  }

  // Calls `act` with every item that has changed after the count `since`, each once, the latest
  // first. Returns the count to go on from.
  template <typename Act>
  uint64_t each_since(uint64_t since, Act act) const {
    for (int item = links_.back().before; item != the_end() && at_[slot(item)] > since;
         item = links_[slot(item)].before) {
      act(item);
    }
    return count_;
  }

 private:
  // A ring in the order of changes; the end is an item of its own.
  struct Link {
    int before, after;
  };
  static size_t slot(int item) { return static_cast<size_t>(item); }
  int the_end() const { return static_cast<int>(links_.size()) - 1; }

  std::vector<Link> links_;
  std::vector<uint64_t> at_;  // the count at its latest change
  uint64_t count_ = 0;
};

}  // namespace hvdft

#endif  // HVD_FT_CHANGES_H
