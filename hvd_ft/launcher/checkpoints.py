"""The launcher's part in checkpoints: what `--resume` means, and how a job that failed goes on."""

import os
from pathlib import Path

from hvd_ft.checkpoint.catalogue import entry_of, find
from hvd_ft.checkpoint.rules import newest
from hvd_ft.errors import HvdFtError
from hvd_ft.job.directory import job_path
from hvd_ft.job.setting_values import is_job_id
from hvd_ft.job.settings import Settings


def resumes_job(text: str, arena_dir: str) -> bool:
    """Returns whether `--resume` names a job, not a directory of checkpoints.

    A job that has left its state on this host is one, whatever directory has the same name.

    Args:
        text: as given.
        arena_dir: where jobs leave their state.
    """
    if not is_job_id(text):
        return False
    return os.path.isdir(job_path(arena_dir, text)) or not os.path.isdir(text)


def how_to_go_on(settings: Settings) -> str:
    """Returns what is said after a job has failed; "" if it left no checkpoint on this host."""
    if settings.checkpoint_dir is None:
        return ""
    try:
        found = find(Path(settings.checkpoint_dir))
    except HvdFtError:
        return ""
    manifests = {each.name: each.manifest for each in found if each.manifest is not None}
    latest = newest([entry_of(e, e.manifest) for e in found if e.manifest is not None])
    if latest is None:
        return ""
    manifest = manifests[latest.name]
    return (
        f"hvdft run --resume {settings.checkpoint_dir} goes on from step {manifest.step} of "
        f"training loop {manifest.loop} ({latest.name})"
    )
