"""UEFI variables: which of them count after a guest ran on several nodes."""

import base64
import os
import zlib

import msgspec
import pytest

from fakes import guests, nodes
from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.model.objects.filled import InstanceX
from ganeti.node.hypervisor.kvm import argv, checks, runtime
from ganeti.node.hypervisor.kvm.devices import firmware
from ganeti.node.hypervisor.kvm.files import Files
from ganeti.node.hypervisor.kvm.moving import layout

FACTS = argv.EmulatorFacts("pc")


@pytest.fixture
def place():
    with guests.short_directory() as path:
        yield path


@pytest.fixture
def params(place):
    for name in ("code", "vars"):
        with open(f"{place}/{name}", "wb") as out:
            out.write(name.encode() * 1000)
    return {
        "firmware": "uefi",
        "uefi_code_path": f"{place}/code",
        "uefi_vars_path": f"{place}/vars",
    }


def guest_on(place, node, name="web1"):
    made = Files(Paths(f"{place}/{node}", node), name)
    made.make_directories()
    return made


def record(params, state="", **more):
    beparams = {"maxmem": 256, "minmem": 128, "vcpus": 1}
    wire = guests.kvm_instance("web1", guests.kvm_params(**params), beparams=beparams)
    return msgspec.convert({**wire, "firmware_state": state, **more}, InstanceX)


class Guest:
    """A guest that writes its variables, and the copy in its record."""

    def __init__(self, place, params):
        self.place, self.params, self.copy = place, params, ""

    def start(self, node):
        guest = guest_on(self.place, node)
        firmware.prepare(guest, record(self.params, self.copy), self.params)
        with open(firmware.store(guest).path, "rb") as src:
            return src.read()

    def write(self, node, content):
        with open(firmware.store(guest_on(self.place, node)).path, "wb") as out:
            out.write(content)

    def save(self, node):
        self.copy = firmware.store(guest_on(self.place, node)).packed()


@pytest.fixture
def moving(place, params):
    return Guest(place, params)


def test_a_running_guest_without_its_file_is_reported(place, params, monkeypatch):
    node = nodes.make_node(place, "n1")
    guest = guest_on(place, "n1")
    assert node.paths == guest.paths
    asked = {"guest-files": ["web1", "web2"]}

    def lost():
        return nodes.call(node, "node_verify", asked, "c", {})["guest-files"]

    own = params | {"tpm": True}
    runtime.save(guest, runtime.Runtime((), (), own, ()))
    assert lost() == {}
    monkeypatch.setattr(Files, "alive_pid", lambda _self: 7)
    assert lost() == {"web1": ["firmware", "tpm", "tpm-process"]}
    firmware.prepare(guest, record(params), params)
    assert lost() == {"web1": ["tpm", "tpm-process"]}
    # A parameter that was changed later does not concern this guest.
    runtime.save(guest, runtime.Runtime((), (), params, ()))
    assert lost() == {}
    os.unlink(firmware.store(guest).path)
    assert lost() == {"web1": ["firmware"]}


TEMPLATE = b"vars" * 1000


def test_a_first_start_has_the_template(moving):
    assert moving.start("n1") == TEMPLATE


def test_what_the_guest_wrote_counts_after_a_crash_of_its_node(moving):
    moving.start("n1")
    moving.write("n1", b"boot entry")
    assert moving.start("n1") == b"boot entry"
    moving.save("n1")
    assert moving.start("n1") == b"boot entry"
    moving.write("n1", b"second")
    assert moving.start("n1") == b"second"


def test_what_the_guest_wrote_after_its_arrival_counts_after_a_crash(moving):
    moving.start("n1")
    moving.save("n1")
    moving.start("n2")
    moving.write("n2", b"arrived")
    moving.save("n2")
    moving.write("n2", b"written later")
    assert moving.start("n2") == b"written later"


def test_a_copy_that_the_master_did_not_store_changes_nothing(place, moving):
    moving.start("n1")
    moving.write("n1", b"boot entry")
    firmware.store(guest_on(place, "n1")).packed()
    assert moving.start("n1") == b"boot entry"


def test_another_node_has_the_copy_of_the_record(moving):
    moving.start("n1")
    moving.write("n1", b"boot entry")
    moving.save("n1")
    assert moving.start("n2") == b"boot entry"
    moving.write("n2", b"written at n2")
    moving.save("n2")
    # The file that stayed is older than the copy.
    assert moving.start("n1") == b"written at n2"


def test_a_node_that_never_had_the_guest_has_the_template_without_a_copy(moving):
    moving.start("n1")
    moving.write("n1", b"lost")
    assert moving.start("n2") == TEMPLATE


def test_variables_of_an_earlier_instance_of_the_name_do_not_count(
    place, params, moving
):
    moving.start("n1")
    moving.write("n1", b"of another")
    guest = guest_on(place, "n1")
    again = record(params, uuid="0c1d2e3f-4a5b-4c6d-8e7f-0000000009ff")
    firmware.prepare(guest, again, params)
    with open(firmware.store(guest).path, "rb") as src:
        assert src.read() == TEMPLATE


def test_an_interrupted_write_is_repeated(place, moving):
    moving.start("n1")
    moving.write("n1", b"half")
    origin = f"{os.path.dirname(firmware.store(guest_on(place, 'n1')).path)}/origin"
    os.unlink(origin)
    assert moving.start("n1") == TEMPLATE
    assert os.stat(origin).st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("copy", "text"),
    [
        ("*", "are damaged"),
        (base64.b64encode(b"no zlib").decode(), "are damaged"),
        (base64.b64encode(zlib.compress(b"x" * 5_000_000)).decode(), "too long"),
        (base64.b64encode(zlib.compress(b"x" * 5_000)[:-3]).decode(), "too long"),
    ],
)
def test_a_damaged_copy_is_named_and_changes_nothing(place, params, copy, text):
    guest = guest_on(place, "n1")
    with pytest.raises(errors.HypervisorError, match=f"web1: .*{text}"):
        firmware.prepare(guest, record(params, copy), params)
    assert not os.path.exists(firmware.store(guest).path)


def test_a_store_that_does_not_compress_is_not_sent(place, params, moving):
    moving.start("n1")
    moving.write("n1", os.urandom(600_000))
    with pytest.raises(errors.HypervisorError, match="at most 524288 bytes"):
        moving.save("n1")


def test_the_command_has_code_and_store(place, params):
    guest = guest_on(place, "n1")
    text = " ".join(argv.build(record(params), guest, FACTS))
    assert f"unit=0,format=raw,readonly=on,file={place}/code" in text
    assert f"unit=1,format=raw,file={firmware.store(guest).path}" in text
    plain = record({})
    assert "pflash" not in " ".join(argv.build(plain, guest, FACTS))
    firmware.prepare(guest, plain, plain.hvparams)
    assert not os.path.exists(firmware.store(guest).path)


def test_a_missing_file_of_the_firmware_is_named(params):
    hvp = record(params, kvm_path="/bin/sh").hvparams | {"kvm_path": "/bin/sh"}
    checks.check_files(hvp)
    os.unlink(params["uefi_vars_path"])
    with pytest.raises(errors.HypervisorError, match=r"uefi_vars_path: wanted a file"):
        checks.check_files(hvp)
    checks.check_files(hvp | {"firmware": "bios"})


@pytest.mark.parametrize(("then", "now"), [("bios", "uefi"), ("uefi", "bios")])
def test_a_moved_guest_keeps_its_firmware(place, params, then, now):
    guest = guest_on(place, "n1")
    start = record(params | {"firmware": then})
    plan = runtime.Runtime(
        tuple(argv.build(start, guest, FACTS)), (), start.hvparams, ()
    )
    text = runtime.export(guest, plan)
    target = record(params | {"firmware": now})
    moved = layout.read(target, text, machines=frozenset({"pc"}), memory_mib=4096)
    assert moved.instance(target).hvparams["firmware"] == then


def test_a_removed_instance_leaves_nothing(place, moving):
    moving.start("n1")
    guest = guest_on(place, "n1")
    firmware.remove_kept(guest.paths, "web1")
    assert not os.path.exists(os.path.dirname(firmware.store(guest).path))
