"""Disks of template ext on real daemons, with the provider of the examples."""

import pathlib
import shutil

import pytest

EXAMPLE = pathlib.Path(__file__).parents[3] / "doc/examples/extstorage/files"
NAME = "ext1.vc.test"


@pytest.fixture
def volumes(vcluster, tmp_path):
    """Nodes with a provider that records who may write, and a directory of volumes."""
    directory, log = tmp_path / "volumes", tmp_path / "log"
    directory.mkdir()
    log.touch()
    for name in ("node1", "node2", "node3"):
        place = pathlib.Path(vcluster.paths(name).at("/srv/ganeti/extstorage/files"))
        shutil.copytree(EXAMPLE, place, symlinks=True)
        for action in ("open", "close"):
            script = place / action
            script.write_text(
                f'#!/bin/sh\necho "{name} ${{0##*/}} $VOL_OPEN_EXCLUSIVE" >> {log}\n'
            )
            script.chmod(0o755)
    before = vcluster.check("gnt-cluster", "info").partition("enabled disk templates: ")
    enabled = before[2].splitlines()[0].replace(" ", "")
    _enable(vcluster, f"{enabled},ext")
    yield directory, log
    vcluster.run("gnt-instance", "remove", "-f", NAME)
    _enable(vcluster, enabled)
    for name in ("node1", "node2", "node3"):
        shutil.rmtree(vcluster.paths(name).at("/srv/ganeti/extstorage/files"))


def _enable(cluster, templates):
    names = (f"--enabled-disk-templates={templates}", "--ipolicy-disk-templates")
    cluster.check("gnt-cluster", "modify", *names, templates)


def test_a_volume_is_shared_by_the_nodes_and_written_by_one(vcluster, volumes):
    directory, log = volumes
    check = vcluster.check
    assert "For nodegroup: default --> valid" in check("gnt-storage", "diagnose")
    words = f"0:size=8m,provider=files,directory={directory},device=file"
    check(
        *("gnt-instance", "add", "-t", "ext", "-H", "fake", "--no-install"),
        *("--no-start", "-n", "node1", "-o", "tiny+default", "--disk", words, NAME),
    )
    (volume,) = [path for path in directory.iterdir() if path.suffix == ".disk0"]
    volume.write_bytes(b"first" + bytes(8 * 2**20 - 5))
    check("gnt-instance", "startup", NAME)
    check("gnt-instance", "grow-disk", NAME, "0", "4m")
    assert f"on primary: {volume} (N/A:N/A)" in check("gnt-instance", "info", NAME)
    check("gnt-instance", "migrate", "-f", "-n", "node2", NAME)
    check("gnt-instance", "failover", "-f", "-n", "node3", NAME)
    check("gnt-instance", "shutdown", NAME)
    assert log.read_text().splitlines() == [
        # Activated by the creation, and by the start.
        "node1 open True",
        "node1 open True",
        "node1 open False",
        "node2 open False",
        "node1 close ",
        "node2 open True",
        "node2 close ",
        "node3 open True",
        "node3 close ",
    ]
    kept = vcluster.run("gnt-instance", "recreate-disks", NAME)
    assert kept.code == 1
    assert "only lost disks are recreated" in kept.stderr
    check("gnt-instance", "modify", "-t", "file", NAME)
    assert list(directory.iterdir()) == []
    other = f"provider=files,directory={directory},device=file"
    check("gnt-instance", "modify", "-t", "ext", "-e", other, NAME)
    (back,) = [path for path in directory.iterdir() if path.suffix == ".disk0"]
    assert (back.stat().st_size, back.read_bytes()[:5]) == (12 * 2**20, b"first")
    back.unlink()
    check("gnt-instance", "recreate-disks", NAME)
    assert back.read_bytes()[:5] == bytes(5)
    check("gnt-instance", "remove", "-f", NAME)
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize("guest_os", ["tiny+default", ""])
def test_a_volume_is_exported_from_a_snapshot_and_imported(vcluster, volumes, guest_os):
    directory, _log = volumes
    check = vcluster.check
    words = f"0:size=8m,provider=files,directory={directory},device=file"
    add = ("gnt-instance", "add", "-t", "ext", "-H", "fake", "--no-start", "-n")
    os_words = ("-o", guest_os) if guest_os else ()
    check(*add, "node1", "--no-install", *os_words, "--disk", words, NAME)
    (volume,) = [path for path in directory.iterdir() if path.suffix == ".disk0"]
    content = b"first" + bytes(8 * 2**20 - 10) + b"last."
    volume.write_bytes(content)
    check("gnt-backup", "export", "-n", "node2", NAME)
    assert not [path for path in directory.iterdir() if path.suffix == ".snap"]
    check("gnt-instance", "remove", "-f", NAME)
    place = ("--src-node", "node2", "--src-dir", NAME)
    check(
        *("gnt-backup", "import", "-t", "ext", "-n", "node1", *place),
        *("--disk", words, NAME),
    )
    (volume,) = [path for path in directory.iterdir() if path.suffix == ".disk0"]
    assert volume.read_bytes() == content
    check("gnt-instance", "remove", "-f", NAME)
    check("gnt-backup", "remove", NAME)
    assert list(directory.iterdir()) == []
