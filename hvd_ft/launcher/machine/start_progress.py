"""What is said while a job starts, if that takes long: how many of its ranks have begun."""

QUIET_SECONDS = 10.0  # most jobs have begun by then
BETWEEN_SECONDS = 5.0


class StartProgress:
    """The start of one job.

    Attributes:
        over: whether all of its ranks have begun.

    Args:
        size: number of ranks.
        now: seconds on any steady clock.
    """

    def __init__(self, size: int, now: float) -> None:
        self._size = size
        self._began_at = now
        self._say_at = now + QUIET_SECONDS
        self._said = ""
        self.over = size == 1  # there is nothing to count

    def look(self, now: float, agents: int, workers: int | None) -> str:
        """Finds out what there is to say.

        Args:
            now: seconds on the same clock.
            agents: how many ranks' agents have begun.
            workers: how many ranks' workers have begun to work together; None: that is not known
                here.

        Returns: A line, or "".
        """
        if self.over:
            return ""
        self.over = workers == self._size
        if self.over and not self._said:
            return ""  # it has not taken long
        if agents < self._size or workers is None:
            what = f"{agents} of {self._size} agents have begun"
        else:
            what = f"{'all' if self.over else f'{workers} of'} {self._size} ranks have begun"
        if what == self._said or (now < self._say_at and not self.over):
            return ""
        self._said = what
        self._say_at = now + BETWEEN_SECONDS
        return f"{what}, after {now - self._began_at:.0f} s"
