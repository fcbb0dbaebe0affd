"""The system programs that a cluster needs: ip, tc, unshare, nsenter and mount."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

from hvd_ft.errors import HvdFtError
from hvd_ft.tools.cluster.plan import Plan, shaping

# The parent of the new process waits for its end, and when killed takes it along.
UNSHARE = (
    *("unshare", "--net", "--uts", "--mount", "--ipc"),
    *("--pid", "--mount-proc", "--fork", "--kill-child"),
)
_PACKAGES = {
    "ip": "iproute2",
    "tc": "iproute2",
    "mount": "mount",
    "nsenter": "util-linux",
    "unshare": "util-linux",
}
_KEPT = ("PYTHONPATH", "LD_LIBRARY_PATH")
_LIMIT_SECONDS = 10.0


def program_path() -> str:
    """Returns a PATH on which ip and tc are found, which a user's often is not."""
    return f"{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin"


def python(module: str) -> list[str]:
    """Returns the beginning of a command line that runs a module of hvd_ft.

    The command imports no module from the directory in which it runs.
    """
    return [sys.executable, "-P", "-m", module]


def clean_environment() -> dict[str, str]:
    """Returns the environment of the cluster's own processes: PATH and PYTHONPATH."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {**kept, "PATH": program_path(), "LC_ALL": "C.UTF-8"}


def run(*command: str, text: str = "") -> None:
    """Runs a program to its end, which takes milliseconds.

    Args:
        command: Program and arguments.
        text: Its stdin.

    Raises:
        HvdFtError: The program fails; has the first line of its output.
    """
    try:
        subprocess.run(
            command,
            input=text,
            text=True,
            check=True,
            capture_output=True,
            timeout=_LIMIT_SECONDS,
            env=clean_environment(),
        )
    except subprocess.TimeoutExpired:
        raise HvdFtError(
            f"{command[0]} takes longer than {_LIMIT_SECONDS:.0f} s; see what else runs here"
        ) from None
    except subprocess.CalledProcessError as error:
        said = [*filter(None, error.stderr.strip().splitlines()), f"exit code {error.returncode}"]
        raise HvdFtError(f"{command[0]} fails: {said[0]}") from None
    except OSError as error:
        raise HvdFtError(f"{command[0]} cannot be run: {error.strerror}") from None


def batch(program: str, lines: Sequence[str], pid: int | None = None) -> None:
    """Runs several commands of ip or tc in one network namespace.

    Args:
        program: `ip` or `tc`.
        lines: The commands.
        pid: A process in that namespace; None: this process.

    Raises:
        HvdFtError: A command fails; those before it have taken effect.
    """
    inside = ["nsenter", f"--net=/proc/{pid}/ns/net"] if pid is not None else []
    if lines:
        run(*inside, program, "-batch", "-", text="".join(f"{line}\n" for line in lines))


def check(plan: Plan) -> None:
    """Checks that such a cluster can be made here, by trying it in temporary namespaces.

    Raises:
        HvdFtError: It cannot be made.
    """
    check_root()
    for program, package in _PACKAGES.items():
        if shutil.which(program, path=program_path()) is None:
            raise HvdFtError(
                f"{program} was not found, and a cluster needs it; "
                f"install it (Debian: apt-get install {package})"
            )
    links = "ip link add name try0 type bridge && ip link add name try1 type veth peer name try2"
    try:
        run(*UNSHARE, "sh", "-c", links)
        _try_shaping(Plan(rate=plan.rate), links)
    except HvdFtError as error:
        raise HvdFtError(
            f"this machine refuses what a cluster is made of ({error}); run it where root has "
            "CAP_NET_ADMIN and CAP_SYS_ADMIN and the kernel has bridge, veth and tbf"
        ) from None
    try:
        _try_shaping(Plan(delay=plan.delay), links)
    except HvdFtError as error:
        raise HvdFtError(
            f"--delay {plan.delay}: this kernel has no netem ({error}); leave --delay out, or load "
            "the module sch_netem"
        ) from None


def check_root() -> None:
    """Raises HvdFtError unless this process is root's."""
    if os.geteuid() != 0:
        raise HvdFtError("hvdft cluster makes network namespaces and mounts; run it as root")


def _try_shaping(plan: Plan, links: str) -> None:
    for line in shaping(plan, "try1", delayed=True):
        run(*UNSHARE, "sh", "-c", f"{links} && tc {line}")
