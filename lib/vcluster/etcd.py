"""Servers of etcd for a virtual cluster: three members as processes of this machine.

They are outside of all nodes, as if each were on a machine of its own.
"""

import os
import shutil
import signal
import subprocess
import threading
from typing import Final

from ganeti import clock, errors
from ganeti.store.etcd import Gateway, Servers, messages
from ganeti.vcluster import processes
from ganeti.vcluster.layout import Layout

COUNT: Final = 3
_PORT: Final = 2379
_STEP: Final = 10
#: Last two octets of the servers' address: that of the machine on the bridge of
#: isolated nodes, otherwise one that no node has.
_ISOLATED: Final = "0.254"
_SIMPLE: Final = "0.2"
#: Milliseconds; etcd's own defaults are for networks.
_HEARTBEAT: Final = "50"
_ELECTION: Final = "500"
#: Seconds until a majority answers.
_READY_S: Final = 20.0
_POLL_S: Final = 0.1


def servers(layout: Layout) -> Servers:
    """Return where the store of the cluster is."""
    return Servers(tuple(_endpoint(layout, number) for number in range(COUNT)))


def _endpoint(layout: Layout, number: int, *, is_peer: bool = False) -> str:
    tail = _ISOLATED if layout.isolated else _SIMPLE
    return f"{layout.network}.{tail}:{_PORT + _STEP * number + is_peer}"


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
    with open(f"{_data(layout, number)}.log", "ab") as log:
        subprocess.Popen(
            [
                shutil.which("etcd") or "etcd",
                *(f"--{name}={value}" for name, value in options.items()),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={"PATH": os.environ.get("PATH", os.defpath)},
            start_new_session=True,
            cwd="/",
        )


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


def stop_all(layout: Layout) -> None:
    """Kill all members and remove their data."""
    for number in range(COUNT):
        kill(layout, number)
    shutil.rmtree(_directory(layout), ignore_errors=True)
