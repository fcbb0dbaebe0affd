"""How a new job resumes from a checkpoint: agents choose the same one, and check its files."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from hvd_ft.agent.job_context import JobContext
from hvd_ft.agent.rendezvous import Rendezvous
from hvd_ft.checkpoint import catalogue
from hvd_ft.checkpoint.choice import Offer, choose, what_changes
from hvd_ft.checkpoint.manifest import Manifest, decode, encode, merge, messages_under_way
from hvd_ft.checkpoint.manifest import usable_loops as usable
from hvd_ft.errors import HvdFtError
from hvd_ft.system.say import say


@dataclass(frozen=True)
class Resumed:
    """The checkpoint from which a job was resumed.

    Attributes:
        path: path of the checkpoint.
        run: id of the first job in the series of jobs that resumed one from another.
        loops: the training loops that resume from it.
    """

    path: str
    run: str
    loops: Sequence[int]


def resume(rendezvous: Rendezvous, context: JobContext) -> Resumed | None:
    """Finds the checkpoint from which the user wants the job to resume. Collective.

    Only a job's first agents do so; later ones learn of it from beginning.py.

    Args:
        rendezvous: of all agents.
        context: this agent's place in the job.

    Returns:
        The checkpoint; None if the job does not resume.

    Raises:
        HvdFtError: there is none that can be used.
    """
    if context.settings.resume_dir is None:
        return None
    return _choose(rendezvous, context, Path(context.settings.resume_dir))


def _choose(rendezvous: Rendezvous, context: JobContext, directory: Path) -> Resumed:
    ranks, leads = context.host_ranks, context.leads_host
    offers = rendezvous.agree(
        "looking for a checkpoint", lambda: _offers(directory) if leads else None
    )
    hosts = [list(context.hosts.ranks(host)) for host in range(len(context.hosts))]
    of_hosts = [[_offer(each) for each in offers[host[0]]] for host in hosts]
    named = (directory / catalogue.MANIFEST).is_file()

    def chosen() -> str | None:
        return choose(of_hosts, hosts, str(directory), named=named) if context.rank == 0 else None

    name = rendezvous.agree("choosing a checkpoint", chosen)[0]
    path = directory if named else directory / name

    def look() -> str | None:
        return _checked(path, ranks) if leads else None

    texts = rendezvous.agree("checking the checkpoint", look)
    whole = merge([decode(text.encode()) for text in texts if text])

    def accept() -> None:
        if context.rank == 0:
            _accept(path, whole, rendezvous.size)

    rendezvous.agree("continuing from the checkpoint", accept)
    return Resumed(str(path), whole.run, usable(whole))


def _offers(directory: Path) -> list[dict[str, object]]:
    return [asdict(_offer_of(found)) for found in catalogue.find(directory)]


def _offer_of(found: catalogue.Checkpoint) -> Offer:
    manifest, age = found.manifest, found.age
    if manifest is None:
        return Offer(found.name, age, refused=found.refused, incomplete=found.incomplete)
    ranks = tuple(rank for rank in range(manifest.size) if manifest.part(rank, manifest.loop))
    return Offer(found.name, age, manifest.size, ranks)


def _offer(told: dict[str, object]) -> Offer:
    fields = dict(told)
    for name in ("age", "ranks"):
        fields[name] = tuple(fields[name])  # type: ignore[arg-type]
    return Offer(**fields)  # type: ignore[arg-type]


def _checked(path: Path, ranks: Sequence[int]) -> str:
    """Returns the manifest's text, after its files for these ranks were compared with it."""
    manifest = catalogue.look_at(path).manifest
    if manifest is None:
        raise HvdFtError(f"the checkpoint {path} has gone; start the job again")
    there = {part.rank for part in manifest.parts}
    needed = [rank if rank in there else min(there) for rank in ranks]
    if wrong := catalogue.damage(path, manifest.files_of(needed).items()):
        raise HvdFtError(
            f"the checkpoint {path} cannot be used: {wrong[0]}; hvdft checkpoint verify "
            f"{path.parent} tells which ones can, and --resume takes one by its path"
        )
    return encode(manifest).decode()


def _accept(path: Path, whole: Manifest, size: int) -> None:
    """Reports where the job resumes; refuses an inconsistent checkpoint."""
    if pairs := messages_under_way(whole.shares):
        raise HvdFtError(
            f"the checkpoint {path} cannot be used: messages from rank {pairs[0][0]} to rank "
            f"{pairs[0][1]} were under way; give --resume an older one"
        )
    written = datetime.fromtimestamp(whole.written).isoformat(" ", "seconds")
    say(
        f"continuing from {path}: step {whole.step} of training loop {whole.loop}, "
        f"{whole.size} ranks, written {written}"
    )
    if text := what_changes(whole.size, size, whole.missing):
        say(f"weights and optimizer continue with {size} ranks; {text}")
