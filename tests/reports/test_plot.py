from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex
from synthetic import KILLED_NS, one_failure

from hvd_ft.errors import HvdFtError
from hvd_ft.native.types import EventType, State
from hvd_ft.reports.plot import COLOURS, save_states, states_figure


def bars(state: State) -> list[tuple[int, float, float]]:
    """Rank, start and length in seconds of each bar in the state's colour."""
    [axes] = states_figure(one_failure(), {(1, 0): KILLED_NS}).axes
    patches: list[Any] = list(axes.patches)
    return [
        (round(patch.get_y() + patch.get_height() / 2), patch.get_x(), patch.get_width())
        for patch in patches
        if to_hex(patch.get_facecolor()).upper() == COLOURS[state]
    ]


def test_the_bars_are_where_the_states_were() -> None:
    assert bars(State.RESTARTING) == [(1, pytest.approx(5.0), pytest.approx(2.32))]
    assert bars(State.REPLAYING) == [(1, pytest.approx(7.32), pytest.approx(0.6))]
    assert bars(State.WAITING) == [
        (0, pytest.approx(5.03), pytest.approx(2.9)),
        (2, pytest.approx(5.03), pytest.approx(2.905)),
    ]
    assert len(bars(State.RUNNING)) == 6
    assert len(bars(State.STARTING)) == 3


def test_the_kill_is_marked_on_its_rank() -> None:
    [axes] = states_figure(one_failure(), {(1, 0): KILLED_NS}).axes
    [marks] = axes.lines
    [(seconds, rank)] = np.asarray(marks.get_xydata())
    assert seconds == pytest.approx(4.99)
    assert round(rank) == 1


def test_the_legend_names_every_state() -> None:
    figure = states_figure(one_failure())
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["starting", "running", "waiting", "restarting", "replaying", "died"]


def test_the_legend_leaves_out_what_nobody_was() -> None:
    quiet = [each for each in one_failure() if each.type is not EventType.WAITED]
    figure = states_figure([each for each in quiet if each.rank != 1])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["starting", "running"]
    alone = states_figure([each for each in quiet if each.rank == 1])
    names = [text.get_text() for text in alone.legends[0].get_texts()]
    assert names == ["starting", "running", "restarting", "replaying", "died"]


def test_a_png_file_is_written(tmp_path: Path) -> None:
    save_states(tmp_path / "states.png", one_failure())
    assert (tmp_path / "states.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_without_events_still_has_a_picture(tmp_path: Path) -> None:
    save_states(tmp_path / "states.png", [])
    assert (tmp_path / "states.png").exists()


def test_a_picture_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(HvdFtError, match=r"states\.png could not be written"):
        save_states(tmp_path / "none" / "states.png", one_failure())


def test_the_title_has_job_date_command_and_what_was_waited() -> None:
    facts = {"job": "j1", "date": "2026-11-27T16:04:02+00:00", "command": ["python", "a b.py"]}
    [axes] = states_figure(one_failure(), facts=facts).axes
    first, second = axes.get_title(loc="left").split("\n")
    assert first == "job j1, 2026-11-27 16:04, python 'a b.py'"
    # 2.9 and 2.905 s; 2.32 and 0.6 s
    assert second == "all ranks together: 5.8 s waited, 2.3 s restarting, 0.6 s replaying"


def test_steps_stand_where_they_were_done() -> None:
    figure = states_figure(one_failure(), facts={"ranks": [{"step": 100}]})
    [above] = figure.axes[0].child_axes
    labels = [int(text.get_text()) for text in above.get_xticklabels()]
    seconds = list(above.get_xticks())
    assert labels == sorted(labels) == list(range(0, 101, 20))
    assert seconds == sorted(seconds)
    running = sorted(bar for bar in bars(State.RUNNING) if bar[0] == 0)
    _, start, length = running[-1]
    assert seconds[-1] == pytest.approx(start + length)  # the last step is the end of the run
    waited = bars(State.WAITING)[0]
    assert not [second for second in seconds if waited[1] < second < waited[1] + waited[2] - 1e-6]


def test_a_job_that_did_no_step_has_no_axis_of_steps() -> None:
    assert not states_figure(one_failure(), facts={"ranks": []}).axes[0].child_axes
