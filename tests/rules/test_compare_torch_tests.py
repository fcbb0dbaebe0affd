"""The comparison of PyTorch's tests on Gloo and on hvd_ft: how its ranks and jobs are driven."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    for name in ("compare_horovod_tests", "compare_torch_tests"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import compare_torch_tests

    return compare_torch_tests


@pytest.mark.parametrize("backend", ["gloo", "hvd_ft"])
def test_after_a_test_that_dies_the_next_ones_run_in_new_processes(
    compare: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, backend: str
) -> None:
    jobs: list[list[str]] = []

    def start(command: Sequence[str], environment: dict[str, str], _: Any) -> None:
        tests = list(command[command.index("--tests") + 1 :])
        folder = Path(command[command.index("--folder") + 1])
        jobs.append(tests)
        assert (environment["WORLD_SIZE"], environment["BACKEND"]) == ("2", "gloo")
        assert environment["HOROVOD_FT_MAX_FAILURES"] == "0"
        for test in tests:
            for rank in range(2):
                dies = test == "test_b" and rank == 1
                compare.note(folder, rank, test, "unfinished" if dies else "passed")
            if test == "test_b":
                return

    monkeypatch.setattr(compare, f"start_{backend}", start)
    options = argparse.Namespace(num_proc=2, seconds=1.0)
    tests = ["test_a", "test_b", "test_c", "test_d"]
    found = compare.run(backend, tests, tmp_path / "log", options)
    assert found == {t: "unfinished" if t == "test_b" else "passed" for t in tests}
    assert jobs == [tests, ["test_c", "test_d"]]


class Store:
    """Has what ranks have set; who waits for more waits too long."""

    def __init__(self, **values: bytes) -> None:
        self.values = values

    def wait(self, keys: Sequence[str], _: Any) -> None:
        if not {key.replace("/", "_") for key in keys} <= set(self.values):
            raise RuntimeError("timeout")

    def get(self, key: str) -> bytes:
        return self.values[key.replace("/", "_")]


@pytest.mark.parametrize(
    ("store", "failed"),
    [
        (Store(t_0=b"passed", t_1=b"skipped"), False),
        (Store(t_0=b"passed", t_1=b"failed"), True),
        (Store(t_0=b"passed"), True),
    ],
)
def test_a_rank_that_fails_or_does_not_end_stops_all(
    compare: ModuleType, store: Store, failed: bool
) -> None:
    assert compare.failed_somewhere(store, "t", 2, 1.0) is failed


def test_who_asks_for_gloo_gets_hvd_ft(
    compare: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    dist = SimpleNamespace(
        init_process_group=lambda *a, **more: asked.append((a, more)),
        new_group=lambda *a, **more: asked.append((a, more)),
    )
    monkeypatch.setitem(sys.modules, "hvd_ft.torch.distributed", ModuleType("fake"))
    compare.give_hvd_ft(dist)
    dist.init_process_group(backend="gloo", init_method="file:///x", rank=0, world_size=2)
    dist.new_group([0], backend="gloo")
    dist.new_group([1], backend="nccl")
    assert asked == [
        (("hvd_ft",), {"timeout": None}),
        (([0],), {"backend": "hvd_ft"}),
        (([1],), {"backend": "nccl"}),
    ]


def test_each_exception_is_in_the_documents(compare: ModuleType) -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    for test, reason in compare.EXCEPTIONS.items():
        assert f"| `{test}` | {reason} |" in page, test
