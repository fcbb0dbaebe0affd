"""A fit whose data an ElasticSampler deals out: the sampler says how many steps an epoch has."""

from __future__ import annotations

from typing import Any

from hvd_ft.errors import HvdFtError
from hvd_ft.tensorflow.data import DataIterator
from hvd_ft.tensorflow.keras_fit import FitCall
from hvd_ft.tensorflow.sampled_data import SampledData, sampled


class SampledFit:
    """The data of a fit that an ElasticSampler deals out.

    Args:
        fit: the running call.
        data: of the fit.
        params: Keras's parameters of this fit, which all callbacks share.

    Raises:
        HvdFtError: something else says how many steps an epoch has.
    """

    def __init__(self, fit: FitCall, data: SampledData, params: dict[str, Any]) -> None:
        if fit.steps_per_epoch is not None:
            raise HvdFtError(
                f"fit is given steps_per_epoch={fit.steps_per_epoch} and data of an "
                "ElasticSampler, which knows how many steps an epoch has: leave steps_per_epoch out"
            )
        self._fit = fit
        fit.follow_limit()
        self._data = data
        self._params = params
        self._done = 0  # steps of this epoch

    @classmethod
    def of(cls, fit: FitCall, params: dict[str, Any]) -> SampledFit | None:
        """Returns the data of a fit, or None if no ElasticSampler deals it out."""
        data = sampled(fit.dataset)
        return None if data is None else cls(fit, data, params)

    def state(self) -> dict[str, Any]:
        """Returns the sampler's state, for a snapshot."""
        return self._data.sampler.state_dict()

    def go_on(self, state: dict[str, Any] | None, done: bool) -> bool:
        """Continues from a snapshot.

        Args:
            state: the sampler's state.
            done: whether the fit is over.

        Returns:
            Whether the epoch is over for this number of ranks; the next one has begun then.

        Raises:
            HvdFtError: the snapshot's sampler was another one.
        """
        if state is None:
            raise HvdFtError(
                "the snapshot is of a fit without an ElasticSampler, so it does not say which "
                "samples are left: give fit the same data as before"
            )
        self._data.sampler.load_state_dict(state)
        over = not done and self._data.steps == 0
        if over:
            self._data.end_epoch()
        return over

    def begin_epoch(self, done: int) -> None:
        """An epoch begins, or is entered after some of its steps."""
        self._done = done
        self._limit()
        self._data.begin_pass(None)

    def begin_pass(self, iterator: DataIterator) -> None:
        """Keras has an iterator from which nothing has been drawn."""
        self._data.begin_pass(iterator)

    def iterator(self) -> DataIterator:
        """Returns the iterator to draw the next step's batch from.

        Raises:
            StopIteration: with the present number of ranks the epoch has no more steps.
        """
        self._limit()
        if self._data.steps == 0:
            self._fit.limit_epoch(None)  # so that Keras takes this for the epoch's end
            raise StopIteration
        return self._data.iterator()

    def end_step(self, done: int) -> None:
        """Counts the samples of the completed steps.

        Args:
            done: steps of this epoch.
        """
        self._data.count(done - self._done)
        self._done = done

    def end_epoch(self) -> None:
        """Begins the sampler's next epoch."""
        self._data.end_epoch()

    def _limit(self) -> None:
        self._params["steps"] = self._done + self._data.steps
        self._fit.limit_epoch(self._params["steps"])
