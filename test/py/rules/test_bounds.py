"""Bounds on bytes, counts and names: both sides of each, what a cluster needs, the page.

The page about bounds is compared with the table here, which takes its numbers from the
code. A bound below what a cluster of `INSTANCES` and `NODES` needs is a fault.
"""

import contextlib
import importlib
import io
import json
import pathlib
import random
import socket
import sys
import tempfile
import types

import pytest

from fakes import clusters, confd, nodes
from fakes.jobs_run import Harness, dummy
from ganeti import store
from ganeti.base import clock, errors, process
from ganeti.base.net import netutils
from ganeti.base.pathutils import Paths
from ganeti.commands.cli.output import error_text
from ganeti.daemons.confd import answers
from ganeti.daemons.masterd.methods import calls, jobs, settings
from ganeti.daemons.rapi import problems, request_bodies
from ganeti.master.config import Config
from ganeti.model import objects
from ganeti.node.hypervisor import base
from ganeti.node.hypervisor.kvm.files import Files
from ganeti.operations import tag_units
from ganeti.operations.instance.devices import nic_specs
from ganeti.operations.instance.disks import disk_specs
from ganeti.protocols.confd import wire as confd_wire
from ganeti.protocols.http import client as http_client
from ganeti.protocols.http import server as http_server
from ganeti.protocols.luxi import framing
from ganeti.protocols.luxi import server as luxi_server
from ganeti.protocols.rapi import resource_table as resources
from ganeti.protocols.rpc import wire
from ganeti.protocols.ssconf import encode
from ganeti.protocols.ssh import host_keys, keys
from ganeti.store.base import Document
from ganeti.store.etcd import layout
from ganeti.store.etcd.backend import EtcdBackend
from ganeti.store.memory import MemoryBackend, open_memory
from ganeti.tools import common as tools

PAGE = pathlib.Path(__file__).parents[3] / "doc" / "bounds.rst"
INSTANCES, NODES, JOBS, LETTERS = 50_000, 1_250, 10_000, 200
UUID = "0a1b2c3d-0000-4000-8000-0123456789ab"
#: A name of the most letters that a cluster is known to hold, and one line of a list.
NAME = "i12345." + ".".join(["x" * 47] * 4) + "zz"
LINE = LETTERS + 1


def number(place):
    """Return a number of the code, such as ``constants.misc.MAX_TAG_LEN``."""
    module, *names = place.split(":")
    value = importlib.import_module(f"ganeti.{module}")
    for name in names[0].split("."):
        value = getattr(value, name)
    return value


#: Object, place of the number, its unit, and what such a cluster needs of it.
BOUNDS = (
    (
        "file of *ssconf*",
        "protocols.ssconf:MAX_SIZE",
        "bytes",
        INSTANCES * LINE,
    ),
    (
        "request to a node daemon; it has all files of *ssconf*",
        "protocols.http.limits:MAX_BODY",
        "bytes",
        INSTANCES * LINE + 8 * NODES * (LINE + 40),
    ),
    (
        "answer of a node daemon, as a rule",
        "protocols.http.limits:MAX_ANSWER",
        "bytes",
        1 << 19,
    ),
    (
        "answer about all volumes of a node",
        "protocols.rpc.procedure:MANY",
        "bytes",
        8192,
    ),
    (
        "answer with a copy of the store",
        "protocols.rpc.procedure:STORE",
        "bytes",
        1 << 27,
    ),
    (
        "file that is sent to nodes",
        "protocols.rpc.wire:MAX_UNPACKED",
        "bytes",
        NODES * 9 * 1000,
    ),
    (
        "message to a tool that prepares a node",
        "tools.common:MAX_MESSAGE_BYTES",
        "bytes",
        INSTANCES * LINE + 8 * NODES * (LINE + 40),
    ),
    (
        "request to the master daemon",
        "protocols.luxi.framing:MAX_MESSAGE_BYTES",
        "bytes",
        max(INSTANCES * (LINE + 2), JOBS * 1000),
    ),
    (
        "request to the remote API, as a rule",
        "protocols.rapi.model:MAX_BODY",
        "bytes",
        1 << 20,
    ),
    (
        "query or list of requests to the remote API",
        "protocols.rapi.model:MAX_LIST",
        "bytes",
        INSTANCES * (LINE + 2),
    ),
    ("filter rules", "daemons.masterd.methods.settings:MAX_RULES", "rules", 100),
    ("unfinished jobs", "daemons.masterd.deps:MAX_UNFINISHED_JOBS", "jobs", JOBS),
    (
        "jobs that one call waits for",
        "daemons.masterd.methods.jobs:_MAX_WATCHED",
        "jobs",
        JOBS,
    ),
    (
        "idle connections to nodes",
        "protocols.http.client:_MAX_CONNECTIONS",
        "nodes",
        NODES,
    ),
    ("host name", "base.net.netutils:_MAX_LENGTH", "letters", LETTERS),
    ("tag", "base.constants.misc:MAX_TAG_LEN", "characters", 128),
    ("tags of an object", "base.constants.misc:MAX_TAGS_PER_OBJ", "tags", 4096),
    ("disks of an instance", "base.constants.disks:MAX_DISKS", "disks", 16),
    ("NICs of an instance", "base.constants.disks:MAX_NICS", "NICs", 8),
    (
        "datagram of the configuration daemon; it has the addresses of all nodes",
        "base.constants.protocols.confd:MAX_UDP_DATA_SIZE",
        "bytes",
        NODES * 42,
    ),
    (
        "records of a table in one answer of it",
        "daemons.confd.answers:MAX_ROWS",
        "rows",
        1,
    ),
    ("SSH host keys of a node", "protocols.ssh.host_keys:MAX_KEYS", "keys", 6),
    ("line of a public SSH key", "protocols.ssh.keys:_MAX_LINE", "characters", 2800),
    (
        "record or document, store in a file",
        "store.sqlite:SqliteBackend.limits.value",
        "bytes",
        4096 * 129,
    ),
    (
        "change of the configuration, store in a file",
        "store.sqlite:SqliteBackend.limits.commit",
        "bytes",
        INSTANCES * 1024,
    ),
    (
        "record or document, store in etcd",
        "store.etcd.backend:EtcdBackend.limits.value",
        "bytes",
        4096 * 129,
    ),
    (
        "change of the configuration, store in etcd",
        "store.etcd.backend:EtcdBackend.limits.commit",
        "bytes",
        INSTANCES * 1024,
    ),
    ("transaction of etcd", "store.etcd.layout:MAX_BYTES", "bytes", 1 << 20),
    ("operations of a transaction", "store.etcd.layout:MAX_OPERATIONS", "rows", 3),
    (
        "argument or variable of a program",
        "base.process:MAX_STRING",
        "bytes",
        NODES * (len(UUID) + 1),
    ),
    ("all of them", "base.process:MAX_STRINGS", "bytes", NODES * (LETTERS + 20)),
    (
        "answer of an allocator",
        "node.calls.scripts:_ALLOCATOR_OUTPUT",
        "bytes",
        1 << 24,
    ),
    (
        "path of a socket of KVM",
        "node.hypervisor.kvm.files:_SOCKET_PATH_MAX",
        "bytes",
        0,
    ),
)


def test_the_name_has_the_length_that_is_meant():
    assert len(NAME) == LETTERS
    assert netutils.normalize_host_name(NAME) == NAME


@pytest.mark.parametrize("row", BOUNDS, ids=[row[1] for row in BOUNDS])
def test_no_bound_is_below_what_a_cluster_needs(row):
    what, place, _unit, needed = row
    assert number(place) >= needed, what


def shown(value, unit):
    for factor, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if unit == "bytes" and value >= factor and value % factor == 0:
            return f"{value // factor} {name}"
    return f"{value:,} {unit}"


def test_the_page_has_the_numbers_of_the_code():
    lines = [
        f"   * - {what}\n     - {shown(number(place), unit)}\n"
        for what, place, unit, _needed in BOUNDS
    ]
    table = "".join(lines)
    assert table in PAGE.read_text(), f"doc/bounds.rst: the table should be\n{table}"


# Both sides of the bounds that this code alone keeps
def ssconf_file(size):
    encode("instance_list", "x" * (size - 1))


def host_name(size):
    netutils.normalize_host_name((("x" * 63 + ".") * 5)[: size - 1] + "x")


def tag(size):
    tag_units.check_tag("x" * size)


def uploaded(size):
    wire.unpack(wire.pack(b"x" * size))


def etcd_row(size):
    data, length = random.Random(1).randbytes(size), size
    while over := len(layout.pack(data[:length])) - size:
        length -= over
    layout.operation(layout.Keys("t"), ("jobs", "1", data[:length]))


def guest_name(size):
    base.check_instance_name("x" * size)


def datagram(size):
    signers = confd_wire.Signers(b"key")
    query = confd_wire.Query(1, 0, "", "r")
    empty = len(confd_wire.seal_query(query, 1, signers, confd_wire.MAGIC_SHA1))
    query = confd_wire.Query(1, 0, "x" * (size - empty), "r")
    confd_wire.seal_query(query, 1, signers, confd_wire.MAGIC_SHA1)


def argument(size):
    process.SystemRunner().run(["/bin/true", "x" * (size - 1)])


def variable(size):
    process.SystemRunner().run(["/bin/true"], env={"X": "x" * (size - 3)})


def node_request(size):
    """Send a body to a server with the limits of node daemons."""
    answer = exchange(lambda _path: [b"null"], body=b"x" * size)
    if answer.status != 200:
        raise errors.GenericError(answer.body.decode())


def node_answer(place):
    def answer(size):
        """Let a server send an answer to a caller that accepts this limit."""
        parts = [b"x" * (1 << 20)] * (size >> 20) + [b"x" * (size & 0xFFFFF)]
        given = exchange(lambda _path: parts, max_answer=number(place))
        if given.error:
            raise errors.GenericError(given.error)
        assert len(given.body) == size

    answer.__name__ = f"answer_of_{place.rpartition(':')[2].lower()}"
    return answer


def exchange(answer, **request):
    def app(environ, start):
        left = int(environ["CONTENT_LENGTH"])
        while left and (part := environ["wsgi.input"].read(min(left, 1 << 20))):
            left -= len(part)
        parts = answer(environ["PATH_INFO"])
        start("200 OK", [("Content-Length", str(sum(map(len, parts))))])
        return parts

    made = http_server.Server(("127.0.0.1", 0), app, context=None, threads=1)
    port, caller = made.start_serving(), http_client.Client()
    try:
        fields = {"address": "127.0.0.1", "port": port, "path": "/x", "body": b"[]"}
        fields |= {"credentials": None, "timeout_s": 300, **request}
        (response,) = caller.perform([http_client.Request(**fields)])
    finally:
        caller.close()
        made.stop()
    return response


def tool_message(size):
    text = json.dumps({"a": ""})
    data = text.replace('""', f'"{"x" * (size - len(text))}"').encode()
    usual, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(data))
    try:
        tools.read_message({"a": lambda _value: None})
    finally:
        sys.stdin = usual


def luxi_request(size):
    start, end = b'{"method":"Echo","args":["', b'"]}'
    data = start + b"x" * (size - len(start) - len(end)) + end + framing.END
    with tempfile.TemporaryDirectory(prefix="gb-", dir="/tmp") as top:
        path = f"{top}/s"
        server = luxi_server.Server(
            lambda call: call.succeed(None), [path], clock=clock.SystemClock()
        )
        server.start()
        try:
            with contextlib.closing(socket.socket(socket.AF_UNIX)) as sock:
                sock.connect(path)
                sock.sendall(data)
                received = b""
                while not received.endswith(framing.END):
                    received += sock.recv(1 << 16)
        finally:
            server.stop()
    answer = json.loads(received[:-1])
    if not answer["success"]:
        raise errors.GenericError(answer["result"])


def remote_body(path, method):
    resource = next(
        each
        for each in resources.RESOURCES
        if (each.path, each.method) == (path, method)
    )

    def body(size):
        environ = {
            "CONTENT_LENGTH": str(size),
            "CONTENT_TYPE": "application/json",
            "wsgi.input": io.BytesIO(b'"' + b"x" * (size - 2) + b'"'),
        }
        try:
            request_bodies.read(environ, resource)
        except problems.Refused as err:
            raise errors.GenericError(err.message) from err

    body.__name__ = f"{method}_{path}"
    return body


@contextlib.contextmanager
def idle_queue():
    harness = Harness(hard_limit=number("daemons.masterd.deps:MAX_UNFINISHED_JOBS"))
    try:
        yield harness.queue
    finally:
        harness.close()


def unfinished_jobs(count):
    """Submit all but one by one call, since each job of a call has its own answer."""
    with idle_queue() as queue:
        jobs_ = [[dummy()]] * (count - 1)
        assert all(ok for ok, _id in queue.submit_many_later(jobs_).result())
        try:
            queue.submit([dummy()])
            assert count <= number("daemons.masterd.deps:MAX_UNFINISHED_JOBS")
        except errors.JobQueueFull as err:
            assert queue.job(count) is None
            # Its arguments are none by definition; commands have the text.
            raise errors.GenericError(error_text.describe(err)[0]) from err


def watched_jobs(count):
    with idle_queue() as queue:
        deps = types.SimpleNamespace(queue=queue)
        try:
            jobs.wait_for_job_changes(deps, [jobs.Watched(1)] * count, ["status"], 0.0)
        except calls.Malformed as err:
            raise errors.GenericError(*err.args) from err


def disks(count):
    disk_specs.parse_all([{"size": 1024}] * count, "plain", "web1")


def nics(count):
    made = [objects.from_dict(objects.Nic, confd.nic(index)) for index in range(count)]
    nic_specs.check_all(made, "web1")


def confd_table(count):
    group = next(iter(clusters.snapshot().nodegroups.values()))
    records = dict.fromkeys(range(count), group)
    snapshot = types.SimpleNamespace(table=lambda _name: records)
    try:
        answers._table(snapshot, "nodegroups")
    except answers.TooLargeError as err:
        raise errors.GenericError(str(err)) from err


def node_host_keys(count):
    host_keys.checked([KEY] * count)


def key_line(size):
    keys.one_public_key(f"{KEY} ".ljust(size, "x"), "ed25519", "")


KEY = keys.generate("ed25519").public.strip()


def stored(place):
    """Return a function that stores this many bytes in documents of at most 64 MiB."""

    def store_bytes(size):
        with tempfile.TemporaryDirectory(prefix="gb-", dir="/tmp") as top:
            made = opened(place, top)
            step = made._backend.limits.value
            if place.endswith("value"):
                step = size
            sizes = [step] * (size // step) + [size % step] * (size % step > 0)
            try:
                made.commit(
                    [Document("meta", str(n), bytes(s)) for n, s in enumerate(sizes)]
                )
            except errors.GenericError:
                assert made.read("meta", "0") is None
                raise
            finally:
                made.close()

    store_bytes.__name__ = place
    return store_bytes


def opened(place, top):
    if ".etcd." not in place:
        return store.open_master(
            f"{top}/store.db", replicate=None, clock=clock.SystemClock()
        )
    # The same check, without servers of etcd.
    backend = MemoryBackend()
    backend.limits = EtcdBackend.limits
    return open_memory(backend)


def strings(size):
    """Start a program with so many bytes of arguments, each with its pointer."""
    one, argv = 100_000, ["/bin/true"]
    rest = size - SLACK - len("/bin/true") - 10
    while rest > 0:
        argv.append("x" * min(one, max(1, rest - 9)))
        rest -= one + 9
    process.SystemRunner().run(argv, env={"PATH": "/bin"})


def allocator_answer(size):
    with tempfile.TemporaryDirectory(prefix="gb-", dir="/tmp") as top:
        node = nodes.make_node(top)
        path = pathlib.Path(node.paths.iallocator_search_path[0], "own")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\nhead -c {size} /dev/zero\n")
        path.chmod(0o755)
        answer = nodes.call(node, "iallocator_runner", "own", "{}", None)
        assert len(answer) == size


def socket_path(size):
    rest = len(Files(Paths("/r"), "x").control("monitor")) - 1
    Files(Paths("/" + "r" * (size - rest)), "x").control("monitor")


def filter_rules(count):
    config = Config(open_memory(MemoryBackend()), clock.SystemClock())
    deps = types.SimpleNamespace(config=config, queue=types.SimpleNamespace(poke=list))
    rules = [
        objects.FilterRule(
            uuid=f"{UUID[:-6]}{number:06d}",
            watermark=0,
            priority=0,
            predicates=(),
            action="ACCEPT",
            reason_trail=(),
        )
        for number in range(count)
    ]
    with config.edit("test") as edit:
        for rule in rules[:-1]:
            edit.put(objects.Update("filters", rule.uuid, rule))
    settings._put(deps, rules[-1])
    settings._put(deps, rules[-1].replace(priority=1))


SIDES = (
    (
        ssconf_file,
        "protocols.ssconf:MAX_SIZE",
        r"instance_list: 67108865 bytes",
    ),
    (
        node_request,
        "protocols.http.limits:MAX_BODY",
        "has 134217729 bytes, at most 134217728",
    ),
    *(
        (node_answer(place), place, f"the answer is larger than {number(place)} bytes")
        for place in (
            "protocols.http.limits:MAX_ANSWER",
            "protocols.rpc.procedure:MANY",
            "protocols.rpc.procedure:STORE",
        )
    ),
    (tool_message, "tools.common:MAX_MESSAGE_BYTES", "larger than 134217728 bytes"),
    (
        luxi_request,
        "protocols.luxi.framing:MAX_MESSAGE_BYTES",
        "longer than 33554432 bytes",
    ),
    (remote_body("/2/modify", "PUT"), "protocols.rapi.model:MAX_BODY", "4194304"),
    (
        remote_body("/2/query/[resource]", "PUT"),
        "protocols.rapi.model:MAX_LIST",
        "20971520",
    ),
    (
        unfinished_jobs,
        "daemons.masterd.deps:MAX_UNFINISHED_JOBS",
        "the job queue is full",
    ),
    (
        filter_rules,
        "daemons.masterd.methods.settings:MAX_RULES",
        "at most 500, found 500 already",
    ),
    (
        watched_jobs,
        "daemons.masterd.methods.jobs:_MAX_WATCHED",
        "1 to 10000 jobs, found 10001",
    ),
    (host_name, "base.net.netutils:_MAX_LENGTH", "wanted a host name"),
    (guest_name, "base.net.netutils:_MAX_LENGTH", "at most 255 characters, found 256"),
    (tag, "base.constants.misc:MAX_TAG_LEN", "at most 128 characters, found 129"),
    (
        tag_units.check_count,
        "base.constants.misc:MAX_TAGS_PER_OBJ",
        "at most 4096 per object, wanted 4097",
    ),
    (
        disks,
        "base.constants.disks:MAX_DISKS",
        "web1: wanted at most 16 disks, found 17",
    ),
    (nics, "base.constants.disks:MAX_NICS", "web1: wanted at most 8 NICs, found 9"),
    (uploaded, "protocols.rpc.wire:MAX_UNPACKED", "too large"),
    (etcd_row, "store.etcd.layout:MAX_BYTES", "jobs 1 has 1048577 bytes, at most"),
    *(
        (stored(place), place, text)
        for place, text in (
            (
                "store.sqlite:SqliteBackend.limits.value",
                "meta 0 has 67108865 bytes",
            ),
            (
                "store.sqlite:SqliteBackend.limits.commit",
                "a change of 134217729 bytes",
            ),
            ("store.etcd.backend:EtcdBackend.limits.value", "meta 0 has 983041 bytes"),
            (
                "store.etcd.backend:EtcdBackend.limits.commit",
                "a change of 67108865 bytes",
            ),
        )
    ),
    (
        datagram,
        "base.constants.protocols.confd:MAX_UDP_DATA_SIZE",
        "request of 61441 bytes",
    ),
    (confd_table, "daemons.confd.answers:MAX_ROWS", "nodegroups"),
    (
        node_host_keys,
        "protocols.ssh.host_keys:MAX_KEYS",
        "at most 9 of one node, found 10",
    ),
    (key_line, "protocols.ssh.keys:_MAX_LINE", "found 8193 characters"),
    (argument, "base.process:MAX_STRING", "argument 1 alone 131073; the system takes"),
    (variable, "base.process:MAX_STRING", "variable X alone 131073; the system takes"),
    (strings, "base.process:MAX_STRINGS", "the system takes 2097152, and"),
    (allocator_answer, "node.calls.scripts:_ALLOCATOR_OUTPUT", "own printed too much"),
    (
        socket_path,
        "node.hypervisor.kvm.files:_SOCKET_PATH_MAX",
        "longer than 107 bytes: /",
    ),
)
#: Bounds that refuse nothing: beyond them the same is done in several parts.
PARTED = {"protocols.http.client:_MAX_CONNECTIONS", "store.etcd.layout:MAX_OPERATIONS"}
#: Bytes that the kernel needs besides the strings; a bound is exact without.
SLACK = 8192


def test_each_bound_of_the_page_is_crossed_by_a_test():
    assert {row[1] for row in BOUNDS} == {row[1] for row in SIDES} | PARTED


@pytest.mark.parametrize(
    ("use", "place", "text"), SIDES, ids=[row[0].__name__ for row in SIDES]
)
def test_a_bound_holds_on_both_sides_with_one_sentence(use, place, text):
    limit = number(place)
    use(limit)
    beyond = limit + 1 + 2 * SLACK * (use is strings)
    with pytest.raises(errors.GenericError, match=text) as caught:
        use(beyond)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 2200


def test_more_rows_than_a_transaction_takes_are_several():
    most = number("store.etcd.layout:MAX_OPERATIONS")
    for count, parts in ((most, [most]), (most + 1, [most, 1])):
        rows = [("jobs", str(n), b"x") for n in range(count)]
        operations = [layout.operation(layout.Keys("t"), row) for row in rows]
        assert [len(part) for part in layout.batches(operations)] == parts


def test_a_list_of_all_instances_and_nodes_fits_its_file():
    name = NAME[:-5]
    encode("instance_list", "\n".join(f"{name}{n:05}" for n in range(INSTANCES)))
    lines = "\n".join(f"{name}{n:05}=True" for n in range(NODES))
    encode("node_vm_capable", lines)


def test_a_hook_starts_with_the_tags_of_a_whole_cluster():
    tags = " ".join(
        f"{n:0128}" for n in range(number("base.constants.misc:MAX_TAGS_PER_OBJ"))
    )
    env = {"PATH": process.SAFE_PATH, "CLUSTER_TAGS": tags}
    env |= {f"NODE_TAGS_{NAME[:-5]}{n:05}": "x" * 1000 for n in range(NODES)}
    with pytest.raises(errors.CommandError, match="variable CLUSTER_TAGS alone 52"):
        process.SystemRunner().run(["/usr/bin/env"], env=env)
    fits = process.fitting(env, "GANETI_")
    result = process.SystemRunner().run(["/usr/bin/env"], env=fits)
    assert not result.failed
    left_out = fits["GANETI_LEFT_OUT"].split()
    assert "CLUSTER_TAGS" in left_out
    # The longest ones go, until the others leave half of the space to arguments.
    assert 800 < sum(name.startswith("NODE_TAGS_") for name in fits) < NODES
    assert len(fits) + len(left_out) == len(env) + 1
    assert process.fitting({"A": "b"}) == {"A": "b"}


def test_sockets_of_a_guest_with_a_long_name_have_a_path():
    assert "/x" in Files(Paths(), "x" * 60).control("monitor")
    assert "/+" in Files(Paths(), "x" * LETTERS).control("monitor")
