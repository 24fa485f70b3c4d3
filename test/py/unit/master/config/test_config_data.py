"""config.data in and out."""

import copy
import json

import pytest

from fakes import cluster
from fakes.store import open_memory
from ganeti.base import clock, errors
from ganeti.master import config

WEB1 = "e19b7a34-0f4d-4d27-b6c2-70a1b2c3d401"
DISK = "3b6f8c15-9e2a-4f70-8c4d-a1b2c3d4e501"


def round_trip(data, **options):
    store = open_memory()
    store.commit(config.import_config(data, **options))
    conf = config.Config(store, clock.SystemClock())
    actual = config.export_config(conf.snapshot(), conf.header())
    store.close()
    return actual


@pytest.fixture
def data():
    return cluster.example_data()


def test_reading_and_writing_back_changes_nothing(data):
    actual = round_trip(copy.deepcopy(data))
    # As text, because 1 == 1.0 and True == 1 in Python.
    assert json.dumps(actual, sort_keys=True) == json.dumps(data, sort_keys=True)


def test_the_next_change_counts_on(data):
    store = open_memory()
    store.commit(config.import_config(data))
    conf = config.Config(store, clock.SystemClock())
    with conf.edit("job-1") as edit:
        edit.update_cluster(tags=("a",))
    actual = config.export_config(conf.snapshot(), conf.header())
    store.close()
    assert (actual["serial_no"], actual["cluster"]["serial_no"]) == (10, 5)
    assert actual["ctime"] == data["ctime"]


def test_another_version_is_refused_unless_asked_for(data):
    data["version"] = 3000000
    with pytest.raises(errors.ConfigVersionMismatch) as info:
        config.import_config(data)
    assert info.value.args == (3010000, 3000000)
    assert round_trip(data, accept=config.UPGRADABLE)["version"] == 3010000


def test_missing_and_null_members_get_their_defaults(data):
    del data["instances"][WEB1]["hvparams"]
    data["instances"][WEB1]["network_port"] = None
    del data["nodegroups"]["c7e4d2f0-52b8-4a1e-9d60-6b1f2e3d4c01"]["members"]
    data["disks"][DISK]["children"][0]["params"] = None
    actual = round_trip(copy.deepcopy(data))
    assert actual["instances"][WEB1]["hvparams"] == {}
    assert "network_port" not in actual["instances"][WEB1]
    assert "params" not in actual["disks"][DISK]["children"][0]
    group = next(iter(actual["nodegroups"].values()))
    assert group["members"] == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda d: d.pop("filters"), "config.data: filters missing"),
        (lambda d: d.update(extra=1), "config.data: unknown members extra"),
        (
            lambda d: d["cluster"].pop("master_node"),
            "config.data: cluster: cluster: master_node missing",
        ),
        (
            lambda d: d["instances"][WEB1].update(bogus=1),
            f"instances/{WEB1}: unknown members bogus",
        ),
        (
            lambda d: d["instances"][WEB1]["nics"][0].update(mac=5),
            f"config.data: instances/{WEB1}: Instance: Expected `str`, got `int`",
        ),
        (
            lambda d: d["disks"][DISK]["children"][0].pop("size"),
            f"disks/{DISK}/children: size missing",
        ),
        (
            lambda d: d["instances"].update(x=d["instances"].pop(WEB1)),
            f"instances/x: its uuid is {WEB1}",
        ),
    ],
)
def test_what_is_wrong_is_named(data, change, text):
    change(data)
    with pytest.raises(errors.ConfigurationError) as info:
        config.import_config(data)
    assert text in str(info.value)


def test_a_forthcoming_disk_may_lack_nearly_everything(data):
    data["disks"]["f"] = {"uuid": "f", "serial_no": 1, "forthcoming": True}
    actual = round_trip(data)
    assert actual["disks"]["f"]["forthcoming"] is True
    assert actual["disks"]["f"]["size"] == 0
