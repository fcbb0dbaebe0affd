// Damage to a job's files is found, and named: flipped bits, and an end that is missing.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "arena/message_file.h"
#include "arena/records.h"
#include "base/crc32c.h"
#include "check.h"
#include "fresh_directory.h"
#include "oplog/log_store.h"

using namespace hvdft;

namespace {

constexpr uint64_t kLimit = 64 << 20;

bool told(const char* text) { return std::strstr(hvdft_error(), text) != nullptr; }

void checksums_are_castagnoli_s() {
  CHECK(crc32c("123456789", 9) == 0xe3069283);
  CHECK(crc32c("6789", 4, crc32c("12345", 5)) == 0xe3069283);
  CHECK(crc32c("", 0) == 0);
}

// Flips each bit of [from, to) of a file in turn.
void each_bit(const std::string& path, uint64_t from, uint64_t to,
              const std::function<void(uint64_t)>& look) {
  int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  CHECK(fd >= 0);
  for (uint64_t bit = 8 * from; bit < 8 * to; ++bit) {
    char byte;
    auto at = static_cast<off_t>(bit / 8);
    CHECK(pread(fd, &byte, 1, at) == 1);
    auto flipped = static_cast<char>(byte ^ 1 << bit % 8);
    CHECK(pwrite(fd, &flipped, 1, at) == 1);
    look(bit / 8);
    CHECK(pwrite(fd, &byte, 1, at) == 1);
  }
  close(fd);
}

// A file whose beginning is damaged is not opened, and neither is one whose end is missing.
void a_file_is_opened_whole_or_not_at_all(const std::string& path, off_t unused,
                                          const std::function<bool()>& opens) {
  CHECK(opens());
  each_bit(path, 0, sizeof(FileHeader), [&](uint64_t at) {
    CHECK(!opens());
    bool by_itself = at < offsetof(FileHeader, rank);  // magic and version are looked at before
    CHECK(by_itself || told("is damaged: its header does not match its checksum; start the job"));
  });
  struct stat info{};
  CHECK(stat(path.c_str(), &info) == 0);
  for (off_t bytes : {info.st_size - unused - 1, off_t{4096}}) {
    CHECK(truncate(path.c_str(), bytes) == 0);
    CHECK(!opens() && told(path.c_str()) && told(" is damaged: it has "));
    CHECK(truncate(path.c_str(), info.st_size) == 0);
  }
  CHECK(truncate(path.c_str(), 20) == 0);
  CHECK(!opens() && told("is not an arena of hvd_ft"));
}

// ---------------------------------------------------------------- the op log

OpHead op_of_bytes(uint64_t bytes) {
  return {HVDFT_CONCAT, HVDFT_FLOAT32, HVDFT_SUM, 0, bytes, 4, 4, 2};
}

void append_all(Node& node) {
  LogStore store(node);
  char tail[24] = {1, 0, 0, 0, 0, 0, 0, 0, 2};
  std::strcpy(tail + 16, "respsig");
  for (uint64_t bytes : {3, 70000, 3, 3, 0}) {
    CHECK(store.append(op_of_bytes(bytes), tail) == HVDFT_OK);
  }
  store.publish();
  CHECK(store.keep(0) == HVDFT_OK);
  store.drop(1);
  store.decided(2);
}

void flip_each(const void* of, uint64_t bytes, const std::function<void()>& look) {
  auto* data = const_cast<char*>(static_cast<const char*>(of));
  for (uint64_t bit = 0; bit < 8 * bytes; ++bit) {
    data[bit / 8] = static_cast<char>(data[bit / 8] ^ 1 << bit % 8);
    look();
    data[bit / 8] = static_cast<char>(data[bit / 8] ^ 1 << bit % 8);
  }
}

void a_damaged_record_is_found(Node& node) {
  CHECK(check_log(node) == HVDFT_OK);
  for (uint64_t id : {0, 2, 4}) {
    const Record& record = *node.record(id);
    flip_each(&record, record.bytes(), [&] {
      CHECK(check_record(node, record) == HVDFT_EINVAL &&
            told("/node.arena is damaged: the op log"));
      CHECK(check_log(node) == HVDFT_EINVAL);
    });
  }
  CHECK(check_log(node) == HVDFT_OK);
}

void a_damaged_index_is_found(Node& node) {
  // An entry that is gone would look like one that was never there.
  for (uint64_t id : {2, 3, 4}) {
    flip_each(&node.index()[id], sizeof(uint64_t), [&] {
      CHECK(check_log(node) == HVDFT_EINVAL);
      CHECK(node.record(id) == nullptr || node.record(id)->id == id);
    });
  }
  uint64_t entry = node.index()[3].exchange(0);
  CHECK(check_log(node) == HVDFT_EINVAL && told("entry of op 3 is not as written"));
  node.index()[3] = entry;
  flip_each(&node.kept()[0], sizeof(uint64_t), [&] { CHECK(check_log(node) == HVDFT_EINVAL); });
  for (uint64_t kept : {uint64_t{2}, kKeptEntries + 1}) {
    node.header().kept = kept;
    CHECK(check_log(node) == HVDFT_EINVAL);
  }
  node.kept()[1] = node.kept()[0].load();  // each is there once, in the order of ids
  node.header().kept = 2;
  CHECK(check_log(node) == HVDFT_EINVAL && told("entry in the kept index of op 1"));
  node.kept()[1] = 0;
  node.header().kept = 1;
}

// ---------------------------------------------------------------- snapshots

void a_snapshot_longer_than_its_file_is_not_mapped(const std::string& dir) {
  auto file = RankFile::open(dir, "damage", 0, false);
  CHECK(file != nullptr && file->check_slot(kLimit, kLimit) == HVDFT_OK);
  CHECK(file->check_slot(kLimit + 1, 0) == HVDFT_EINVAL && told("a snapshot of rank 0 has"));
  CHECK(file->check_slot(10, 11) == HVDFT_EINVAL);
}

// ---------------------------------------------------------------- messages

void send(const PairFile& file, const char* text) {
  MessageHead head{};
  head.bytes = std::strlen(text);
  head.checksum = crc32c(text, head.bytes);
  head.tag = 7;
  std::strcpy(head.form, "uint8 [5]");
  CHECK(file.room(head.bytes, &head.offset) == HVDFT_OK);
  CHECK(file.write(head.offset, text, head.bytes) == HVDFT_OK);
  file.publish(head);
}

// Returns where the messages' data end.
uint64_t a_damaged_message_is_found(const Node& node) {
  auto file = PairFile::open(node, 0, 1, true);
  for (const char* text : {"first", "second"}) send(*file, text);
  MessageHead& head = file->message(1);
  CHECK(file->see(1).there && file->check_data(1, "second") == HVDFT_OK);
  CHECK(file->check_data(1, "sekond") == HVDFT_EINVAL);
  CHECK(told("messages-0-1.log is damaged: the data of message 1 of rank 0 to rank 1 is not as"));
  uint64_t behind = offsetof(MessageHead, number);  // what the receiver writes is before it
  flip_each(reinterpret_cast<char*>(&head) + behind, sizeof head - behind, [&] {
    CHECK(!file->see(1).there);
    CHECK(file->why_not_there(1) == HVDFT_EINVAL && told("the head of message 1 "));
  });
  file->header().decided_before = 2;  // it may be dropped, but is not
  CHECK(file->why_not_there(1) == HVDFT_EINVAL);
  head.number = 0;
  CHECK(file->why_not_there(1) == HVDFT_OK);
  return file->header().data_end.load();
}

}  // namespace

int main() {
  checksums_are_castagnoli_s();
  std::string dir = fresh_directory();
  CHECK(Node::create(dir, "damage", 2, 1, 0, 0, 2, kLimit) == HVDFT_OK);
  CHECK(RankFile::create(dir, "damage", 0, kLimit) == HVDFT_OK);
  {
    auto node = Node::open(dir, "damage", Node::kAgent);
    CHECK(node != nullptr);
    append_all(*node);
    a_damaged_record_is_found(*node);
    a_damaged_index_is_found(*node);
    a_snapshot_longer_than_its_file_is_not_mapped(dir);
    uint64_t end_of_messages = a_damaged_message_is_found(*node);
    a_file_is_opened_whole_or_not_at_all(dir + "/messages-0-1.log", kPage - end_of_messages, [&] {
      return PairFile::open(*node, 0, 1, true) != nullptr;
    });
  }
  a_file_is_opened_whole_or_not_at_all(
      dir + "/rank-0.arena", 0, [&] { return RankFile::open(dir, "damage", 0, false) != nullptr; });
  a_file_is_opened_whole_or_not_at_all(
      dir + "/node.arena", 0, [&] { return Node::open(dir, "damage", Node::kAgent) != nullptr; });
  remove_directory(dir);
  return 0;
}
