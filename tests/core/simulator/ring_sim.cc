// The deterministic simulator of the ring.
//   ring_sim                     every single crash point of rings of 2 to 5
//   ring_sim small               … of 2 to 4
//   ring_sim --scenarios FILE    the named ones
//   ring_sim --minutes M [SEED]  pairs of crash points, then long random runs
//   ring_sim --wrong-protocols   that it finds what is wrong with each of them
//   ring_sim --replay 'CASE'     one case (ring_sim_case.h), told action by action
// A case that fails prints the line that replays it; the exit code is then 1.
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>

#include "ring_sim_long.h"

using namespace ring_sim;

namespace {

// Every second crash point, after one of some losses: the op is done over again.
void after_a_loss(Runs& runs, const Case& made) {
  for (int64_t at = 20; at < 110; at += 10) {
    Case lost = made;
    Fault fault;
    fault.before = at;
    fault.loses = true;
    fault.member = static_cast<int>(at / 10 % 3);
    lost.faults.push_back(fault);
    runs.at_each_point(lost, false, at, [&](const Case& c) { runs.must_be_well(c); });
  }
}

int every_crash_point(uint64_t most_members, uint64_t seeds) {
  uint64_t failures = 0;
  for (uint64_t members = 2; members <= most_members; ++members) {
    Runs runs;
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
      Case made;
      made.members = members;
      made.seed = seed;
      // Two segments a chunk, and one in all; gathered ops after both, and before one.
      made.ops = {{false, 9 * members + 1}, {true, 40, true}, {true, 5}, {false, 3, true}};
      runs.at_each_point(made, true, 0, [&](const Case& c) { runs.must_be_well(c); });
      if (members == 3) after_a_loss(runs, made);
    }
    std::printf("rings of %lu: %lu cases, %lu not well\n", members, runs.cases(), runs.failures());
    failures += runs.failures();
  }
  return failures > 0;
}

// The simulator can fail: of each wrong protocol some case is found not to be well.
int wrong_protocols() {
  bool all = true;
  for (size_t p = 1; p < std::size(kProtocolNames); ++p) {
    Case made;
    made.protocol = static_cast<Protocol>(p);
    made.members = 3;
    made.ops = {{false, 28}, {true, 9, true}, {true, 5}};
    Runs runs;
    std::map<std::string, uint64_t> seen;
    runs.at_each_point(made, false, 0, [&](const Case& c) { ++seen[runs.run(c).word()]; });
    std::printf("%s:", kProtocolNames[p]);
    for (auto& [word, times] : seen) std::printf(" %lu %s", times, word.c_str());
    std::printf("\n");
    all = all && seen.size() > (seen.count("well") ? 1 : 0);
  }
  return all ? 0 : 1;
}

int scenarios(const char* path) {
  std::ifstream file(path);
  if (!file) throw std::invalid_argument(std::string("cannot be read: ") + path);
  int failures = 0;
  Runs runs;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream in(line);
    std::string name, expected, rest;
    in >> name >> expected;
    std::getline(in, rest);
    Case made = parse(rest);
    Outcome outcome = runs.run(made);
    bool struck = outcome.struck == made.faults.size() || !outcome.well();
    bool as_expected = struck && outcome.word() == expected;
    failures += !as_expected;
    std::printf("%-24s %-6s%s\n", name.c_str(), outcome.word().c_str(),
                !struck       ? " but not all faults struck"
                : as_expected ? ""
                              : (" but expected: " + expected).c_str());
  }
  return failures > 0;
}

int replay(const char* text) {
  Runs runs;
  Outcome outcome = runs.run(parse(text), true);
  std::printf("%s\n", outcome.well() ? "all is well" : outcome.violation.c_str());
  return outcome.well() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 1) return every_crash_point(5, 2);
    if (argc == 2 && std::strcmp(argv[1], "small") == 0) return every_crash_point(4, 1);
    if ((argc == 3 || argc == 4) && std::strcmp(argv[1], "--minutes") == 0) {
      uint64_t seed = argc == 4 ? std::stoull(argv[3]) : 1;
      return LongRuns(std::stod(argv[2]), seed).run() ? 0 : 1;
    }
    if (argc == 2 && std::strcmp(argv[1], "--wrong-protocols") == 0) return wrong_protocols();
    if (argc == 3 && std::strcmp(argv[1], "--scenarios") == 0) return scenarios(argv[2]);
    if (argc == 3 && std::strcmp(argv[1], "--replay") == 0) return replay(argv[2]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ring_sim: %s\n", error.what());
    return 2;
  }
  std::fprintf(stderr, "ring_sim: unknown arguments; ring_sim.cc begins with the known ones\n");
  return 2;
}
