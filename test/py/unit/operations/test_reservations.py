"""Reservations over fakes: forthcoming instances, their terms, their creation."""

import re

import pytest

from fakes import clusters
from fakes.engine import creation
from fakes.reservations import (
    acts,
    beside,
    commit,
    engine,
    op,
    refused,
    reserve,
    sized,
    the_instance,
)
from fakes.rpc import failure
from ganeti.base import errors
from ganeti.master import config
from ganeti.master.jqueue import LockTimeout
from ganeti.model import opcodes

N1, N2, N3 = (clusters.node_uuid(n) for n in (1, 2, 3))
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def test_a_reservation_needs_no_parameter_and_creates_nothing():
    eng = engine()
    uuid = reserve(eng)
    assert UUID.fullmatch(uuid)
    made = the_instance(eng)
    assert (made.uuid, made.name, made.forthcoming) == (uuid, uuid, True)
    assert (made.disks, made.nics, made.os) == ((), (), "")
    assert made.primary_node in (N1, N2, N3)
    assert acts(eng) == []
    assert config.verify(eng.snapshot) == []


def test_a_reservation_holds_what_it_names():
    eng = engine()
    uuid = reserve(eng, **sized(tags=["a"]))
    made = the_instance(eng)
    assert (made.uuid, made.name, made.admin_state) == (
        uuid,
        "web1.example.com",
        "down",
    )
    assert made.beparams["maxmem"] == 1024
    (disk,) = eng.snapshot.disks.values()
    assert disk.forthcoming
    assert disk.size == 1024
    assert eng.snapshot.mac_owner(made.nics[0].mac) == uuid
    assert acts(eng) == []
    assert config.verify(eng.snapshot) == []


def test_the_creation_uses_node_disks_and_nics_of_the_reservation():
    eng = engine()
    uuid = reserve(eng, **sized())
    before = the_instance(eng)
    assert commit(eng, uuid) == [eng.snapshot.nodes[before.primary_node].name]
    made = the_instance(eng)
    assert (made.uuid, made.name, made.nics) == (uuid, before.name, before.nics)
    assert (made.forthcoming, made.admin_state, made.creation) == (False, "up", "")
    assert made.network_port >= 11000
    (disk,) = eng.snapshot.disks.values()
    assert (disk.uuid, disk.forthcoming) == (before.disks[0], False)
    assert list(eng.nodes.files) == [disk.logical_id[1]]
    assert eng.nodes.taken == {("web1.example.com", made.primary_node): 1024}
    assert config.verify(eng.snapshot) == []
    refused(eng, op("OP_INSTANCE_CREATE", commit=True), "is not forthcoming, it exists")


def test_a_commit_names_everything_that_is_missing():
    eng = engine()
    uuid = reserve(eng)
    with pytest.raises(
        errors.OpPrereqError, match=r"a name .* and an operating system"
    ):
        commit(eng, uuid)
    with pytest.raises(errors.OpPrereqError, match="name the forthcoming instance"):
        eng.run({"OP_ID": "OP_INSTANCE_CREATE", "commit": True, "instance_name": ""})
    with pytest.raises(errors.OpPrereqError, match="an operating system"):
        commit(eng, uuid, osparams={"os-image": ""})


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"commit": True}, "exclude each other"),
        ({"owner": "x" * 257}, "owner: wanted at most 256"),
        ({"owner": "a\nb"}, "owner: wanted"),
        ({"expires": 10**12}, "expires: wanted at most"),
        ({"name_check": True}, "no name to check"),
        ({"pnode": "node9"}, "Node 'node9' not known"),
        ({"disks": [{"size": 0}], "disk_template": "file"}, "size of 1 MiB or more"),
        ({"beparams": {"maxmem": 10**6}}, "no solution|violates the policy"),
    ],
)
def test_wrong_reservations_are_refused(params, text):
    eng = engine()
    refused(eng, {"OP_ID": "OP_INSTANCE_CREATE", "forthcoming": True, **params}, text)


@pytest.mark.parametrize("missing", ["disks", "nics", "mode", "instance_name"])
def test_a_real_creation_still_needs_its_parameters(missing):
    wire = creation()
    del wire[missing]
    with pytest.raises(errors.OpPrereqError, match=missing):
        opcodes.decode(wire)


def test_terms_belong_to_reservations():
    eng = engine()
    for params in ({"expires": 5}, {"owner": "web"}, {"reservation_priority": "low"}):
        refused(eng, creation(**params), "terms of reservations")


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"pnode": "node3"}, "primary node"),
        ({"disks": [{"size": 4096}]}, "disks of MiB"),
        ({"nics": [{}, {}]}, "number of NICs"),
        ({"disk_template": "sharedfile"}, "disk template"),
        ({"hypervisor": "fake"}, "hypervisor"),
        ({"iallocator": "hail"}, "iallocator cannot be given"),
        ({"snode": "node2"}, "snode cannot be given"),
        ({"request_key": "a"}, "request_key belongs"),
        ({"expires": 5}, "terms of reservations"),
    ],
)
def test_a_commit_cannot_change_resources(params, text):
    eng = engine()
    reserve(eng, **sized(pnode="node1"))
    refused(eng, op("OP_INSTANCE_CREATE", commit=True, **params), text)


def test_a_commit_may_repeat_the_whole_request():
    eng = engine()
    reserve(eng, **sized(pnode="node1"))
    wire = {"OP_ID": "OP_INSTANCE_CREATE", "mode": "create", "commit": True}
    again = sized(pnode="node1")
    assert eng.run({**wire, **again}) == ["node1.example.com"]


# Capacity
def test_reserved_memory_is_kept_from_other_instances():
    eng = engine()
    reserve(eng, **sized(7168, pnode="node1"))
    wire = {**sized(2048), "instance_name": "db1.example.com", "pnode": "node1"}
    error = refused(
        eng,
        {"OP_ID": "OP_INSTANCE_CREATE", "mode": "create", **wire},
        "needs 2048 MiB .* 8192 MiB free, 7168 MiB of it reserved for forthcoming"
        " instances web1.example.com",
    )
    assert error.args[1] == "insufficient_resources"
    # The rest can be used, and the reservation still be created.
    wire["beparams"] = {"maxmem": 1024, "minmem": 1024}
    eng.run({"OP_ID": "OP_INSTANCE_CREATE", "mode": "create", **wire})
    commit(eng, "web1.example.com")
    assert eng.nodes.free_memory(N1) == 0
    assert eng.nodes.overdrawn == []


def test_reserved_memory_is_kept_from_other_reservations():
    eng = engine()
    reserve(eng, **sized(5120, pnode="node1"))
    refused(
        eng,
        {
            "OP_ID": "OP_INSTANCE_CREATE",
            "forthcoming": True,
            **sized(4096, pnode="node1", instance_name="b"),
        },
        "5120 MiB of it reserved",
    )


def test_reserved_space_is_kept_from_other_disks():
    eng = engine()
    reserve(eng, **sized(pnode="node1", disks=[{"size": 60000}]))
    wire = {**creation(), "disks": [{"size": 10000}], "instance_name": "b"}
    wire["beparams"] = {"maxmem": 128, "minmem": 128}
    wire["nics"] = [{}]
    refused(eng, wire, "needs 10000 MiB for disks of template file .* 60000 MiB of it")
    eng.run({**wire, "disks": [{"size": 5000}]})
    commit(eng, "web1.example.com")
    assert eng.nodes.overdrawn == []


def test_reserved_space_of_a_volume_group_is_kept_from_other_disks():
    templates = ["file", "plain", "diskless"]
    eng = engine(enabled_disk_templates=templates, volume_group_name="xenvg")
    eng.nodes.space = 65536
    plain = {"disk_template": "plain", "pnode": "node1"}
    reserve(eng, **sized(**plain, disks=[{"size": 50000}]))
    other = sized(**plain, instance_name="b", disks=[{"size": 20000}])
    text = "needs 20000 MiB .* in volume group xenvg .* 50000 MiB of it reserved"
    create = {"OP_ID": "OP_INSTANCE_CREATE", "mode": "create"}
    refused(eng, {**create, **other}, text)
    refused(eng, {**create, **other, "forthcoming": True}, text)
    reserve(eng, **other | {"disks": [{"size": 10000}]})
    larger = {"instance_name": "b", "disk": 0, "amount": 6000}
    refused(
        eng,
        {"OP_ID": "OP_INSTANCE_GROW_DISK", **larger},
        "needs 16000 MiB .* in volume group xenvg",
    )
    resize = {"instance_name": "b", "disks": [["modify", 0, {"size": 16000}]]}
    refused(
        eng,
        {"OP_ID": "OP_INSTANCE_SET_PARAMS", **resize},
        "needs 16000 MiB .* in volume group xenvg",
    )
    reserve(eng, **other | {"instance_name": "c", "pnode": "node2"})
    move = {"instance_name": "c", "target_node": "node1"}
    refused(eng, {"OP_ID": "OP_INSTANCE_MOVE", **move}, "needs 20000 MiB .* in volume")


def test_the_allocator_counts_reservations():
    eng = engine()
    for number in range(3):
        reserve(eng, **sized(6144, instance_name=f"r{number}"))
    assert {i.primary_node for i in eng.snapshot.instances.values()} == {N1, N2, N3}
    with pytest.raises(errors.OpPrereqError, match="no solution found by allocator"):
        eng.run({**creation(), **sized(4096, pnode=None), "instance_name": "real"})


def test_a_change_of_defaults_does_not_change_what_is_reserved():
    eng = engine()
    reserve(eng, instance_name="a")
    before = the_instance(eng).beparams["maxmem"]
    eng.run({"OP_ID": "OP_CLUSTER_SET_PARAMS", "beparams": {"maxmem": 8000}})
    assert the_instance(eng).beparams["maxmem"] == before


def test_memory_stays_reserved_while_the_operating_system_is_installed():
    eng = engine()
    reserve(eng, **sized(8192, pnode="node1"))
    refusals = []

    def install(_node, _args):
        other = beside(eng)
        wire = {**creation(), **sized(1024, instance_name="b", pnode="node1")}
        with pytest.raises(errors.OpPrereqError, match="8192 MiB of it reserved") as e:
            other.run(wire)
        refusals.append(e.value)

    eng.rpc.script["instance_os_add"] = install
    commit(eng, "web1.example.com")
    assert len(refusals) == 1
    assert not the_instance(eng).is_reserved


def test_two_commits_on_one_node_do_not_refuse_each_other():
    eng = engine()
    reserve(eng, **sized(4096, pnode="node1"))
    reserve(eng, **sized(4096, pnode="node1", instance_name="b"))

    def install(_node, args):
        # The other one is created while this one is neither forthcoming nor started.
        if args[0]["name"] == "web1.example.com":
            commit(beside(eng), "b")

    eng.rpc.script["instance_os_add"] = install
    commit(eng, "web1.example.com")
    assert eng.nodes.free_memory(N1) == 0
    assert eng.nodes.overdrawn == []


# Failed commits
def test_a_commit_that_fails_keeps_the_reservation():
    eng = engine()
    uuid = reserve(eng, **sized())
    before = the_instance(eng)
    eng.rpc.script["blockdev_create"] = failure("no")
    with pytest.raises(errors.OpExecError):
        commit(eng, uuid)
    assert the_instance(eng) == before
    assert eng.nodes.files == {}
    assert eng.nodes.directories == set()
    eng.rpc.script["blockdev_create"] = eng.nodes.do_blockdev_create
    commit(eng, uuid)
    assert not the_instance(eng).forthcoming


@pytest.mark.parametrize("procedure", ["hypervisor_validate_params", "os_validate"])
def test_a_silent_node_refuses_no_parameters(procedure):
    for is_silent, ecode in ((True, "environment_error"), (False, "wrong_input")):
        eng = engine()
        eng.rpc.script[procedure] = failure("no", is_silent=is_silent)
        with pytest.raises(errors.OpPrereqError) as caught:
            reserve(eng, **sized(pnode="node1.example.com"))
        assert caught.value.args[1] == ecode
        assert not eng.snapshot.instances


# Keys
def test_a_repeated_request_makes_no_second_instance():
    eng = engine()
    first = reserve(eng, request_key="k1", **sized())
    before = eng.snapshot
    assert reserve(eng, request_key="k1", **sized()) == first
    assert eng.snapshot is before
    assert "has already made instance web1.example.com" in eng.callbacks.text()


def test_a_repeated_creation_returns_the_nodes_and_acts_on_none():
    eng = engine()
    wire = {**creation(request_key="k1"), "nics": [{}]}
    assert eng.run(wire) == ["node1.example.com"]
    assert eng.run(wire) == ["node1.example.com"]
    assert eng.rpc.calls == []
    assert len(eng.snapshot.instances) == 1


def test_a_request_repeated_after_rename_and_commit_finds_its_instance():
    eng = engine()
    first = reserve(eng, request_key="k1", **sized())
    eng.run(op("OP_INSTANCE_RENAME", new_name="web2.example.com"))
    commit(eng, "web2.example.com")
    assert reserve(eng, request_key="k1", **sized()) == first


def test_a_key_belongs_to_one_request():
    eng = engine()
    reserve(eng, request_key="k1", **sized())
    error = refused(
        eng,
        {"OP_ID": "OP_INSTANCE_CREATE", "forthcoming": True, "request_key": "k1"},
        "request_key k1: instance web1.example.com was made by a request",
    )
    assert error.args[1] == "resource_not_unique"


def test_a_request_whose_first_copy_still_runs_waits():
    eng = engine()
    eng.config.reserve("other", "creation", "k1")
    with pytest.raises(LockTimeout, match="creation 'k1' is reserved by other"):
        reserve(eng, request_key="k1", **sized())
    eng.config.release("other")
    reserve(eng, request_key="k1", **sized())


@pytest.mark.parametrize("key", ["", "a b", "x" * 129, "k\n"])
def test_malformed_keys_are_refused(key):
    with pytest.raises(errors.OpPrereqError, match="request_key"):
        reserve(engine(), request_key=key)


# The stored form
def test_the_exported_form_is_that_of_ganeti():
    eng = engine()
    uuid = reserve(eng, owner="web", expires=60, request_key="k")
    data = config.export_config(eng.snapshot, eng.config.header())
    row = data["instances"][uuid]
    assert row["forthcoming"] is True
    assert not {"name", "reservation", "request"} & row.keys()


# Changes
def test_modify_and_rename_by_uuid_touch_the_configuration_alone():
    eng = engine(enabled_disk_templates=["file", "diskless"])
    uuid = reserve(eng, pnode="node1")
    wire = {"OP_ID": "OP_INSTANCE_SET_PARAMS", "instance_name": uuid}
    eng.run({**wire, "os_name": "tiny", "owner": "web-team", "expires": 3600})
    eng.run({**wire, "beparams": {"maxmem": 2048, "minmem": 1024}})
    eng.run({**wire, "nics": [["add", -1, {}]], "disks": [["add", -1, {"size": 512}]]})
    eng.run({**wire, "disks": [["modify", 0, {"size": 2048, "name": "root"}]]})
    eng.run({**wire, "disks": [["add", -1, {"size": 256}]], "pnode": "node2"})
    eng.run({**wire, "disks": [["remove", 1, {}]]})
    assert eng.run({**wire, "hvparams": {"vnc_bind_address": "", "kernel_path": ""}})
    renamed = eng.run(
        {"OP_ID": "OP_INSTANCE_RENAME", "instance_name": uuid, "new_name": "web1"}
    )
    assert renamed == "web1"
    made = the_instance(eng)
    assert (made.uuid, made.name, made.os) == (uuid, "web1", "tiny")
    assert made.primary_node == N2
    assert made.reservation.owner == "web-team"
    assert made.reservation.expires == pytest.approx(eng.clock.time() + 3600, abs=1)
    (disk,) = eng.snapshot.disks.values()
    assert (disk.size, disk.name, disk.nodes) == (2048, "root", (N2,))
    assert "/web1/" in disk.logical_id[1]
    assert eng.nodes.files == {}
    assert config.verify(eng.snapshot) == []
    commit(eng, "web1")
    assert eng.nodes.taken == {("web1", N2): 2048}
    assert config.verify(eng.snapshot) == []


def test_a_disk_template_of_a_reservation_changes_without_data():
    eng = engine()
    reserve(eng, **sized())
    eng.run(op("OP_INSTANCE_SET_PARAMS", disk_template="sharedfile"))
    (disk,) = eng.snapshot.disks.values()
    assert (disk.dev_type, disk.nodes, disk.forthcoming) == ("sharedfile", (), True)
    assert the_instance(eng).disks == (disk.uuid,)
    assert acts(eng) == []


def test_a_template_without_disks_is_that_of_the_first_disk():
    eng = engine(enabled_disk_templates=["diskless", "file", "sharedfile"])
    uuid = reserve(eng, instance_name="web1.example.com", disk_template="file")
    assert the_instance(eng).reservation.disk_template == "file"
    with pytest.raises(errors.OpPrereqError, match="it lacks a disk"):
        commit(eng, uuid, os_type="tiny")
    eng.run(op("OP_INSTANCE_SET_PARAMS", disk_template="sharedfile"))
    eng.run(op("OP_INSTANCE_SET_PARAMS", disks=[["add", -1, {"size": 512}]]))
    (disk,) = eng.snapshot.disks.values()
    assert (disk.dev_type, disk.forthcoming) == ("sharedfile", True)
    assert config.verify(eng.snapshot) == []


def test_a_reservation_without_disks_may_become_diskless_again():
    eng = engine(enabled_disk_templates=["diskless", "file"])
    bare = {"disk_template": "file", "disks": []}
    uuid = reserve(eng, **sized() | bare)
    eng.run(op("OP_INSTANCE_SET_PARAMS", disk_template="diskless"))
    refused(
        eng,
        op("OP_INSTANCE_SET_PARAMS", disks=[["add", -1, {"size": 512}]]),
        "its first disk needs a disk template",
    )
    commit(eng, uuid, start=False)
    assert the_instance(eng).disks == ()


def test_a_mirrored_template_needs_its_disks_with_it():
    eng = engine(enabled_disk_templates=["drbd", "file", "diskless"])
    wire = {"OP_ID": "OP_INSTANCE_CREATE", "forthcoming": True}
    refused(eng, {**wire, "disk_template": "drbd"}, "needs disks in the reservation")


def test_changes_of_a_reservation_respect_the_others():
    eng = engine()
    reserve(eng, **sized(4096, pnode="node1"))
    reserve(eng, **sized(4096, pnode="node1", instance_name="b"))
    reserve(eng, **sized(1024, pnode="node2", instance_name="c"))
    more = {"beparams": {"maxmem": 4097}, "force": True}
    refused(eng, op("OP_INSTANCE_SET_PARAMS", **more), "4096 MiB of it reserved")
    move = {"instance_name": "c", "pnode": "node1"}
    refused(eng, op("OP_INSTANCE_SET_PARAMS", **move), "8192 MiB of it reserved")
    for name in ("OP_INSTANCE_FAILOVER", "OP_INSTANCE_MOVE"):
        wire = {"OP_ID": name, "instance_name": "c", "target_node": "node1"}
        refused(eng, wire, "8192 MiB of it reserved")
    grow = op("OP_INSTANCE_GROW_DISK", disk=0, amount=65536, ignore_ipolicy=True)
    refused(eng, grow, r"needs 66560 MiB \(65.0 GiB\) for disks")


@pytest.mark.parametrize("op_id", ["OP_INSTANCE_FAILOVER", "OP_INSTANCE_MOVE"])
def test_a_reservation_of_local_disks_moves_without_a_copy(op_id):
    eng = engine()
    reserve(eng, **sized(pnode="node1"))
    eng.run(op(op_id, target_node="node3"))
    (disk,) = eng.snapshot.disks.values()
    assert (the_instance(eng).primary_node, disk.nodes) == (N3, (N3,))
    assert acts(eng) == []


def test_a_reservation_on_a_lost_node_moves_to_where_the_allocator_says():
    eng = engine()
    reserve(eng, **sized(pnode="node1"))
    eng.run(op("OP_INSTANCE_FAILOVER"))
    assert the_instance(eng).primary_node in (N2, N3)


def test_terms_of_an_existing_instance_cannot_change():
    eng = engine()
    eng.run({**creation(), "nics": [{}]})
    refused(eng, op("OP_INSTANCE_SET_PARAMS", owner="x"), "is not forthcoming")


def test_only_an_expired_reservation_is_released():
    eng = engine()
    uuid = reserve(eng, expires=60)
    wire = {"OP_ID": "OP_INSTANCE_REMOVE", "instance_name": uuid, "if_expired": True}
    refused(eng, wire, "is not a reservation that has expired, so it stays")
    eng.clock.now += 61
    extend = {"OP_ID": "OP_INSTANCE_SET_PARAMS", "instance_name": uuid, "expires": 60}
    eng.run(extend)
    refused(eng, wire, "so it stays")
    eng.clock.now += 61
    eng.run(wire)
    assert not eng.snapshot.instances


def test_a_failover_may_take_the_memory_of_reservations_of_low_priority():
    eng = engine()
    wire = {**creation(), "nics": [{}], "disk_template": "diskless", "disks": []}
    eng.run({**wire, "beparams": {"maxmem": 6144, "minmem": 6144}})
    low = sized(4096, pnode="node2", instance_name="low")
    reserve(eng, **low, reservation_priority="low")
    to = op("OP_INSTANCE_FAILOVER", target_node="node2")
    refused(eng, to, "4096 MiB of it reserved for forthcoming instances low")
    eng.run({**to, "ignore_consistency": True})
    assert "reservations of low priority hold: low" in eng.callbacks.text()
    with pytest.raises(errors.OpPrereqError, match="needs 4096 MiB"):
        commit(eng, "low")
