"""Notices a training that has no snapshots when its step is traced, or its session begins."""

import functools
from collections.abc import Callable
from functools import cache
from typing import Any

import horovod.tensorflow
import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.training import monitored_session

from hvd_ft import native
from hvd_ft.worker import training_loop
from hvd_ft.worker.without_snapshots import look

_REMEDY = (
    "give Model.fit the callback hvd.callbacks.FaultTolerance(), a loop of your own a hvd.State, a "
    "session or an Estimator the hook hvd.estimator.FaultTolerance()"
)


def watch_trainings(worker: native.Worker) -> None:
    """Checks each training that begins, whoever runs it, if this process is the one that warns."""
    if worker.rank == 0 and worker.incarnation == 0:
        _watch()


@cache
def _watch() -> None:
    make = horovod.tensorflow._make_allreduce_grads_fn

    @functools.wraps(make)
    def watched(*arguments: Any, **more: Any) -> Callable[..., Any]:
        reduce = make(*arguments, **more)

        def look_and_reduce(*arguments: Any, **more: Any) -> Any:
            # The graph of a session is built before its loop begins.
            if ops.executing_eagerly_outside_functions():
                look(_REMEDY)
            return reduce(*arguments, **more)

        return look_and_reduce

    horovod.tensorflow._make_allreduce_grads_fn = watched
    begin = monitored_session._MonitoredSession.__init__

    @functools.wraps(begin)
    def watched_session(session: Any, *arguments: Any, **more: Any) -> None:
        begin(session, *arguments, **more)
        if not training_loop.is_open() and _reduces(tf.compat.v1.get_default_graph()):
            look(_REMEDY)

    monitored_session._MonitoredSession.__init__ = watched_session


def _reduces(graph: tf.Graph) -> bool:
    whole = graph.as_graph_def()
    nodes = [*whole.node, *(node for f in whole.library.function for node in f.node_def)]
    return any(
        node.op.startswith(("HorovodAllreduce", "HorovodGroupedAllreduce")) for node in nodes
    )
