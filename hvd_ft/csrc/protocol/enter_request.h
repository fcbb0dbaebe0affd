// A rank's request to enter the negotiation, packed in a word: which process asks, in which of its
// sessions (from hvd.init to hvd.shutdown), and how much of the log it knows.
//
// A request that is equal to the one granted last is taken for it. So every session needs requests
// of its own: one that began without an op after the session before would otherwise share that
// one's term, and a coordinator that is still in the session before would count, and lose, what a
// faster rank announces in the next.
#ifndef HVD_FT_ENTER_REQUEST_H
#define HVD_FT_ENTER_REQUEST_H

#include <cstdint>

namespace hvdft {

constexpr uint64_t kEnterLengthBits = 40, kEnterCountBits = 12;
constexpr uint64_t kEnterLengths = uint64_t{1} << kEnterLengthBits;
constexpr uint64_t kEnterCounts = uint64_t{1} << kEnterCountBits;

// Never 0, which is no request. `session`: how many this process has had before.
inline uint64_t enter_request(uint32_t incarnation, uint64_t session, uint64_t log_length) {
  uint64_t process = incarnation % (kEnterCounts - 1) + 1;
  return ((session % kEnterCounts) << kEnterCountBits | process) << kEnterLengthBits | log_length;
}

inline uint64_t log_length_of(uint64_t request) { return request % kEnterLengths; }

}  // namespace hvdft

#endif  // HVD_FT_ENTER_REQUEST_H
