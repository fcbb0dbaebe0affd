// Snapshots of loop 0 that are a rank's own.
#ifndef HVD_FT_TESTS_TAKE_SNAPSHOT_H
#define HVD_FT_TESTS_TAKE_SNAPSHOT_H

#include <cstdint>
#include <cstring>

#include "check.h"
#include "hvd_ft_snapshots.h"

inline void take_snapshot(uint64_t cut, const void* content, uint64_t bytes) {
  uint64_t position = hvdft_worker_cursor();
  void* room;
  CHECK(hvdft_worker_snapshot_begin(0, cut, position) == HVDFT_OK);
  CHECK(hvdft_worker_snapshot_room(0, bytes, &room) == HVDFT_OK);
  std::memcpy(room, content, bytes);
  hvdft_snapshot snapshot{cut, position, bytes, 0, 0};
  CHECK(hvdft_worker_snapshot_deliver(0, &snapshot) == HVDFT_OK);
}

#endif  // HVD_FT_TESTS_TAKE_SNAPSHOT_H
