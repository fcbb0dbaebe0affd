"""The launcher's watch over hosts and links, with lines and a clock of the test's own."""

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

from hvd_ft.launcher.host_watch import GiveUp, HostWatch, NewAgents

from hvd_ft.job.lifeline import Answer
from hvd_ft.job.settings import Settings

LIMITS = Settings(
    suspect_seconds=5, lease_seconds=20, host_timeout_seconds=60, link_timeout_seconds=10
)
HOSTS = {"a/1": {0, 1}, "b/2": {2}}


class Job:
    """Two hosts, what they answer, and what the watch says of them."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.number = 0
        self.asked: list[tuple[int, Collection[str]]] = []
        self.answers: list[Answer] = []
        self.hung_up: set[str] = set()
        lines: Any = SimpleNamespace(
            hosts=HOSTS, hung_up=self.hung_up, ask=self.ask, take_answers=self.take_answers
        )
        self.watch = HostWatch(lines, LIMITS, {0: "n0", 2: "n2"}.get, self.said.append)
        self.watch.begin(0)

    def ask(self, number: int, silent: Collection[str]) -> None:
        self.number = number
        self.asked.append((number, list(silent)))

    def take_answers(self) -> list[Answer]:
        answers, self.answers = self.answers, []
        return answers

    def run(self, begin: int, end: int, *answering: str, facts: Any = None) -> list[Any]:
        """Looks every second; these hosts answer the question of that look by the next."""
        verdicts = []
        for now in range(begin, end):
            if verdict := self.watch.look(now):
                verdicts.append((now, verdict))
            self.answers += [Answer(host, self.number, facts) for host in answering]
        return verdicts


def test_a_host_that_comes_back_gets_new_agents_at_no_charge() -> None:
    job = Job()
    assert job.run(1, 11, "a/1", "b/2") == []
    assert job.run(11, 41, "a/1") == []
    assert job.said == [
        "host n2 (rank 2) does not answer",
        "host n2 (rank 2) has not answered for 20 s; waiting for it until 60 s are over",
    ]
    assert job.watch.lost_one
    assert job.watch.is_silent("b/2") and not job.watch.is_silent("a/1")
    assert job.asked[-1][1] == ["b/2"]  # by all its ranks
    assert job.run(41, 43, "a/1", "b/2") == [
        (42, NewAgents("host n2 (rank 2) was lost", counts=False))
    ]
    assert job.said[2:] == ["host n2 (rank 2) answers again after 32 s"]
    assert job.watch.lost_one  # by this generation, whose end is no failure of agents
    job.watch.begin(1)
    assert not job.watch.lost_one


def test_a_host_that_was_only_suspect_gets_none() -> None:
    job = Job()
    job.run(1, 11, "a/1", "b/2")
    assert job.run(11, 20, "a/1") + job.run(20, 30, "a/1", "b/2") == []
    assert job.said[1:] == ["host n2 (rank 2) answers again after 11 s"]
    assert not job.watch.lost_one


def test_a_host_that_stays_away_is_given_up() -> None:
    job = Job()
    job.run(1, 11, "a/1", "b/2")
    verdicts = job.run(11, 75, "a/1")
    assert verdicts[0] == (71, GiveUp("host n2 (rank 2) has not answered for 61 s", ("n2",)))


def test_an_answer_counts_from_its_question() -> None:
    """A late answer says nothing about the present."""
    job = Job()
    job.run(1, 11, "a/1", "b/2")
    late = Answer("b/2", job.number, None)
    job.run(11, 15, "a/1")
    job.answers.append(late)
    job.run(15, 17, "a/1")
    assert job.said == ["host n2 (rank 2) does not answer"]


def facts(node: int, links: list[list[Any]], generation: int = 0) -> dict[str, Any]:
    place = "op 12, REDUCE_SCATTER step 2"
    return {
        "generation": generation,
        "node": node,
        "name": f"n{node}",
        "links": links,
        "stands": place,
    }


SENT = facts(0, [[0, 1, "successor", 7, 0, 0]])
NOT_ARRIVED = facts(1, [[1, 0, "predecessor", 0, 7, 6]])


def stands(generation: int) -> list[Any]:
    """The finding for a job's first agents, from these counts."""
    job = Job()
    job.watch.begin(generation)
    verdicts = []
    for now in range(1, 20):
        if verdict := job.watch.look(now):
            verdicts.append((now, verdict))
        job.answers = [Answer("a/1", job.number, SENT), Answer("b/2", job.number, NOT_ARRIVED)]
    return verdicts


def test_a_link_that_stands_is_named_with_its_place() -> None:
    now, verdict = stands(0)[0]
    why = "n0 -> n1 stands at op 12, REDUCE_SCATTER step 2 for 10 s"
    assert (now, verdict) == (12, NewAgents(why, counts=True))


def test_what_older_agents_have_counted_is_nothing_to_the_next() -> None:
    assert stands(1) == []


def test_at_the_end_hosts_that_have_left_are_not_named_and_a_lost_one_is() -> None:
    job = Job()
    job.run(1, 5, "a/1", "b/2")
    job.hung_up.add("b/2")  # all of its shims have ended their lines
    found = []
    for now in range(5, 60):
        found += [(now, lost) for lost in job.watch.look_at_end(now)]
        if now < 30:
            job.answers.append(Answer("a/1", job.number, None))
    assert found[0] == (49, "host n0 (ranks 0, 1)")
    assert job.said == [
        "host n0 (ranks 0, 1) does not answer",
        "host n0 (ranks 0, 1) has not answered for 20 s",
    ]
