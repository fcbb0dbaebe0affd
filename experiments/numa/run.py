"""Where are the CPUs and the memory of ranks, bound in every way, on a host with two NUMA nodes?

The host is a virtual machine (guest.py). Example: .venv/bin/python -m experiments.numa.run
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.common import add_output, end_with, write_csv
from experiments.numa.guest import NODES, run_in_guest

FOLDER = Path(__file__).parent


def rows_of(said: str) -> list[dict[str, Any]]:
    """Returns what `in_guest.py` has found: a row for each process of each job."""
    return [json.loads(line[4:]) for line in said.splitlines() if line.startswith("ROW ")]


def flat(row: Mapping[str, Any]) -> dict[str, object]:
    """Returns a row as a line of a table: MiB on each node, numbers in a list as words."""
    cells: dict[str, object] = {}
    for name, value in row.items():
        if name in ("own", "area", "results"):
            for node in range(NODES):
                cells[f"{name}_mib_n{node}"] = round(value.get(str(node), 0) / (1 << 20), 2)
        else:
            cells[name] = " ".join(map(str, value)) if isinstance(value, list) else value
    return {**cells, "warnings": len(row["warnings"])}


def main() -> int:
    """Runs the experiment."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_output(parser, FOLDER)
    output = parser.parse_args().output
    said = run_in_guest(FOLDER / "in_guest.py")
    print("\n".join(line for line in said.splitlines() if not line.startswith("ROW ")))
    write_csv(output / "results.csv", [flat(row) for row in rows_of(said)])
    return 0


if __name__ == "__main__":
    end_with(main)
