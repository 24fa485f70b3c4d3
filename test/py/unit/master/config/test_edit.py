"""Serial and pool rules of edits."""

import pytest

from fakes import cluster
from fakes.patience import until
from fakes.store import MemoryBackend, open_memory
from ganeti.base import errors
from ganeti.master import config
from ganeti.master.config import topology
from ganeti.model.objects import Disk, FilterRule, Network, Update

NODE1 = "8d0a1b62-7c11-4c43-9a3e-11aa22bb3301"
NODE2 = "8d0a1b62-7c11-4c43-9a3e-11aa22bb3302"
GROUP = "c7e4d2f0-52b8-4a1e-9d60-6b1f2e3d4c01"
WEB1 = "e19b7a34-0f4d-4d27-b6c2-70a1b2c3d401"
DISK = "3b6f8c15-9e2a-4f70-8c4d-a1b2c3d4e501"
NOW = 1_800_000_000.5


class Clock:
    def time(self):
        return NOW


@pytest.fixture
def backend():
    return MemoryBackend()


@pytest.fixture
def conf(backend):
    store = open_memory(backend)
    store.commit(cluster.updates(cluster.example_data()))
    yield config.Config(store, Clock())
    store.close()


def serial(conf):
    return conf.snapshot().cluster.serial_no


def add_network(conf):
    network = Network(
        name="lan", network="192.0.2.8/29", gateway="192.0.2.9", uuid="net", serial_no=1
    )
    with conf.edit("job-1") as edit:
        topology.add_network(edit, config.AddressPool.fresh(network).result())
        for group in edit.snapshot.nodegroups.values():
            edit.update(group.replace(networks={"net": {}}))


def test_an_update_adds_one_and_sets_the_time(conf):
    web1 = conf.snapshot().instances[WEB1]
    with conf.edit("job-1") as edit:
        stored = edit.update(web1.replace(os="other"))
    assert conf.snapshot().instances[WEB1] == stored
    assert (stored.serial_no, stored.mtime, stored.ctime) == (3, NOW, web1.ctime)
    assert serial(conf) == 4


def test_a_stale_update_is_refused_and_a_repeated_one_is_not(conf):
    web1 = conf.snapshot().instances[WEB1]
    with conf.edit("job-1") as edit:
        stored = edit.update(web1.replace(os="other"))
    with conf.edit("job-1") as edit:
        assert edit.update(web1.replace(os="other")) == stored
    assert conf.snapshot().instances[WEB1] == stored
    with (
        pytest.raises(errors.ConfigurationError, match="wanted serial 2, found 3"),
        conf.edit("job-1") as edit,
    ):
        edit.update(web1.replace(os="third"))


def test_updating_a_node_touches_the_cluster(conf):
    with conf.edit("job-1") as edit:
        edit.update(edit.snapshot.nodes[NODE1].replace(powered=False))
    assert serial(conf) == 5
    assert conf.snapshot().cluster.mtime == NOW


def test_a_name_in_use_is_refused(conf):
    with (
        pytest.raises(errors.ConfigurationError, match=r"node2\.example\.com"),
        conf.edit("job-1") as edit,
    ):
        edit.update(edit.snapshot.nodes[NODE1].replace(name="node2.example.com"))
    with (
        pytest.raises(errors.ConfigurationError, match="already exists"),
        conf.edit("job-1") as edit,
    ):
        topology.add_node(edit, edit.snapshot.nodes[NODE1])


def test_every_edit_counts_once_at_the_top(conf):
    with conf.edit("job-1") as edit:
        edit.update_cluster(tags=("a",))
        edit.update_cluster(tags=("b",))
    with conf.edit("job-1"):
        pass
    assert (conf.header().serial_no, conf.header().mtime) == (1, NOW)
    assert serial(conf) == 6


def test_a_failed_edit_changes_nothing_and_the_next_one_works(conf, backend):
    backend.failure = errors.StorageError("disk full")
    with pytest.raises(errors.StorageError), conf.edit("job-1") as edit:
        edit.update_cluster(tags=("a",))
    backend.failure = None
    until("the disk", lambda: not conf._store.exposure())
    with conf.edit("job-1") as edit:
        assert edit.snapshot.cluster.tags == ()
        edit.update_cluster(tags=("b",))
    assert conf.header().serial_no == 1


def test_nodes_come_and_go(conf):
    node = conf.snapshot().nodes[NODE2].replace(uuid="n3", name="node3", serial_no=7)
    with conf.edit("job-1") as edit:
        added = topology.add_node(edit, node)
    assert (added.serial_no, added.ctime, serial(conf)) == (1, NOW, 5)
    assert "n3" in conf.snapshot().nodes_in_group(GROUP)
    with conf.edit("job-1") as edit:
        topology.remove_node(edit, "n3")
    assert (serial(conf), "n3" in conf.snapshot().nodes) == (6, False)
    for uuid, text in ((NODE1, "is the master"), (NODE2, "still has 1 instances")):
        with (
            pytest.raises(errors.ConfigurationError, match=text),
            conf.edit("job-1") as edit,
        ):
            topology.remove_node(edit, uuid)


def test_groups_come_and_go_and_nodes_move(conf):
    with conf.edit("job-1") as edit:
        group = edit.snapshot.nodegroups[GROUP].replace(uuid="g2", name="rack2")
        topology.add_group(edit, group)
        topology.assign_nodes(edit, {NODE2: "g2", NODE1: GROUP})
    now = conf.snapshot()
    assert now.nodes_in_group("g2") == {NODE2}
    assert (now.nodes[NODE2].serial_no, now.nodes[NODE1].serial_no) == (2, 1)
    assert [now.nodegroups[g].serial_no for g in (GROUP, "g2")] == [2, 2]
    assert serial(conf) == 6
    with (
        pytest.raises(errors.ConfigurationError, match="1 nodes"),
        conf.edit("x") as edit,
    ):
        topology.remove_group(edit, "g2")
    with conf.edit("x") as edit:
        topology.assign_nodes(edit, {NODE2: GROUP})
        topology.remove_group(edit, "g2")
        with pytest.raises(errors.ConfigurationError, match="still has 2 nodes"):
            topology.remove_group(edit, GROUP)


def test_ports_come_from_the_pool_first(conf):
    with conf.edit("job-1") as edit:
        assert edit.allocate_port() == 11002
        edit.release_port(11000)
        assert edit.allocate_port() == 11000
        assert edit.snapshot.cluster.highest_used_port == 11002
    assert serial(conf) == 4
    with (
        pytest.raises(errors.ConfigurationError, match="14999"),
        conf.edit("x") as edit,
    ):
        edit.update_cluster(highest_used_port=14999)
        edit.allocate_port()


def test_removing_an_instance_frees_ports_disks_and_name(conf):
    with conf.edit("job-1") as edit:
        edit.remove_instance(WEB1)
    now = conf.snapshot()
    assert now.cluster.tcpudp_port_pool == (11000, 11001)
    assert not now.disks
    assert not now.instances
    assert now.uuid_of("instances", "web1.example.com") is None
    assert serial(conf) == 6  # one for the disk, one for the instance


def test_adding_an_instance_attaches_its_disks(conf):
    base = conf.snapshot()
    disk = base.disks[DISK].children[0].replace(uuid="d2", serial_no=9)
    nic = base.instances[WEB1].nics[0].replace(mac="aa:00:00:00:00:01")
    web2 = base.instances[WEB1].replace(uuid="i2", name="web2", nics=(nic,), disks=())
    web2 = web2.replace(network_port=None)
    with conf.edit("job-1") as edit:
        edit.add_instance(web2, [disk])
    now = conf.snapshot()
    assert now.instances["i2"].disks == ("d2",)
    assert (now.disks["d2"].iv_name, now.disks["d2"].serial_no) == ("disk/0", 1)
    assert (serial(conf), now.instances["i2"].serial_no) == (4, 1)
    with pytest.raises(errors.ConfigurationError, match="MAC"), conf.edit("x") as edit:
        edit.add_instance(web2.replace(uuid="i3", name="web3"))


def test_attaching_and_detaching_renumbers_disks(conf):
    base = conf.snapshot()
    disk = base.disks[DISK].children[0].replace(uuid="d2", iv_name="")
    with conf.edit("job-1") as edit:
        edit.add_disk(disk, WEB1, 0)
    now = conf.snapshot()
    assert now.instances[WEB1].disks == ("d2", DISK)
    assert now.instances[WEB1].serial_no == 3
    assert [now.disks[d].iv_name for d in ("d2", DISK)] == ["disk/0", "disk/1"]
    with conf.edit("job-1") as edit:
        edit.detach_disk(WEB1, "d2")
    now = conf.snapshot()
    assert now.disks[DISK].iv_name == "disk/0"
    assert now.disk_owner("d2") is None
    with conf.edit("job-1") as edit:
        edit.remove_disk(DISK)
    now = conf.snapshot()
    assert (now.instances[WEB1].disks, set(now.disks)) == ((), {"d2"})
    assert 11000 in now.cluster.tcpudp_port_pool


def test_a_new_primary_node_does_not_count(conf):
    with conf.edit("job-1") as edit:
        edit.set_primary_node(WEB1, NODE2)
    now = conf.snapshot()
    assert (now.instances[WEB1].serial_no, serial(conf)) == (2, 4)
    assert now.primary_instances(NODE2) == {WEB1}
    assert now.secondary_instances(NODE1) == {WEB1}


def test_renaming_moves_the_files_of_file_disks(conf):
    disk = conf.snapshot().disks[DISK].children[0]
    disk = disk.replace(
        uuid="d2", dev_type="file", logical_id=("loop", "/srv/web1.example.com/d2.file")
    )
    with conf.edit("job-1") as edit:
        edit.add_disk(disk, WEB1)
        edit.rename_instance(WEB1, "web9")
    now = conf.snapshot()
    assert now.disks["d2"].logical_id == ("loop", "/srv/web9/d2.file")
    assert now.uuid_of("instances", "web9") == WEB1


def test_the_candidate_pool_is_filled_from_eligible_nodes(conf):
    with conf.edit("job-1") as edit:
        base = edit.snapshot.nodes[NODE2].replace(master_candidate=False)
        for number, flags in enumerate(
            ({}, {"offline": True}, {"master_capable": False})
        ):
            topology.add_node(
                edit, base.replace(uuid=f"n{number}", name=f"n{number}", **flags)
            )
        before = edit.snapshot.cluster.serial_no
        promoted = topology.fill_candidate_pool(edit)
        assert [node.uuid for node in promoted] == ["n0"]
        assert edit.snapshot.cluster.serial_no == before + 1
        assert topology.fill_candidate_pool(edit) == []
        assert topology.fill_candidate_pool(edit, [NODE2]) == []
        assert topology.pool_state(edit.snapshot) == (3, 3, 3)


def test_addresses_follow_the_nics(conf):
    add_network(conf)
    with conf.edit("job-1") as edit:
        web1 = edit.snapshot.instances[WEB1]
        nic = web1.nics[0].replace(network="net", ip="192.0.2.11")
        edit.update(web1.replace(nics=(nic,)))
    pool = config.AddressPool(conf.snapshot().networks["net"])
    assert pool.map() == "XX.X...X"
    assert pool.counts() == (8, 4)
    assert pool.external() == ["192.0.2.8", "192.0.2.9", "192.0.2.15"]
    with (
        pytest.raises(errors.AddressPoolError, match=r"192\.0\.2\.11 is used"),
        conf.edit("x") as edit,
    ):
        other = web1.replace(uuid="i2", name="web2", nics=(nic.replace(mac="x"),))
        edit.add_instance(other.replace(disks=()))
    with conf.edit("job-1") as edit:
        edit.remove_instance(WEB1)
    assert config.AddressPool(conf.snapshot().networks["net"]).map() == "XX.....X"


def test_reservations_belong_to_their_owner_until_released(conf):
    add_network(conf)
    assert conf.generate_ip("job-1", "net") == "192.0.2.10"
    assert conf.generate_ip("job-2", "net") == "192.0.2.11"
    with pytest.raises(
        errors.ReservationError, match=r"reserved by job-1, wanted by job-2"
    ):
        conf.reserve_ip("job-2", "net", "192.0.2.10")
    with pytest.raises(errors.ReservationError, match="is reserved"):
        conf.reserve_ip("job-2", "net", "192.0.2.9")
    conf.release("job-1")
    conf.reserve_ip("job-2", "net", "192.0.2.10")
    conf.reserve_ip("job-2", "net", "192.0.2.9", check=False)


def test_macs_are_new_and_have_the_prefix(conf):
    values = iter([b"\x1a\x2b\x3c", b"\x00\x00\x01", b"\x00\x00\x01", b"\x00\x00\x02"])
    conf = config.Config(conf._store, Clock(), entropy=lambda _count: next(values))
    assert conf.reserve_mac("job-1") == "aa:00:00:00:00:01"  # the first one is web1's
    assert conf.reserve_mac("job-2") == "aa:00:00:00:00:02"
    with pytest.raises(errors.ReservationError, match=r"web1\.example\.com"):
        conf.take_mac("job-1", "aa:00:00:1a:2b:3c")


def test_minors_are_the_lowest_free_ones_of_their_node(conf):
    assert conf.reserve_minors("job-1", [NODE1, NODE2, NODE1]) == [1, 1, 2]
    assert conf.reserve_minors("job-2", [NODE1]) == [3]
    conf.release("job-1")
    assert conf.reserve_minors("job-2", [NODE1, NODE2]) == [1, 1]


def test_uuids_and_secrets_are_random(conf):
    assert len({conf.reserve_uuid("job-1") for _ in range(20)}) == 20
    assert len(conf.reserve_secret("job-1")) == 40


def test_filters_are_put_and_deleted(conf):
    rule = FilterRule(
        watermark=0,
        priority=1,
        predicates=(("jobid", [">", "id", 0]),),
        action="ACCEPT",
        reason_trail=(),
        uuid="f1",
    )
    with conf.edit("x") as edit:
        edit.put(Update("filters", "f1", rule))
        edit.put(Update("filters", "f1", rule.replace(priority=2)))
    assert conf.snapshot().filters["f1"].priority == 2
    with conf.edit("x") as edit:
        edit.remove("filters", "f1")
    assert not conf.snapshot().filters
    with (
        pytest.raises(errors.ConfigurationError, match="filters: f1 does not exist"),
        conf.edit("x") as edit,
    ):
        edit.remove("filters", "f1")


def drbd(number, minors=(50, 50), port=11051):
    return Disk(
        uuid=f"drbd{number}",
        dev_type="drbd",
        logical_id=(NODE1, NODE2, port, *minors, "secret"),
        size=1,
        serial_no=1,
        nodes=(NODE1, NODE2),
    )


def between(conf, monkeypatch, other):
    """Run another job between a look at the configuration and the reservation."""
    reservations, done = conf._reservations, []

    def interleaved(name):
        real = getattr(reservations, name)

        def call(*args, **options):
            if not done:
                done.append(True)
                other()
            return real(*args, **options)

        monkeypatch.setattr(reservations, name, call)

    interleaved("reserve_first")
    interleaved("reserve")


def test_a_minor_is_not_given_twice_when_two_jobs_interleave(conf, monkeypatch):
    def other():
        minors = conf.reserve_minors("job-2", [NODE1, NODE2])
        with conf.edit("job-2") as edit:
            edit.add_disk(drbd(2, minors, edit.allocate_port()))
        conf.release("job-2")

    between(conf, monkeypatch, other)
    mine = conf.reserve_minors("job-1", [NODE1, NODE2])
    with conf.edit("job-1") as edit:
        edit.add_disk(drbd(1, mine, edit.allocate_port()))
    assert list(config.verify(conf.snapshot())) == []


@pytest.mark.parametrize("how", ["generated", "chosen"])
def test_an_address_of_a_pool_is_not_given_twice(conf, monkeypatch, how):
    add_network(conf)
    web1 = conf.snapshot().instances[WEB1]

    def other():
        with conf.edit("job-2") as edit:
            nic = web1.nics[0].replace(network="net", ip="192.0.2.10")
            edit.update(web1.replace(nics=(nic,)))
        conf.release("job-2")

    between(conf, monkeypatch, other)
    if how == "generated":
        assert conf.generate_ip("job-1", "net") == "192.0.2.11"
    else:
        with pytest.raises(errors.ReservationError, match="used by an instance"):
            conf.reserve_ip("job-1", "net", "192.0.2.10")
        # Nothing of the refused reservation is left.
        conf.reserve_ip("job-3", "net", "192.0.2.12")
        with pytest.raises(errors.ReservationError, match="used by an instance"):
            conf.reserve_ip("job-3", "net", "192.0.2.10")


def test_a_mac_that_is_taken_in_between_is_refused(conf, monkeypatch):
    web1 = conf.snapshot().instances[WEB1]

    def other():
        with conf.edit("job-2") as edit:
            nic = web1.nics[0].replace(mac="aa:00:00:00:00:99")
            edit.update(web1.replace(nics=(nic,)))

    between(conf, monkeypatch, other)
    with pytest.raises(errors.ReservationError, match="is used by instance"):
        conf.take_mac("job-1", "aa:00:00:00:00:99")


@pytest.mark.parametrize(
    ("disk", "text"),
    [
        (drbd(2, (51, 50), 11053), "DRBD minor 50 .*is used by disk drbd1"),
        (drbd(2, (50, 51), 11053), "DRBD minor 50 .*is used by disk drbd1"),
        (drbd(2, (51, 51), 11051), "port 11051 is used by"),
    ],
)
def test_a_commit_refuses_minors_and_ports_in_use(conf, disk, text):
    with conf.edit("job-1") as edit:
        edit.add_disk(drbd(1))
    with (
        pytest.raises(errors.ConfigurationError, match=text),
        conf.edit("job-1") as edit,
    ):
        edit.add_disk(disk)
    with conf.edit("job-1") as edit:
        stored = edit.snapshot.disks["drbd1"]
        edit.update(stored.replace(size=2))  # its own numbers are no others'
        edit.remove_disk("drbd1")
        edit.add_disk(disk)


def test_a_commit_refuses_a_mac_and_an_instance_port_in_use(conf):
    web1 = conf.snapshot().instances[WEB1]
    with conf.edit("job-1") as edit:
        web1 = edit.update(web1.replace(network_port=11060))
    other = web1.replace(uuid="web9", name="web9", disks=(), nics=())
    with conf.edit("job-1") as edit:
        edit.add_instance(other.replace(network_port=None))
    for changes, text in (
        ({"nics": web1.nics}, "MAC .* is used by"),
        ({"network_port": 11060}, "port 11060 is used by instance"),
    ):
        with (
            pytest.raises(errors.ConfigurationError, match=text),
            conf.edit("job-1") as edit,
        ):
            edit.update(edit.snapshot.instances["web9"].replace(**changes))
