// The C ABI of messages between workers (hvd_ft/p2p.py): every message arrives exactly once, whatever
// dies between. Calls about one peer come from one thread at a time.
#ifndef HVDFT_MESSAGES_H
#define HVDFT_MESSAGES_H

#include "hvd_ft.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  uint64_t number;
  uint64_t bytes;
  const char* form;  // type and shape as the sender told them; valid as long as the worker
} hvdft_message;

// Sends to `dest`, without waiting for it: 1, or 0 if an earlier incarnation has sent this message.
// `form` and `checksum` of a repeated one are compared with what was sent.
HVDFT_API int hvdft_worker_send(int dest, int32_t tag, const char* form, uint32_t checksum,
                                const void* data, uint64_t bytes);
// Waits for the message that the next receive from `source` with this tag gets. HVDFT_AGAIN: it is
// not there within the time.
HVDFT_API int hvdft_worker_await_message(int source, int32_t tag, int timeout_ms,
                                         hvdft_message* out);
// Receives it: copies its data.
HVDFT_API int hvdft_worker_take_message(int source, const hvdft_message* message, void* to);

#ifdef __cplusplus
}
#endif
#endif  // HVDFT_MESSAGES_H
