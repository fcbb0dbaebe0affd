// Every interleaving of a sender and a receiver that die at every point, with a training loop on
// both sides, snapshots in it, tags received out of order, and a log that is truncated as it can
// be: each receive gets its message, once, and nothing is truncated that is needed again.
#include "protocol/message_log.h"

#include <array>
#include <cstdio>
#include <set>
#include <tuple>
#include <vector>

#include "check.h"

using namespace hvdft;

namespace {

constexpr int kLoops = 2;

// What a script does: 's' is a message sent, 'r' one received, 'b' the next loop begins, 'p' a
// snapshot of it is due.
struct Action {
  char what;
  int32_t tag = 0;
};
using Script = std::vector<Action>;

// What an end has in the arena, …
struct SharedLoop {
  LoopMarks marks;
  int published = -1;  // slot
  std::array<LogPosition, 2> at{};
  std::array<size_t, 2> action{};  // of the script, where the snapshot continues
  auto key() const {
    auto key = [](const LogPosition& p) { return std::tie(p.count, p.first, p.reach); };
    return std::tuple(marks.begin, marks.past, published, key(at[0]), key(at[1]), action);
  }
};

// … and in its process.
struct End {
  std::array<SharedLoop, kLoops> loops{};
  LogPosition position;
  bool fresh = false;
  size_t next = 0;  // action
  int part = 0;     // of an action that takes several steps
  int loop = -1;
  Found found{Finding::kNothing, 0};

  auto key() const {
    return std::tuple(loops[0].key(), loops[1].key(), position.count, position.first,
                      position.reach, fresh, next, part, loop, found.what, found.number);
  }
  void die() {
    position = {};
    fresh = false;
    next = 0;
    part = 0;
    loop = -1;
  }
  Fate fate(uint64_t number) const {
    return fate_at(number, kLoops, [this](int l) { return loops[static_cast<size_t>(l)].marks; });
  }
};

struct State {
  End sender, receiver;
  uint64_t sent = 0, decided_before = 0;
  std::vector<SeenMessage> log;
  int deaths = 2;

  bool operator<(const State& o) const { return key() < o.key(); }
  std::tuple<decltype(sender.key()), decltype(sender.key()), uint64_t, uint64_t, int,
             std::vector<std::tuple<bool, uint64_t, int32_t>>>
  key() const {
    std::vector<std::tuple<bool, uint64_t, int32_t>> seen;
    for (auto& m : log) seen.emplace_back(m.there, m.taken, m.tag);
    return {sender.key(), receiver.key(), sent, decided_before, deaths, seen};
  }
};

// A loop begins, or a snapshot is taken: the same at both ends. One step of it.
void step_aside(const Script& script, End& end) {
  if (script[end.next].what == 'b') {
    SharedLoop& loop = end.loops[static_cast<size_t>(++end.loop)];
    ++end.next;
    uint64_t mark = end.position.reach + 1;
    if (loop.marks.begin == 0) loop.marks.begin = mark;
    CHECK(loop.marks.begin == mark);
    if (loop.published < 0) return;
    auto slot = static_cast<size_t>(loop.published);
    end.position = loop.at[slot];
    end.fresh = false;
    end.next = loop.action[slot];
    loop.marks.past = end.position.first;
    return;
  }
  SharedLoop& loop = end.loops[static_cast<size_t>(end.loop)];
  int slot = end.part < 2 ? (loop.published == 0 ? 1 : 0) : loop.published;
  auto at = static_cast<size_t>(slot);
  if (end.part == 0) {
    loop.at[at] = end.position;
    loop.action[at] = end.next + 1;
  } else if (end.part == 1) {
    loop.published = slot;
  } else {
    loop.marks.past = loop.at[at].first;
  }
  end.part = (end.part + 1) % 3;
  if (end.part == 0) ++end.next;
}

void send(const Script& script, State& state) {
  End& end = state.sender;
  int32_t tag = script[end.next].tag;
  if (is_repeated(end.position, state.sent)) {
    const SeenMessage& before = state.log[end.position.count];
    CHECK(before.there && before.tag == tag);
  } else if (end.part == 0) {  // written, and not yet published
    state.log[state.sent] = {true, 0, tag};
    end.part = 1;
    return;
  } else {
    ++state.sent;
  }
  end.part = 0;
  ++end.next;
  uint64_t count = end.position.count + 1;
  end.position = {count, count, count};
}

// The number of the message that a receive has to get: the first of its tag that is left over.
uint64_t expected(const Script& sends, const Script& receives, size_t action) {
  std::vector<int32_t> tags;
  for (const Action& a : sends) {
    if (a.what == 's') tags.push_back(a.tag);
  }
  for (size_t i = 0;; ++i) {
    if (receives[i].what != 'r') continue;
    uint64_t n = 0;
    while (tags[n] != receives[i].tag) ++n;
    if (i == action) return n;
    tags[n] = -1;
  }
}

// False if it has to wait.
bool receive(const Script& sends, const Script& script, State& state) {
  End& end = state.receiver;
  auto see = [&](uint64_t n) { return state.log[n]; };
  if (end.part == 0) {
    end.found = find_message(end.position, end.fresh, state.sent, script[end.next].tag, see);
    CHECK(end.found.what != Finding::kDropped);
    if (end.found.what == Finding::kNothing) return false;
    CHECK(end.found.number == expected(sends, script, end.next));
    end.part = 1;
    return true;
  }
  SeenMessage& message = state.log[end.found.number];
  CHECK(message.there);
  if (end.found.what == Finding::kUntaken) {
    CHECK(message.taken == 0);
    message.taken = end.position.count + 1;
    end.fresh = true;
  }
  move_on(&end.position, end.found.number, [&](uint64_t n) { return see(n).taken; });
  end.found = {Finding::kNothing, 0};
  end.part = 0;
  ++end.next;
  return true;
}

// Cuts one message more; false if it may not.
bool settle(State& state) {
  if (state.decided_before == state.sent) return false;
  Fate fate =
      fate_of(state.sender.fate(state.decided_before), state.receiver.fate(state.decided_before));
  if (fate == Fate::kOpen) return false;
  if (fate == Fate::kPast) state.log[state.decided_before] = {false, 0, 0};
  ++state.decided_before;
  return true;
}

struct Result {
  size_t states = 0;
  uint64_t cut = 0;  // the most that was, at an end
};

Result explore(const Script& sends, const Script& receives) {
  State start;
  start.log.resize(sends.size());
  std::set<State> seen{start};
  std::vector<State> open{start};
  Result result;
  auto reach = [&](const State& state) {
    if (seen.insert(state).second) open.push_back(state);
  };
  while (!open.empty()) {
    State state = open.back();
    open.pop_back();
    bool moved = false;
    for (bool sender : {true, false}) {
      const Script& script = sender ? sends : receives;
      const End& end = sender ? state.sender : state.receiver;
      State next = state;
      if (end.next < script.size()) {
        char what = script[end.next].what;
        bool can = true;
        if (what == 's') send(script, next);
        if (what == 'r') can = receive(sends, script, next);
        if (what == 'b' || what == 'p') step_aside(script, sender ? next.sender : next.receiver);
        if (can) moved = true, reach(next);
      }
      if (state.deaths > 0) {
        next = state;
        --next.deaths;
        (sender ? next.sender : next.receiver).die();
        reach(next);
      }
    }
    State next = state;
    if (settle(next)) moved = true, reach(next);
    if (moved) continue;
    CHECK(state.sender.next == sends.size() && state.receiver.next == receives.size());
    uint64_t cut = 0;
    for (uint64_t n = 0; n < state.sent; ++n) cut += !state.log[n].there;
    result.cut = std::max(result.cut, cut);
  }
  result.states = seen.size();
  return result;
}

}  // namespace

int main() {
  Action s{'s'}, r{'r'}, b{'b'}, p{'p'}, s1{'s', 1}, r1{'r', 1};
  struct Case {
    Script sends, receives;
    uint64_t cut;
  } cases[] = {
      {{s, s, s}, {r, r, r}, 0},                              // without a loop all is kept
      {{s, b, s, p, s, p}, {r, b, r, p, r, p}, 2},            // but for the first
      {{b, s, p, s, p, s}, {b, r, r, p, r}, 2},               // steps of different length
      {{b, s, p, s, p, b, s, p}, {b, r, p, r, b, r, p}, 2},   // one is between the loops
      {{s, s1, b, s, p, s1, p}, {r1, b, r, p, r1, r, p}, 2},  // tags out of order, over begins
      {{b, s, s1, p, s, p}, {r1, b, r, p, r, p}, 1},          // of one end alone: m[2] is truncated
      {{b, s1, s, s, p}, {b, r, p, r1, r, p}, 3},             // and over snapshots
      {{b, s, p, s, p}, {r, r}, 0},                           // the receiver has no loop
  };
  // Who asks for another tag than before is found out, even if there is a message with that tag.
  SeenMessage log[] = {{true, 0, 2}, {true, 1, 1}, {true, 0, 2}};
  auto see = [&](uint64_t n) { return log[n]; };
  CHECK(find_message({0, 0, 0}, false, 3, 2, see).what == Finding::kTaken);
  log[1].there = false;
  CHECK(find_message({0, 0, 0}, false, 3, 2, see).what == Finding::kDropped);
  CHECK(find_message({1, 0, 2}, true, 3, 2, see).number == 0);

  size_t states = 0;
  for (const Case& c : cases) {
    Result result = explore(c.sends, c.receives);
    CHECK(result.cut == c.cut);
    states += result.states;
  }
  std::printf("%zu states, all well\n", states);
}
