"""A network between hosts, in user space: with latency, and limits that tc here does not have.

Each host gets a device `wan0` (TUN) whose packets come to this process. It passes them on to the
device of the host that they are for, as late as the wire's model says. Packets are as large as the
kernel makes them before a network card would cut them (up to 64 KiB), so few of them are needed.
Nothing is lost: how much is under way is limited by TCP and by those who send.
"""

import argparse
import fcntl
import heapq
import os
import select
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from hvd_ft.errors import HvdFtError

DEVICE = "wan0"
_SUBNET = "10.214.0"
_MTU = 1500
# linux/if_tun.h
_TUNSETIFF, _TUNSETOFFLOAD = 0x400454CA, 0x400454D0
_IFF_TUN, _IFF_NO_PI, _IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
_TUN_F_CSUM, _TUN_F_TSO4 = 0x01, 0x02
_VNET_HEADER = 10  # before each packet: how the kernel is to cut it
_TCP = 6
_MOST_BYTES = _VNET_HEADER + 65536


@dataclass(frozen=True)
class Model:
    """What the wire does to packets.

    Attributes:
        delay: Seconds from one host to another.
        rate: Bits a second of a host's link, in each direction; 0 is unlimited.
        flow_rate: Bits a second of a connection, in each direction; 0 is unlimited.
        cables: Whether each pair of hosts has a cable of its own of this rate, instead of one link
            for each host to a switch.
    """

    delay: float = 0.0
    rate: float = 0.0
    flow_rate: float = 0.0
    cables: bool = False


@dataclass
class Traffic:
    """When what has been sent so far has passed each part of the wire; pure.

    Attributes:
        model: of the wire.
        free: by part, the time at which it is free again.
    """

    model: Model
    free: dict[object, float] = field(default_factory=dict)

    def arrival(self, now: float, source: int, target: int, flow: object, size: int) -> float:
        """Returns when a packet arrives that is sent now.

        Args:
            now: in seconds.
            source: the host that sends it.
            target: the host that receives it.
            flow: its connection and direction.
            size: in bytes.
        """
        if self.model.cables:
            links: list[object] = [("cable", source, target)]
        else:
            links = [("out", source), ("in", target)]
        at = now
        if self.model.flow_rate:
            at = self._pass(("flow", flow), at, size, self.model.flow_rate)
        if self.model.rate:
            # A link is a pipe: the second one passes on what is still coming out of the first.
            at = max(self._pass(link, at, size, self.model.rate) for link in links)
        return at + self.model.delay

    def _pass(self, part: object, now: float, size: int, rate: float) -> float:
        self.free[part] = max(now, self.free.get(part, 0.0)) + size * 8 / rate
        return self.free[part]


def address(host: int) -> str:
    """Returns the address of a host's end of the wire."""
    return f"{_SUBNET}.{host + 1}"


def flow_of(packet: bytes) -> tuple[int, int, int, int]:
    """Returns source, target and ports of a packet of IPv4; no ports if it is not TCP.

    Args:
        packet: as it comes from the device, with its header.
    """
    ip = packet[_VNET_HEADER:]
    source, target = ip[15], ip[19]
    if ip[9] != _TCP:
        return source, target, 0, 0
    begin = (ip[0] & 15) * 4
    ports = struct.unpack_from("!HH", ip, begin)
    return source, target, *ports


def open_device(host: int, pid: int) -> int:
    """Makes a host's device.

    Args:
        host: its number.
        pid: of a process in the host's network namespace.

    Returns:
        The descriptor by which its packets come.

    Raises:
        HvdFtError: It cannot be made.
    """
    name = f"wan{os.getpid() % 100000}-{host}"[:15]
    try:
        tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        flags = _IFF_TUN | _IFF_NO_PI | _IFF_VNET_HDR
        fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
        fcntl.ioctl(tun, _TUNSETOFFLOAD, _TUN_F_CSUM | _TUN_F_TSO4)
    except OSError as error:
        raise HvdFtError(f"cannot make a TUN device ({error.strerror}); run it as root") from None
    inside = f"nsenter --net=/proc/{pid}/ns/net ip"
    for line in (
        f"ip link set {name} netns {pid} name {DEVICE}",
        f"{inside} addr add {address(host)}/24 dev {DEVICE}",
        f"{inside} link set {DEVICE} mtu {_MTU} txqueuelen 10000 up",
    ):
        done = subprocess.run(line.split(), check=False, capture_output=True, text=True)
        if done.returncode:
            raise HvdFtError(f"{line.split()[0]} fails: {done.stderr.strip()}")
    return tun


def carry(tuns: Sequence[int], model: Model, end: int) -> None:
    """Passes packets on until there is something to read from `end`."""
    traffic = Traffic(model)
    under_way: list[tuple[float, int, int, bytes]] = []
    number = 0
    by_address = {host + 1: host for host in range(len(tuns))}
    while True:
        wait = max(under_way[0][0] - time.monotonic(), 0.0) if under_way else None
        readable, _, _ = select.select([*tuns, end], [], [], wait)
        if end in readable:
            return
        now = time.monotonic()
        for tun in readable:
            for _ in range(16):  # and then look at what is due
                try:
                    packet = os.read(tun, _MOST_BYTES)
                except BlockingIOError:
                    break
                if packet[_VNET_HEADER] >> 4 != 4:
                    continue
                flow = flow_of(packet)
                source, target = by_address.get(flow[0]), by_address.get(flow[1])
                if source is None or target is None:
                    continue
                at = traffic.arrival(now, source, target, flow, len(packet) - _VNET_HEADER)
                number += 1
                heapq.heappush(under_way, (at, number, tuns[target], packet))
        now = time.monotonic()
        while under_way and under_way[0][0] <= now:
            _, _, tun, packet = heapq.heappop(under_way)
            try:
                os.write(tun, packet)
            except OSError:  # the host is gone
                continue


def main() -> None:
    """Makes a wire between the hosts of some processes; lasts until stdin ends."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pids", nargs="+", type=int, help="a process on each host")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds, one way")
    parser.add_argument("--rate", type=float, default=0.0, help="bits a second")
    parser.add_argument("--flow-rate", type=float, default=0.0, help="bits a second")
    parser.add_argument("--cables", action="store_true", help="a cable for each pair of hosts")
    options = parser.parse_args()
    model = Model(options.delay, options.rate, options.flow_rate, options.cables)
    try:
        tuns = [open_device(host, pid) for host, pid in enumerate(options.pids)]
    except HvdFtError as error:
        sys.exit(f"hvdft: {error}")
    print("ready", flush=True)
    carry(tuns, model, 0)


if __name__ == "__main__":
    main()
