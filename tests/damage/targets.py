"""What is fuzzed: every reader of what a stranger may send or a damaged disk may hold.

A target takes any bytes. It may refuse them by the errors that its callers handle; any other
exception, or a hang, is a finding.
"""

import contextlib
import io
import json
import os
import socket
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import ml_dtypes
import msgspec
import numpy as np
from rich.console import Console

from hvd_ft.agent import beginning, report_writer
from hvd_ft.checkpoint import contents as layout
from hvd_ft.checkpoint import manifest
from hvd_ft.checkpoint.catalogue import MANIFEST, look_at
from hvd_ft.checkpoint.contents import RankArrays
from hvd_ft.checkpoint.tensors import write_tensors
from hvd_ft.checkpointer import completion, drain, unwritten
from hvd_ft.checkpointer.share import Prints
from hvd_ft.doctor.between_rules import Speed
from hvd_ft.doctor.facts import HostFacts
from hvd_ft.errors import HvdFtError
from hvd_ft.job import drills, page_messages, proof
from hvd_ft.job import lifeline_messages as lines
from hvd_ft.job.member_file import read_members
from hvd_ft.job.peer_file import PeerFile
from hvd_ft.launcher import tuning_file
from hvd_ft.launcher.config_file import config_words
from hvd_ft.launcher.host_file import read_host_file
from hvd_ft.launcher.shared_record import SharedRecord
from hvd_ft.members.hosts import parse_hosts, parse_placement
from hvd_ft.members.leadership import Record
from hvd_ft.members.membership import Membership
from hvd_ft.native.types import Divergence, Memory, Snapshots
from hvd_ft.reports import report
from hvd_ft.reports.pieces import pieces_of
from hvd_ft.reports.trace import trace_of
from hvd_ft.schedulers.allocation import read_allocation
from hvd_ft.schedulers.host_ranges import expand_counts, expand_hosts
from hvd_ft.shim import messages
from hvd_ft.shim.starter import ShimWanted
from hvd_ft.spares.messages import SpareOrder, parse_command, parse_end
from hvd_ft.status import flight_text
from hvd_ft.status.flight_record import FlightRecord, Missing, Reason
from hvd_ft.system.channel import Channel
from hvd_ft.system.handoff import receive_order
from hvd_ft.system.json_text import read_json_as
from hvd_ft.system.wire import HEADER, OneFrame, pack, unpack, unpack_as
from hvd_ft.tools.check import host_probe
from hvd_ft.tools.cluster.exec_server import ExecEnded, ExecOrder
from hvd_ft.worker.shared_contents import (
    Part,
    Place,
    contents,
    fingerprints,
    freeze,
    thawed,
)
from hvd_ft.worker.snapshot_format import decode as decode_snapshot
from hvd_ft.worker.snapshot_format import encode as encode_snapshot

Reader = Callable[[bytes], object]
_KEY = "k" * 64
_folders: list[str] = []


@dataclass(frozen=True)
class Target:
    """A reader.

    Attributes:
        read: takes any bytes.
        seeds: sound inputs.
        refusals: the errors by which it may refuse, as its callers handle these.
    """

    read: Reader
    seeds: Sequence[bytes]
    refusals: tuple[type[BaseException], ...] = (HvdFtError,)

    def try_one(self, data: bytes) -> None:
        """Reads one input; raises what is a finding."""
        with contextlib.suppress(*self.refusals):
            self.read(data)


def remove_folders() -> None:
    """Removes what the targets have made."""
    for folder in _folders:
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(folder)


def _file(read: Callable[[str], object], name: str = "file") -> Reader:
    """Returns a reader of bytes by way of a file of that name."""
    folder = tempfile.mkdtemp(dir=os.environ.get("TMPDIR", "/dev/shm"), prefix="hvdft-fuzz-")
    _folders.append(folder)
    path = os.path.join(folder, name)

    def from_bytes(data: bytes) -> object:
        with open(path, "wb") as file:
            file.write(data)
        try:
            return read(path)
        finally:
            os.unlink(path)

    return from_bytes


def _text(read: Callable[[str], object]) -> Reader:
    return lambda data: read(os.fsdecode(data))


def _read_flight_record(path: str) -> None:
    """As `hvdft report` does with a flight record."""
    console = Console(file=io.StringIO(), width=100)
    for piece in flight_text.pieces(flight_text.read_record(path)):
        console.print(piece)


def _first_message(data: bytes) -> object:
    """As the launcher and a shim read what comes before the proof."""
    frame = OneFrame(proof.MOST_BYTES)
    body = None
    while body is None and frame.wants <= len(data):
        size = frame.wants
        body, data = frame.add(data[:size]), data[size:]
    if body is None:
        return None
    for read in (proof.claim, proof.check_confirmation):
        with contextlib.suppress(ValueError):
            read(_KEY, body, "n")
    return proof.confirm(_KEY, body, "n")


def _stream(parse: Callable[[dict[str, object]], object]) -> Reader:
    """Reads a channel to its end."""

    def read(data: bytes) -> None:
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                theirs.setblocking(False)
                theirs.send(data[: 1 << 16])
            channel = Channel(ours)
            while (found := channel.receive()) is not None:
                for message in found:
                    parse(message)

    return read


def _order(kind: type, count: int) -> Reader:
    """Reads an order from a socket."""

    def read(data: bytes) -> object:
        ours, theirs = socket.socketpair()
        with ours, open(os.devnull, "rb") as file:
            with theirs:
                header, body = data[: HEADER.size] or b" ", data[HEADER.size : 1 << 16]
                socket.send_fds(theirs, [header], [file.fileno()] * count)
                theirs.sendall(body)
            order, descriptors = receive_order(ours, kind, count)
            for descriptor in descriptors:
                os.close(descriptor)
            return order

    return read


def _read_report(path: str) -> None:
    """As `hvdft report` shows it, but for the drawing."""
    told = report.read_report(path)
    list(pieces_of(told))
    trace_of(told)


def _allocations(data: bytes) -> None:
    text = os.fsdecode(data)
    of_each: list[dict[str, str]] = [
        {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[0-1]", "SLURM_TASKS_PER_NODE": text},
        {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": text, "SLURM_TASKS_PER_NODE": "2"},
        {"LSB_JOBID": "1", "LSB_MCPU_HOSTS": text, "LSB_HOSTS": text},
        {"PBS_NODEFILE": "f", "PBS_JOBID": "1"},
        {"PE_HOSTFILE": "f", "JOB_ID": "1"},
        {"I_MPI_HYDRA_HOST_FILE": "f"},
    ]
    for environ in of_each:
        with contextlib.suppress(HvdFtError):
            read_allocation(environ, lambda _: text, lambda _: True)


def _lines(*facts: dict[str, object]) -> bytes:
    return "".join(f"{json.dumps(each)}\n" for each in facts).encode()


_EVENT = {"time_ns": 2, "rank": 1, "incarnation": 1, "detail": 0}
_SLOW = {"ranks": [1], "host": "n0", "ended": False, "text": "rank 1 is slow", "late": 0.8}
_SLOW |= {"seconds": 20.5, "wait": 0.25, "step_seconds": 0.1, "causes": ["it is throttled"]}
_REPORT = _lines(
    {"job": "j", "size": 2, "hosts": ["n0", "n0"], "command": ["a"], "date": "2026"},
    {**_EVENT, "type": "FAILED"},
    {**_EVENT, "type": "STARTED"},
    {**_EVENT, "type": "CAUSE", "text": "lack of memory"},
    {**_EVENT, "type": "REPLACED", "ranks": [1], "host": "n1", "by": "n3", "epoch": 1},
    {**_EVENT, "type": "SLOW", **_SLOW},
    {**_EVENT, "type": "OPS", "ops": [[7, 0, 3, 4, 9], [8, 2, None, None, 7]]},
    {**_EVENT, "type": "DIVERGED", "divergence": asdict(Divergence("v", 3, (1,), 2, 1))},
    {"exit_code": 0, "ranks": []},
)
_TABLES = _lines(
    {"job": "j"},
    {
        "exit_code": 0,
        "fusion_threshold": 1 << 26,
        "nodes": [{"first_rank": 0, "most": asdict(Memory(*range(11)))}],
        "ranks": [{"rank": 0, "step_bytes": 7, "snapshots": asdict(Snapshots(1, 2, 3, 4, 5))}],
    },
)
_SHARE = manifest.Share(
    0,
    [manifest.Part(0, 0, 3, 7, 9, ["rank-0.safetensors"])],
    {"rank-0.safetensors": manifest.File(5, "0" * 32)},
    [manifest.Messages(0, 1, 2)],
    [],
    0.5,
    0.1,
)
_MANIFEST = manifest.Manifest(
    format=manifest.FORMAT,
    version=manifest.VERSION,
    software="hvd_ft",
    job="j",
    run="j",
    begun=1,
    written=2.0,
    size=1,
    nodes=1,
    apart=False,
    loop=0,
    step=3,
    cut=7,
    shares=[_SHARE],
)
_TUNING = tuning_file.Tuning(
    tuning_file.Place(["n0:4"], 4, {"n0": 4}, "tcp", {"hvd_ft": "0.2.0"}),
    {"HOROVOD_FT_TOPOLOGY": "flat"},
    "2026-11-26",
    {"4096": (2e-4, 1e-4)},
)
_RECORD = Record("j", 1, "n0", 5, 4.0, False, 2, "0;n0:2@0")
_BEGUN = {"begun": 1, "resumed": {"path": "/c", "run": "r", "loops": [0]}}
_STATUS = lines.ShimStatus(0, "n0/1", 0, False)
_FACTS = lines.NodeFacts(0, 1, "n0", [(1, 0, "mirror", 1, 2, 3)], "op 3")
_OF_SHIMS = [_STATUS, lines.Answer(7, _FACTS), lines.Interrupted(), lines.ForReport({"rank": 1})]
_OF_SHIMS += [lines.FlightWanted("stall", "why"), lines.FlightPart(1, {"stacks": "a"})]
_FLIGHT = FlightRecord(
    job="j",
    date="2026-01-01",
    reasons=[Reason(kind="stall", text="why")],
    nodes=[],
    stacks={"0": "a", "1": "b"},
    missing=[Missing(rank=2, host="n1", why="late")],
)
_OF_LAUNCHER = [
    lines.FlightAsk(1),
    lines.KillWorker(),
    lines.Ask(7),
    lines.Stop(15),
    lines.Note({"rank": 1}),
    lines.Over(True),
]
_LINK = page_messages.LinkStatus(
    source="n0", dest="n1", kind="ring", state="open", transfers=3, stalled_seconds=0.0
)
_TO_PAGE = [
    page_messages.Follow("/dev/shm/j"),
    page_messages.Links([_LINK]),
    page_messages.KillAnswer(1, "why"),
]
_SPARE = {"target": "a.py", "is_module": False, "arguments": [], "env": {"A": "b"}, "cwd": "/"}
_EXEC = ExecOrder(["true"], {"A": "b"}, "/", True)
_HOSTS = [b"n0:4,n1:2", b"4-2", b"n[01-03,7],m2", b"4(x2),3", b"n0 4\nn1 4\n"]
_ORDERS = [
    messages.Start("worker", ["a"], {"A": "b"}, "/", False),
    messages.Limit(2.0, "why"),
    messages.Beat(_FACTS),
]
_REPORTS = [messages.Exited("worker", 1, 2, 3), messages.Reattached(1, None, ["worker"])]
_ANSWER = json.dumps(asdict(host_probe.Answer(HostFacts("n0"), "::", 1, 2.0, Speed(1.0, 2.0))))
_TAKEOVER = messages.Takeover(1, 20.0, "h:1:k", None)


_CONFIG = b"controller: mpi\nparams:\n  fusion_threshold_mb: 32\nautotune: {enabled: true}\n"


def targets() -> dict[str, Target]:
    """Returns all of them, by name."""
    return {**_sockets(), **_files(), **_words()}


def _sockets() -> dict[str, Target]:
    def stream(parse: Callable[..., object], *seeds: dict[str, object]) -> Target:
        return Target(_stream(parse), [pack(seed) for seed in seeds], (ValueError,))

    def order(kind: type, count: int, seed: dict[str, object]) -> Target:
        return Target(_order(kind, count), [pack(seed)], (OSError,))

    claim = proof.claim(_KEY, b'{"nonce":"n"}', "n")
    before = [pack(claim), pack({"nonce": "n"}), pack({"proof": "0"})]
    answers = [b'{"code":0,"error":null}', b'{"error":"no such file"}']
    return {
        "life-line before the proof": Target(_first_message, before, (ValueError,)),
        "life-line": stream(lines.parse_from_shim, *map(lines.to_wire, _OF_SHIMS)),
        "orders of a launcher": stream(
            lines.parse_from_launcher, *map(lines.to_wire, _OF_LAUNCHER)
        ),
        "orders to a shim": stream(messages.parse_order, *map(messages.to_wire, _ORDERS)),
        "reports of a shim": stream(messages.parse_report, *map(messages.to_wire, _REPORTS)),
        "launcher to page": Target(
            page_messages.parse_to_page, list(map(page_messages.to_packet, _TO_PAGE)), (ValueError,)
        ),
        "page to launcher": Target(
            page_messages.parse_from_page,
            [page_messages.to_packet(page_messages.Kill(1, 2))],
            (ValueError,),
        ),
        "takeover": order(messages.Takeover, 4, messages.to_wire(_TAKEOVER)),
        "starter": order(ShimWanted, 4, {"environment": {"A": "b"}, "directory": "/"}),
        "spare": order(SpareOrder, 3, _SPARE),
        "end of a spare": stream(parse_end, {"status": 9, "time_ns": 5}),
        "commands to a spare": stream(parse_command, {"do": "go"}, {"do": "kill", "signal": 9}),
        "exec server": order(ExecOrder, 3, msgspec.to_builtins(_EXEC)),
        "answer of an exec server": Target(
            lambda data: unpack_as(data, ExecEnded), answers, (ValueError,)
        ),
        "answer of a host": Target(host_probe.parse, [_ANSWER.encode()], (ValueError,)),
        "a message": Target(unpack, [b'{"a":[1,{"b":null}]}'], (ValueError,)),
    }


def _files() -> dict[str, Target]:
    def peers(path: str) -> object:
        return PeerFile(os.path.dirname(path), "j")._current(0)

    def record(path: str) -> object:
        return SharedRecord(os.path.dirname(path), "j").read()

    values = {"a": 1, "b": [1, None, "c"], "d": {"e": 0.5}}
    return {
        "flight record": Target(_file(_read_flight_record), [msgspec.json.encode(_FLIGHT)]),
        "report": Target(_file(_read_report), [_REPORT, _TABLES]),
        "older report": Target(_file(lambda path: report_writer._written(path, "j")), [_REPORT]),
        "manifest": Target(
            _file(lambda path: look_at(Path(path).parent), MANIFEST), [manifest.encode(_MANIFEST)]
        ),
        "tuning file": Target(
            _file(lambda path: tuning_file.read(path).change),
            [tuning_file.to_text(_TUNING).encode()],
        ),
        "members": Target(
            _file(lambda path: read_members(os.path.dirname(path)), "members"),
            [b"1;n0:4@0,n3:2@1", b"2;n0:4@0,n0:2@2-"],
        ),
        "peers": Target(
            _file(peers, "hvdft-j.peers"), [b'{"job":"j","generation":0,"ranks":{"0":[1]}}']
        ),
        "record of a leader": Target(
            _file(record, "hvdft-j.leader"), [json.dumps(asdict(_RECORD)).encode()], (OSError,)
        ),
        "host file": Target(_file(read_host_file), [b"# ours\nn0 slots=4\nn1:2\n"]),
        "config file": Target(_file(lambda path: list(config_words(path))), [_CONFIG]),
        "how a job began": Target(_file(beginning._read), [json.dumps(_BEGUN).encode()]),
        "snapshot": Target(
            lambda data: decode_snapshot(memoryview(data)),
            [b"".join(encode_snapshot({}, values))],
        ),
        **_of_checkpoints(),
    }


def _of_checkpoints() -> dict[str, Target]:
    def said(path: str) -> object:
        with contextlib.redirect_stderr(io.StringIO()):
            return drain._said(0, Path(path))

    def arrays(path: str) -> None:
        """As a rank that continues from it, and as an export."""
        part = manifest.Part(0, 0, 3, 7, 9, [os.path.basename(path)] * 2)
        found = RankArrays(Path(path).parent, part)
        dict(found)
        thawed(found.frozen_values)

    def snapshot(data: bytes) -> None:
        """A rank's, and what its node shares."""
        own, stripe = memoryview(data)[: len(own_part)], memoryview(data)[len(own_part) :]
        dict(contents(own, [stripe], place).arrays)

    place = Place(7, 9)
    kept, values = freeze({"a": np.arange(8), "b": np.ones(3)}, {"step": 3})
    prints = fingerprints(kept, place.cut, place.position)
    part = Part(kept, values, ["a"], 0, 1, prints=prints)
    room = np.zeros(part.bytes, np.uint8)
    list(part.write(room))
    own_part = room[: part.stripe].tobytes()
    return {
        "word of a node": Target(_file(said), [b"[[0,9],[0,7]]", b"null"]),
        "share of a node": Target(
            _file(lambda path: completion._read(Path(path))), [msgspec.json.encode(_SHARE)]
        ),
        "fingerprints of a node": Target(
            lambda data: read_json_as(data, Prints),
            [b'{"0":{"1":"float32 [2] 0f"}}'],
            (ValueError,),
        ),
        "arrays of a rank": Target(_file(arrays), [_tensors()]),
        "shared snapshot": Target(snapshot, [room.tobytes()]),
        "what was not written": Target(
            _file(lambda path: unwritten.noted(Path(path).parent), "unwritten"), [b"3 were not"]
        ),
    }


def _tensors() -> bytes:
    """Returns a file of a rank, with a type of its own, that is its node's file too."""
    values = np.frombuffer(b"".join(encode_snapshot({}, {"step": 3})), np.uint8)
    half = np.ones((2, 2), ml_dtypes.bfloat16)
    own, order = layout.of_rank({"a": np.ones(3, np.float32), "h": half}, values, ["a", "h"])
    _, numbers = layout.of_node({"a": np.ones(1)}, ["a", "h"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file")
        write_tensors(path, own, {**order, **numbers})
        return path.read_bytes()


def _words() -> dict[str, Target]:
    refused = (HvdFtError, ValueError)
    some = [b"rank=2,step=30,signal=KILL", b"leave=2-3,step=4", b"agent=1,op=9", b"mpirun,op=2"]
    return {
        "membership": Target(_text(Membership.parse), [b"1;n0:4@0,n3:2@1-"], (ValueError,)),
        "drills": Target(_text(drills.parse), some),
        "hosts": Target(_text(lambda text: parse_hosts(text, 0)), _HOSTS),
        "placement": Target(_text(parse_placement), _HOSTS),
        "host ranges": Target(_text(expand_hosts), _HOSTS, refused),
        "counts": Target(_text(expand_counts), _HOSTS, refused),
        "allocations": Target(_allocations, _HOSTS),
    }
