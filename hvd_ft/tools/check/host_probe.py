"""What `hvdft check -H` starts on each host: reports its facts, and does the short test if asked.

It reads requests from its stdin and answers on its stdout, one JSON a line each, as mpirun passes
them on. It ends with its stdin, or when nothing has been asked for a while.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from hvd_ft.doctor.between_rules import Speed
from hvd_ft.doctor.facts import HostFacts
from hvd_ft.doctor.read_host import read_host
from hvd_ft.errors import HvdFtError
from hvd_ft.installed.environment import CHECKS
from hvd_ft.job.ports import listen
from hvd_ft.job.settings import Settings
from hvd_ft.mpi.listening import listen_address
from hvd_ft.system.json_text import read_json_as
from hvd_ft.system.say import answer

FACTS, CLOCK, SPEED, SEND, RECEIVE = KINDS = ("facts", "clock", "speed", "send", "receive")
_IDLE_SECONDS = 60


@dataclass(frozen=True)
class Request:
    """What the host is to do.

    Attributes:
        do: One of `KINDS`.
        ranks: That are to run there.
        hosts: All names, to choose the address at which it listens.
        address: Where it sends.
        port: There.
        token: By which the two ends of a link know each other.
    """

    do: str
    ranks: int = 1
    hosts: Sequence[str] = ()
    address: str = ""
    port: int = 0
    token: str = ""


@dataclass(frozen=True)
class Answer:
    """What has come of it.

    Attributes:
        facts: Of the host.
        address: At which it listens; "": at all of its addresses.
        port: There.
        time: That its clock shows.
        speed: As measured.
        rate: MB a second that have arrived.
        error: Why there is nothing; "": there is.
    """

    facts: HostFacts | None = None
    address: str = ""
    port: int = 0
    time: float = 0.0
    speed: Speed | None = None
    rate: float = 0.0
    error: str = ""


@dataclass
class _Host:
    """This host.

    Attributes:
        listener: For the short test; None: there is none yet.
    """

    listener: socket.socket | None = field(default=None)

    def do(self, request: Request) -> Answer:
        """Does what is asked.

        Raises:
            HvdFtError: it cannot.
        """
        from hvd_ft.tools.check import measure

        match request.do:
            case "clock":
                return Answer(time=time.time())
            case "speed":
                return Answer(speed=measure.measure_speed())
            case "send":
                return Answer(error=measure.send(request.address, request.port, request.token))
            case "receive" if self.listener:
                return Answer(rate=measure.receive(self.listener, request.token))
            case _:
                return self._facts(request)

    def _facts(self, request: Request) -> Answer:
        facts = read_host(request.ranks, os.environ, CHECKS.values())
        if len(request.hosts) < 2:
            return Answer(facts)
        settings = Settings.from_env(os.environ)
        address = listen_address(tuple(request.hosts), settings.interface)
        self.listener = listen(address, settings.ports)
        return Answer(facts, address, self.listener.getsockname()[1])


def main() -> None:
    """Answers requests until stdin ends."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy is imported
    host = _Host()
    signal.alarm(_IDLE_SECONDS)
    for line in iter(sys.stdin.buffer.readline, b""):
        signal.alarm(_IDLE_SECONDS)
        try:
            told = host.do(read_json_as(line, Request))
        except (HvdFtError, ValueError) as error:
            told = Answer(error=str(error))
        answer(json.dumps(asdict(told)))


def parse(line: bytes) -> Answer:
    """Reads an answer.

    Raises:
        ValueError: it is none.
    """
    return read_json_as(line, Answer)


def to_line(request: Request) -> bytes:
    """Returns a request as a line."""
    return f"{json.dumps(asdict(request))}\n".encode()


if __name__ == "__main__":
    main()
