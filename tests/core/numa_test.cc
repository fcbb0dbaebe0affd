// The policies of files: given to those that are made while a place is set, for all of their
// length and for whoever opens them; and what becomes of them where the system allows none.
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "arena/layout.h"
#include "check.h"
#include "fresh_directory.h"
#include "hvd_ft_numa.h"

using namespace hvdft;

namespace {

constexpr int kMaxNodes = 1024, kBits = 8 * sizeof(unsigned long);
constexpr uint64_t kLimit = uint64_t{1} << 36;  // so that a rank's file is mapped piece by piece
constexpr uint64_t kWindow = kMostNodeWindow, kInput = input_offset(kLimit);
constexpr char kJob[] = "numa";

struct Mask {
  unsigned long words[kMaxNodes / kBits] = {};
  bool has(int node) const { return (words[node / kBits] >> node % kBits & 1) != 0; }
  int count() const {
    int bits = 0;
    for (int node = 0; node < kMaxNodes; ++node) bits += has(node);
    return bits;
  }
};

// A node from which this process may have memory; -1 where the kernel has no NUMA.
int some_node() {
  Mask allowed;
  int mode = 0;
  if (syscall(SYS_get_mempolicy, &mode, allowed.words, kMaxNodes, nullptr, MPOL_F_MEMS_ALLOWED)) {
    return -1;
  }
  int node = 0;
  while (!allowed.has(node)) ++node;
  return node;
}

struct Policy {
  int mode;
  Mask nodes;
};

Policy policy_at(const std::string& path, uint64_t offset) {
  int fd = open(path.c_str(), O_RDWR);
  CHECK(fd >= 0);
  void* data = mmap(nullptr, kPage, PROT_READ, MAP_SHARED, fd, static_cast<off_t>(offset));
  CHECK(data != MAP_FAILED);
  Policy policy{};
  CHECK(syscall(SYS_get_mempolicy, &policy.mode, policy.nodes.words, kMaxNodes, data,
                MPOL_F_ADDR) == 0);
  munmap(data, kPage);
  close(fd);
  return policy;
}

struct Job {
  Job() : dir(fresh_directory()) {}
  ~Job() { remove_directory(dir); }
  std::string rank(int number) const {
    CHECK(hvdft_create_rank(dir.c_str(), kJob, number, kLimit, kWindow) == HVDFT_OK);
    return dir + "/rank-" + std::to_string(number) + ".arena";
  }
  std::string node() const {
    CHECK(hvdft_create_node(dir.c_str(), kJob, 1, 1, 0, 0, 1, kLimit, kWindow) == HVDFT_OK);
    return dir + "/node.arena";
  }
  std::string dir;
};

void a_rank_has_its_node(int node) {
  Job job;
  CHECK(hvdft_place_files(&node, 1) == HVDFT_OK);
  std::string path = job.rank(0);
  for (uint64_t at :
       {uint64_t{0}, slot_offset(kLimit, 0, 0), kInput - kPage, kInput, kInput + kWindow - kPage}) {
    Policy policy = policy_at(path, at);
    CHECK(policy.mode == MPOL_PREFERRED && policy.nodes.has(node) && policy.nodes.count() == 1);
  }
  CHECK(hvdft_place_files(nullptr, 0) == HVDFT_OK);
  CHECK(policy_at(job.rank(1), kInput).mode == MPOL_DEFAULT);
  CHECK(policy_at(path, kInput).mode == MPOL_PREFERRED);
}

void results_are_spread(int node) {
  Job job;
  int nodes[] = {node, node};  // all that this machine may have
  CHECK(hvdft_place_files(nodes, 2) == HVDFT_OK);
  std::string path = job.node();
  for (uint64_t at : {uint64_t{0}, node_offsets(1).heap, node_offsets(1).heap + (kLimit >> 1)}) {
    Policy policy = policy_at(path, at);
    CHECK(policy.mode == MPOL_INTERLEAVE && policy.nodes.has(node) && policy.nodes.count() == 1);
  }
}

void another_thread_makes_files_elsewhere(int node) {
  Job job;
  CHECK(hvdft_place_files(&node, 1) == HVDFT_OK);
  std::string path;
  std::thread([&] { path = job.rank(0); }).join();
  CHECK(policy_at(path, kInput).mode == MPOL_DEFAULT);
  CHECK(policy_at(job.rank(1), kInput).mode == MPOL_PREFERRED);
}

// Also where there is no NUMA at all.
void what_cannot_be_is_said(int node) {
  Job job;
  int number = 0;
  for (int wrong : {kMaxNodes - 1, kMaxNodes, -1}) {
    if (node >= 0) CHECK(hvdft_place_files(&node, 1) == HVDFT_OK);
    bool possible = wrong == kMaxNodes - 1;
    CHECK(hvdft_place_files(&wrong, 1) == (possible ? HVDFT_ESYS : HVDFT_EINVAL));
    const char* why = possible ? "cannot be bound to NUMA nodes: " : "there is no NUMA node ";
    CHECK(std::strstr(hvdft_error(), why) != nullptr);
    std::string path = job.rank(number++);
    CHECK(node < 0 || policy_at(path, kInput).mode == MPOL_DEFAULT);
  }
}

}  // namespace

int main() {
  int node = some_node();
  what_cannot_be_is_said(node);
  if (node < 0) {
    std::puts("this kernel has no NUMA");
    return 0;
  }
  a_rank_has_its_node(node);
  results_are_spread(node);
  another_thread_makes_files_elsewhere(node);
}
