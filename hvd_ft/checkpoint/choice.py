"""From which checkpoint a job resumes, if each host may have its own directory. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hvd_ft.errors import HvdFtError


@dataclass(frozen=True)
class Offer:
    """A checkpoint as one host sees it.

    Attributes:
        name: name of the checkpoint.
        age: orders checkpoints: the older one is less.
        size: ranks of the job that wrote it; 0 if that is not known.
        ranks: the ranks whose parts are here.
        refused: why it cannot be used; "" if it can.
        incomplete: whether it cannot be used because it was never finished.
    """

    name: str
    age: tuple[int, str, int, int]
    size: int = 0
    ranks: tuple[int, ...] = ()
    refused: str = ""
    incomplete: bool = False


def choose(
    offers: Sequence[Sequence[Offer]],
    hosts: Sequence[Sequence[int]],
    directory: str,
    *,
    named: bool = False,
) -> str:
    """Returns the name of the newest checkpoint that can be used.

    Args:
        offers: each host's offers.
        hosts: the ranks that each host has now.
        directory: as the user has given it.
        named: whether the user has named one checkpoint; then ranks' parts may be missing.

    Raises:
        HvdFtError: there is none; or the newest one is damaged or another version's, and the user
            has to name an older one.
    """
    of_hosts = [{offer.name: offer for offer in of_host} for of_host in offers]
    ages = {offer.name: offer.age for of_host in offers for offer in of_host}
    names = sorted(ages, key=lambda name: ages[name], reverse=True)
    problems = {name: _problem(name, of_hosts, hosts, named=named) for name in names}
    usable = [name for name in names if problems[name] is None]
    for name in names:
        problem = problems[name]
        if problem is None:
            return name
        if problem.passed_over and not named:
            continue
        older = (
            f"hvdft run --resume {directory}/{usable[0]} continues from an older one"
            if (usable and not named)
            else "give --resume another one (hvdft checkpoint list), or leave it out"
        )
        where = directory if named else f"{directory}/{name}"
        raise HvdFtError(f"the checkpoint {where} cannot be used: {problem}; {older}")
    # One that only lies elsewhere helps more than a newer one that is nowhere as a whole.
    whole = [name for name in names if (found := problems[name]) and found.whole]
    text = ""
    if whole:
        text = f" (the newest one that is whole, {whole[0]}: {problems[whole[0]]})"
    elif names:
        text = f" (the newest one, {names[0]}: {problems[names[0]]})"
    raise HvdFtError(
        f"there is no complete checkpoint in {directory}{text}: give --resume the directory of "
        "--checkpoint-dir, or leave it out"
    )


@dataclass(frozen=True)
class _Problem:
    text: str
    passed_over: bool  # for an older one, without a word
    whole: bool = False  # all parts are somewhere

    def __str__(self) -> str:
        return self.text


def _problem(
    name: str,
    of_hosts: Sequence[Mapping[str, Offer]],
    hosts: Sequence[Sequence[int]],
    *,
    named: bool,
) -> _Problem | None:
    there = [of_host[name] for of_host in of_hosts if name in of_host]
    for offer in there:
        if offer.refused:
            return _Problem(offer.refused, offer.incomplete)
    anywhere = {rank for offer in there for rank in offer.ranks}
    missing = sorted(set(range(there[0].size)) - anywhere)
    if missing and not named:
        return _Problem(f"the part of rank {missing[0]} is missing", passed_over=True)
    for of_host, ranks in zip(of_hosts, hosts, strict=True):
        here = set(of_host[name].ranks) if name in of_host else set()
        for rank in ranks:
            if (rank in anywhere and rank not in here) or not here:
                return _Problem(
                    f"the part of rank {rank} is not on the host that the rank is on now; copy it, "
                    "or give a directory that all hosts share",
                    passed_over=not named,
                    whole=True,
                )
    return None


def what_changes(old: int, new: int, missing: Sequence[int]) -> str:
    """Returns the line for a job that resumes with other ranks; "" if each rank finds its part.

    Args:
        old: ranks of the job that wrote the checkpoint.
        new: ranks of this job.
        missing: old ranks whose part is lost.
    """
    lost = [rank for rank in missing if rank < new]
    left = list(range(new, old))
    added = list(range(old, new))
    texts = []
    if left:
        texts.append(
            f"what {_ranks(left)} had of {_their(left)} own (data, generators, batch statistics) "
            f"has no owner any more"
        )
    if added or lost:
        ranks = sorted([*added, *lost])
        texts.append(
            f"{_ranks(ranks)} begin{'s' * (len(ranks) == 1)} with the state of another rank and "
            "generators of the script's"
        )
    return "; ".join(texts)


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def _their(ranks: Sequence[int]) -> str:
    return "its" if len(ranks) == 1 else "their"
