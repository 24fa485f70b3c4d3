"""The cloud-init seed of a KVM guest: its image, its device, its life."""

import io
import os

import msgspec
import pycdlib
import pytest

from fakes import guests
from fakes.clocks import FakeClock
from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.base.process import SystemRunner
from ganeti.model.objects.filled import InstanceX
from ganeti.node.hypervisor.base import NodeEffects
from ganeti.node.hypervisor.kvm import argv, launch, runtime
from ganeti.node.hypervisor.kvm.files import Files
from ganeti.node.hypervisor.kvm.moving import layout

FILES = {
    "user-data": "#cloud-config\n" + "x" * 65_000,
    "meta-data": "instance-id: é\n",
    "network-config": "version: 2\n",
}
FACTS = argv.EmulatorFacts("pc")


def record(cloud_init=None, **params):
    beparams = {"maxmem": 256, "minmem": 128, "vcpus": 1}
    wire = guests.kvm_instance("web1", guests.kvm_params(**params), beparams=beparams)
    return msgspec.convert({**wire, "cloud_init": cloud_init or {}}, InstanceX)


def read(image, kind, path):
    iso = pycdlib.PyCdlib()
    iso.open_fp(io.BytesIO(image))
    out = io.BytesIO()
    iso.get_file_from_iso_fp(out, **{kind: path})
    label = iso.pvd.volume_identifier.decode().strip()
    iso.close()
    return out.getvalue().decode(), label


def test_an_image_has_the_files_under_both_kinds_of_names():
    image = launch.seed_image({**FILES, "../etc/passwd": "x"})
    assert len(image) == 1 << 20
    for name, content in FILES.items():
        for kind in ("rr_path", "joliet_path"):
            assert read(image, kind, f"/{name}") == (content, "cidata")
    assert b"passwd" not in image


def test_files_that_do_not_fit_are_refused():
    with pytest.raises(errors.HypervisorError, match="at most 1048576 bytes"):
        launch.seed_image({"user-data": "x" * (1 << 20)})


@pytest.fixture
def guest():
    with guests.short_directory() as path:
        made = Files(Paths(path, "n1"), "web1")
        made.make_directories()
        yield made


def test_only_a_guest_with_files_has_the_device(guest):
    assert not argv.has_seed(argv.build(record(), guest, FACTS))
    args = argv.build(record(FILES), guest, FACTS)
    assert argv.has_seed(args)
    (drive,) = [word for word in args if guest.seed in word]
    assert "readonly=on" in drive
    # Other arguments are those of a guest without a seed.
    rest = [word for word in args if "seed" not in word]
    plain = argv.build(record(), guest, FACTS)
    assert [w for w in rest if w not in ("-drive", "-device")] == [
        w for w in plain if w not in ("-drive", "-device")
    ]


def test_it_is_written_at_the_start_and_removed_with_the_guest(guest, monkeypatch):
    def fail(*_args, **_more):
        info = os.stat(guest.seed)
        assert (info.st_mode & 0o777, info.st_size) == (0o600, 1 << 20)
        raise errors.HypervisorError("started")

    monkeypatch.setattr(launch, "_execute", fail)
    monkeypatch.setattr(launch.files, "end_process", lambda *_args: None)
    effects = NodeEffects(guest.paths, SystemRunner(), FakeClock())
    args = tuple(argv.build(record(FILES), guest, FACTS))
    plan = runtime.Runtime(args, (), record().hvparams, ())
    with pytest.raises(errors.HypervisorError, match="started"):
        launch.launch(effects, record(FILES), plan, launch.Launch())
    launch.remove_remains(effects, guest)
    assert not os.path.exists(guest.seed)


@pytest.mark.parametrize("now", [{}, FILES])
@pytest.mark.parametrize("then", [{}, FILES])
def test_a_migrated_guest_keeps_its_device(guest, then, now):
    args = argv.build(record(then), guest, FACTS)
    text = runtime.export(
        guest, runtime.Runtime(tuple(args), (), record().hvparams, ())
    )
    carried = layout.read(
        record(now), text, machines=frozenset({"pc"}), memory_mib=4096
    )
    again = argv.build(carried.instance(record(now)), guest, FACTS)
    assert argv.has_seed(again) == bool(then)
    files = carried.instance(record(now)).cloud_init
    assert files == ((now or {"meta-data": ""}) if then else {})
