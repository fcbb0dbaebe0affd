"""What are MPI's endpoints worth between two processes? Runs hvdft probe in several places.

IMB-MT measures beside it. Writes results.csv and a picture for each place.
Example: .venv/bin/python -m experiments.endpoints_probe.run --places shm,loopback --rounds 5
"""

import argparse
import contextlib
import csv
from collections.abc import Iterator
from pathlib import Path

from experiments.common import (
    HVDFT,
    add_output,
    cluster_up,
    count,
    end_with,
    inside,
    read_csv,
    run_to_end,
    write_csv,
)
from hvd_ft.errors import HvdFtError

HERE = Path(__file__).resolve().parent
FABRICS = {"shm": "shm", "loopback": "ofi"}  # both processes are on this host
DELAYS = {"nodes": None, "delay": "1ms"}  # between two nodes
PLACES = (*FABRICS, *DELAYS)


@contextlib.contextmanager
def entered(place: str) -> Iterator[list[str]]:
    """Yields the words that run the probe at a place.

    Raises:
        HvdFtError: There can be no cluster.
    """
    if place in FABRICS:
        yield [*HVDFT, "probe", "--fabric", FABRICS[place]]
        return
    with cluster_up("endpoints-probe", 2, delay=DELAYS[place]) as name:
        yield [*inside(name), *HVDFT, "probe", "-H", "n0:1,n1:1"]


def probe(place: str, options: argparse.Namespace) -> list[dict[str, str]]:
    """Runs the probe at a place; returns its rows.

    Raises:
        HvdFtError: It failed.
    """
    lines = options.output / f"{place}.csv"
    flags = ["--rounds", str(options.rounds), "--threads", options.threads]
    flags += ["--seconds", str(options.seconds)]
    flags += ["--csv", str(lines), "--png", str(options.output / f"{place}.png")]
    flags += ["--sizes", options.sizes] if options.sizes else []
    flags += [] if options.no_referee else ["--referee"]
    print(f"\n{place}", flush=True)
    with entered(place) as words:
        if run_to_end([*words, *flags]).returncode:
            raise HvdFtError(f"the probe failed at {place}, see above")
    text = [line for line in lines.read_text().splitlines() if not line.startswith("#")]
    lines.unlink()
    return [{"place": place, **row} for row in csv.DictReader(text)]


def places(text: str) -> list[str]:
    """Reads a list of places."""
    for name in text.split(","):
        if name not in PLACES:
            raise argparse.ArgumentTypeError(f"{name} is no place: give some of {','.join(PLACES)}")
    return text.split(",")


def main() -> int:
    """Probes every place."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--places", type=places, default=list(PLACES), metavar="LIST",
                        help=f"of {','.join(PLACES)} (the last two need root)")  # fmt: skip
    parser.add_argument("--rounds", type=count, default=5)
    parser.add_argument("--threads", default="1,2,4", help="a list")
    parser.add_argument("--seconds", type=float, default=0.05, help="of each measurement")
    parser.add_argument("--sizes", help="a list, such as 8,4K,1M")
    parser.add_argument("--no-referee", action="store_true", help="without IMB-MT")
    add_output(parser, HERE)
    options = parser.parse_args()
    path = options.output / "results.csv"
    rows = [row for row in read_csv(path) if row["place"] not in options.places]
    for place in options.places:
        rows += probe(place, options)
        write_csv(path, rows)
    return 0


if __name__ == "__main__":
    end_with(main)
