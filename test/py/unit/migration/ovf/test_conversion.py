"""Packages and exports, converted by the real qemu-img."""

import io
import os
import subprocess
import tarfile

import pytest

from ganeti.migration.ovf import envelope, main
from ganeti.model.objects import export_info

_KIB = 1024
CONFIG = """\
[export]
version = 0
timestamp = 1700000000
source = node1
os = tiny+default
compression = none
[instance]
name = web1
disk_template = file
hypervisor = kvm
tags = a b
nic0_mac = aa:00:00:11:22:33
nic0_link = br0
nic_count = 1
disk0_dump = disk0.dump
disk0_size = 2
disk_count = 1
[hypervisor]
acpi = True
[backend]
maxmem = 256
minmem = 128
vcpus = 2
[os]
motd = hello
[os_private]
password = s3cret
"""
CONTENT = bytes(range(256)) * 4 * _KIB


@pytest.fixture
def export(tmp_path):
    """Return the directory of an export with one disk of 1 MiB in 2."""
    directory = tmp_path / "exports" / "web1"
    directory.mkdir(parents=True)
    (directory / "config.ini").write_text(CONFIG)
    (directory / "disk0.dump").write_bytes(CONTENT + bytes(1024 * _KIB))
    return directory


def run(*words):
    return main.main([str(word) for word in words])


def described(directory):
    return export_info.parse((directory / "config.ini").read_text())


@pytest.mark.parametrize(
    "form",
    [
        ("raw",),
        ("cow", "--ova"),
        ("vmdk", "--compress"),
        ("vmdk", "--ova", "--compress"),
    ],
)
def test_an_export_survives_both_conversions(export, tmp_path, capsys, form):
    out, back = tmp_path / "out", tmp_path / "back"
    assert run("export", "--output-dir", out, "-f", *form, export) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert b"s3cret" not in b"".join(path.read_bytes() for path in out.iterdir())
    assert run("import", "--output-dir", back, first) == 0
    assert capsys.readouterr().out == f"{back}/web1\n"
    assert (back / "web1" / "disk0.dump").read_bytes() == CONTENT + bytes(1024 * _KIB)
    old, new = described(export), described(back / "web1")
    assert (new.os, new.nics, new.hvparams) == (old.os, old.nics, old.hvparams)
    assert (new.backend, new.osparams, new.tags) == (
        old.backend,
        old.osparams,
        old.tags,
    )
    assert new.osparams_private == {}
    assert sorted(os.listdir(back)) == ["web1"]
    made = [*out.iterdir(), *(back / "web1").iterdir()]
    assert {path.stat().st_mode & 0o777 for path in made} == {0o600}


@pytest.mark.parametrize(
    ("backend", "memory_mib"),
    [
        ("memory = 512", 512),
        ("memory = 512\nmaxmem = 256", 512),
        ("maxmem = much", 128),
        ("", 128),
    ],
)
def test_a_package_has_the_memory_that_an_export_gives(
    export, tmp_path, backend, memory_mib
):
    path = export / "config.ini"
    path.write_text(CONFIG.replace("maxmem = 256\nminmem = 128", backend))
    out = tmp_path / "out"
    assert run("export", "--output-dir", out, "-f", "raw", "--external", export) == 0
    machine = envelope.parse((out / "web1.ovf").read_text())
    assert machine.memory_mib == memory_mib


def test_options_replace_what_a_foreign_package_says(export, tmp_path):
    out, back = tmp_path / "out", tmp_path / "back"
    assert run("export", "--external", "--output-dir", out, "-f", "raw", export) == 0
    words = ["-n", "shop", "-o", "noop", "-t", "drbd", "-H", "fake", "--no-nics"]
    words += ["-B", "vcpus=4", "--disk", "0:size=4", "--disk", "1:size=8m"]
    words += ["--tags", "x,y", "-O", "k=v", "--output-dir", back, out / "web1.ovf"]
    assert run("import", *words) == 0
    info = described(back / "shop")
    assert (info.os, info.disk_template, info.hypervisor) == ("noop", "drbd", "fake")
    assert (info.nics, info.tags, info.osparams) == ((), ("x", "y"), {"k": "v"})
    assert info.backend == {"maxmem": "256", "minmem": "256", "vcpus": "4"}
    assert [disk.size for disk in info.disks] == [4, 8]


def _cut(directory):
    os.truncate(directory / "web1-disk0.cow", 70_000)


def _forge(directory):
    path = directory / "web1.ovf"
    path.write_text(path.read_text().replace("aa:00", "aa:01"))


def _lose(directory):
    os.remove(directory / "web1-disk0.cow")


def _refer(directory):
    os.remove(directory / "web1.mf")
    path = directory / "web1-disk0.cow"
    secret = directory.parent / "secret"
    secret.write_bytes(bytes(512))
    words = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", secret, path]
    subprocess.run(words, check=True)
    text = (directory / "web1.ovf").read_text()
    size = envelope.parse(text).disks[0].file_bytes
    (directory / "web1.ovf").write_text(
        text.replace(f'size="{size}"', f'size="{path.stat().st_size}"')
    )


def _move_content(directory):
    """The file with the content is none that qemu-img may even open."""
    os.remove(directory / "web1.mf")
    path = directory / "web1-disk0.cow"
    image = bytearray(path.read_bytes())
    image[79] |= 4
    path.write_bytes(image)


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (_cut, "the file was changed or is not complete"),
        (_forge, "web1.ovf: wanted SHA256"),
        (_lose, "in the manifest, but missing"),
        (_refer, "refers to other files, which is not accepted"),
        (_move_content, "refers to other files, which is not accepted"),
    ],
)
def test_damaged_packages_are_refused_and_nothing_stays(
    export, tmp_path, capsys, damage, text
):
    out, back = tmp_path / "out", tmp_path / "back"
    assert run("export", "--output-dir", out, "-f", "cow", export) == 0
    damage(out)
    assert run("import", "--output-dir", back, out / "web1.ovf") == 1
    assert text in capsys.readouterr().err
    assert os.listdir(back) == []


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.SYMTYPE])
def test_members_outside_of_an_archive_are_refused(tmp_path, capsys, kind):
    path = tmp_path / "x.ova"
    with tarfile.open(path, "w") as archive:
        member = tarfile.TarInfo("../x" if kind == tarfile.REGTYPE else "x.ovf")
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member, io.BytesIO())
    assert run("import", "--output-dir", tmp_path / "back", path) == 1
    assert "wanted files without directories" in capsys.readouterr().err
    assert os.listdir(tmp_path / "back") == []


def test_a_damaged_compressed_disk_is_refused(export, tmp_path, capsys):
    out, back = tmp_path / "out", tmp_path / "back"
    words = ("--output-dir", out, "-f", "raw", "--compress", export)
    assert run("export", *words) == 0
    os.remove(out / "web1.mf")
    path = out / "web1-disk0.raw"
    packed = bytearray(path.read_bytes())
    packed[12:40] = b"\xff" * 28
    path.write_bytes(packed)
    assert run("import", "--output-dir", back, out / "web1.ovf") == 1
    assert "wanted a gzip file" in capsys.readouterr().err
    assert os.listdir(back) == []


def test_an_archive_that_could_fill_the_disk_is_refused(tmp_path, capsys):
    """A short one can become long by compression and by holes."""
    back, packed, sparse = (tmp_path / name for name in ("back", "a.ova", "b.ova"))
    with tarfile.open(packed, "w:gz") as archive:
        member = tarfile.TarInfo("x.raw")
        member.size = 1024 * _KIB
        archive.addfile(member, io.BytesIO(bytes(member.size)))
    with tarfile.open(sparse, "w") as archive:
        member = tarfile.TarInfo("x.raw")
        member.pax_headers = {
            "GNU.sparse.major": "0",
            "GNU.sparse.minor": "1",
            "GNU.sparse.map": "0,0",
            "GNU.sparse.size": str(1 << 40),
        }
        archive.addfile(member)
    for path, text in ((packed, "utf-8"), (sparse, "wanted files")):
        assert run("import", "--output-dir", back, path) == 1
        assert text in capsys.readouterr().err
        assert os.listdir(back) == []


def test_an_archive_of_files_and_a_present_target_are_refused(export, tmp_path, capsys):
    out = tmp_path / "out"
    assert run("export", "--output-dir", out, "-f", "raw", export) == 0
    assert run("export", "--output-dir", out, "-f", "raw", export) == 1
    assert "exists already" in capsys.readouterr().err
    (export / "disk0.dump").write_bytes(b"an archive")
    assert run("export", "--output-dir", out, "-n", "w", "-f", "raw", export) == 1
    assert "wanted an image of a disk" in capsys.readouterr().err
    assert len(os.listdir(out)) == 3


@pytest.mark.parametrize(("capacity", "code"), [(2048 * _KIB, 0), (512, 1)])
def test_an_image_has_at_most_the_capacity_in_the_descriptor(
    export, tmp_path, capsys, capacity, code
):
    out, back = tmp_path / "out", tmp_path / "back"
    (export / "disk0.dump").write_bytes(CONTENT * 2)
    assert run("export", "--output-dir", out, "-f", "cow", export) == 0
    os.remove(out / "web1.mf")
    path = out / "web1.ovf"
    text = path.read_text()
    own = f'capacity="{2048 * _KIB}"'
    assert own in text
    path.write_text(text.replace(own, f'capacity="{capacity}"'))
    capsys.readouterr()
    assert run("import", "--output-dir", back, path) == code
    if code:
        wanted = "wanted an image of at most 512 bytes, the capacity in the descriptor"
        assert f"{wanted}, found {2048 * _KIB}" in capsys.readouterr().err
        assert os.listdir(back) == []


def test_a_disk_gets_the_capacity_in_the_descriptor(export, tmp_path):
    out, back = tmp_path / "out", tmp_path / "back"
    assert run("export", "--output-dir", out, "-f", "raw", export) == 0
    os.remove(out / "web1.mf")
    path = out / "web1.ovf"
    sizes = [f'capacity="{number * _KIB}"' for number in (2048, 3072)]
    path.write_text(path.read_text().replace(*sizes))
    assert run("import", "--output-dir", back, path) == 0
    assert described(back / "web1").disks[0].size == 3
