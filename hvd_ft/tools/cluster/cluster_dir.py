"""A cluster's directory, and whether the cluster is alive.

`/run/hvdft-cluster/<name>/` (0700) holds `plan.json`, `hosts`, `bin/ssh`, `log`, the sockets
`switch`, `n0`, `n1` … and `alive`. The switch, and the process above each node's init, hold the
flock of `alive`, so it is free when all of them have ended. A process that makes or removes a
directory holds the flock of the directory above it.
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

from hvd_ft.errors import HvdFtError
from hvd_ft.system.file_lock import lock_in_time
from hvd_ft.system.json_text import read_json_as
from hvd_ft.tools.cluster.plan import Plan, check_name
from hvd_ft.tools.cluster.tools import python

BASE = Path("/run/hvdft-cluster")
_BASE_LOCK_TIMEOUT_SECONDS = 60.0  # starting or ending a cluster takes a few seconds


class ClusterDir:
    """The directory of the cluster `name`, which need not exist."""

    def __init__(self, name: str) -> None:
        check_name(name)
        self.name = name
        self.path = BASE / name
        self.log = self.path / "log"
        self.hosts = self.path / "hosts"
        self.bin = self.path / "bin"
        self.switch_socket = self.path / "switch"

    def exec_socket(self, node: str) -> Path:
        """Returns the socket by which commands enter a node."""
        return self.path / node

    def exists(self) -> bool:
        """Returns whether the directory exists."""
        return self.path.is_dir()

    def alive(self) -> bool:
        """Returns whether a process of the cluster is alive."""
        try:
            lock = os.open(self.path / "alive", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    @contextlib.contextmanager
    def created(self, plan: Plan) -> Iterator[int]:
        """Makes the directory; yields its lock's descriptor, for the cluster's processes.

        Raises:
            HvdFtError: The directory cannot be made.
        """
        try:
            self.path.mkdir(mode=0o700)
            lock = os.open(self.path / "alive", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _refused(self.path, error) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)  # others only probe the lock, so it is free at once
            self._fill(plan)
            yield lock
        except OSError as error:
            raise _refused(self.path, error) from None
        finally:
            os.close(lock)

    def _fill(self, plan: Plan) -> None:
        self.hosts.write_text(plan.hosts_file)
        self.hosts.chmod(0o644)  # it becomes /etc/hosts
        (self.path / "cgroup").mkdir()
        (self.path / "plan.json").write_text(json.dumps(dataclasses.asdict(plan)))
        self.bin.mkdir()
        ssh = self.bin / "ssh"
        command = shlex.join([*python("hvd_ft.tools.cluster.ssh"), self.name])
        ssh.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        ssh.chmod(0o700)

    def remove(self) -> None:
        """Removes the directory of a dead cluster."""
        shutil.rmtree(self.path, ignore_errors=True)

    def plan(self) -> Plan:
        """Returns the plan of the cluster.

        Raises:
            HvdFtError: The cluster is not up.
        """
        remedy = f"start it: hvdft cluster up{self.flag}"
        try:
            if not self.exists():
                raise HvdFtError(f"cluster {self.name} is not up; {remedy}")
            if not self.alive():
                raise HvdFtError(f"cluster {self.name} is dead: it was killed; {remedy}")
            return read_json_as((self.path / "plan.json").read_bytes(), Plan)
        except ValueError as error:
            raise HvdFtError(
                f"cluster {self.name}'s plan is damaged ({error}); make the cluster again: hvdft "
                f"cluster down{self.flag}, then up"
            ) from None
        except OSError as error:
            raise HvdFtError(
                f"cluster {self.name} cannot be read ({error.strerror}); run hvdft as root"
            ) from None

    @property
    def flag(self) -> str:
        """The option of `hvdft cluster …` that selects this cluster, for messages."""
        return "" if self.name == Plan.name else f" --name {self.name}"


@contextlib.contextmanager
def changing() -> Iterator[None]:
    """Lets one process at a time make or remove clusters.

    Raises:
        HvdFtError: Another process has held the lock for a minute.
    """
    try:
        BASE.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise _refused(BASE, error) from None
    descriptor = os.open(BASE, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        remedy = f"see who has {BASE} (fuser {BASE}) and end it"
        other = "another hvdft cluster up or down"
        lock_in_time(descriptor, _BASE_LOCK_TIMEOUT_SECONDS, other, remedy)
        yield
    finally:
        os.close(descriptor)


def _refused(path: Path, error: OSError) -> HvdFtError:
    return HvdFtError(f"cannot make {path} ({error.strerror}); see that it can be written to")
