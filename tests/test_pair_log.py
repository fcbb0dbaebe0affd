"""The pair logs of a ring, as a reader sees them."""

from rich.console import Console

from hvd_ft.pair_log import PairEnd, PairLog, pair_log


def test_an_edge_is_shown_by_its_two_ends():
    here = PairEnd(2, 7, 9)
    logs = [
        PairLog(here, PairEnd(2, 7, 11)),
        PairLog(PairEnd(2, 7, 7), PairEnd(1, 6, 5)),
        PairLog(PairEnd(2, 7, 0), here),
    ]
    console = Console(width=140)
    with console.capture() as captured:
        console.print(pair_log(logs, {7: 4}))  # three members, four segments a step
    _, first, second, third = captured.get().splitlines()
    assert "op 7, REDUCE_SCATTER step 1 segment 3" in first
    assert "op 7, ALLGATHER step 0 segment 3" in first and first.split()[-1] == "4"
    assert "2, sender 1" in second and "op 6, position 5" in second
    assert "op 7, its beginning" in second and second.split()[-1] == "?"
    assert third.count("op 7, ALLGATHER step 0 segment 1") == 2 and third.split()[-1] == "0"
