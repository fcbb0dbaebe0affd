"""Where loops continue with another number of ranks."""

from hvd_ft.tensorflow.resized import of_fit, of_sampled_fit, of_session
from hvd_ft.worker.resized import of_state


def fit(epoch: int, begin: int, step: int, passes: list[int], *, done: bool = False) -> dict:
    place = {"epoch": epoch, "epoch_begin": begin, "epoch_step": step}
    return {**place, "passes": passes, "validations": [3], "done": done}


def test_a_fit_goes_on_where_as_much_data_is_drawn() -> None:
    half = of_fit(fit(2, 20, 6, [0, 10, 20]), (4, 2), 20)
    assert half == fit(2, 20, 12, [20]) | {"validations": [], "lengths": []}
    twice = of_fit(fit(2, 20, 6, [0, 10, 20]), (2, 4), 5)
    assert twice == fit(2, 20, 3, [20]) | {"validations": [], "lengths": []}
    # One pass over data that repeats.
    repeated = of_fit(fit(2, 20, 6, [0]), (4, 2), 20)
    assert repeated["passes"] == [32 - 52]


def test_an_epoch_may_be_over() -> None:
    over = of_fit(fit(2, 20, 9, [0, 10, 20]), (4, 3), 12)
    assert over == fit(3, 32, 0, [32]) | {"validations": [], "lengths": []}
    done = of_fit(fit(2, 20, 10, [0, 10, 20], done=True), (4, 3), 13)
    assert (done["epoch"], done["done"]) == (2, True)


def test_a_state_goes_on_by_batches_only() -> None:
    values = {"by_batches": True, "values": {"batch": 6, "lr": 1}, "passes": [10, 10]}
    assert of_state(values, (4, 2)) == {
        "by_batches": True,
        "values": {"batch": 12, "lr": 1},
        "passes": [],
    }
    own = {**values, "by_batches": False}
    assert of_state(own, (4, 2)) == own
    sampled = {**values, "sampled": True}
    assert of_state(sampled, (4, 2)) == sampled


def test_a_samplers_fit_goes_on_at_its_step() -> None:
    values = fit(2, 20, 6, [0, 10, 20])
    assert of_sampled_fit(values, over=False) == values | {"validations": []}
    over = of_sampled_fit(values, over=True)
    assert over == fit(3, 26, 0, [0, 10, 20]) | {"validations": []}


def test_a_session_draws_as_much() -> None:
    assert of_session({"draws": {"a": 5, "b": 1}}, (1, 2)) == {"draws": {"a": 2}}
