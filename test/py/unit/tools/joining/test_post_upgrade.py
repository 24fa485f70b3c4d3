"""The renewals that a change from an older release makes necessary once."""

import pytest

from fakes.processes import FakeRunner
from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.tools.joining import post_upgrade


@pytest.mark.parametrize(
    ("old", "renewed"),
    [
        ("2.12.4", ["--new-node-certificates", "--new-ssh-keys"]),
        ("2.12.5", ["--new-ssh-keys"]),
        ("2.13.0", []),
        ("3.1.1", []),
    ],
)
def test_the_release_decides_what_is_renewed(old, renewed):
    process = FakeRunner(gnt_cluster=FakeRunner.DONE)
    post_upgrade.work(Paths(hostname="node1"), process, old, lambda _line: None)
    assert process.lines == [f"gnt-cluster renew-crypto {o} -f" for o in renewed]


def test_a_failed_renewal_ends_it():
    process = FakeRunner(gnt_cluster=(1, "", "no master\n"))
    with pytest.raises(errors.OpExecError, match="no master"):
        post_upgrade.work(Paths(hostname="n1"), process, "2.10.0", lambda _line: None)
    assert len(process.lines) == 1


@pytest.mark.parametrize("old", ["", "2.10", "x"])
def test_a_malformed_version_is_refused(old):
    with pytest.raises(errors.OpPrereqError, match="wanted X"):
        post_upgrade.renewals(old)
