"""Real servers of etcd, as members of one cluster on this machine."""

import itertools
import os
import pathlib
import shutil
import signal
import subprocess

import pytest

from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.bootstrap import store_access
from ganeti.store.etcd import Gateway, Servers, TlsFiles, messages
from ganeti.store.etcd.reader import Reader

from . import clusters, patience, ports, store

_PREFIXES = itertools.count(1)
#: Milliseconds; the servers' own default is for networks, and a test would wait for it.
_HEARTBEAT, _ELECTION = "50", "500"


class Site:
    """A cluster of three whose store is in etcd, seen from one of its nodes."""

    def __init__(self, folder, servers, own=1):
        self.servers = servers
        snapshot = clusters.snapshot(nodes=3)
        self.master = snapshot.nodes[snapshot.cluster.master_node]
        self.own = snapshot.nodes[clusters.node_uuid(own)]
        self.other = snapshot.nodes[clusters.node_uuid(2)]
        self.paths = Paths(root=str(folder / self.own.name), hostname=self.own.name)
        os.makedirs(self.paths.data_dir)
        store.write(self.paths, snapshot)
        store_access.find_place(str(servers)).fill(self.paths, self.master.uuid)

    def leading(self):
        gateway = Gateway(self.servers)
        try:
            return Reader(gateway).look().leading
        finally:
            gateway.close()


class EtcdServers:
    """Members that are started by `start`, and ended by `close`."""

    def __init__(self, folder, count=1, tls=None):
        """Prepare servers; ``tls`` is authority, certificate and key of all of them."""
        if shutil.which("etcd") is None:
            pytest.fail("etcd: missing; run autotools/setup-env --test", pytrace=False)
        self.folder = pathlib.Path(folder)
        self.tls = tls
        actual = [ports.free() for _ in range(2 * count)]
        self.clients = [f"127.0.0.1:{port}" for port in actual[:count]]
        self._peers = [f"http://127.0.0.1:{port}" for port in actual[count:]]
        self.running = {}

    def servers(self, prefix=None, tls=None):
        """Return a place for a store: by default one that no other test has used."""
        return Servers(tuple(self.clients), prefix or f"test{next(_PREFIXES)}", tls)

    def start(self, *numbers):
        """Start members, by default all; return when a majority answers."""
        for number in numbers or range(len(self.clients)):
            self._spawn(number)
        tls = self.tls and TlsFiles(*map(str, self.tls))
        gateway = Gateway(self.servers(tls=tls))
        patience.until("etcd answers", lambda: _answers(gateway))
        gateway.close()
        return self

    def _spawn(self, number):
        scheme = "http" if self.tls is None else "https"
        client = f"{scheme}://{self.clients[number]}"
        members = ",".join(f"m{i}={peer}" for i, peer in enumerate(self._peers))
        options = {
            "name": f"m{number}",
            "data-dir": self.folder / f"m{number}",
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": self._peers[number],
            "initial-advertise-peer-urls": self._peers[number],
            "initial-cluster": members,
            "heartbeat-interval": _HEARTBEAT,
            "election-timeout": _ELECTION,
        }
        if self.tls is not None:
            names = ("trusted-ca-file", "cert-file", "key-file")
            options |= dict(zip(names, self.tls, strict=True))
            options["client-cert-auth"] = "true"
        arguments = [f"--{name}={value}" for name, value in options.items()]
        with open(self.folder / f"m{number}.log", "ab") as log:
            self.running[number] = subprocess.Popen(
                ["etcd", "--unsafe-no-fsync", *arguments],
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"]},
            )

    def kill(self, number):
        process = self.running.pop(number)
        process.kill()
        process.wait()

    def pause(self, number):
        process = self.running[number]
        process.send_signal(signal.SIGSTOP)
        # It could still answer until the signal takes effect.
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)

    def resume(self, number):
        self.running[number].send_signal(signal.SIGCONT)

    def close(self):
        for number in list(self.running):
            self.kill(number)


def _answers(gateway):
    try:
        gateway.fetch("kv/range", messages.get(b"x"), messages.RangeAnswer)
    except errors.StorageError:
        return False
    return True
