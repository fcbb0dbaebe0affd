"""The global step at which each `Estimator.train` of this process has begun.

In a job that resumes from a checkpoint, rank 0's model directory contains more steps than when the
earlier job began. So the trainings begin with the steps with which they began in that job.
"""

from hvd_ft import native
from hvd_ft.worker.resumed import resumed

first_steps: list[int] = []  # as rank 0 found them


def begun_with(found: int) -> int:
    """Returns with how many steps the next training begins.

    Args:
        found: global step in this rank's model directory.
    """
    worker = native.worker()
    checkpoint = resumed(worker.rank, worker.size) if worker is not None else None
    earlier = checkpoint.latest_values().get("first_steps", []) if checkpoint else []
    return int(earlier[len(first_steps)]) if len(first_steps) < len(earlier) else found
