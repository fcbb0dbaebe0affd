// Large jobs in virtual time: production's workers, leaders, mirror, log and ring, on a simulated
// kernel and network (kernel.h, network.h), with deaths of workers and agents.
//   sim_large [SIZES [SEED [FILE]]]  for each of SIZES (64,256,1024): undisturbed, which is
//   counted;
//                                    then with deaths, to the same bits. FILE gets the counts, as
//                                    CSV
//   sim_large --replay 'CASE'        one run (plan.h)
// A run that fails prints the line that replays it; the exit code is then 1.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "../fresh_directory.h"
#include "../threaded/one_mapping.h"
#include "fleet.h"
#include "report.h"
#include "system_calls.h"

using namespace large;

namespace {

constexpr int kDeaths = 9;
constexpr int kMostWithConnections = 64;  // ranks of a job that is also run with several an edge

// About 12 for each rank.
void open_as_many_files_as_allowed() {
  rlimit files{};
  CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
  files.rlim_cur = files.rlim_max;
  CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
}

// In a process of its own: a run leaves threads that are never resumed.
Outcome run(const Case& made) {
  std::string dir = fresh_directory();
  int ends[2];
  CHECK(pipe(ends) == 0);
  std::fflush(stdout);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Outcome outcome = (new Fleet(made, dir))->run();
    bool told = write(ends[1], &outcome, sizeof outcome) == sizeof outcome;
    _exit(told ? 0 : 1);
  }
  close(ends[1]);
  Outcome outcome;
  if (read(ends[0], &outcome, sizeof outcome) != sizeof outcome) outcome = {};
  close(ends[0]);
  waitpid(child, nullptr, 0);
  std::filesystem::remove_all(dir);
  return outcome;
}

std::vector<int> sizes_of(const std::string& list) {
  std::vector<int> sizes;
  for (const std::string& size : ring_sim::split(list, ',')) sizes.push_back(std::stoi(size));
  return sizes;
}

bool fails(const Case& made, const char* why) {
  std::printf("%s; to replay: sim_large --replay '%s'\n", why, text_of(made).c_str());
  return false;
}

// Whether it ends with the same bits.
bool survives_deaths(Case made, const Outcome& undisturbed) {
  made.deaths = kDeaths;
  Outcome disturbed = run(made);
  if (!disturbed.well) return fails(made, "not well");
  for (uint64_t op = 0; op < kOps; ++op) {
    if (disturbed.hashes[op] != undisturbed.hashes[op]) return fails(made, "other bits");
  }
  std::string with = made.connections > 1 ? std::to_string(made.connections) + " connections" : "";
  std::printf("%d ranks%s%s: %lu workers died, and all agents %lu times; the same bits\n",
              made.ranks, with.empty() ? "" : " with ", with.c_str(), disturbed.worker_deaths,
              disturbed.generations);
  return true;
}

int all_sizes(const std::vector<int>& sizes, uint64_t seed, const char* csv) {
  std::vector<Sized> done;
  for (int size : sizes) {
    Case made;
    made.ranks = size;
    made.seed = seed;
    Outcome outcome = run(made);
    if (!outcome.well) return fails(made, "not well") ? 0 : 1;
    done.push_back({made, outcome});
    if (!survives_deaths(made, outcome)) return 1;
    if (size > kMostWithConnections) continue;
    made.connections = 3;
    made.model.uneven = true;
    if (!survives_deaths(made, outcome)) return 1;
  }
  print_report(done);
  if (csv != nullptr) write_csv(csv, done);
  return 0;
}

int replay(const char* text) {
  Case made = parse(text);
  Outcome outcome = run(made);
  if (!outcome.well) return 1;
  print_report({{made, outcome}});
  std::printf("%lu workers died, and all agents %lu times; %lu messages under way at most\n",
              outcome.worker_deaths, outcome.generations, outcome.most_under_way);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  open_as_many_files_as_allowed();
  try {
    if (argc == 3 && std::string(argv[1]) == "--replay") return replay(argv[2]);
    if (argc <= 4) {
      return all_sizes(sizes_of(argc > 1 ? argv[1] : "64,256,1024"),
                       argc > 2 ? std::stoull(argv[2]) : 1, argc > 3 ? argv[3] : nullptr);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sim_large: %s\n", error.what());
    return 2;
  }
  std::fprintf(stderr, "sim_large: unknown arguments; sim_large.cc begins with the known ones\n");
  return 2;
}
