"""Reservations, notes of disks, and numbers that are left out."""

import json

import pytest

from fakes import cluster, clusters
from fakes.store import open_memory
from ganeti.base import clock, errors
from ganeti.master import config
from ganeti.master.config import address_pool, higher_numbers
from ganeti.master.config.config import Reservations
from ganeti.master.config.disk_notes import DiskNote, DiskNotes, MadeDisk, job_of
from ganeti.master.config.higher_numbers import HigherNumbers
from ganeti.model.objects import Disk, Nic
from ganeti.store import Document
from ganeti.store.numbers import Numbers

DISK = Disk(uuid="d1", dev_type="plain", logical_id=("vg", "lv"), size=1, serial_no=1)


def test_a_value_belongs_to_one_owner_until_it_is_released():
    kept = Reservations()
    kept.reserve("1/0", "mac", "aa")
    kept.reserve("1/0", "mac", "aa")
    kept.reserve("2/0", "uuid", "aa")
    with pytest.raises(errors.ReservationError) as caught:
        kept.reserve("2/0", "mac", "aa")
    assert caught.value.args == ("mac 'aa' is reserved by 1/0, wanted by 2/0",)
    assert kept.held("mac") == {"aa": "1/0"}
    assert kept.held("lv") == {}
    other = kept.copy()
    # Values of others are not released.
    kept.release("1/0")
    kept.release("1/0")
    assert kept.held("mac") == {}
    assert kept.held("uuid") == {"aa": "2/0"}
    kept.release("2/0")
    assert kept.held("uuid") == {}
    assert other.held("mac") == {"aa": "1/0"}


def test_a_value_that_the_configuration_has_is_not_reserved():
    kept = Reservations()

    def refuse():
        raise errors.ReservationError("in use")

    with pytest.raises(errors.ReservationError, match="in use"):
        kept.reserve("1/0", "mac", "aa", refuse)
    assert kept.held("mac") == {}


def test_a_free_value_is_chosen_among_those_of_its_kind():
    kept, seen = Reservations(), []
    kept.reserve("1/0", "mac", "aa")
    kept.reserve("1/0", "uuid", "bb")

    def choose(taken):
        seen.append(set(taken))
        return "cc"

    assert kept.reserve_first("2/0", "mac", choose) == "cc"
    assert seen == [{"aa"}]
    assert kept.held("mac") == {"aa": "1/0", "cc": "2/0"}


@pytest.fixture
def store():
    made = open_memory()
    made.commit(cluster.updates(cluster.example_data()))
    yield made
    made.close()


def keys(store):
    store.commit([])
    return [key for key, _data in store.scan("meta", "disks/")]


def test_notes_of_disks_live_as_long_as_their_opcode(store):
    notes = DiskNotes(store)
    note = DiskNote("web1", (MadeDisk(DISK, ("n1",)),), (("/srv/a", "n1"),))
    notes.add("7/0", note)
    notes.add("7/0", DiskNote("web1", ()))
    notes.add("8/0", DiskNote("web2", (), (("/srv/b", "n2"),)))
    assert keys(store) == ["disks/7/0/0", "disks/7/0/1", "disks/8/0/0"]
    assert notes.left() == {}
    assert notes.all_directories("disks/8/0/0") == {("/srv/a", "n1")}
    assert notes.all_directories("") == {("/srv/a", "n1"), ("/srv/b", "n2")}
    notes.drop("8/0")
    notes.drop("9/0")
    assert keys(store) == ["disks/7/0/0", "disks/7/0/1"]
    assert not notes.news.is_set()
    notes.leave("9/0")
    assert not notes.news.is_set()
    notes.leave("7/0")
    assert notes.news.is_set()
    assert notes.left()["disks/7/0/0"] == note
    assert notes.begin_sweep("disks/7/0/9") is None
    assert notes.begin_sweep("disks/7/0/0") == note
    notes.end_sweep("disks/7/0/0", is_clean=False)
    assert keys(store) == ["disks/7/0/0", "disks/7/0/1"]
    notes.end_sweep("disks/7/0/0", is_clean=True)
    assert keys(store) == ["disks/7/0/1"]


def test_notes_that_are_held_wait_for_the_next_master(store):
    notes = DiskNotes(store)
    notes.add("7/0", DiskNote("web1", ()))
    notes.hold("7/0")
    notes.hold("9/0")
    assert notes.left() == {}
    assert list(DiskNotes(store).left()) == ["disks/7/0/0"]


def test_a_damaged_note_is_named(store):
    store.commit([Document("meta", "disks/7/0/0", b"{}")])
    with pytest.raises(
        errors.ConfigurationError, match="note disks/7/0/0 of new disks"
    ):
        DiskNotes(store).left()


@pytest.mark.parametrize(
    ("key", "job"),
    [
        ("disks/17/0/0", 17),
        ("disks/luxi/0", 0),
        ("disks//0", 0),
        ("disks/\u0663/0", 0),
        ("17/0", 17),
    ],
)
def test_a_note_names_its_job(key, job):
    assert job_of(key) == job


def test_a_store_that_takes_no_changes_keeps_notes():
    class Store:
        def __init__(self):
            self.error = None

        def commit(self, changes):
            pass

        def commit_soon(self, changes):
            raise self.error

    store = Store()
    notes = DiskNotes(store)
    for error in (errors.StorageError("full"), errors.TermError("over")):
        store.error = error
        notes.add("7/0", DiskNote("web1", ()))
        notes.drop("7/0")
    store.error = ValueError("bug")
    with pytest.raises(ValueError, match="bug"):
        notes.end_sweep("disks/7/0/0", is_clean=True)


def test_lost_changes_may_have_used_some_numbers(store):
    conf = config.Config(store, clock.SystemClock())
    before = conf.header()
    document = higher_numbers.job_ids(store)
    assert (document.table, document.key, document.data) == ("meta", "serial", b"10000")
    store.commit([Document("meta", "serial", b"42")])
    assert higher_numbers.job_ids(store).data == b"10042"
    document = higher_numbers.serials(store)
    assert (document.table, document.key) == ("meta", "config")
    data = json.loads(document.data)
    assert data["serial_no"] == before.serial_no + 1_000_000
    store.commit([document])
    assert config.Config(store, clock.SystemClock()).header().serial_no == (
        before.serial_no + 1_000_000
    )


def test_higher_numbers_are_taken_together_and_then_refused():
    higher = HigherNumbers()
    higher.note(Numbers(5, 1, 3))
    higher.note(Numbers(2, 4, 3))
    assert higher.take() == Numbers(5, 4, 3)
    higher.note(Numbers(1, 1, 1))
    higher.close()
    with pytest.raises(errors.StorageError, match="another history with higher"):
        higher.note(Numbers(9, 9, 9))
    assert higher.take() == Numbers(1, 1, 1)
    assert higher.take() is None


def test_addresses_belong_to_a_network_or_a_link():
    nics = (
        Nic(
            mac="a", uuid="1", ip="198.51.100.5", nicparams={}, network=clusters.NETWORK
        ),
        Nic(mac="b", uuid="2", ip="192.0.2.50", nicparams={"link": "br7"}),
        Nic(mac="c", uuid="3", nicparams={}),
    )
    start = clusters.snapshot(
        nodes=2,
        extra=[clusters.network(), clusters.instance(1, nics=nics)],
        nicparams={"default": {"link": "br0", "mode": "bridged"}},
    )
    start = clusters.changed(
        start, start.nodes[clusters.node_uuid(2)].replace(secondary_ip="203.0.113.2")
    )
    (guest,) = start.instances.values()
    places = [address_pool.place(start, nic) for nic in nics]
    assert places == [
        (clusters.NETWORK, "198.51.100.5"),
        ("br7", "192.0.2.50"),
        None,
    ]
    assert address_pool.used(start) == {
        ("br0", "192.0.2.100"): ["the cluster"],
        ("br0", "192.0.2.1"): ["node node1.example.com (primary)"],
        ("br0", "192.0.2.2"): ["node node2.example.com (primary)"],
        ("br0", "203.0.113.2"): ["node node2.example.com (secondary)"],
        places[0]: ["instance inst1.example.com (NIC 0)"],
        places[1]: ["instance inst1.example.com (NIC 1)"],
    }

    def holder(place, but=""):
        return address_pool.holder(start, place, but=but)

    assert holder(("br0", "192.0.2.100")) == "the cluster"
    assert holder(places[1]) == "instance inst1.example.com (NIC 1)"
    assert holder(places[1], but=guest.uuid) is None
    assert holder(("br0", "192.0.2.50")) is None


def test_the_network_of_a_group_that_contains_an_address_is_named():
    other = "00000000-0000-4000-8000-0000000000c1"
    connected = {key: {"mode": "bridged"} for key in (clusters.NETWORK, other, "gone")}
    start = clusters.snapshot(
        nodes=1,
        extra=[
            clusters.network(),
            clusters.network("dmz", other, network="192.0.2.0/28"),
            clusters.group(networks=connected),
        ],
    )

    def claiming(address):
        return address_pool.claiming_network(start, address, clusters.GROUP)

    assert claiming("198.51.100.5") == "lan"
    assert claiming("192.0.2.15") == "dmz"
    assert claiming("192.0.2.16") is None


FORTHCOMING = {
    "uuid": "e19b7a34-0f4d-4d27-b6c2-70a1b2c3d499",
    "serial_no": 1,
    "forthcoming": True,
}


def imported(**changes):
    data = cluster.example_data()
    row = {**FORTHCOMING, **changes}
    data["instances"][row["uuid"]] = row
    store = open_memory()
    store.commit(config.import_config(data))
    snapshot = store.snapshot()
    store.close()
    return snapshot, snapshot.instances[row["uuid"]]


def test_a_forthcoming_instance_gets_what_it_lacks():
    snapshot, guest = imported()
    assert guest.name == guest.uuid
    assert guest.primary_node == snapshot.cluster.master_node
    assert guest.hypervisor == snapshot.cluster.enabled_hypervisors[0]
    assert (guest.admin_state, guest.admin_state_source) == ("down", "admin")
    assert guest.reservation is not None
    assert (guest.nics, guest.disks, guest.hvparams) == ((), (), {})


def test_a_forthcoming_instance_keeps_what_it_has():
    node = next(iter(cluster.example().nodes))
    given = {
        "name": "web9.example.com",
        "primary_node": node,
        "hypervisor": "fake",
        "admin_state": "up",
        "admin_state_source": "user",
    }
    _snapshot, guest = imported(**given)
    assert {name: getattr(guest, name) for name in given} == given


@pytest.mark.parametrize(
    ("place", "value", "text"),
    [
        (("nodes",), [], "config.data: nodes: wanted an object"),
        (("nodes", "x"), 5, "config.data: nodes/x: "),
        (("nodes", "x"), {"odd": 1}, "unknown members odd"),
    ],
)
def test_what_cannot_be_imported_is_named(place, value, text):
    data = cluster.example_data()
    if len(place) == 1:
        data[place[0]] = value
    else:
        data[place[0]][place[1]] = value
    with pytest.raises(errors.ConfigurationError) as caught:
        config.import_config(data)
    assert text in str(caught.value)


def test_a_record_under_another_key_is_refused():
    data = cluster.example_data()
    uuid, row = next(iter(data["nodes"].items()))
    data["nodes"]["x"] = row
    with pytest.raises(errors.ConfigurationError) as caught:
        config.import_config(data)
    assert caught.value.args == (f"config.data: nodes/x: its uuid is {uuid}",)
