"""Records what Linux says of a machine's CPUs and memory, as data for tests: a file a line.

python -m experiments.numa.record > tests/system/topologies/NAME.txt
"""

from hvd_ft.system.cgroup import read_text
from hvd_ft.system.topology import Read, read_topology


def record(read: Read = read_text) -> str:
    """Returns the files that `read_topology` looks at, each with its path and contents.

    Args:
        read: returns the contents of a file, or None.
    """
    lines = []

    def note(path: str) -> str | None:
        text = read(path)
        if text is not None:
            shown = next((line for line in text.splitlines() if "MemTotal" in line), text)
            lines.append(f"{path}: {shown.strip()}")
        return text

    read_topology(note)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(record(), end="")
