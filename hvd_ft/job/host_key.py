"""Identifies a host, and tells it from the same host before a reboot."""

import os


def host_key() -> str:
    """Returns what tells this host from all others: its name, and its boot."""
    return "/".join(host_identity())


def host_name(key: str) -> str:
    """Returns the name in what `host_key` returned."""
    return key.partition("/")[0]


def host_identity() -> tuple[str, str]:
    """Returns the host's name and the id of its boot, which tells apart hosts of one name."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return os.uname().nodename, file.read().strip()
