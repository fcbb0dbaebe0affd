// What simulated jobs of some sizes have cost, and how that grows.
#ifndef HVD_FT_TESTS_LARGE_REPORT_H
#define HVD_FT_TESTS_LARGE_REPORT_H

#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "plan.h"

namespace large {

struct Sized {
  Case made;
  Outcome outcome;
};

struct Metric {
  const char *name, *column;
  double (*of)(const Counts&);
};

constexpr Metric kMetrics[] = {
    {"virtual time, us", "virtual_us", [](const Counts& c) { return c.ns / 1000; }},
    {"ring: messages", "ring_messages", [](const Counts& c) { return c.messages[kRing]; }},
    {"ring: bytes", "ring_bytes", [](const Counts& c) { return c.bytes[kRing]; }},
    {"ring: longest chain of hops", "ring_hops", [](const Counts& c) { return c.hops[kRing]; }},
    {"mirror: messages", "mirror_messages", [](const Counts& c) { return c.messages[kMirror]; }},
    {"mirror: bytes", "mirror_bytes", [](const Counts& c) { return c.bytes[kMirror]; }},
    {"mirror: longest chain of hops", "mirror_hops",
     [](const Counts& c) { return c.hops[kMirror]; }},
    {"bytes of the node that sends most", "most_bytes",
     [](const Counts& c) { return c.most_bytes; }},
    {"looks at a rank's state", "looks", [](const Counts& c) { return c.looks; }},
    {"wake-ups of leaders", "leader_wakeups", [](const Counts& c) { return c.leader_wakeups; }},
    {"wake-ups of workers", "worker_wakeups", [](const Counts& c) { return c.worker_wakeups; }}};

// The power law that fits best: of those values that are above 0.
inline double exponent(const std::vector<double>& sizes, const std::vector<double>& values) {
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (values[i] <= 0) continue;
    double of = std::log(sizes[i]), v = std::log(values[i]);
    n += 1;
    x += of;
    y += v;
    xx += of * of;
    xy += of * v;
  }
  double spread = n * xx - x * x;
  return spread > 0 ? (n * xy - x * y) / spread : 0;
}

inline void print_row(const std::string& name, const std::vector<double>& sizes,
                      const std::vector<double>& values) {
  std::printf("  %-34s", name.c_str());
  for (double value : values) std::printf(" %14.1f", value);
  if (sizes.size() > 1) std::printf("   ranks ^ %.2f", exponent(sizes, values));
  std::printf("\n");
}

// Of a phase, or (-1) of the idle job.
inline const Counts& counts_of(const Outcome& outcome, int phase) {
  return phase < 0 ? outcome.idle : outcome.phases[phase];
}

inline void print_report(const std::vector<Sized>& all) {
  const LinkModel& model = all[0].made.model;
  std::printf(
      "A message takes each of two ports %lu ns and its bytes at %lu Mbit/s, and is %lu ns on its "
      "way; a notified thread wakes after %lu ns; nothing else takes time. %d ranks a node, seed "
      "%lu\n",
      model.message_ns, model.mbit, model.latency_ns, kWakeNs, all[0].made.per_node,
      all[0].made.seed);
  std::vector<double> sizes, arenas;
  std::printf("  %-34s", "ranks");
  for (const Sized& one : all) {
    sizes.push_back(one.made.ranks);
    arenas.push_back(one.outcome.arena_bytes / (1 << 20));
    std::printf(" %14d", one.made.ranks);
  }
  std::printf("\n");
  print_row("a node's arena at the end, MiB", sizes, arenas);
  for (int phase = kPhaseCount - 1; phase >= -1; --phase) {
    if (phase == 0) continue;
    if (phase < 0) {
      std::printf("an idle second\n");
    } else {
      std::printf("an op of %s\n", kPhases[phase].name);
    }
    for (const Metric& metric : kMetrics) {
      std::vector<double> values;
      for (const Sized& one : all) values.push_back(metric.of(counts_of(one.outcome, phase)));
      print_row(metric.name, sizes, values);
    }
  }
}

inline void write_csv(const char* path, const std::vector<Sized>& all) {
  std::ofstream file(path);
  file << "ranks,nodes,seed,of,arena_mib";
  for (const Metric& metric : kMetrics) file << ',' << metric.column;
  file << '\n';
  for (const Sized& one : all) {
    for (int phase = -1; phase < kPhaseCount; ++phase) {
      if (phase == 0) continue;
      file << one.made.ranks << ',' << one.made.nodes() << ',' << one.made.seed << ','
           << (phase < 0 ? "idle" : kPhases[phase].name) << ','
           << one.outcome.arena_bytes / (1 << 20);
      for (const Metric& metric : kMetrics) {
        file << ',' << metric.of(counts_of(one.outcome, phase));
      }
      file << '\n';
    }
  }
}

}  // namespace large

#endif  // HVD_FT_TESTS_LARGE_REPORT_H
