"""Seeded fuzzing: mutated messages against every decoder that reads strangers' bytes.

A target sends one mutated message per step. It raises if the receiver crashed, which is
any exception that is not one of ours, or acted. `run` gives each target a share of the
messages and measures the growth of memory. The seed decides every message.
"""

import base64
import contextlib
import copy
import dataclasses
import http.client
import json
import logging
import os
import pathlib
import random
import shutil
import socket
import ssl
import tempfile
import time

import msgspec

from fakes import allocators, clusters, master, ports, simulation
from fakes.rpc import FAILING_NODE, FakeRunner
from fakes.store import updates
from ganeti import store
from ganeti.base import clock, errors, pathutils
from ganeti.base.tls import x509
from ganeti.daemons import common
from ganeti.daemons.mains import noded
from ganeti.decisions.verify import Report, nodes
from ganeti.decisions.verify import node_answer as forms
from ganeti.master import hooksmaster, iallocator, query
from ganeti.model import objects
from ganeti.node import calls as backend
from ganeti.protocols import ssconf
from ganeti.protocols.http.client import Response
from ganeti.protocols.rpc import runner as network
from ganeti.store import wire
from ganeti.store.database import Database

#: Replacements of a value in a message.
JUNK = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**30, -(10**30), 0.5, 1e308),
    *(
        "",
        "x",
        "0",
        "node1.example.com",
        "inst1.example.com",
        "a" * 300,
        "\0",
        "é\ud7ff",
    ),
    *("../../etc/passwd", "-oProxyCommand=x", "\x1b[2J", "%s%n", "name\n.node9"),
    *([], {}, [[]], [None], {"": None}, {"memory": "x"}, [1, "a", None], [[[[[]]]]]),
)
_BYTES = (b"\0", b"\xff", b"\x03", b"\r\n", b'"', b"[", b"{", b"\\", b"1e999", b"\xc3")


def places(value, collected=None):
    """Return (container, key) of every value inside of a value."""
    collected = [] if collected is None else collected
    keys = (
        list(value)
        if isinstance(value, dict)
        else range(len(value))
        if isinstance(value, list)
        else ()
    )
    for key in keys:
        collected.append((value, key))
        places(value[key], collected)
    return collected


def mutated_value(chance, value):
    """Return a copy of a JSON value with one to three changes."""
    box = [copy.deepcopy(value)]
    for _change in range(chance.randint(1, 3)):
        container, key = chance.choice(places(box))
        kind = chance.random()
        if kind < 0.6:
            container[key] = copy.deepcopy(chance.choice(JUNK))
        elif kind < 0.75 and container is not box:
            del container[key]
            if not places(box):
                break
        elif isinstance(container, dict):
            container[str(chance.choice(JUNK))] = container[key]
        elif container is not box:
            container.insert(key, copy.deepcopy(container[key]))
    return box[0] if box else None


def mutated_bytes(chance, data):
    """Return bytes with one to four changes."""
    data = bytearray(data)
    for _change in range(chance.randint(1, 4)):
        place, kind = chance.randint(0, len(data)), chance.random()
        if kind < 0.4 and place < len(data):
            data[place] ^= 1 << chance.randrange(8)
        elif kind < 0.6:
            del data[place : place + chance.randint(1, 8)]
        elif kind < 0.8:
            data[place:place] = chance.choice(_BYTES)
        elif kind < 0.9:
            del data[place:]
        else:
            data[place:place] = data[place : place + chance.randint(1, 64)]
    return bytes(data)


def mutated(chance, value):
    """Return a mutated JSON text."""
    changed = mutated_value(chance, value) if chance.random() < 0.8 else value
    data = json.dumps(changed).encode()
    if changed is value or chance.random() < 0.1:
        data = mutated_bytes(chance, data)
    return data


# The master's decoding of node answers
_GUEST = {"memory": 128, "vcpus": 1, "state": 0, "time": 1.5}
_INFO = [
    "boot-id",
    [{"type": "lvm-vg", "name": "xenvg", "storage_free": 80, "storage_size": 100}],
    [{"memory_total": 9, "memory_free": 8, "memory_dom0": 1, "cpu_total": 4}],
]
_INFO[2][0] |= {"cpu_dom0": 1, "cpu_nodes": 1, "cpu_sockets": 1, "hv_version": [1, 2]}
_OS = ["tiny", "/srv/os/tiny", True, "", ["default"], [["p", "text"]], [20], True]
ANSWERS = {
    "all_instances_info": {"inst1.example.com": _GUEST, "inst2.example.com": _GUEST},
    "node_info": _INFO,
    "os_diagnose": [_OS, [*_OS[:4], [], [], [20], False]],
    "extstorage_diagnose": [["e", "/x", True, "", [["p", "text"]]]],
    "export_list": ["inst1.example.com"],
    "hooks_runner": [["instance-add-post.d/a", 2, "out"]],
    "iallocator_runner": '{"success": true, "info": "", "result": ["node2.example.com"]}',
    "node_verify": {
        "version": [70, "3.1.1"],
        "time": [1000, 0],
        "nodelist": {"node2.example.com": "refused"},
        "node-net-test": {"node2.example.com": "tcp"},
        "hypervisor": {"kvm": None},
        "hvparms": [["kvm", "global", "wrong"]],
        "filelist": {"/a": "00ff"},
        "oslist": [_OS],
        "instancelist": ["inst1.example.com"],
        "hvinfo": {"memory_free": 4},
        "vglist": {"xenvg": 4096},
        "master-ip": [True, True],
        "file-storage-path": "/srv",
        "client-cert": [None, "aa:bb"],
    },
    "store_status": {"revision": 5, "term": 3, "owner": "u", "digest": "00"},
    "version": 70,
    "blockdev_getmirrorstatus_multi": [[True, {"dev_path": "/dev/x"}], [False, "no"]],
}
#: Input of allocators.
_ALLOCATED = ("node_info", "all_instances_info")
_RESOURCES = {
    "all_instances_info": "instance",
    "node_info": "node",
    "os_diagnose": "os",
    "extstorage_diagnose": "extstorage",
    "export_list": "export",
}


class Answers:
    """Nodes answer nonsense; queries, verification and allocators read it."""

    name = "node answers"

    def __init__(self):
        self._snapshot = clusters.snapshot(nodes=3, instances=2)
        self._answers = dict(ANSWERS)
        runner = FakeRunner(lambda: self._snapshot)
        runner.script = {name: self._reader(name) for name in ANSWERS}
        self._runner = runner
        self._bodies = {}
        self._fields = {
            what: [field["name"] for field in query.describe(what, None)]
            for what in _RESOURCES.values()
        }
        self._expected = nodes.Expected(1000.0, 1001.0, "192.0.2.100")

    def _reader(self, name):
        def read(_node, _args):
            body = self._bodies.get(name)
            if body is None:
                body = json.dumps([True, ANSWERS[name]]).encode()
            return network.read_answer(name, "n", Response(200, body))

        return read

    def step(self, chance):
        name = chance.choice(list(ANSWERS))
        body = mutated(chance, [True, ANSWERS[name]])
        self._bodies = {name: body}
        self._runner.calls.clear()
        result = network.read_answer(
            name, "node1", Response(chance.choice((200, 200, 200, 409, 500)), body)
        )
        if result.failed:
            assert isinstance(result.fail_msg, str)
            return
        self._use(name, result, chance)

    def _use(self, name, result, chance):
        sources = query.Sources(self._snapshot, self._runner)
        if name in _RESOURCES:
            what = _RESOURCES[name]
            with contextlib.suppress(errors.GenericError):
                answer = query.query(sources, what, self._fields[what], None)
                _encodes(answer.to_dict())
        elif name == "node_verify":
            self._verify(result.payload)
        elif name == "hooks_runner":
            with contextlib.suppress(errors.GenericError):
                uuids = list(self._snapshot.nodes)
                hooksmaster.run(self._runner, "instance-add", "post", uuids, {})
        if name == "iallocator_runner" or (
            name in _ALLOCATED and chance.random() < 0.2
        ):
            with contextlib.suppress(errors.GenericError):
                request = allocators.allocate()
                iallocator.run(self._runner, self._snapshot, "mine", request)

    def _verify(self, payload):
        answer, _wrong = forms.clean(payload)
        report = Report()
        node = self._snapshot.nodes[clusters.node_uuid(1)]
        nodes.judge(report, node, answer, self._expected)
        nodes.volume_groups(report, node, answer, "xenvg")
        nodes.digests(report, self._snapshot, {node.uuid: answer})
        for finding in report.take():
            finding.line()

    def close(self):
        pass


def _encodes(value):
    """Clients get what was read, so it must have a wire form."""
    msgspec.json.encode(value)


# LUXI
_MESSAGES = [
    {"method": "Query", "args": ["instance", ["name", "status"], ["=", "name", "x"]]},
    {"method": "Query", "args": ["job", ["id", "summary"], ["|", [">", "id", 3]]]},
    {"method": "QueryNodes", "args": [["node1"], ["name", "mfree"], False]},
    {"method": "QueryJobs", "args": [[1, 2], ["id", "status", "ops"]]},
    {"method": "QueryTags", "args": ["cluster", ""]},
    {"method": "QueryConfigValues", "args": [["cluster_name", "drain_flag"]]},
    {"method": "QueryFields", "args": ["node", ["name"]]},
    {"method": "QueryClusterInfo", "args": []},
    {"method": "SubmitJob", "args": [[{"OP_ID": "OP_FUZZ", "duration": 0}]]},
    {"method": "SubmitManyJobs", "args": [[[{"OP_ID": "OP_FUZZ", "x": 0}]]]},
    {"method": "PlanJob", "args": [[{"OP_ID": "OP_FUZZ", "debug_level": 0}]]},
    {"method": "CancelJob", "args": [77, False]},
    {"method": "ChangeJobPriority", "args": [77, 10]},
    {"method": "ArchiveJob", "args": [77]},
]
_END = b"\x03"


class Luxi:
    """A client of a whole master daemon in this process sends nonsense."""

    name = "LUXI"

    def __init__(self):
        self._root = tempfile.mkdtemp(prefix="gf-", dir="/tmp")
        self._master = master.Master(
            self._root, script=FAILING_NODE | simulation.Simulation().script()
        ).start()
        self._before = self._records()
        self._log = _Crashes()
        self._sock = None

    def _records(self):
        snapshot = self._master.store.snapshot()
        return [dict(snapshot.table(table)) for table in objects.TABLES]

    def step(self, chance):
        data = mutated(chance, chance.choice(_MESSAGES))
        self._ask(data.replace(_END, b" ") + _END)
        self._log.check()

    def _send(self, data):
        """Send a message; after one that is no JSON, the master hangs up."""
        while True:
            if self._sock is None:
                self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                self._sock.settimeout(60)
                self._sock.connect(self._master.paths.query_socket)
            try:
                return self._sock.sendall(data)
            except (BrokenPipeError, ConnectionResetError):
                self._sock.close()
                self._sock = None

    def _ask(self, data):
        self._send(data)
        received = b""
        while not received.endswith(_END):
            try:
                piece = self._sock.recv(1 << 16)
            except ConnectionResetError:
                piece = b""
            if not piece:
                self._sock.close()
                self._sock = None
                return
            received += piece
        answer = json.loads(received[:-1])
        assert answer["success"] in (True, False), answer

    def close(self):
        """End the master; it still serves, and nothing was changed."""
        with self._master.client() as client:
            assert client.call("QueryConfigValues", [["cluster_name"]])
            jobs = client.call("QueryJobs", [None, ["ops"]])
        assert not any(ops for (ops,) in jobs), "it took opcodes"
        assert self._records() == self._before, "it changed the configuration"
        if self._sock is not None:
            self._sock.close()
        self._master.stop()
        self._log.close()
        shutil.rmtree(self._root)


class _Crashes(logging.Handler):
    """Collects logged tracebacks: a daemon survives them, but they are mistakes."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self._recorded = []
        logging.getLogger().addHandler(self)

    def emit(self, record):
        if record.exc_info:
            self._recorded.append(logging.Formatter().format(record))

    def check(self):
        assert not self._recorded, self._recorded[0]

    def close(self):
        logging.getLogger().removeHandler(self)
        super().close()


# noded
class Noded:
    """The node daemon in this process, with real TLS, gets nonsense.

    It comes from a node that is no candidate, a candidate under an old term, and a
    candidate whose arguments or bytes are wrong. The procedures only count here.
    """

    name = "noded"

    def __init__(self):
        self._root = tempfile.mkdtemp(prefix="gf-", dir="/tmp")
        self._paths = pathutils.Paths(root=self._root, hostname="n1")
        for path in (self._paths.data_dir, self._paths.run_dir, self._paths.log_dir):
            os.makedirs(path)
        x509.write_cluster_certificate(self._paths.server_pem)
        self._me = clusters.node_uuid(1)
        own = self._certificate(self._paths.client_pem, 1)
        self._stranger = f"{self._root}/stranger.pem"
        self._certificate(self._stranger, 2)
        ssconf.write(self._paths, {"master_candidates_certs": f"{self._me}={own}\n"})
        backend.load()
        self._entries = dict(backend.PROCEDURES)
        self.acts = 0
        self._replace_procedures()
        self._port = ports.free()
        options = noded.build_parser().parse_args(
            ["-b", "127.0.0.1", "-p", str(self._port), "--no-mlock"]
        )
        self._daemon = noded.start(options, self._paths, common.Control())
        self._log = _Crashes()
        self._connections = {}
        self._term = 5
        self._post(self._paths.client_pem, "version", b"[]", term=self._term)
        self.acts = 0

    def _certificate(self, path, serial):
        return x509.write_client_certificate(
            path, server_pem=self._paths.server_pem, name="n1", serial=serial
        )

    def _replace_procedures(self):
        def count(*_args):
            self.acts += 1

        for name, entry in self._entries.items():
            backend.PROCEDURES[name] = dataclasses.replace(entry, function=count)

    def step(self, chance):
        kind, name = chance.random(), chance.choice(sorted(self._entries))
        body = mutated(
            chance, [chance.choice(JUNK) for _ in range(chance.randint(0, 4))]
        )
        acts = self.acts
        if kind < 0.03:
            with contextlib.suppress(ssl.SSLError, ConnectionError):
                status = self._post(self._stranger, name, body, term=self._term + 1)
                raise AssertionError(f"a stranger got {status}")
        elif kind < 0.5:
            status = self._post(self._paths.client_pem, name, body, term=self._term - 1)
            assert status == 409, (name, body, status)
        elif kind < 0.95:
            self._post(self._paths.client_pem, name, body, term=self._term)
            acts = self.acts  # arguments that fit are a call that a master may make
        else:
            request = self._request(name, body, self._term - 1)
            self._raw(mutated_bytes(chance, request))
            self._follow_term()
            acts = self.acts  # so is one that has lost its term
        assert self.acts == acts, f"{name} acted on {body!r}"
        self._log.check()

    def _follow_term(self):
        """Go on with the term that the node has now.

        A message that has lost nothing but the digit of its term is one of a candidate
        that became master.
        """
        with open(self._paths.data(noded.TERM_FILE)) as file:
            self._term = json.load(file)["term"]

    def _context(self, certificate):
        context = ssl.create_default_context(cafile=self._paths.server_pem)
        context.check_hostname = False
        context.load_cert_chain(certificate)
        return context

    def _post(self, certificate, name, body, *, term):
        """Send a request over a connection that is kept; return the HTTP status."""
        connection = self._connections.get(certificate)
        if is_new := connection is None:
            connection = http.client.HTTPSConnection(
                "127.0.0.1", self._port, timeout=60, context=self._context(certificate)
            )
            self._connections[certificate] = connection
        headers = {"X-Ganeti-Term": f"{term}:{self._me}"}
        try:
            connection.request("POST", f"/{name}", body, headers)
            answer = connection.getresponse()
            answer.read()
        except (http.client.RemoteDisconnected, ConnectionError, ssl.SSLError):
            connection.close()
            del self._connections[certificate]
            if is_new:
                raise
            # One that was kept may be closed at any time.
            return self._post(certificate, name, body, term=term)
        return answer.status

    def _request(self, name, body, term):
        return (
            f"POST /{name} HTTP/1.1\r\nHost: n1\r\n"
            f"X-Ganeti-Term: {term}:{self._me}\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode() + body

    def _raw(self, data):
        """Send bytes over a connection of their own, to its end."""
        context = self._context(self._paths.client_pem)
        with (
            socket.create_connection(("127.0.0.1", self._port), 60) as plain,
            contextlib.suppress(OSError),
            context.wrap_socket(plain) as sock,
        ):
            sock.sendall(data)
            # The end of the request, whatever its headers promised.
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(1 << 16):
                pass

    def close(self):
        """End the daemon, which still serves."""
        status = self._post(self._paths.client_pem, "version", b"[]", term=self._term)
        assert status == 200
        for connection in self._connections.values():
            connection.close()
        self._daemon.stop()
        backend.PROCEDURES.update(self._entries)
        self._log.close()
        shutil.rmtree(self._root)


# The store
class StoreWire:
    """A candidate gets changes and copies that are damaged."""

    name = "store's wire form"

    def __init__(self):
        snapshot = clusters.snapshot(nodes=3, instances=2)
        self._rows = wire.rows(updates(snapshot))
        rows = wire.encode_rows(self._rows)
        batch = base64.b64decode(wire.encode_batch((), self._rows))
        with tempfile.TemporaryDirectory(prefix="gf-", dir="/tmp") as root:
            running = master.Master(root).start()
            running.stop()
            database = Database(running.paths.store_db, create=False)
            copied = database.dump()
            database.close()
        self._kinds = (
            (wire.decode_rows, rows, bytes),
            (wire.decode_batch, batch, base64.b64encode),
            (wire.decode_copy, copied, wire.encode_copy),
        )

    def step(self, chance):
        decode, good, pack = chance.choice(self._kinds)
        with contextlib.suppress(errors.GenericError):
            if chance.random() < 0.8:
                decoded = decode(pack(mutated_bytes(chance, good)))
            else:
                text = pack(good)
                raw = text.encode() if isinstance(text, str) else text
                decoded = decode(mutated_bytes(chance, raw))
            if decode is wire.decode_rows:
                wire.to_changes(decoded)

    def close(self):
        pass


class StoreFiles:
    """A master opens a database with damaged pages.

    It is in memory: on a disk that others use, an open waits for a second.
    """

    name = "store's files"

    def __init__(self):
        self._root = tempfile.mkdtemp(prefix="gf-", dir="/dev/shm")
        running = master.Master(self._root).start()
        running.stop()
        self._good = pathlib.Path(running.paths.store_db).read_bytes()

    def step(self, chance):
        path = pathlib.Path(self._root, "damaged.db")
        for suffix in ("", "-wal", "-shm"):
            pathlib.Path(f"{path}{suffix}").unlink(missing_ok=True)
        path.write_bytes(mutated_bytes(chance, self._good))
        try:
            opened = store.open_master(
                str(path), replicate=None, clock=clock.SystemClock()
            )
        except errors.GenericError as err:
            assert path.name in str(err), err  # noqa: PT017 - it may also be opened
            return
        opened.snapshot()
        opened.close()

    def close(self):
        shutil.rmtree(self._root)


#: Memory may grow by this share after the first part of the messages.
GROWTH, WARM_UP = 0.1, 0.2


def rss_bytes(pid="self"):
    """Return the resident memory of this process."""
    pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class _FormatOnly(logging.Handler):
    """Formats records and keeps none: a collector of logs would grow, not the product."""

    def emit(self, record):
        self.format(record)


@contextlib.contextmanager
def _logs_formatted_only():
    log, handler = logging.getLogger("ganeti"), _FormatOnly()
    propagate, log.propagate = log.propagate, False
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = propagate


@_logs_formatted_only()
def run(count, seed, targets, show=lambda _text: None):
    """Send messages to targets, each its share of them.

    Raises:
        AssertionError: a target crashed, acted, or grew; names the seed.
    """
    for kind, share in targets:
        wanted, chance = max(10, int(count * share / 100)), random.Random(seed)
        target, began, base = kind(), time.monotonic(), None
        try:
            for number in range(wanted):
                if number == int(wanted * WARM_UP):
                    base = rss_bytes()
                try:
                    target.step(chance)
                except Exception as err:
                    text = f"seed {seed}, {kind.name}, message {number}: {err!r}"
                    raise AssertionError(text) from err
            growth = rss_bytes() / base - 1
            spent = time.monotonic() - began
            show(f"{kind.name}: {wanted} messages, {spent:.0f} s, memory {growth:+.1%}")
            assert growth <= GROWTH, f"seed {seed}, {kind.name}: memory {growth:+.1%}"
        finally:
            target.close()
