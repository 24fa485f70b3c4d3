"""Parameters of providers, changed on existing disks of external storage."""

import pytest

from fakes import clusters
from fakes.engine import Engine
from fakes.exporting import small
from fakes.rpc import SUCCESSFUL_ACTS
from ganeti.base import errors
from ganeti.model import objects

SHELF = ["shelf", "/es/shelf", True, "", [["speed", "of it"], ["copies", "of it"]]]


def engine(template="ext", **params):
    start = small(template, admin_state="down", disks_active=False)
    (disk,) = start.disks.values()
    start = clusters.changed(start, disk.replace(params=params))
    script = {
        **SUCCESSFUL_ACTS,
        "extstorage_diagnose": [SHELF],
        "hooks_runner": [],
        "instance_info": {},
    }
    return Engine(start, script)


def modify(eng, **spec):
    return eng.run(
        {
            "OP_ID": "OP_INSTANCE_SET_PARAMS",
            "instance_name": "inst1.example.com",
            "disks": [["modify", 0, spec]],
        }
    )


def test_parameters_are_changed_added_and_removed():
    eng = engine(speed="slow", access="kernelspace")
    report = modify(eng, speed="fast", copies="2", mode="ro")
    assert sorted(report) == [
        ("disk.copies/0", "2"),
        ("disk.mode/0", "ro"),
        ("disk.speed/0", "fast"),
    ]
    disk: objects.Disk = eng.snapshot.disks["d1"]
    own = {"access": "kernelspace", "speed": "fast", "copies": "2"}
    assert disk.params == own
    assert modify(eng, speed="default") == [("disk.speed/0", "default")]
    assert eng.snapshot.disks["d1"].params == {"access": "kernelspace", "copies": "2"}


@pytest.mark.parametrize(
    ("template", "spec", "text"),
    [
        ("ext", {"bogus": "1"}, "shelf has no parameter bogus, only copies, speed"),
        ("ext", {"9x": "1"}, "'9x' cannot be a parameter of a provider"),
        ("ext", {"speed": "a\nb"}, "parameter speed: wanted at most 4096 printable"),
        ("ext", {"size": 5}, "only mode and name can change, found size"),
        ("ext", {"provider": "other"}, "only mode and name can change, found provider"),
        ("plain", {"speed": "fast"}, "only mode and name can change, found speed"),
    ],
)
def test_other_changes_are_refused(template, spec, text):
    eng = engine(template)
    before = eng.snapshot
    with pytest.raises(errors.OpPrereqError, match=text):
        modify(eng, **spec)
    assert eng.snapshot is before
