"""Adds this environment's combination to those that are tested: the end of `make tested`."""

import json
import sys
from dataclasses import asdict

from hvd_ft.installed import support


def main() -> None:
    """Writes the record, sorted, one combination a line."""
    combination = support.present()
    if combination is None:
        sys.exit("tested: there is no TensorFlow here, so nothing was tested with it")
    others = [each for each in support.tested() if each.lines != combination.lines]
    lines = [json.dumps(asdict(each)) for each in sorted([*others, combination])]
    support.RECORD.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(f"tested: {combination}")


if __name__ == "__main__":
    main()
