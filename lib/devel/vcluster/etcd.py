"""Servers of etcd for a virtual cluster: three members as processes of this machine.

They are outside of all nodes, as if each were on a machine of its own. Beside isolated
nodes each one has a network namespace, which its process holds.
"""

import os
import shutil
import signal
import subprocess
import threading
from typing import Final

from ganeti.base import clock, errors
from ganeti.devel.vcluster import processes
from ganeti.devel.vcluster.layout import Layout
from ganeti.store.etcd import Gateway, Servers, messages

COUNT: Final = 3
_PORT: Final = 2379
_STEP: Final = 10
#: Last two octets of the servers' addresses, which no node has: of the first one beside
#: isolated nodes, otherwise of all.
_ISOLATED: Final = 240
_SIMPLE: Final = "0.2"
#: Waits for the network, then becomes the server.
_WHEN_PLUGGED_IN: Final = 'read -r _ && exec "$@" < /dev/null'
#: Milliseconds; etcd's own defaults are for networks.
_HEARTBEAT: Final = "50"
_ELECTION: Final = "500"
#: Seconds until a majority answers.
_READY_S: Final = 20.0
_POLL_S: Final = 0.1


def servers(layout: Layout) -> Servers:
    """Return where the store of the cluster is."""
    return Servers(tuple(_endpoint(layout, number) for number in range(COUNT)))


def address(layout: Layout, number: int) -> str:
    """Return the address of a member, counted from 0."""
    tail = f"0.{_ISOLATED + number}" if layout.isolated else _SIMPLE
    return f"{layout.network}.{tail}"


def _endpoint(layout: Layout, number: int, *, is_peer: bool = False) -> str:
    return f"{address(layout, number)}:{_PORT + _STEP * number + is_peer}"


def _directory(layout: Layout) -> str:
    return os.path.join(layout.directory, "etcd")


def _data(layout: Layout, number: int) -> str:
    return os.path.join(_directory(layout), f"member{number + 1}")


def start_all(layout: Layout) -> None:
    """Start all members; return when a majority answers.

    Raises:
        OpExecError: etcd is not installed, or does not answer.
    """
    if shutil.which("etcd") is None:
        raise errors.OpExecError("etcd: not installed; install etcd-server")
    os.makedirs(_directory(layout), mode=0o700, exist_ok=True)
    for number in range(COUNT):
        start(layout, number)
    gateway = Gateway(servers(layout))
    time, never = clock.SystemClock(), threading.Event()
    until = time.monotonic() + _READY_S
    try:
        while not _answers(gateway):
            if time.monotonic() > until:
                raise errors.OpExecError(
                    f"etcd does not answer; see {_directory(layout)}/*.log"
                )
            time.wait(never, _POLL_S)
    finally:
        gateway.close()


def _answers(gateway: Gateway) -> bool:
    try:
        gateway.fetch("kv/range", messages.get(b"x"), messages.RangeAnswer)
    except errors.StorageError:
        return False
    return True


def start(layout: Layout, number: int) -> None:
    """Start one member, counted from 0, unless it runs."""
    if running(layout, number):
        return
    client = f"http://{_endpoint(layout, number)}"
    peers = [f"http://{_endpoint(layout, n, is_peer=True)}" for n in range(COUNT)]
    options = {
        "name": f"member{number + 1}",
        "data-dir": _data(layout, number),
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peers[number],
        "initial-advertise-peer-urls": peers[number],
        "initial-cluster": ",".join(f"member{n + 1}={p}" for n, p in enumerate(peers)),
        "heartbeat-interval": _HEARTBEAT,
        "election-timeout": _ELECTION,
        "auto-compaction-mode": "periodic",
        "auto-compaction-retention": "1h",
    }
    command = [
        shutil.which("etcd") or "etcd",
        *(f"--{name}={value}" for name, value in options.items()),
    ]
    if layout.isolated:
        command = ["unshare", "--net", "sh", "-c", _WHEN_PLUGGED_IN, "sh", *command]
    with open(f"{_data(layout, number)}.log", "ab") as log:
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE if layout.isolated else subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={"PATH": os.environ.get("PATH", os.defpath)},
            start_new_session=True,
            cwd="/",
        )
    if child.stdin is not None:
        _give_network(layout, number, child.pid)
        with child.stdin as line:
            line.write(b"\n")


def _give_network(layout: Layout, number: int, pid: int) -> None:
    """Connect the network namespace of a member, once it has one."""
    from ganeti.devel.vcluster import network

    time, never = clock.SystemClock(), threading.Event()
    until = time.monotonic() + _READY_S
    while os.readlink(f"/proc/{pid}/ns/net") == os.readlink("/proc/self/ns/net"):
        if time.monotonic() > until:
            raise errors.OpExecError(
                f"server {number + 1} of etcd: its namespace cannot be created; see"
                f" {_data(layout, number)}.log"
            )
        time.wait(never, _POLL_S)
    network.plug_in_server(layout, number, address(layout, number), pid)


def running(layout: Layout, number: int) -> list[processes.Process]:
    """Return the process of a member, in a list that is empty if it does not run."""
    argument = f"--data-dir={_data(layout, number)}"
    return [each for each in processes.all_processes() if argument in each.arguments]


def kill(layout: Layout, number: int) -> None:
    """Kill one member."""
    processes.kill_all(lambda: running(layout, number))


def signal_member(layout: Layout, number: int, what: signal.Signals) -> None:
    """Send a signal to one member, such as SIGSTOP."""
    processes.send(running(layout, number), what)


def everyone_else(layout: Layout, number: int) -> list[str]:
    """Return the addresses of the other members and of all nodes."""
    others = [address(layout, other) for other in range(COUNT) if other != number]
    return others + [node.address for node in layout.nodes]


def cut(layout: Layout, number: int, addresses: list[str]) -> None:
    """Drop packets from a member of isolated nodes' etcd to some addresses.

    A member that does not run has no network.
    """
    from ganeti.devel.vcluster import network

    for process in running(layout, number):
        network.cut(process.pid, addresses)


def join(layout: Layout, number: int, addresses: list[str]) -> None:
    """Undo `cut`."""
    from ganeti.devel.vcluster import network

    for process in running(layout, number):
        network.join(process.pid, addresses)


def stop_all(layout: Layout) -> None:
    """Kill all members and remove their data."""
    for number in range(COUNT):
        kill(layout, number)
    shutil.rmtree(_directory(layout), ignore_errors=True)
