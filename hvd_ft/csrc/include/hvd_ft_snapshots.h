// The C ABI of libhvd_ft.so for workers that start again from a snapshot, beside what hvd_ft.h has
// of it: Horovod is built with that file, and needs none of this.
#ifndef HVD_FT_SNAPSHOTS_H
#define HVD_FT_SNAPSHOTS_H

#include "hvd_ft.h"

#ifdef __cplusplus
extern "C" {
#endif

// A restarted worker cannot use the snapshot that hvdft_worker_snapshot_get() returns. 1: it is
// passed over from now on. It was complete and not yet published, so the log still reaches back to
// the one before, or to the loop's beginning if there is none; when the worker comes to its
// boundary again, it is taken again. 0: it is published, and the log may be truncated there.
HVDFT_API int hvdft_worker_snapshot_refuse(int loop);

#ifdef __cplusplus
}
#endif
#endif  // HVD_FT_SNAPSHOTS_H
