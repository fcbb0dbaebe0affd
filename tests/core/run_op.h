// Executes one op over the C ABI, waiting for it, in the manner of Horovod's ft backend.
#ifndef HVD_FT_RUN_OP_H
#define HVD_FT_RUN_OP_H

#include "check.h"
#include "hvd_ft.h"

inline void run_op(uint64_t id, const hvdft_copies& copies) {
  CHECK(hvdft_worker_begin(id, &copies) == HVDFT_OK);
  for (;;) {
    uint32_t ticket = hvdft_worker_ticket();
    int code = hvdft_worker_advance();
    if (code == 1) break;
    CHECK(code == HVDFT_AGAIN);
    hvdft_worker_wait(ticket, 10000);
  }
  hvdft_worker_executed(id);
}

#endif  // HVD_FT_RUN_OP_H
