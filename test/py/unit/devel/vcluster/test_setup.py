"""Virtual nodes made by hand."""

import argparse
import os
import subprocess

import pytest

from ganeti import _buildconf
from ganeti.base import errors
from ganeti.devel.vcluster import setup


def options(directory, **more):
    given = {
        "directory": str(directory),
        "nodes": 2,
        "instances": 3,
        "prefix": "192.0.2",
        "device": "eth0",
        "init": "",
        "no_hosts": True,
        "no_network": True,
    }
    return argparse.Namespace(**(given | more))


def test_nodes_have_wrappers_hosts_and_addresses(tmp_path):
    setup.set_up(options(tmp_path))
    done = subprocess.run(
        [
            *(tmp_path / "node2/cmd", "sh", "-c"),
            "echo $GANETI_ROOTDIR $GANETI_HOSTNAME; echo $PATH",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    names, path = done.stdout.splitlines()
    assert names == f"{tmp_path}/node2 node2"
    places = [_buildconf.SBINDIR, _buildconf.BINDIR, _buildconf.TOOLSDIR]
    assert path.split(":")[:3] == places
    assert (tmp_path / "hosts").read_text().splitlines() == [
        "192.0.2.1 cluster",
        "192.0.2.10 node1",
        "192.0.2.11 node2",
        "192.0.2.100 instance1",
        "192.0.2.101 instance2",
        "192.0.2.102 instance3",
    ]
    assert "-b 192.0.2.11" in (tmp_path / "node2/etc/default/ganeti").read_text()


def test_scripts_run_on_all_nodes_and_report_failures(tmp_path):
    init = tmp_path / "init"
    init.write_text('#!/bin/sh\necho "$1 $GANETI_HOSTNAME"; [ "$1" != status ]\n')
    init.chmod(0o755)
    setup.set_up(options(tmp_path / "c", init=str(init)))

    def run(name):
        return subprocess.run(
            [tmp_path / "c" / name], capture_output=True, text=True, check=False
        )

    assert run("start-all").stdout.splitlines() == [
        "node1", "start node1", "node2", "start node2"
    ]  # fmt: skip
    assert run("restart-all").returncode == 0
    assert run("status-all").returncode == 1
    assert os.access(tmp_path / "c/watcher-all", os.X_OK)


def test_the_hosts_file_gets_the_hosts_once(tmp_path):
    path = tmp_path / "hosts"
    path.write_text("127.0.0.1 localhost\n")
    for hosts in ("192.0.2.1 cluster\n", "192.0.2.1 cluster\n192.0.2.10 node1\n"):
        setup._add_hosts(str(path), "/c", hosts)
        setup._add_hosts(str(path), "/c", hosts)
    lines = path.read_text().splitlines()
    assert lines[0] == "127.0.0.1 localhost"
    assert lines.count("192.0.2.1 cluster") == 1
    assert lines.count("192.0.2.10 node1") == 1


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"nodes": 91}, "number of nodes: wanted at most 90"),
        ({"instances": 156}, "instance names: wanted at most 155"),
        ({"prefix": "192.0"}, "three octets"),
        ({"no_network": False, "device": "none9"}, "none9: not found"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, wrong, problem):
    with pytest.raises(errors.GenericError, match=problem):
        setup.set_up(options(tmp_path, **wrong))
