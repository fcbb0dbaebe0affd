// Autotuning's choices on their way into the log, in every interleaving of the coordinator and the
// log writer, with ranks that enter again and a coordinator that dies.
#include "horovod/agree/ft_choices.h"

#include <set>
#include <string>

#include "check.h"

using namespace horovod::common;

namespace {

struct World {
  std::vector<FtChoice> log;
  uint64_t term = 0;
  // Lies there until the log writer has read it.
  bool proposed = false;
  uint64_t proposal_term = 0;
  std::vector<FtChoice> proposal;
  // The coordinator; it has to know the whole log before it enters, which begins a term.
  FtChoices choices;
  uint64_t seen_term = 0;
  bool alive = true, read = false;
  int to_choose = 3, entries = 2, deaths = 1;

  std::string key() const {
    std::string k;
    auto add = [&](uint64_t value) { k += static_cast<char>(value); };
    auto add_all = [&](const std::vector<FtChoice>& all) {
      for (auto& each : all) add(static_cast<uint64_t>(each.score));
      add(255);
    };
    add_all(log);
    add_all(proposal);
    add_all(choices.All());
    FtChoices copy = choices;
    add(copy.TakeUnproposed().size());
    for (uint64_t value : {term, uint64_t{proposed}, proposal_term, uint64_t{choices.Logged()},
                           seen_term, uint64_t{alive}, uint64_t{read}}) {
      add(value);
    }
    for (int left : {to_choose, entries, deaths}) add(static_cast<uint64_t>(left));
    return k;
  }
};

class Explorer {
 public:
  void explore(const World& world) {
    if (!seen_.insert(world.key()).second) return;
    check(world);
    attempt(world, world.proposed, [](World& w) { answer(w); });
    attempt(world, world.entries > 0, [](World& w) {  // another rank enters again
      ++w.term;
      --w.entries;
    });
    attempt(world, world.deaths > 0 && world.alive, [](World& w) {
      w.choices = FtChoices();
      w.alive = w.read = false;
      --w.deaths;
    });
    // It enters with the whole log, which has grown no more when it is admitted.
    attempt(world, !world.alive, [](World& w) {
      ++w.term;
      w.alive = true;
    });
    attempt(world, world.alive && !world.read, [](World& w) { follow(w); });
    attempt(world, world.read && world.to_choose > 0, [](World& w) {
      --w.to_choose;
      choose(w);
    });
    // Waits for the answer to the proposal before. Not every round has ops to propose.
    attempt(world, world.read && !world.proposed, [](World& w) { propose(w); });
    attempt(world, world.read, [](World& w) { w.read = false; });
  }
  uint64_t states() const { return seen_.size(); }

 private:
  template <typename Step>
  void attempt(const World& world, bool possible, Step step) {
    if (!possible) return;
    World after = world;
    step(after);
    explore(after);
  }

  // The score says which choice it is.
  static void choose(World& w) {
    w.choices.Add({1, static_cast<double>(w.choices.All().size()), 0});
  }

  // The term is read before the log.
  static void follow(World& w) {
    if (w.seen_term != w.term) w.choices.StartTerm();
    w.seen_term = w.term;
    while (w.choices.Logged() < w.log.size()) w.choices.Read(w.log[w.choices.Logged()]);
    w.read = true;
  }

  static void propose(World& w) {
    w.proposed = true;
    w.proposal_term = w.seen_term;
    w.proposal = w.choices.TakeUnproposed();
    w.read = false;
  }

  static void answer(World& w) {
    if (w.proposal_term == w.term) {
      w.log.insert(w.log.end(), w.proposal.begin(), w.proposal.end());
    }
    w.proposed = false;
    w.proposal.clear();
  }

  static void check(World world) {
    for (size_t i = 0; i < world.log.size(); ++i) {
      CHECK(world.log[i].score == static_cast<double>(i));  // each once, in order
    }
    // When nothing more happens, the log gets all that the coordinator has chosen.
    for (int round = 0; round < 2; ++round) {
      if (world.proposed) answer(world);
      if (!world.alive) ++world.term;
      world.alive = true;
      follow(world);
      propose(world);
    }
    answer(world);
    CHECK(world.log.size() == world.choices.All().size());
  }

  std::set<std::string> seen_;
};

}  // namespace

int main() {
  Explorer explorer;
  World world;
  world.choices.Add({1, 0, 0});
  explorer.explore(world);
  CHECK(explorer.states() > 1000);
  std::printf("%lu states\n", explorer.states());
}
