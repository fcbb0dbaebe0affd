"""A warm spare: a process that has imported TensorFlow and waits to become a worker.

Its shim (`spare_shim.py`) starts it with the descriptor of a socket and the modules to import.
It imports them, sends `ready`, and waits. Then it receives the worker's command, environment,
working directory, and standard streams; with these it runs the script as `python script.py` would.
It creates no TensorFlow context before, so the script can still set threads and determinism.
"""

import builtins
import gc
import importlib
import os
import runpy
import socket
import sys
from importlib.machinery import SourceFileLoader
from types import ModuleType, TracebackType
from typing import Any, NoReturn

from hvd_ft import native
from hvd_ft.job.bound_process import bind_worker
from hvd_ft.spares.messages import SpareOrder
from hvd_ft.spares.preload import is_in
from hvd_ft.system.channel import Channel
from hvd_ft.system.handoff import receive_order
from hvd_ft.system.say import say
from hvd_ft.worker.exit_reason import keep_last_words

EXIT_UNFIT = 3


def main() -> None:
    """Imports, waits and becomes a worker.

    Arguments: the socket's descriptor; what the script has first in sys.path; modules without which
    the spare is of no use, joined by commas; and modules that it imports if it can.
    """
    descriptor, directory, needed, *modules = sys.argv[1:]
    end = socket.socket(fileno=int(descriptor))
    gc.disable()  # imports make no garbage; collecting takes a fifth of their time
    _prepare(directory, needed.split(","), modules)
    gc.freeze()
    gc.enable()
    try:
        Channel(end).send({"report": "ready"})
        order, streams = receive_order(end, SpareOrder)
    except OSError:  # the shim is gone: this spare will not be needed
        os._exit(0)
    end.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(order.env)
    bind_worker(os.environ)
    os.chdir(order.cwd)
    _begin()
    _run(order.target, order.is_module, order.arguments, directory)


def _prepare(directory: str, needed: list[str], modules: list[str]) -> None:
    try:
        for name in needed:
            importlib.import_module(name)
    except Exception as error:
        _unfit(f"cannot import {name} ({error!r})")
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception:  # the script may handle the error
            continue
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if "." not in name and file and is_in(directory, name) and not _is_below(directory, file):
            _unfit(f"has imported {file}, the script would import {name} from {directory}")


def _is_below(directory: str, file: str) -> bool:
    return os.path.realpath(file).startswith(os.path.join(os.path.realpath(directory), ""))


def _unfit(reason: str) -> None:
    say(f"a spare {reason}; the job continues without spares")
    os._exit(EXIT_UNFIT)


def _begin() -> None:
    """Repeats the effects of importing hvd_ft in a worker, for which this process was too early."""
    keep_last_words()
    if "HOROVOD_FT_INJECT" in os.environ:
        native.failpoint(native.Point.START)


def _run(target: str, is_module: bool, arguments: list[str], directory: str) -> None:
    sys.argv = [target, *arguments]
    sys.path[0] = directory
    try:
        if is_module:
            runpy.run_module(target, run_name="__main__", alter_sys=True)
        else:
            _run_script(os.path.abspath(target))
    except BaseException:
        hook = sys.excepthook  # possibly the script's

        def from_the_script(
            kind: type[BaseException], error: BaseException, trace: TracebackType | None
        ) -> None:
            error.__traceback__ = _without_our_frames(trace)
            hook(kind, error, error.__traceback__)

        sys.excepthook = from_the_script
        raise  # so that Python handles SystemExit and KeyboardInterrupt as usual


class _ScriptLoader(SourceFileLoader):
    def path_stats(self, path: Any) -> NoReturn:
        raise OSError("Python keeps no bytecode of a script")


def _run_script(path: str) -> None:
    # runpy.run_path() would remove the module after the script's last line, while threads and
    # atexit handlers still need it.
    main = ModuleType("__main__")
    loader = _ScriptLoader("__main__", path)
    vars(main).update(__file__=path, __loader__=loader, __builtins__=builtins, __cached__=None)
    sys.modules["__main__"] = main
    loader.exec_module(main)


def _without_our_frames(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and _is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace


def _is_ours(file: str) -> bool:
    return file == __file__ or file.startswith(("<frozen runpy", "<frozen importlib"))


if __name__ == "__main__":
    main()
