"""Bounds on bytes, counts and names: both sides of each, what a cluster needs, the page.

The page about bounds is compared with the table here, which takes its numbers from the
code. A bound below what a cluster of `INSTANCES` and `NODES` needs is a fault.
"""

import importlib
import pathlib
import random

import pytest

from ganeti import errors, process
from ganeti.cmdlib.tags import target
from ganeti.confd import wire as confd_wire
from ganeti.hypervisor import base
from ganeti.pathutils import Paths
from ganeti.rpc import wire
from ganeti.ssconf import writer
from ganeti.store.etcd import layout
from ganeti.utils import hostnames

PAGE = pathlib.Path(__file__).parents[3] / "doc" / "bounds.rst"
INSTANCES, NODES, JOBS, LETTERS = 50_000, 1_250, 10_000, 200
UUID = "0a1b2c3d-0000-4000-8000-0123456789ab"
#: A name of the most letters that a cluster is known to hold, and one line of a list.
NAME = "i12345." + ".".join(["x" * 47] * 4) + "zz"
LINE = LETTERS + 1


def number(place):
    """Return a number of the code, such as ``constants.tags.MAX_TAG_LEN``."""
    module, *names = place.split(":")
    value = importlib.import_module(f"ganeti.{module}")
    for name in names[0].split("."):
        value = getattr(value, name)
    return value


#: Object, place of the number, its unit, and what such a cluster needs of it.
BOUNDS = (
    ("file of *ssconf*", "constants.ssconf:MAX_SIZE", "bytes", INSTANCES * LINE),
    (
        "request to a node daemon; it has all files of *ssconf*",
        "http.limits:MAX_BODY",
        "bytes",
        INSTANCES * LINE + 8 * NODES * (LINE + 40),
    ),
    ("answer of a node daemon, as a rule", "http.limits:MAX_ANSWER", "bytes", 1 << 19),
    ("answer about all volumes of a node", "rpc.table.procedure:MANY", "bytes", 8192),
    ("answer with a copy of the store", "rpc.table.procedure:STORE", "bytes", 1 << 27),
    ("file that is sent to nodes", "rpc.wire:MAX_UNPACKED", "bytes", NODES * 9 * 1000),
    (
        "message to a tool that prepares a node",
        "tools.common:MAX_MESSAGE_BYTES",
        "bytes",
        INSTANCES * LINE + 8 * NODES * (LINE + 40),
    ),
    (
        "request to the master daemon",
        "luxi.framing:MAX_MESSAGE_BYTES",
        "bytes",
        max(INSTANCES * (LINE + 2), JOBS * 1000),
    ),
    ("unfinished jobs", "masterd.deps:MAX_UNFINISHED_JOBS", "jobs", JOBS),
    ("jobs that one call waits for", "masterd.jobs:_MAX_WATCHED", "jobs", JOBS),
    ("connections to nodes at once", "http.client:_MAX_CONNECTIONS", "nodes", NODES),
    ("host name", "utils.hostnames:_MAX_LENGTH", "letters", LETTERS),
    ("tag", "constants.tags:MAX_TAG_LEN", "characters", 128),
    ("tags of an object", "constants.tags:MAX_TAGS_PER_OBJ", "tags", 4096),
    ("disks of an instance", "constants.disks:MAX_DISKS", "disks", 16),
    ("NICs of an instance", "constants.disks:MAX_NICS", "NICs", 8),
    (
        "datagram of the configuration daemon; it has the addresses of all nodes",
        "constants.confd:MAX_UDP_DATA_SIZE",
        "bytes",
        NODES * 42,
    ),
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
        "process:MAX_STRING",
        "bytes",
        NODES * (len(UUID) + 1),
    ),
    ("all of them", "process:MAX_STRINGS", "bytes", NODES * (LETTERS + 20)),
    ("answer of an allocator", "backend.scripts:_ALLOCATOR_OUTPUT", "bytes", 1 << 24),
    ("path of a socket of KVM", "hypervisor.kvm.files:_SOCKET_PATH_MAX", "bytes", 0),
)


def test_the_name_has_the_length_that_is_meant():
    assert len(NAME) == LETTERS
    assert hostnames.normalize(NAME) == NAME


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
    writer.encode("instance_list", "x" * (size - 1))


def host_name(size):
    hostnames.normalize((("x" * 63 + ".") * 5)[: size - 1] + "x")


def tag(size):
    target.check_tag("x" * size)


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


SIDES = (
    (ssconf_file, "constants.ssconf:MAX_SIZE", r"instance_list: 67108865 bytes"),
    (host_name, "utils.hostnames:_MAX_LENGTH", "wanted a host name"),
    (guest_name, "utils.hostnames:_MAX_LENGTH", "at most 255 characters, found 256"),
    (tag, "constants.tags:MAX_TAG_LEN", "at most 128 characters, found 129"),
    (uploaded, "rpc.wire:MAX_UNPACKED", "too large"),
    (etcd_row, "store.etcd.layout:MAX_BYTES", "jobs 1 has 1048577 bytes, at most"),
    (datagram, "constants.confd:MAX_UDP_DATA_SIZE", "request of 61441 bytes"),
    (argument, "process:MAX_STRING", "argument 1 alone 131073; the system takes"),
    (variable, "process:MAX_STRING", "variable X alone 131073; the system takes"),
)


@pytest.mark.parametrize(
    ("use", "place", "text"), SIDES, ids=[row[0].__name__ for row in SIDES]
)
def test_a_bound_holds_on_both_sides_with_one_sentence(use, place, text):
    limit = number(place)
    use(limit)
    with pytest.raises(errors.GenericError, match=text) as caught:
        use(limit + 1)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_a_list_of_all_instances_and_nodes_fits_its_file():
    name = NAME[:-5]
    writer.encode("instance_list", "\n".join(f"{name}{n:05}" for n in range(INSTANCES)))
    lines = "\n".join(f"{name}{n:05}=True" for n in range(NODES))
    writer.encode("node_vm_capable", lines)


def test_a_hook_starts_with_the_tags_of_a_whole_cluster():
    tags = " ".join(
        f"{n:0128}" for n in range(number("constants.tags:MAX_TAGS_PER_OBJ"))
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


def test_a_guest_whose_name_is_too_long_for_kvm_is_refused_with_the_path():
    from ganeti.hypervisor.kvm.files import Files

    files = Files(Paths(), "x" * 60)
    assert files.control("monitor")
    with pytest.raises(errors.HypervisorError, match="longer than 107 bytes: /"):
        assert Files(Paths(), "x" * LETTERS).control("monitor")
