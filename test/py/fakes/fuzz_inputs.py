"""Targets as those of `fakes.fuzz`: what users send and what programs on a node write.

Bodies of the remote API, datagrams, and small files that guests, helpers and other
processes leave. Each is refused with one sentence or gives a canonical value, and no
file is touched besides those of the target: see `Untouched`.
"""

import base64
import contextlib
import json
import os
import shutil
import sys
import tempfile
import time

import msgspec

from fakes import fuzz, nodes
from fakes.clocks import FakeClock
from fakes.confd import KEY, FakeSource, orchard
from fakes.confd_hostile import Attack, is_authentic
from fakes.hostile_values import hostile
from fakes.rapi_master import BODIES, Browser, RapiMaster
from ganeti.automation.watcher import main, node_part
from ganeti.base import errors
from ganeti.base.filesystem import files, pidfile, shared_files
from ganeti.daemons.confd import server as confd_server
from ganeti.daemons.rapi import users
from ganeti.daemons.rapi.application import Application
from ganeti.daemons.rapi.authentication import Authenticator
from ganeti.daemons.rapi.waits import Waits
from ganeti.model.objects import export_info
from ganeti.node.calls import helper_machines, os_scripts
from ganeti.node.calls.disks import transfers
from ganeti.node.hypervisor.xen import migration
from ganeti.node.hypervisor.xen.files import Files as XenFiles
from ganeti.node.storage import heartbeats
from ganeti.protocols.rapi import resource_table as resources

#: Objects that the master of the remote API has; others get hostile names.
NAMES = {
    "[instance_name]": "web1",
    "[node_name]": "n1",
    "[group_name]": "default",
    "[network_name]": "lan",
    "[filter_uuid]": "rule-1",
    "[job_id]": "1",
    "[incident_uuid]": "incident-1",
    "[session_id]": "session-1",
    "[disk_index]": "0",
    "[resource]": "node",
}
#: Parts of the answer to a wait without a body.
_NO_BODY = {
    "message": "body: wanted an object",
    "explain": "Server got itself in trouble",
}
#: Events of the interpreter that change something outside of it, with the arguments that
#: are paths.
_CHANGES = {
    "os.remove": 1,
    "os.rename": 2,
    "os.mkdir": 1,
    "os.rmdir": 1,
    "os.symlink": 2,
    "os.link": 2,
    "os.chmod": 1,
    "os.chown": 1,
    "os.truncate": 1,
    "os.utime": 1,
}
_PROGRAMS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class Untouched:
    """Watches whether this process changes files elsewhere, or starts programs.

    The interpreter's hook cannot be removed, so there is one, which a target switches on.
    """

    _active = None

    def __init__(self):
        self.seen = []

    @classmethod
    def _hook(cls, event, args):
        if cls._active is not None:
            cls._active.note(event, args)

    def note(self, event, args):
        """Note an event that a target does not cause."""
        if event == "open":
            path, _mode, flags = args
            is_change = isinstance(path, str) and flags & _WRITING
            paths = [path] if is_change else []
        elif event in _PROGRAMS:
            paths = [f"program {args[0]!r}"]
        else:
            paths = args[: _CHANGES.get(event, 0)]
        for path in paths:
            text = os.fsdecode(path) if isinstance(path, (str, bytes)) else str(path)
            if not text.startswith(("/tmp/gf-", "/dev/null")):
                self.seen.append(f"{event}: {text}")

    def __enter__(self):
        if not hasattr(Untouched, "_installed"):
            sys.addaudithook(Untouched._hook)
            Untouched._installed = True
        Untouched._active = self
        return self

    def __exit__(self, *_exc):
        Untouched._active = None

    def check(self):
        assert not self.seen, self.seen[0]


def check_sentence(text):
    """One sentence for a person: no control characters, not long."""
    assert text, "a refusal without a reason"
    assert text.isprintable(), ascii(text)
    assert len(text) < 2000, len(text)


def hostile_value(chance, value):
    """Return a mutated JSON value in which texts have pieces with other meanings."""
    value = fuzz.mutated_value(chance, value)
    box = [value]
    for _change in range(chance.randint(0, 2)):
        container, key = chance.choice(fuzz.places(box))
        container[key] = hostile(chance)
    return box[0]


class Bodies:
    """A user of the remote API, with the right to change everything, sends nonsense."""

    name = "bodies of the remote API"

    def __init__(self):
        self._log = fuzz._Crashes()
        self._resources = sorted(resources.RESOURCES, key=lambda r: (r.path, r.method))
        word = base64.b64encode(b"owner:pw").decode()
        self._who = {"HTTP_AUTHORIZATION": f"Basic {word}"}
        self._steps = 0
        self.accepted = set()
        self._start()

    def _start(self):
        """Begin with a master that has seen nothing."""
        clock = FakeClock()
        self._master = RapiMaster()
        self._master.call("SubmitJob", [[{"OP_ID": "OP_CLUSTER_REDIST_CONF"}]])
        authenticator = Authenticator(clock, users.parse("owner pw write,root\n"))
        waiting = Waits(self._master)
        self._browser = Browser(
            Application(self._master, authenticator, clock, waiting=waiting)
        )

    def step(self, chance):
        self._steps += 1
        if not self._steps % 500:
            self._start()
        resource = chance.choice(self._resources)
        uri = resource.path
        for variable, value in NAMES.items():
            uri = uri.replace(variable, value)
        value = hostile_value(chance, BODIES.get(resource.path, {"tags": ["a"]}))
        raw = json.dumps(value).encode()
        if chance.random() < 0.1:
            raw = fuzz.mutated_bytes(chance, raw)
        self._master.calls.clear()
        with Untouched() as watch:
            status, _headers, answer = self._browser.send(
                resource.method, uri, raw=raw, **self._who
            )
        watch.check()
        self._log.check()
        where = f"{resource.method} {uri}: {status}"
        # A wait without a body has this status by definition.
        has_no_body = status == 500 and answer.items() >= _NO_BODY.items()
        is_documented = status in (501, 503) or has_no_body
        assert status < 500 or is_documented, (where, answer)
        if status >= 400:
            check_sentence(answer["message"])
        if status >= 400 and status != 409:
            changed = [c for c in self._master.calls if c[0].startswith("Submit")]
            assert not changed, (where, changed)
        else:
            self.accepted.add(resource.path)

    def close(self):
        self._log.close()


class _Socket:
    """A socket of UDP with one datagram at a time."""

    def __init__(self):
        self.arrived, self.sent = [], []

    def setblocking(self, flag):
        pass

    def setsockopt(self, *option):
        pass

    def recvfrom(self, _size):
        if not self.arrived:
            raise BlockingIOError
        return self.arrived.pop(), ("192.0.2.7", 40000)

    def sendto(self, data, _sender):
        self.sent.append(data)


class Datagrams:
    """Anybody, or who has the key, sends datagrams to the configuration daemon."""

    name = "datagrams"

    def __init__(self):
        self._log = fuzz._Crashes()
        self._sock, self._source = _Socket(), FakeSource(orchard())
        self._clock = FakeClock(time.time())
        self._server = confd_server.Server(self._sock, self._source, self._clock)
        self._attack = Attack(KEY, "", 0, 0)

    def step(self, chance):
        self._attack.chance = chance
        data = self._attack.packet()
        self._clock.now = time.time()
        self._sock.arrived, self._sock.sent = [data], []
        with Untouched() as watch:
            self._server._answer_all()
        watch.check()
        self._log.check()
        for reply in self._sock.sent:
            assert is_authentic(KEY, data), data[:200]
            assert is_authentic(KEY, reply), reply[:200]
            assert len(reply) <= 61440

    def close(self):
        assert self._server.counters.answered > 0
        self._source.close()
        self._log.close()


_STATUS = '{"exit_status": 0, "error_message": null, "mtime": 5, "progress_mbytes": 1}'
_EXPORT = """[export]
version = 0
timestamp = 5
source = n1
os = tiny
compression = none
[instance]
name = web1
disk_template = plain
hypervisor = kvm
nic_count = 1
nic0_mac = aa:00:00:00:00:01
disk_count = 1
disk0_ivname = disk/0
disk0_dump = a.snap
disk0_size = 10
[hypervisor]
kernel_path = /k
[backend]
maxmem = 5
[os]
"""
_BEATS = '{"looked": 5.0, "beats": {"n1": ["run", 3]}, "problems": []}'
#: Bytes of a giant file; it has no blocks.
_GIANT = 3 << 29


class NodeFiles:
    """A guest, a helper or another node leaves files, links, pipes and giants."""

    name = "files on a node"

    def __init__(self):
        self._log = fuzz._Crashes()
        self._root = tempfile.mkdtemp(prefix="gf-", dir="/tmp")
        node = nodes.make_node(self._root)
        paths = node.paths
        xen = XenFiles(paths, "web1")
        fake = node.hypervisors["fake"]
        transfer = f"{transfers._top(node)}/t1"
        beats = heartbeats.local_directory(paths)
        one = f"{self._root}/one"
        #: Path, a good content, reader, the form of its result.
        self._kinds = (
            (one, "123\n", lambda: pidfile.pid_in(one), is_pid),
            (one, "123\n", lambda: pidfile.live_pid(one, "no such"), is_pid),
            (one, "ended 0\nx\n", lambda: _result(one), has_lines),
            (one, "line\n" * 50, lambda: _lines(one), has_lines),
            (one, _EXPORT, lambda: _exported(one), can_be_encoded),
            (one, '["web1"]', lambda: node_part._known(one), is_anything),
            (
                f"{transfer}/{transfers._STATUS}",
                _STATUS,
                lambda: transfers._status(transfer),
                can_be_encoded,
            ),
            (
                f"{beats}/state",
                _BEATS,
                lambda: heartbeats.read_state(paths),
                is_anything,
            ),
            (
                f"{beats}/wanted",
                '{"at": 5.0, "nodes": ["n1"]}',
                lambda: heartbeats.wanted(paths, 5.0),
                can_be_encoded,
            ),
            (
                xen.migration("result"),
                '{"code": 0}',
                lambda: migration.status(xen).error,
                is_text,
            ),
            (
                xen.migration("arrival"),
                "complete",
                lambda: migration.arrival(xen),
                is_anything,
            ),
            (
                fake._file("web1"),
                "1\n128\n1\n",
                lambda: fake.info("web1"),
                can_be_encoded,
            ),
            (
                shared_files.list_path(paths),
                "/etc/x\n",
                lambda: shared_files.read(paths),
                is_anything,
            ),
            (
                paths.data(main._NAME),
                "5",
                lambda: main.pause_end(paths, 9.0),
                is_anything,
            ),
        )
        for path, *_rest in self._kinds:
            os.makedirs(os.path.dirname(path), exist_ok=True)

    def step(self, chance):
        path, good, read, form = chance.choice(self._kinds)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        data = _put(chance, path, good)
        try:
            with Untouched() as watch:
                value = read()
        except (errors.GenericError, OSError) as err:
            check_sentence(str(err))
        else:
            assert form(value), (path, data[:200], value)
        watch.check()
        self._log.check()

    def close(self):
        self._log.close()
        shutil.rmtree(self._root)


def _put(chance, path, good):
    """Leave something at a path; return its content."""
    kind = chance.random()
    if kind < 0.01:
        os.mkfifo(path)
    elif kind < 0.02:
        os.symlink("/etc/passwd", path)
    elif kind < 0.025:
        with open(path, "w", encoding="ascii") as out:
            out.truncate(_GIANT)
    else:
        data = _content(chance, good)
        with open(path, "wb") as out:
            out.write(data)
        return data
    return b""


def _content(chance, good):
    kind = chance.random()
    if good[0] in "{[" and kind < 0.5 and good is not _EXPORT:
        return fuzz.mutated(chance, json.loads(good))
    if kind < 0.8:
        return fuzz.mutated_bytes(chance, good.encode())
    numbers = ("-1", "0", "9" * 5000, "\uff11", "1_0", " 7 ", "1e999", "nan", "0x1")
    text = chance.choice((*numbers, hostile(chance), hostile(chance)))
    return text.encode("utf-8", "surrogatepass")


def is_pid(value):
    return value is None or value > 0


def is_anything(_value):
    return True


def is_text(value):
    return value is None or isinstance(value, str)


def has_lines(value):
    return all(line.replace("\t", " ").isprintable() for line in value)


def can_be_encoded(value):
    msgspec.json.encode(value)
    return True


def _result(path):
    return helper_machines.parsed_results(
        files.read_start(path, helper_machines.MAX_RESULT_BYTES)
    )[2]


def _lines(path):
    return os_scripts.last_lines(files.read_end(path, 65536))


def _exported(path):
    data = files.read_file(path, max_size=export_info.MAX_LENGTH)
    return export_info.parse(data.decode(errors="replace"))
