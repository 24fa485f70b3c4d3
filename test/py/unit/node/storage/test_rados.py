"""Disks of template rbd: the program's output is as Ceph prints it."""

import dataclasses
import json

import msgspec
import pytest

from fakes import nodes
from ganeti.base import errors, pathutils, process
from ganeti.node.storage import external, rados

IMAGE = "v1.rbd.disk0"
#: As printed by Ceph 12, and since 14.
OLD_ROW = {"0": {"pool": "rbd", "name": IMAGE, "snap": "-", "device": "/dev/rbd0"}}
NEW_ROW = {
    "id": "3",
    "pool": "rbd",
    "namespace": "",
    "name": IMAGE,
    "snap": "-",
    "device": "/dev/rbd3",
}


class Ceph:
    """The program ``rbd`` with one pool; sizes of images in MiB, devices by image."""

    def __init__(self):
        self.images, self.devices, self.calls = {}, {}, []
        self.fails = {}

    def run_bounded(self, argv, *, env, timeout_s, max_output):
        assert env["PATH"] == process.SAFE_PATH
        assert 0 < timeout_s < 900
        self.calls.append(" ".join(argv[1:]))
        code, text = self.fails.get(argv[1]) or self._answer(argv[1], argv)
        out, err = (text, "") if code == 0 else ("", text)
        return process.RunResult(tuple(argv), code, None, out, err)

    def _answer(self, verb, argv):
        if verb == "unmap":
            device = argv[2]
            self.devices = {k: v for k, v in self.devices.items() if v != device}
            return 0, ""
        options = dict(zip(argv[2::2], argv[3::2], strict=True))
        image = options.get("--image")
        if verb == "showmapped":
            rows = [
                NEW_ROW | {"name": name, "device": device}
                for name, device in self.devices.items()
            ]
            return 0, json.dumps(rows)
        if verb == "create":
            self.images[image] = int(options["--size"])
            return 0, ""
        if image not in self.images:
            return 2, f"rbd: error opening image {image}: (2) No such file or directory"
        return 0, self._on_image(verb, image, options)

    def _on_image(self, verb, image, options):
        if verb == "map":
            self.devices[image] = f"/dev/rbd{len(self.devices)}"
            return self.devices[image] + "\n"
        if verb == "resize":
            self.images[image] = int(options["--size"])
        if verb == "rm":
            del self.images[image]
        return json.dumps({"name": image, "size": self.images.get(image, 0) << 20})


@pytest.fixture
def ceph():
    return Ceph()


def device(ceph, **more):
    params = {"pool": "rbd", "access": "kernelspace", **more.pop("params", {})}
    given = {"dev_type": "rbd", "logical_id": ["rbd", IMAGE], **more}
    record = msgspec.convert(nodes.disk(params=params, **given), external.DiskX)
    return rados.RadosDisk(pathutils.Paths(), record, ceph)


def test_life_of_an_image(ceph):
    disk = device(ceph, params={"pool": "fast"})
    assert not disk.exists()
    disk.create(4)
    ceph.devices = {}
    assert disk.exists()
    assert disk.size_bytes() == 4 << 20
    disk.grow(4, dryrun=True, backingstore=True)
    disk.grow(4, dryrun=False, backingstore=False)
    assert ceph.images == {IMAGE: 4}
    disk.grow(4, dryrun=False, backingstore=True)
    disk.grow(4, dryrun=False, backingstore=True)
    assert ceph.images == {IMAGE: 8}
    disk.remove()
    disk.remove()
    assert ceph.images == {}
    changes = [call for call in ceph.calls if call.split()[0] in ("create", "resize")]
    place = f"--pool fast --image {IMAGE}"
    assert changes == [f"create {place} --size 4", f"resize {place} --size 8"]


class Hanging(Ceph):
    """Makes an image, but does not answer in time."""

    def run_bounded(self, argv, **limits):
        done = super().run_bounded(argv, **limits)
        if argv[1] != "create":
            return done
        return dataclasses.replace(done, code=None, timed_out=True)


def test_an_image_that_is_made_too_late_is_removed_or_named():
    ceph = Hanging()
    with pytest.raises(errors.BlockDeviceError, match="did not end in time") as caught:
        device(ceph).create(4)
    assert ceph.images == {}
    assert "left" not in str(caught.value)
    ceph.fails["rm"] = 110, "rbd: connection timed out"
    with pytest.raises(errors.BlockDeviceError) as caught:
        device(ceph).create(4)
    command = f"rbd rm --pool rbd --image {IMAGE}"
    assert str(caught.value).endswith(f"remove it with {command}")


def test_an_image_of_somebody_else_stays(ceph):
    ceph.images[IMAGE] = 64
    with pytest.raises(errors.BlockDeviceError, match="exists already"):
        device(ceph).create(4)
    assert ceph.images == {IMAGE: 64}


def test_a_device_is_made_once_and_removed(ceph):
    disk = device(ceph)
    disk.create(4)
    assert (disk.path, disk.status().ldisk_status) == ("", rados.LocalStatus.UNKNOWN)
    disk.assemble()
    disk.assemble()
    assert disk.path == "/dev/rbd0"
    assert sum(call.startswith("map ") for call in ceph.calls) == 1
    disk.shutdown()
    disk.shutdown()
    assert ceph.calls.count("unmap /dev/rbd0") == 1
    assert disk.path == ""


@pytest.mark.parametrize(
    ("output", "path"),
    [
        (OLD_ROW, "/dev/rbd0"),
        ([NEW_ROW], "/dev/rbd3"),
        ({}, ""),
        ([], ""),
        ([NEW_ROW | {"pool": "other"}], ""),
        ([NEW_ROW | {"namespace": "other"}], ""),
        ([NEW_ROW | {"snap": "before"}], ""),
    ],
    ids=["old", "new", "none", "none, new", "pool", "namespace", "snapshot"],
)
def test_devices_are_found_in_the_output_of_all_releases(ceph, output, path):
    ceph.fails["showmapped"] = 0, json.dumps(output)
    assert device(ceph).path == path


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("no list", "no list in its output"),
        ("[5]", "no list in its output"),
        ('[{"pool": "rbd"}]', "no list in its output"),
        (json.dumps([NEW_ROW | {"device": "/etc/passwd"}]), "such as /dev/rbd0, found"),
        (json.dumps([NEW_ROW, NEW_ROW]), "is mapped more than once"),
    ],
    ids=["text", "number", "keys", "path", "twice"],
)
def test_other_output_is_refused(ceph, output, text):
    ceph.fails["showmapped"] = 0, output
    with pytest.raises(errors.BlockDeviceError, match=text):
        _ = device(ceph).path


def test_direct_access_goes_without_a_device(ceph):
    disk = device(ceph, params={"access": "userspace"})
    with pytest.raises(errors.BlockDeviceError, match="not found"):
        disk.assemble()
    disk.create(4)
    ceph.fails["map"] = 1, "rbd: sysfs write failed"
    disk.assemble()
    assert disk.status().ldisk_status == rados.LocalStatus.OK
    assert disk.uri("kvm") == f"rbd:rbd/{IMAGE}"
    with pytest.raises(errors.BlockDeviceError, match="cannot use access=userspace"):
        disk.uri("xen-hvm")
    kernel = device(ceph)
    assert kernel.uri("xen-hvm") is None
    with pytest.raises(
        errors.BlockDeviceError, match="rbd map exited with code 1: rbd"
    ):
        kernel.assemble()


def test_a_cluster_that_does_not_answer_is_no_missing_image(ceph):
    ceph.fails["info"] = 110, "rbd: couldn't connect to the cluster!"
    with pytest.raises(errors.BlockDeviceError, match="couldn't connect"):
        device(ceph).exists()
    with pytest.raises(errors.BlockDeviceError, match="couldn't connect"):
        device(ceph).grow(4, dryrun=True, backingstore=True)


def test_ceph_may_be_missing(ceph):
    def missing(*_args, **_more):
        raise errors.CommandError("rbd: cannot be run")

    ceph.run_bounded = missing
    with pytest.raises(errors.StorageError, match="package ceph-common"):
        device(ceph).create(4)


@pytest.mark.parametrize(
    ("logical_id", "pool"),
    [
        (["rbd", "--help"], "rbd"),
        (["rbd", "a/b"], "rbd"),
        (["rbd", "a@b"], "rbd"),
        (["rbd"], "rbd"),
        (["rbd", "v1"], "-p"),
        (["rbd", "v1"], "a:conf=/tmp/x"),
    ],
    ids=["option", "slash", "snapshot", "short", "pool option", "pool with options"],
)
def test_names_that_are_options_are_refused(ceph, logical_id, pool):
    with pytest.raises(errors.BlockDeviceError, match="wanted a pool and an image"):
        device(ceph, logical_id=logical_id, params={"pool": pool})
