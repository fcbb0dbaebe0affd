"""Checks settings that depend on each other: a part of a wait is shorter than the whole. Pure."""

from typing import TYPE_CHECKING

from hvd_ft.errors import HvdFtError
from hvd_ft.job.setting_values import LEAST_WINDOW_BYTES, MOST_WINDOW_BYTES

if TYPE_CHECKING:
    from hvd_ft.job.settings import Settings

MINIMUM_SUSPECT_SECONDS = 2.0
_LEAST_SEGMENTS, _MOST_SEGMENTS = 2, 128  # of a window: holds() in protocol/segments.h


def check_order(settings: "Settings") -> None:
    """Checks that the settings that depend on each other fit together.

    Args:
        settings: each within its range.

    Raises:
        HvdFtError: names the two that do not, and what to give.
    """
    if settings.replay_timeout_seconds >= settings.recovery_timeout_seconds:
        raise HvdFtError(
            f"HOROVOD_FT_REPLAY_TIMEOUT_SECONDS is {settings.replay_timeout_seconds:g} and "
            f"HOROVOD_FT_RECOVERY_TIMEOUT_SECONDS {settings.recovery_timeout_seconds:g}: a replay "
            "is a part of a recovery, so give the first one less"
        )
    for shorter, low, longer, high in (
        ("SUSPECT", settings.suspect_seconds, "LEASE", settings.lease_seconds),
        ("LEASE", settings.lease_seconds, "HOST_TIMEOUT", settings.host_timeout_seconds),
    ):
        if low >= high:
            raise HvdFtError(
                f"HOROVOD_FT_{shorter}_SECONDS is {low:g} and HOROVOD_FT_{longer}_SECONDS "
                f"{high:g}: a silent host is suspect first, then lost, then given up, so give "
                "the first one less"
            )
    if settings.link_timeout_seconds <= settings.suspect_seconds:
        raise HvdFtError(
            f"HOROVOD_FT_LINK_TIMEOUT_SECONDS is {settings.link_timeout_seconds:g} and "
            f"HOROVOD_FT_SUSPECT_SECONDS {settings.suspect_seconds:g}: links of a host that does "
            "not answer are not judged, so give the first one more"
        )
    if settings.suspect_seconds < MINIMUM_SUSPECT_SECONDS:
        raise HvdFtError(
            f"HOROVOD_FT_SUSPECT_SECONDS is {settings.suspect_seconds:g}: hosts are asked once a "
            f"second, so give {MINIMUM_SUSPECT_SECONDS:g} or more (by default it is a quarter "
            "of HOROVOD_FT_LEASE_SECONDS)"
        )
    if settings.grace_seconds and not settings.checkpoint_dir:
        raise HvdFtError(
            f"HOROVOD_FT_GRACE_SECONDS (--grace) is {settings.grace_seconds:g}, but there is no "
            "directory for the checkpoint: give --checkpoint-dir, or HOROVOD_FT_CHECKPOINT_DIR"
        )
    segment = settings.node_segment_bytes
    least = max(_LEAST_SEGMENTS * segment, LEAST_WINDOW_BYTES)
    most = min(_MOST_SEGMENTS * segment, MOST_WINDOW_BYTES)
    if not least <= settings.node_window_bytes <= most:
        raise HvdFtError(
            f"HOROVOD_FT_NODE_WINDOW_BYTES is {settings.node_window_bytes >> 10}K and "
            f"HOROVOD_FT_NODE_SEGMENT_BYTES {segment >> 10}K: a window holds {_LEAST_SEGMENTS} to "
            f"{_MOST_SEGMENTS} segments, so give the first one {least >> 10}K to {most >> 10}K"
        )
    hang, window = settings.hang_timeout_seconds, settings.failure_window_seconds
    if hang and settings.snapshot_timeout_seconds >= hang:
        raise HvdFtError(
            f"HOROVOD_FT_SNAPSHOT_TIMEOUT_SECONDS is {settings.snapshot_timeout_seconds:g} and "
            f"HOROVOD_FT_HANG_TIMEOUT_SECONDS {hang:g}: a worker that waits to share a "
            "snapshot would be killed as stuck, so give the first one less"
        )
    if hang and hang * settings.max_failures >= window:
        raise HvdFtError(
            f"HOROVOD_FT_HANG_TIMEOUT_SECONDS is {hang:g}, so {settings.max_failures} hangs "
            f"take longer than HOROVOD_FT_FAILURE_WINDOW_SECONDS, {window:g}, and a worker "
            "that always hangs would be restarted for ever: give the window more"
        )
