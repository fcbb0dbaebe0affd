"""The launcher's part in checkpoints: what `--resume` means, and how a failed job can go on."""

import os
from pathlib import Path

from hvd_ft.checkpoint.catalogue import entry_of, find
from hvd_ft.checkpoint.rules import newest
from hvd_ft.errors import HvdFtError
from hvd_ft.job.directory import job_path
from hvd_ft.job.setting_values import is_job_id
from hvd_ft.job.settings import Settings
from hvd_ft.launcher.shared_record import SharedRecord


def resumes_job(text: str, arena_dir: str, shared_dir: str | None) -> bool:
    """Returns whether `--resume` names a job, not a directory of checkpoints.

    A job is meant if it has left its state on this host or its record in the shared directory,
    even if a directory has the same name.

    Args:
        text: the value of the flag.
        arena_dir: where jobs leave their state.
        shared_dir: where jobs leave their records; None: nowhere.

    Raises:
        HvdFtError: the value can only be a job's id, and there is no such job.
    """
    if not is_job_id(text):
        return False
    if os.path.isdir(job_path(arena_dir, text)):
        return True
    if shared_dir and os.path.exists(SharedRecord(shared_dir, text).path):
        return True
    if os.path.isdir(text):
        return False
    raise HvdFtError(
        f"--resume {text}: there is no directory {os.path.abspath(text)}, and no job of that id "
        "has left its state on this host; give the directory of --checkpoint-dir, a checkpoint in "
        "it, or the id of a job that a lost host has ended"
    )


def how_to_go_on(settings: Settings) -> str:
    """Returns how a failed job can go on; "" if it has left no checkpoint on this host."""
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
        f"hvdft run --resume {settings.checkpoint_dir} continues from step {manifest.step} of "
        f"training loop {manifest.loop} ({latest.name})"
    )


def nothing_to_go_on_from(settings: Settings) -> str:
    """Returns the line for a preempted job that has left no checkpoint on this host."""
    where = settings.checkpoint_dir
    found = f"there is no complete checkpoint in {where}" if where else "there is no checkpoint"
    remedy = "its lines above say why" if where else "give --checkpoint-dir a directory"
    return f"{found}, so the job begins anew when it is started again: {remedy}"
