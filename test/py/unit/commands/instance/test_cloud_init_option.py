"""``--cloud-init`` reads files of the caller into private OS parameters."""

import os

import pytest

from fakes import commands
from fakes.luxi_master import FakeMaster

ADD = "gnt-instance add -t diskless -o tiny -n node1 --submit"


def run(line, *more):
    master = FakeMaster()
    done = commands.run([*line.split(), *more, "web1"], master)
    return done, [op for ops in master.jobs.values() for op in ops]


def test_files_become_private_parameters(tmp_path):
    (tmp_path / "u").write_text("#cloud-config\na: b,c=d\n")
    (tmp_path / "n").write_text("version: 2\n")
    files = f"user-data={tmp_path}/u,network-config={tmp_path}/n"
    _, (op,) = run(ADD, "--cloud-init", files, "--os-parameters-private", "x=y")
    assert op.osparams_private == {
        "x": "y",
        "cloud-init-user-data": "#cloud-config\na: b,c=d\n",
        "cloud-init-network-config": "version: 2\n",
    }


def test_a_change_can_remove_a_file(tmp_path):
    line = "gnt-instance modify --submit"
    _, (op,) = run(line, "--cloud-init", "user-data=")
    assert op.osparams_private == {"cloud-init-user-data": "default"}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("userdata={}/u", "--cloud-init userdata: wanted one of user-data, "),
        ("user-data={}/none", "cannot read '{}/none': No such file"),
        ("user-data=", "cannot read ''"),
        ("user-data={}", "cannot read '{}': Is a directory"),
        ("user-data={}/pipe", "is not a regular file"),
        ("user-data={}/binary", "binary is not text in UTF-8"),
        ("meta-data={}/big", "wanted at most 16384 bytes, found more"),
    ],
)
def test_wrong_files_are_named(tmp_path, given, text):
    (tmp_path / "binary").write_bytes(b"hush\xff")
    (tmp_path / "big").write_text("hush " * 4000)
    os.mkfifo(tmp_path / "pipe")
    done, ops = run(ADD, "--cloud-init", given.format(tmp_path))
    assert (done.code, ops) == (1, [])
    assert text.format(tmp_path) in done.err
    assert "hush" not in done.err


def test_a_file_and_a_parameter_exclude_each_other(tmp_path):
    (tmp_path / "u").write_text("x")
    private = ["--os-parameters-private", "cloud-init-user-data=y"]
    done, _ = run(ADD, "--cloud-init", f"user-data={tmp_path}/u", *private)
    assert done.code == 1
    assert "is also given as private OS parameter" in done.err
