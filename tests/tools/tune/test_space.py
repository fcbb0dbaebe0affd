"""What is tried depends on the hosts, and on what the user has set."""

import subprocess
from collections.abc import Mapping, Sequence

import pytest

from hvd_ft.job.settings import ENDPOINT_CHOICES
from hvd_ft.launcher.tuning_file import TUNABLE, check_settings
from hvd_ft.members.hosts import Host
from hvd_ft.tools.tune import space
from hvd_ft.tools.tune.space import Machine

FI_INFO = """\
provider: tcp
    fabric: 10.0.0.0/8
    domain: eth0
    version: 203.0
    type: FI_EP_RDM
provider: verbs;ofi_rxm
    fabric: IB
provider: tcp;ofi_rxm
    fabric: 10.0.0.0/8
provider: shm
    fabric: shm
"""


def names(
    *,
    members: int = 2,
    most_ranks: int = 4,
    providers: Sequence[str] = ("tcp",),
    interfaces: Sequence[str] = ("eth0",),
    provider: str = "tcp",
    environ: Mapping[str, str] | None = None,
) -> list[str]:
    machine = Machine(members, most_ranks, providers, interfaces, provider, environ or {})
    return [knob.name for knob in space.knobs(machine)]


@pytest.fixture(autouse=True)
def ethernet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "fast_devices", list)


def test_what_can_matter_is_tried() -> None:
    first, within = ["endpoints", "connections"], ["node-segment", "node-window"]
    rest = ["window", "segment", "gather", "yield", "nap", "binding"]
    all_ = ["topology", *first, *within, *rest]
    assert names() == all_
    assert names(most_ranks=1) == [*first, *rest]
    assert names(members=1) == ["topology", *within, "binding"]
    assert names(providers=("tcp", "psm3")) == ["provider", *all_]
    assert names(interfaces=("eth0", "ib0")) == ["interface", *all_]
    at = all_.index("yield")
    assert names(members=4) == [*all_[:at], "nodes-below", *all_[at:]]
    assert "interface" not in names(interfaces=("eth0", "ib0"), provider="psm3")


def test_trees_of_nodes_are_tried_that_differ() -> None:
    def widths(members: int) -> list[str]:
        machine = Machine(members, 4, (), (), "tcp", {})
        found = {knob.name: knob.values for knob in space.knobs(machine)}
        return list(found.get("nodes-below", ()))

    assert widths(3) == []  # there is one tree
    assert widths(4) == ["2", "32"]
    assert widths(8) == ["2", "4", "32"]
    assert widths(128) == ["2", "4", "8", "16", "32", "64"]


def test_what_the_user_has_set_is_not_tried() -> None:
    assert "gather" not in names(environ={"HOROVOD_FT_GATHER_BYTES": "4K"})
    assert "binding" not in names(environ={"I_MPI_PIN": "0"})
    # What fits one segment is too small a window for another.
    assert "node-window" not in names(environ={"HOROVOD_FT_NODE_SEGMENT_BYTES": "512K"})
    assert "node-segment" not in names(environ={"HOROVOD_FT_NODE_WINDOW_BYTES": "256K"})
    both = {"environ": {"I_MPI_OFI_PROVIDER": "tcp"}, "providers": ("tcp", "psm3")}
    assert "provider" not in names(**both)  # type: ignore[arg-type]


def test_every_value_may_stand_in_a_file_and_the_default_is_one_of_them() -> None:
    machine = Machine(128, 4, ("tcp", "verbs;ofi_rxm"), ("eth0", "ib0"), "tcp", {})
    knobs = space.knobs(machine)
    assert [knob.variable for knob in knobs] == [
        *("FI_PROVIDER", "FI_TCP_IFACE", "HOROVOD_FT_TOPOLOGY", "HOROVOD_FT_ENDPOINTS"),
        *("HOROVOD_FT_CONNECTIONS", "HOROVOD_FT_NODE_SEGMENT_BYTES"),
        *("HOROVOD_FT_NODE_WINDOW_BYTES", "HOROVOD_FT_TRANSFERS"),
        *("HOROVOD_FT_RING_SEGMENT_BYTES", "HOROVOD_FT_GATHER_BYTES"),
        "HOROVOD_FT_NODES_BELOW",
        *("HOROVOD_FT_YIELD_SECONDS", "HOROVOD_FT_NAP_SECONDS", "HOROVOD_FT_BIND_TO"),
    ]
    assert {knob.variable for knob in knobs} == set(TUNABLE)
    for knob in knobs:
        assert knob.default in knob.values and len(set(knob.values)) == len(knob.values)
        for value in filter(None, knob.values):
            check_settings({knob.variable: value})
    [endpoints] = [knob for knob in knobs if knob.name == "endpoints"]
    assert tuple(endpoints.values) == ENDPOINT_CHOICES


def test_defaults_are_those_of_the_settings() -> None:
    from hvd_ft.job.settings import Settings

    machine = Machine(4, 4, (), (), "tcp", {})
    numbers = {knob.variable: knob.default for knob in space.knobs(machine)}
    defaults, given = Settings(), Settings.from_env(numbers)
    for name in (
        *("topology", "endpoints", "ring_segment_bytes", "gather_bytes"),
        *("connections", "node_segment_bytes", "node_window_bytes", "transfers", "nodes_below"),
        *("yield_seconds", "nap_seconds"),
    ):
        assert getattr(defaults, name) == getattr(given, name), name


def test_providers_are_those_that_libfabric_offers() -> None:
    assert space.offered(FI_INFO) == ["tcp", "verbs;ofi_rxm"]
    assert space.offered("") == []


def test_a_host_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object, **__: object) -> "subprocess.CompletedProcess[str]":
        return subprocess.CompletedProcess([], 0, FI_INFO, "")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(space.psutil, "net_if_stats", lambda: {"a": Up(True), "b": Up(False)})
    address = [Address("AF_INET", "10.0.0.1")]
    monkeypatch.setattr(space.psutil, "net_if_addrs", lambda: {"a": address, "b": address})
    machine = space.look((Host("n0", 2), Host("n1", 4), Host("n2", 4)), 5, {})
    assert (machine.members, machine.most_ranks) == (2, 3)
    assert machine.interfaces == ["a"]
    flat = space.look((), 3, {"HOROVOD_FT_TOPOLOGY": "flat"})
    assert (flat.members, flat.most_ranks, flat.interfaces) == (3, 3, ())
    assert space.look((), 3, {}).members == 1


class Up:
    def __init__(self, isup: bool) -> None:
        self.isup = isup


class Address:
    def __init__(self, family: str, address: str) -> None:
        self.family = type("Family", (), {"name": family})
        self.address = address
