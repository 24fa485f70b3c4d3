"""Virtual nodes for daemon tests: a root directory, certificates, real daemons."""

import contextlib
import os
import pathlib
import signal
import subprocess
import time

from fakes import patience
from ganeti.base.pathutils import Paths
from ganeti.base.tls import x509
from ganeti.protocols import rpc, ssconf

TOP = pathlib.Path(__file__).resolve().parents[3]
BIN = TOP / "build" / "bin"
#: Of node daemons.
PORT = 1811


def own_address(network):
    """Return an address of this test process alone in a network such as ``127.2``."""
    tail = (os.getpid() % 60000) + 300
    return f"{network}.{tail >> 8}.{tail & 255}"


def know_own_name(paths):
    """Have the name of a node resolve, as the master daemon needs it."""
    os.makedirs(paths.at("/etc"), exist_ok=True)
    pathlib.Path(paths.at("/etc/hosts")).write_text(f"127.0.0.9 {paths.hostname}\n")


class VirtualNode:
    """One node below a directory, with an address of its own on loopback."""

    def __init__(self, top, name, address):
        self.name = name
        self.address = address
        self.root = pathlib.Path(top) / name
        self.paths = Paths(root=str(self.root), hostname=name)
        for path in (self.paths.data_dir, self.paths.run_dir, self.paths.log_dir):
            os.makedirs(path)
        self.process = None

    def make_cluster(self):
        """Write a cluster certificate and return its digest."""
        return x509.write_cluster_certificate(self.paths.server_pem)

    def join(self, first):
        """Take the cluster certificate of another node."""
        data = pathlib.Path(first.paths.server_pem).read_bytes()
        pathlib.Path(self.paths.server_pem).write_bytes(data)

    def make_client(self, path=None):
        """Write a client certificate and return its digest."""
        return x509.write_client_certificate(
            path or self.paths.client_pem,
            server_pem=self.paths.server_pem,
            name=self.name,
            serial=int(time.time()),
        )

    def write_ssconf(self, **values):
        """Write ssconf files."""
        ssconf.write(self.paths, values)

    @property
    def env(self):
        """Environment of the node's programs."""
        return {
            "PATH": os.environ["PATH"],
            "GANETI_ROOTDIR": str(self.root),
            "GANETI_HOSTNAME": self.name,
        }

    def start_noded(self, *options, lock_memory=False):
        """Start the node daemon in the foreground and wait until it listens."""
        if not lock_memory:
            options = ("--no-mlock", *options)
        self.process = subprocess.Popen(
            [BIN / "ganeti-noded", "-f", "-b", self.address, *options],
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.wait_for_line("serving on port")

    def wait_for_line(self, text):
        """Read what the daemon says until a line holds a text."""
        reported = []
        for line in self.process.stderr:
            reported.append(line)
            if text in line:
                return
        raise AssertionError(
            f"noded ended with {self.process.wait()} before {text!r}: {''.join(reported)}"
        )

    def runner(self, term=None):
        """Return a runner that knows this node as ``u1``; close it afterwards."""
        target = rpc.Target("u1", self.name, self.address, PORT)
        return rpc.StaticRunner([target], self.paths, term)

    def ask(self, procedure="version", *args, term=None):
        """Call a procedure of the node daemon over a new connection."""
        with contextlib.closing(self.runner(term)) as caller:
            return caller.call(procedure, ["u1"], args)["u1"]

    def stop(self, number=signal.SIGTERM):
        """End the node daemon and return its exit code and what it still wrote."""
        if self.process is None:
            return None
        process, self.process = self.process, None
        process.send_signal(number)
        try:
            _, rest = process.communicate(timeout=patience.PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            _, rest = process.communicate()
        return process.returncode, rest
