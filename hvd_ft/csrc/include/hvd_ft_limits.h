// Numbers that the core and the settings of a job have to agree on: limits, and what a job works
// with unless it is told otherwise. Each is stated here alone; Python reads them from this header.
#ifndef HVD_FT_LIMITS_H
#define HVD_FT_LIMITS_H

enum {
  HVDFT_MOST_RANKS = 4096,  // a bound only: memory is sized by the job's ranks

  // Bytes of a segment that the ranks of a node sum at a time (measured: docs/performance.md);
  // powers of two.
  HVDFT_LEAST_NODE_SEGMENT = 16 << 10,
  HVDFT_NODE_SEGMENT = 128 << 10,
  HVDFT_MOST_NODE_SEGMENT = 512 << 10,
  // Bytes of a node's windows, by which a rank may be ahead of the others; powers of two, and so
  // many segments.
  HVDFT_LEAST_NODE_WINDOW = 256 << 10,
  HVDFT_NODE_WINDOW = 1 << 20,
  HVDFT_MOST_NODE_WINDOW = 16 << 20,
  HVDFT_LEAST_SEGMENTS_OF_WINDOW = 2,
  HVDFT_MOST_SEGMENTS_OF_WINDOW = 128,
  // Bytes of the largest message of the ring between nodes.
  HVDFT_LEAST_RING_SEGMENT = 16 << 10,
  HVDFT_RING_SEGMENT = 256 << 10,
  HVDFT_MOST_RING_SEGMENT = 1 << 20,

  // The ring's transfers that may be under way over a connection, in a direction.
  HVDFT_TRANSFERS =
      4,  // one that is being copied, and others that MPI can start on when it is done
  HVDFT_MOST_TRANSFERS = 16,
  HVDFT_MOST_CONNECTIONS = 8,  // of an edge between two nodes, with endpoints each
  // MPI's endpoints in an agent: one for each colour of the ring's edges and connection, and the
  // main thread's, the mirror's and that of gathered ops.
  HVDFT_EDGE_COLOURS = 3,
  HVDFT_OTHER_ENDPOINTS = 3,

  // Nanoseconds: of a thread that only yields while it waits for MPI, and of its naps afterwards.
  HVDFT_YIELD_NS = 50000,
  HVDFT_NAP_NS = 1000000,
  HVDFT_MOST_NAP_NS = 100000000,

  HVDFT_OPS_KEPT = 64,  // latest ops of a rank of which the moments are published

  // Bytes of texts and contents in the arenas, with what ends them.
  HVDFT_LAST_WORDS = 512,
  HVDFT_STOP_TEXT = 1024,
  HVDFT_FINGERPRINTS = (64 << 10) - 16
};

#endif  // HVD_FT_LIMITS_H
