"""What `run_job` calls while a job runs."""

from typing import Protocol

from hvd_ft.native.observer import Observer


class Display(Protocol):
    """Shows a running job."""

    def update(self, observer: Observer) -> None:
        """Called about 4 times a second once the job's arena exists."""

    def output(self, line: str) -> None:
        """Called with every line that the job writes, if `takes_output` is true."""

    takes_output: bool


class Resizing(Protocol):
    """Decides whether a job is started again on other hosts."""

    def why(self, now: float) -> str:
        """Returns why the job is to end at its next step boundary; "" while it is not.

        Args:
            now: seconds of time.monotonic().
        """
