// A log whose owner was killed: the next owner continues with the arena's contents, whatever was
// torn.
#include "oplog/log_store.h"

#include <cstdio>
#include <memory>
#include <string>

#include "check.h"
#include "fresh_directory.h"

using namespace hvdft;

namespace {

OpHead op_of_bytes(uint64_t bytes) {
  return {HVDFT_REDUCE, HVDFT_FLOAT32, HVDFT_SUM, 0, bytes, 4, 4, 0};
}

void append(LogStore& store, uint64_t bytes) {
  CHECK(store.append(op_of_bytes(bytes), "respsig") == HVDFT_OK);
  store.publish();
}

ByteRange result(const Node& node, uint64_t id) {
  const Record& record = *node.record(id);
  return {record.result_offset, record.result_offset + record.heap_bytes()};
}

void goes_on(Node& node) {
  LogStore first(node);
  for (uint64_t bytes : {1000, 300000, 70, 0}) append(first, bytes);
  CHECK(first.keep(0) == HVDFT_OK);
  first.drop(1);
  CHECK(node.header().decided_before == 0);  // it was killed before it could say that they are gone
  uint64_t inputs = node.record(3)->end_input();
  uint64_t end = node.record(3)->end_segment(), backed = node.header().backed;

  LogStore next(node);
  CHECK(next.length() == 4 && next.gone() == 2);
  CHECK(node.header().decided_before == 2 && node.header().truncated == 1);
  append(next, 2000);
  CHECK(node.record(4)->first_input >= inputs);
  CHECK(node.record(4)->first_segment == end && node.header().backed == backed);
  for (uint64_t id : {0, 2, 3}) CHECK(overlap(result(node, id), result(node, 4)).bytes() == 0);
  append(next, 200000);
  CHECK(result(node, 5).from < result(node, 3).from);  // where op 1 was
}

void a_torn_append_is_forgotten(Node& node) {
  LogStore before(node);
  CHECK(before.append(op_of_bytes(10), "respsig") == HVDFT_OK);
  CHECK(before.append(op_of_bytes(10), "respsig") == HVDFT_OK);
  LogStore next(node);
  CHECK(next.length() == 6 && node.record(6) == nullptr && node.record(7) == nullptr);
}

void a_torn_keep_is_kept(Node& node) {
  uint64_t entry = node.index()[2].load();
  LogStore before(node);
  CHECK(before.keep(2) == HVDFT_OK);
  node.index()[2] = entry;  // not yet removed
  LogStore next(node);
  CHECK(next.gone() == 3 && node.index()[2] == 0 && node.record(2) != nullptr);
  CHECK(node.header().kept == 2);
}

void an_empty_log_keeps_its_numbers(Node& node) {
  LogStore before(node);
  uint64_t end = node.record(5)->end_segment(), inputs = node.record(5)->end_input();
  for (uint64_t id : {3, 4, 5}) before.drop(id);
  LogStore next(node);
  CHECK(next.length() == 6 && next.gone() == 6);
  append(next, 10);
  CHECK(node.record(6)->first_segment == end && node.record(6)->first_input >= inputs);
}

}  // namespace

int main() {
  std::string dir = fresh_directory();
  CHECK(Node::create(dir, "store", 2, 1, 0, 0, 2, 64 << 20) == HVDFT_OK);
  {
    auto node = Node::open(dir, "store", Node::kAgent);
    CHECK(node != nullptr);
    goes_on(*node);
    a_torn_append_is_forgotten(*node);
    a_torn_keep_is_kept(*node);
    an_empty_log_keeps_its_numbers(*node);
  }
  std::remove((dir + "/node.arena").c_str());
  std::remove(dir.c_str());
  return 0;
}
