"""Identifies a host, and distinguishes it from the same host before a reboot."""

import os


def host_key() -> str:
    """Returns the key of this host: its name and its boot."""
    return "/".join(host_identity())


def host_name(key: str) -> str:
    """Returns the host's name from its key."""
    return key.partition("/")[0]


def host_identity() -> tuple[str, str]:
    """Returns the host's name and the id of its boot, which differs between hosts of one name."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return os.uname().nodename, file.read().strip()
