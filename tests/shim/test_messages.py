"""What agent and shim say comes over as it was said, and what is none of theirs is refused."""

import json
from typing import Any, get_args

import msgspec
import pytest

from hvd_ft.job.lifeline_messages import NodeFacts
from hvd_ft.shim import messages
from hvd_ft.shim.messages import FoundWorker, Reattached, Start, parse_order, parse_report, to_wire

VALUES: dict[Any, Any] = {
    int: 7,
    float: 2.5,
    str: "a\udcff",  # as in an environment that is no UTF-8
    bool: True,
    float | None: None,
    str | None: None,
    list[str]: ["x", ""],
    list[int]: [1, 2],
    dict[str, str]: {"A": "b\udcff"},
    dict[str, Any]: {"type": "STACKS", "rank": 1},
    NodeFacts | None: NodeFacts(1, 2, "n0", [(2, 0, "mirror", 1, 2, 3)], "op 3"),
    FoundWorker | None: FoundWorker(2, 9, False, (9, 44)),
}


@pytest.mark.parametrize("kind", [*get_args(messages.Order), *get_args(messages.Report)])
def test_each_comes_over_the_wire_as_it_was_said(kind: Any) -> None:
    said = kind(*(VALUES[field.type] for field in msgspec.structs.fields(kind)))
    wire = json.loads(json.dumps(to_wire(said)))
    parse = parse_order if kind in get_args(messages.Order) else parse_report
    assert parse(wire) == said


@pytest.mark.parametrize(
    ("wire", "reason"),
    [
        ({}, "missing required field `do`"),
        ({"do": "Burn"}, "Invalid value 'Burn'"),
        ({"do": "Kill", "name": "worker"}, "missing required field `signal`"),
        ({"do": "Kill", "name": "worker", "signal": "9"}, "Expected `int`, got `str`"),
        ({"do": "Start", "name": "x", "argv": [1]}, "argv"),
    ],
)
def test_what_is_no_order_is_refused_by_name(wire: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match="a message that is none of ours: ") as error:
        parse_order(wire)
    assert reason in str(error.value)


def test_an_order_is_no_report() -> None:
    with pytest.raises(ValueError, match="report"):
        parse_report(to_wire(Start("x", [], {}, "/", False)))


def test_a_new_agent_learns_that_there_is_no_worker() -> None:
    assert parse_report(to_wire(Reattached(5, None, []))) == Reattached(5, None, [])
