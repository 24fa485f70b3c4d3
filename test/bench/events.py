"""Events: time from a change to its clients, and processor time, with many clients.

The master daemon and the daemon of the remote API are processes of their own, with the real
store, queue and LUXI; nodes are fakes. Each change is a freeze whose reason has the moment
at which it was asked for, so the figures include the call and the commit.
"""

import argparse
import base64
import contextlib
import json
import logging
import os
import pathlib
import runpy
import select
import socket
import ssl
import subprocess
import sys
import tempfile
import time

MODULE = runpy.run_path(str(pathlib.Path(__file__).with_name("rapi.py")))
ADDRESS, PORT, NAME = "127.0.0.1", 15081, "node1.example.com"
USERS = "jack {HA1}ce9ed419740789a9a91375eda3722642 write\n"
JACK = base64.b64encode(b"jack:example").decode()
CLOCK = time.CLOCK_MONOTONIC
#: Clients that look at the events.
SAMPLE = 20


@contextlib.contextmanager
def child(*words):
    """Run this program with other arguments until it is ready; yield its process."""
    argv = [sys.executable, __file__, *words]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        try:
            if process.stdout.read(1) != b"x":
                sys.exit("a server did not start")
            yield process
        finally:
            process.kill()


def serve_master(root):
    """Run a master daemon of fake nodes, which do not answer its own duties."""
    from fakes.master import Master

    logging.disable()
    Master(root).start()


def serve_api(root):
    """Run the daemon of the remote API."""
    from ganeti.base.pathutils import Paths
    from ganeti.daemons import common
    from ganeti.daemons.mains import rapi

    paths = Paths(root=root, hostname=NAME)
    words = ["-b", ADDRESS, "-p", str(PORT)]
    options = common.parse(rapi.build_parser(), words)
    rapi.start(options, paths, common.Control())


def prepare(root):
    """Make the files of the remote API beside those of the master."""
    from ganeti.base.pathutils import Paths
    from ganeti.base.tls import x509

    paths = Paths(root=root, hostname=NAME)
    os.makedirs(paths.data("rapi"), exist_ok=True)
    os.makedirs(os.path.dirname(paths.rapi_socket), exist_ok=True)
    pem = pathlib.Path(paths.data("rapi.pem"))
    pem.write_bytes(x509.create_self_signed().pem)
    pem.chmod(0o440)
    pathlib.Path(paths.data("rapi/users")).write_text(USERS, encoding="utf-8")


class Clients:
    """Connections that read events, a few of which look at them.

    One process of Python could not decode what the server sends to a thousand.
    """

    def __init__(self, count):
        self.looking = min(count, SAMPLE)
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self.poll = select.epoll()
        self.by_fd = {}
        self.took = []
        for _ in range(count):
            sock = context.wrap_socket(socket.create_connection((ADDRESS, PORT)))
            head = "GET /2/events?kinds=freeze HTTP/1.1\r\nHost: x\r\n"
            sock.sendall(f"{head}Authorization: Basic {JACK}\r\n\r\n".encode())
            received = b""
            while b'"lost":false' not in received:
                received += sock.recv(65536)
            sock.setblocking(False)
            self.poll.register(sock, select.EPOLLIN)
            is_looking = len(self.by_fd) < SAMPLE
            self.by_fd[sock.fileno()] = (sock, bytearray() if is_looking else None)

    def read(self, timeout_s):
        """Read what is there; note how old each event is."""
        for fd, _events in self.poll.poll(timeout_s):
            sock, received = self.by_fd[fd]
            data = b""
            with contextlib.suppress(ssl.SSLWantReadError):
                data = sock.recv(65536)
            if received is None:
                continue
            received += data
            now = time.clock_gettime(CLOCK)
            while (end := received.find(b"\n\n")) >= 0:
                block = bytes(received[:end])
                del received[: end + 2]
                if b'"frozen"' in block:
                    event = json.loads(block.partition(b"data: ")[2])
                    self.took.append(now - float(event["details"]["reason"]))


def change(paths, count, rate):
    """Make changes at a rate, in a process of its own."""
    from ganeti.protocols.luxi import Client

    with Client.of_node(paths) as client:
        start = time.clock_gettime(CLOCK)
        for number in range(count):
            left_s = start + number / rate - time.clock_gettime(CLOCK)
            if left_s > 0:
                time.sleep(left_s)
            if number % 2:
                client.call("ThawAutomation")
            else:
                client.call("FreezeAutomation", [str(time.clock_gettime(CLOCK))])


def run(root, clients, seconds, rate):
    """Measure."""
    cpu_ms, memory = MODULE["cpu_ms"], MODULE["memory"]
    with contextlib.ExitStack() as serving:
        master = serving.enter_context(child("--serve", "master", root)).pid
        prepare(root)
        api = serving.enter_context(child("--serve", "api", root)).pid
        pids = {"master daemon": master, "remote API": api}
        count = int(seconds * rate)
        words = ["--changes", str(count), "--rate", str(rate), "--root", root]

        def begin():
            return {name: cpu_ms(pid) for name, pid in pids.items()}, time.monotonic()

        def shares(before, began):
            tenths = (time.monotonic() - began) * 10
            used = {name: cpu_ms(pid) - before[name] for name, pid in pids.items()}
            return ", ".join(f"{name} {ms / tenths:.1f} %" for name, ms in used.items())

        before = begin()
        subprocess.run([sys.executable, __file__, *words], check=True)
        print(f"no client, {rate:g} changes/s: of a core: {shares(*before)}")
        empty = memory(api)
        readers = Clients(clients)
        per_client = (memory(api) - empty) * 1024 / clients
        before = begin()
        with subprocess.Popen([sys.executable, __file__, *words]) as writer:
            wanted = readers.looking * ((count + 1) // 2)
            while len(readers.took) < wanted:
                readers.read(1.0)
                is_late = time.monotonic() - before[1] > 3 * seconds
                if writer.poll() is not None and is_late:
                    sys.exit(f"{len(readers.took)} of {wanted} events arrived")
        used, times = shares(*before), sorted(readers.took)
        p50, p99 = times[len(times) // 2], times[int(len(times) * 0.99)]
        print(
            f"{clients} clients, {rate:g} changes/s: change to event"
            f" p50 {p50 * 1000:.1f} ms, p99 {p99 * 1000:.1f} ms,"
            f" longest {times[-1] * 1000:.1f} ms"
        )
        print(f"  of a core: {used}; memory per client {per_client:.0f} KiB")


def main():
    """Parse arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--quick", action="store_true", help="few clients, 4 seconds")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--changes", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--root", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        what, root = options.serve
        start = serve_master if what == "master" else serve_api
        MODULE["serve"](lambda: start(root))
    elif options.changes:
        from ganeti.base.pathutils import Paths

        paths = Paths(root=options.root, hostname=NAME)
        change(paths, options.changes, options.rate)
    else:
        clients, seconds = options.clients, options.seconds
        if options.quick:
            clients, seconds = 50, 4.0
        with tempfile.TemporaryDirectory(prefix="ev-", dir="/tmp") as root:
            run(root, clients, seconds, options.rate)


if __name__ == "__main__":
    main()
