"""A real master daemon under the restrictions of its unit."""

import os
import pathlib
import subprocess
import sys

import pytest

from fakes.patience import until
from ganeti.base import errors

TOP = pathlib.Path(__file__).resolve().parents[3]
UNIT = TOP / "doc/examples/ganeti-masterd.service.in"
PROGRAM = TOP / "test/py/fakes/confinement.py"


def can_confine():
    command = ["unshare", "-m", "mount", "-o", "remount,bind,ro", "/"]
    return (
        os.geteuid() == 0
        and subprocess.run(command, check=False, capture_output=True).returncode == 0
    )


pytestmark = [
    pytest.mark.daemon,
    pytest.mark.root,
    pytest.mark.skipif(not can_confine(), reason="needs root and mount namespaces"),
]


@pytest.fixture
def confined(cluster_of, tmp_path):
    """A cluster whose master daemon runs as its unit says."""
    cluster = cluster_of(2)
    cluster.check("daemon-util", "stop", "ganeti-masterd")
    root = cluster.paths().root
    daemon = TOP / "build/bin/ganeti-masterd"
    # Not a pipe: the daemon logs more than a pipe holds.
    log = tmp_path / "stderr"
    with (
        log.open("w") as stderr,
        subprocess.Popen(
            [
                *("unshare", "-m", sys.executable, PROGRAM, UNIT, root),
                *(daemon, "-f", "-d"),
            ],
            env={**os.environ, **cluster.control.environment(cluster.node("node1"))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        ) as process,
    ):

        def serves():
            assert process.poll() is None, log.read_text()
            try:
                with cluster.luxi() as client:
                    client.call("QueryClusterInfo", [])
            except (errors.GenericError, OSError):
                return False
            return True

        until("the master daemon serves", serves)
        cluster.process = process
        yield cluster
        process.terminate()
        process.wait(timeout=60)
    cluster.check("daemon-util", "start", "ganeti-masterd")


def status(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return dict(line.split(":", 1) for line in text.splitlines())


@pytest.mark.sampled
@pytest.mark.timeout(600)
def test_the_master_daemon_works_under_its_restrictions(confined):
    rows = status(confined.process.pid)
    assert rows["Seccomp"].strip() == "2"
    assert rows["NoNewPrivs"].strip() == "1"
    # CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER
    assert int(rows["CapEff"], 16) == 0b1011
    root = f"/proc/{confined.process.pid}/root"
    with pytest.raises(OSError, match="Read-only"):
        open(f"{root}/etc/ganeti-test-file", "w").close()
    confined.check(
        *("gnt-instance", "add", "-t", "file", "-s", "4m", "-o", "tiny+default"),
        *("--no-nics", "-n", "node2", "web1.vc.test"),
    )
    confined.check("gnt-instance", "list")
    confined.check("gnt-cluster", "modify", "-C", "2")
    confined.check("gnt-cluster", "renew-crypto", "-f", "--new-node-certificates")
    confined.check("gnt-instance", "remove", "-f", "web1.vc.test")
    confined.wait_until_clean()
