// One run of the simulator: all that decides it, as values and as a line of text.
//
//   n=3 seed=7 ops=u64:40,f32:9g kill=1@130/none/late kill=all@note-sent:0.2 suspect@200
//
// ops=TYPE:ELEMENTS, with a g those of an op that is gathered.
// kill=MEMBER@WHEN[/ARRIVES][/NOTICED], lose=MEMBER@… (with its arena: its node is gone),
// suspect@WHEN[/NOTICED]: WHEN is the number of the action
// before which it happens, or [ACTOR.]ACTION[:OP.POSITION], before the next such action of that
// member (else of the one that dies); faults have their turn one after the other. ARRIVES: what of
// the messages that the dead member had on their way comes through, `none`, `all` or `some`
// prefix. NOTICED: `soon`, or `late`, when nobody can do anything more.
#ifndef HVD_FT_TESTS_RING_SIM_CASE_H
#define HVD_FT_TESTS_RING_SIM_CASE_H

#include <cstdint>
#include <iterator>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "protocol/pair_log.h"

namespace ring_sim {

enum class Action {
  kGive,          // the worker gives the next of its inputs
  kRead,          // the sender reads half of a segment, …
  kSend,          // … the rest, and it is on its way, …
  kNoteSent,      // … and the record says so
  kTake,          // the receiver takes a message, …
  kWrite,         // … writes half of its effect, …
  kWriteRest,     // … the other half, …
  kNoteReceived,  // … and the record says so
  kEnter,         // a member enters a generation, …
  kTell,          // … sends its record to its predecessor, …
  kLearn,         // … and learns that of its successor
  kRejoin         // a step of rejoin.h, before a member starts
};
constexpr const char* kActionNames[] = {"give",  "read",  "send",       "note-sent",
                                        "take",  "write", "write-rest", "note-received",
                                        "enter", "tell",  "learn",      "rejoin"};

// What a member does next, and where.
struct Next {
  Action action;
  hvdft::EdgePosition at;
};

// The protocol, and what it must not be: the simulator has to find what is wrong with these.
enum class Protocol {
  kPairLog,
  kOneLogPerNode,   // the first seed's attempt 1: each continues from its own log
  kSenderIsTruth,   // of the two records
  kOldGenerations,  // are accepted
  kInPlace,         // sums are taken in place
  kRecordFirst,     // the record is published before the effect is written
  kTellFirst,       // the record is sent before older generations are refused
  kStay,            // a member is lost, and the others go on from their own records
  kOverFinal,       // an op that is done over is not put aside
  kRecordOnly,      // results are not taken from the most advanced member
};
constexpr const char* kProtocolNames[] = {
    "pair-log",   "one-log-per-node", "sender-is-truth", "old-generations",
    "in-place",   "record-first",     "tell-first",      "stay",
    "over-final", "record-only"};

constexpr int kEverybody = -1;

struct Fault {
  bool loses = false;  // the arena too
  bool kills = true;   // else a false suspicion: a new generation, although no member is dead
  int member = kEverybody;
  int64_t before = -1;  // the number of an action; -1: an action of this kind
  Action action = Action::kGive;
  int actor = kEverybody;                 // its member; or any
  std::optional<hvdft::EdgePosition> at;  // or anywhere
  enum Arrives { kNone, kAll, kSome } arrives = kSome;
  bool late = false;
};

struct SimOp {
  bool floats;
  uint64_t elements;
  bool gathered = false;
  uint64_t bytes() const { return elements * (floats ? 4 : 8); }
};

struct Case {
  uint64_t members = 2;
  uint64_t seed = 1;
  Protocol protocol = Protocol::kPairLog;
  std::vector<SimOp> ops{{false, 40}, {true, 33}};
  std::vector<Fault> faults;
};

inline size_t index_of(const std::string& name, const char* const* first, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (name == first[i]) return i;
  }
  throw std::invalid_argument("not known: " + name);
}

inline std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, at);) parts.push_back(part);
  return parts;
}

inline void parse_when(const std::string& text, Fault* fault) {
  if (text.find_first_not_of("0123456789") == std::string::npos) {
    fault->before = std::stoll(text);
    return;
  }
  size_t colon = text.find(':');
  std::string what = text.substr(0, colon);
  size_t dot = what.find('.');
  fault->actor = dot == std::string::npos ? fault->member : std::stoi(what.substr(0, dot));
  if (dot != std::string::npos) what = what.substr(dot + 1);
  fault->action = static_cast<Action>(index_of(what, kActionNames, std::size(kActionNames)));
  if (colon == std::string::npos) return;
  auto parts = split(text.substr(colon + 1), '.');
  fault->at = hvdft::EdgePosition{std::stoull(parts.at(0)), std::stoull(parts.at(1))};
}

inline Fault parse_fault(const std::string& kind, const std::string& who, const std::string& what) {
  Fault fault;
  fault.kills = kind != "suspect";
  fault.loses = kind == "lose";
  if (fault.kills && who != "all") fault.member = std::stoi(who);
  auto parts = split(what, '/');
  parse_when(parts.at(0), &fault);
  for (size_t i = 1; i < parts.size(); ++i) {
    constexpr const char* words[] = {"none", "all", "some", "soon", "late"};
    size_t word = index_of(parts[i], words, std::size(words));
    if (word < 3)
      fault.arrives = static_cast<Fault::Arrives>(word);
    else
      fault.late = word == 4;
  }
  return fault;
}

inline Case parse(const std::string& line) {
  Case made;
  std::istringstream in(line);
  for (std::string word; in >> word;) {
    size_t at = word.find('@'), equals = word.find('=');
    if (at != std::string::npos) {
      size_t kind = std::min(equals, at), who = std::min(kind + 1, at);
      made.faults.push_back(
          parse_fault(word.substr(0, kind), word.substr(who, at - who), word.substr(at + 1)));
      continue;
    }
    std::string name = word.substr(0, equals), value = word.substr(equals + 1);
    if (name == "n")
      made.members = std::stoull(value);
    else if (name == "seed")
      made.seed = std::stoull(value);
    else if (name == "protocol") {
      made.protocol =
          static_cast<Protocol>(index_of(value, kProtocolNames, std::size(kProtocolNames)));
    } else if (name == "ops") {
      made.ops.clear();
      for (auto& op : split(value, ',')) {
        made.ops.push_back(
            {op.substr(0, 4) == "f32:", std::stoull(op.substr(4)), op.back() == 'g'});
      }
    } else {
      throw std::invalid_argument("not known: " + name);
    }
  }
  return made;
}

inline std::string text_of(const Fault& fault) {
  constexpr const char* arrives[] = {"none", "all", "some"};
  std::ostringstream out;
  if (!fault.kills)
    out << "suspect@";
  else if (fault.member == kEverybody)
    out << "kill=all@";
  else
    out << (fault.loses ? "lose=" : "kill=") << fault.member << '@';
  if (fault.before >= 0) {
    out << fault.before;
  } else {
    if (fault.actor != fault.member) out << fault.actor << '.';
    out << kActionNames[static_cast<size_t>(fault.action)];
    if (fault.at) out << ':' << fault.at->op << '.' << fault.at->position;
  }
  if (fault.kills) out << '/' << arrives[fault.arrives];
  out << (fault.late ? "/late" : "/soon");
  return out.str();
}

inline std::string text_of(const Case& made) {
  std::ostringstream out;
  if (made.protocol != Protocol::kPairLog) {
    out << "protocol=" << kProtocolNames[static_cast<size_t>(made.protocol)] << ' ';
  }
  out << "n=" << made.members << " seed=" << made.seed << " ops=";
  for (size_t i = 0; i < made.ops.size(); ++i) {
    out << (i ? "," : "") << (made.ops[i].floats ? "f32:" : "u64:") << made.ops[i].elements
        << (made.ops[i].gathered ? "g" : "");
  }
  for (const Fault& fault : made.faults) out << ' ' << text_of(fault);
  return out.str();
}

}  // namespace ring_sim

#endif  // HVD_FT_TESTS_RING_SIM_CASE_H
