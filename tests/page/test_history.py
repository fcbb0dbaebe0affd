"""What the page knows of the last minutes."""

from hvd_ft.page.history import History, Span


def test_a_state_that_lasts_is_one_span() -> None:
    history = History()
    for now in (1.0, 2.0, 5.0):
        history.add(now, {0: ("running", 0)})
    assert history.spans() == {0: [Span(1.0, 5.0, "running", 0)]}


def test_a_span_ends_where_the_next_one_is_seen() -> None:
    history = History()
    for now, state in ((1.0, ("running", 0)), (2.0, ("restarting", 1)), (3.0, ("restarting", 2))):
        history.add(now, {0: state})
    assert history.spans()[0] == [
        Span(1.0, 2.0, "running", 0),
        Span(2.0, 3.0, "restarting", 1),
        Span(3.0, 3.0, "restarting", 2),
    ]


def test_old_spans_and_ranks_that_are_gone_are_forgotten() -> None:
    history = History(kept_seconds=10.0)
    history.add(0.0, {0: ("starting", 0), 1: ("starting", 0)})
    history.add(5.0, {0: ("running", 0), 1: ("starting", 0)})
    history.add(15.0, {0: ("running", 0)})
    assert history.spans() == {0: [Span(0.0, 5.0, "starting", 0), Span(5.0, 15.0, "running", 0)]}
    history.add(15.1, {0: ("running", 0)})
    assert history.spans() == {0: [Span(5.0, 15.1, "running", 0)]}
