"""Results of a measurement are published at its end, and also if it is cut short."""

import contextlib
from collections.abc import Callable, Iterator

from hvd_ft.errors import HvdFtError
from hvd_ft.system.say import say
from hvd_ft.system.stop_signals import raised_stop_signal


@contextlib.contextmanager
def published(publish: Callable[[], None], any_results: Callable[[], object]) -> Iterator[None]:
    """Publishes results at the end of the `with` block, or partial ones if it is cut short.

    Args:
        publish: prints and writes them.
        any_results: returns whether there is anything to publish when the block is cut short.

    Raises:
        SystemExit: A stop signal, as that of a time limit, was received.
    """
    with raised_stop_signal():
        try:
            yield
        except BaseException:
            if any_results():
                say("this run was cut short; what was measured until then stays:")
                with contextlib.suppress(HvdFtError):  # why it was cut short is what is said
                    publish()
            raise
    publish()
