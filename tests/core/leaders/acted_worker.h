// What a worker does, acted: it contributes to the ops of a script and takes their results, which
// have to be right the moment they are final; announces something after each, and sends the next
// rank a message. It finds everything that it knows in the arena, as one that was started again.
#ifndef HVD_FT_TESTS_LEADERS_ACTED_WORKER_H
#define HVD_FT_TESTS_LEADERS_ACTED_WORKER_H

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../check.h"
#include "arena/memory.h"
#include "hvd_ft_checkpoints.h"
#include "arena/node_arenas.h"
#include "base/reduce.h"
#include "worker/messages.h"

namespace hvdft {

struct ScriptedOp {
  uint32_t kind;
  uint64_t bytes;
};

struct Script {
  hvdft_op_rules rules;
  std::vector<ScriptedOp> ops;
  uint64_t connections = 1;
  // After each op a rank announces something, and sends the next rank a message. One whose node is
  // lost cannot: see node_rejoin.py.
  bool talks = true;
  uint64_t snapshot_after = UINT64_MAX;  // this op: the log is truncated there
};

constexpr uint32_t kRoot = 1;  // of ops that copy

// Floats of which no two orders of adding give the same bits.
inline const std::string& input_of(int rank, uint64_t op, uint64_t bytes) {
  static std::map<std::tuple<int, uint64_t, uint64_t>, std::string> known;
  auto [at, is_new] = known.try_emplace({rank, op, bytes}, bytes, '\0');
  std::string& data = at->second;
  if (!is_new) return data;
  for (uint64_t i = 0; i < bytes / sizeof(float); ++i) {
    uint64_t mixed = (i * 2654435761u + op * 40503u + static_cast<uint64_t>(rank) * 97u) % 99991;
    float value = static_cast<float>(mixed) * 1.0001f + 1e-3f / static_cast<float>(mixed + 1);
    std::memcpy(&data[i * sizeof value], &value, sizeof value);
  }
  return data;
}

// In the ring's order: the i-th to add its input to a chunk is so many members before it.
inline const std::string& sum_of(uint64_t op, uint64_t bytes, int members) {
  static std::map<std::tuple<uint64_t, uint64_t, int>, std::string> known;
  auto [at, is_new] = known.try_emplace({op, bytes, members}, bytes, '\0');
  std::string& sum = at->second;
  if (!is_new) return sum;
  RingPlan plan(static_cast<uint64_t>(members), bytes, kLeastRingSegment);
  for (uint64_t chunk = 0; chunk < plan.members(); ++chunk) {
    auto [from, to] = plan.chunk(chunk);
    for (uint64_t i = 0; i < plan.members(); ++i) {
      uint64_t member = (i + plan.members() - chunk) % plan.members();
      const std::string& input = input_of(static_cast<int>(member), op, bytes);
      const void* both[] = {sum.data() + from, input.data() + from};
      if (i == 0) {
        std::memcpy(&sum[from], both[1], to - from);
      } else {
        reduce(HVDFT_FLOAT32, HVDFT_SUM, both, 2, &sum[from], (to - from) / sizeof(float));
      }
    }
  }
  return sum;
}

inline const std::string& result_of(const Script& script, uint64_t op, int members, int member) {
  auto [kind, bytes] = script.ops[op];
  if (kind == HVDFT_COPY) return input_of(kRoot, op, bytes);
  if (script.rules.ablates_network != 0) return input_of(member, op, bytes);
  return sum_of(op, bytes, members);
}

class ActedWorker {
 public:
  ActedWorker(const Script& script, const std::string& dir, const char* job, const Arenas& arenas,
              int rank)
      : script_(script),
        arenas_(arenas),
        node_(arenas.node()),
        block_(node_.rank(rank)),
        rank_(rank),
        file_(RankFile::open(dir, job, rank, true)) {
    CHECK(file_ != nullptr);
    uint64_t published = block_.loops[0].published;
    if (published != 0) block_.executed = std::max(block_.executed.load(), (published >> 1) - 1);
    again();
  }

  // It is started again.
  void again() {
    messages_ = std::make_unique<Messages>(node_, rank_);
    sent_ = received_ = 0;
    is_notified_ = true;
    if (block_.state != HVDFT_DONE) block_.state = HVDFT_RUNNING;
    if (!has_entered()) ask_to_enter();
  }

  // Everything that it can, `ahead` ops begun at a time; whether there was anything.
  bool act(uint64_t ahead = 3) {
    bool any = false;
    check_what_is_final();
    if (!has_entered() && block_.enter_request % kLengths != node_.header().log_length) {
      ask_to_enter();  // it had not known the whole log
    }
    while (contribute(ahead)) any = true;
    uint32_t doorbell = block_.worker_doorbell;
    is_notified_ |= std::exchange(doorbell_, doorbell) != doorbell;
    while (is_notified_ && take()) any = true;
    is_notified_ = false;
    any |= script_.talks && announce();
    while (script_.talks && (send() || receive())) any = true;
    if (!is_done() || block_.state == HVDFT_DONE) return any;
    block_.state = HVDFT_DONE;
    node_.notify_mirror();
    return true;
  }

  bool is_done() const {
    uint64_t ops = script_.ops.size();
    bool told = sent_ == ops && received_ == ops && block_.mail_sequence == 2 * ops;
    return block_.state == HVDFT_DONE || (block_.executed == ops && (told || !script_.talks));
  }

  static std::string announcement(int rank, uint64_t number) {
    return "announcement " + std::to_string(number) + " of rank " + std::to_string(rank);
  }

 private:
  static constexpr uint64_t kLengths = uint64_t{1} << 40;

  bool has_entered() const {
    return block_.enter_request != 0 && block_.entered == block_.enter_request;
  }
  void ask_to_enter() {
    uint64_t times = block_.enter_request / kLengths;
    block_.enter_request = (times + 1) * kLengths + node_.header().log_length;
    node_.notify_log_writer();
  }

  const Record* record(uint64_t op) const {
    return op < node_.header().log_length ? node_.record(op) : nullptr;
  }

  bool contribute(uint64_t ahead) {
    if (!has_entered()) return false;
    uint64_t at = block_.contributed, op = op_of(at);
    const Record* of = record(op);
    if (of == nullptr || op >= block_.executed + ahead) return false;
    uint64_t number = of->first_segment + segment_of(at);
    ByteRange range = of->given(number), part = overlap(range, contribution(*of, rank_));
    if (part.bytes() > 0) {
      char* to = file_->input() + of->input_of(number) % node_.window() + (part.from - range.from);
      std::memcpy(to, input_of(rank_, op, of->op.result_bytes).data() + part.from, part.bytes());
    }
    block_.contributed = position_after(op, segment_of(at), of->segments());
    CHECK(arenas_.claim_and_reduce(*of, number, rank_));
    return true;
  }

  // Other workers take results segment by segment: what is final has to stay right.
  void check_what_is_final() const {
    uint64_t final = node_.header().final_segments;
    int members = static_cast<int>(node_.file().nodes), member = static_cast<int>(node_.number());
    for (uint64_t op = block_.executed; const Record* of = record(op); ++op) {
      const std::string& expected = result_of(script_, op, members, member);
      for (uint64_t n = of->first_segment; n < of->end_segment(); ++n) {
        if (n >= final) return;
        ByteRange range = of->taken(n);
        const char* result = node_.heap() + of->result_offset + range.from;
        CHECK(std::memcmp(result, expected.data() + range.from, range.bytes()) == 0);
      }
    }
  }

  bool take() {
    uint64_t op = block_.executed;
    const Record* of = record(op);
    if (of == nullptr || node_.header().final_segments < of->end_segment()) return false;
    check_what_is_final();
    block_.executed = op + 1;
    node_.push_event({1, HVDFT_EV_SHARE, static_cast<uint32_t>(rank_), 0, 0, op});
    if (op == script_.snapshot_after) {
      block_.loops[0].begin = 1;
      block_.loops[0].published = (op + 2) << 1;
      node_.notify_log_writer();
    }
    return true;
  }

  // When rank 0 has taken the one before.
  bool announce() {
    uint64_t number = block_.mail_sequence / 2;
    if (block_.mail_taken != block_.mail_sequence || number >= block_.executed) return false;
    std::string text = announcement(rank_, number);
    block_.mail_bytes = text.size();
    write_torn(node_.mail(rank_), text.data(), text.size());
    block_.mail_sequence = 2 * (number + 1);
    node_.notify_mirror();
    return true;
  }

  static std::string message(int from, uint64_t number) {
    return std::string(number == 1 ? 100000 : 10 + number, static_cast<char>('a' + from)) +
           std::to_string(number);
  }
  bool send() {
    if (sent_ >= block_.executed) return false;
    MessageHead head{};
    std::string data = message(rank_, sent_);
    head.bytes = data.size();
    std::strcpy(head.form, "uint8");
    CHECK(messages_->send((rank_ + 1) % node_.size(), head, data.data()) >= 0);
    ++sent_;
    return true;
  }
  bool receive() {
    int source = (rank_ + node_.size() - 1) % node_.size();
    hvdft_message found;
    if (messages_->find(source, 0, &found) != HVDFT_OK) return false;
    std::string data(found.bytes, '\0');
    CHECK(messages_->take(source, found.number, data.data()) == HVDFT_OK);
    CHECK(data == message(source, received_));
    ++received_;
    return true;
  }

  const Script& script_;
  const Arenas& arenas_;
  Node& node_;
  RankBlock& block_;
  const int rank_;
  std::unique_ptr<RankFile> file_;
  std::unique_ptr<Messages> messages_;
  uint64_t sent_ = 0, received_ = 0;
  uint32_t doorbell_ = 0;
  bool is_notified_ = true;
};

}  // namespace hvdft

#endif  // HVD_FT_TESTS_LEADERS_ACTED_WORKER_H
