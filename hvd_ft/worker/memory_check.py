"""Announces at a training's beginning how much memory it will need; warns if there is less."""

import os

from hvd_ft.native.core import Worker
from hvd_ft.system.memory_left import memory_left
from hvd_ft.system.say import say
from hvd_ft.worker.memory_need import (
    WORTH_SAYING_BYTES,
    Training,
    announcement,
    memory_need,
    shortage,
)

# A script with many loops needs a little more in each, as what has ended is kept.
_GROWTH = 1.25
_announced = 0  # bytes: a later training loop has to need so many times that
_lacked = False  # whether a shortage was announced


def check_memory(
    worker: Worker, state_bytes: int, gradient_bytes: int, snapshot_steps: int
) -> None:
    """Announces the need of a training loop, in one line a host, unless it is small and met.

    Args:
        worker: this process's attachment to its agent.
        state_bytes: bytes of a rank's variables in a snapshot.
        gradient_bytes: bytes of the trainable variables; once a step is done, the bytes that it has
            reduced count instead.
        snapshot_steps: the most steps from one snapshot to the next.
    """
    global _announced, _lacked
    ranks = worker.node_ranks()
    local_rank = int(os.environ.get("HOROVOD_LOCAL_RANK", "0"))
    if worker.incarnation > 0 or worker.rank != ranks[0] or local_rank > 0:
        return
    step_bytes = worker.step_bytes
    training = Training(
        state_bytes=state_bytes,
        step_bytes=step_bytes or gradient_bytes,
        ranks=len(ranks),
        nodes=worker.nodes,
        begun=step_bytes > 0,
        snapshot_steps=snapshot_steps,
    )
    memory = worker.memory()
    need = memory_need(training, memory)
    arenas = int(os.environ.get("HOROVOD_LOCAL_SIZE", "1")) // len(ranks)
    lacks = shortage(need, memory, memory_left(worker.directory), max(arenas, 1))
    is_new = need.total > _GROWTH * _announced or (lacks is not None and not _lacked)
    if is_new and (lacks or need.total >= WORTH_SAYING_BYTES):
        _announced, _lacked = need.total, _lacked or lacks is not None
        say(announcement(training, need, lacks, os.path.dirname(worker.directory)))
