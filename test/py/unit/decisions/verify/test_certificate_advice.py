"""The report on certificates that end soon names the command that replaces them."""

import pytest

from fakes import clusters
from ganeti.decisions.verify import cluster
from ganeti.decisions.verify.report import Report

_DAY_S = 86400


def _lines(path: str, seconds_left: float) -> list[str]:
    report = Report()
    cluster.certificates(report, [cluster.Certificate(path, seconds_left)])
    return [finding.text for finding in report.take()]


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("server.pem", "--new-cluster-certificate"),
        ("client.pem", "--new-node-certificates"),
        ("rapi.pem", "--new-rapi-certificate"),
        ("spice.pem", "--new-spice-certificate"),
        ("spice-ca.pem", "--new-spice-certificate"),
    ],
)
def test_a_certificate_that_ends_soon_is_reported_with_the_command(
    name: str, option: str
) -> None:
    path = f"/var/lib/ganeti/{name}"
    assert _lines(path, 10.5 * _DAY_S) == [
        f"certificate {path} expires in 10 days; run gnt-cluster renew-crypto {option}"
    ]


def test_an_expired_certificate_is_reported_with_the_command() -> None:
    (line,) = _lines("/var/lib/ganeti/server.pem", -3 * _DAY_S)
    assert line.endswith(
        "expired 3 days ago; run gnt-cluster renew-crypto --new-cluster-certificate"
    )


def test_a_renewal_that_was_cut_short_is_reported_with_the_command() -> None:
    report = Report()
    cluster.unfinished_renewal(report, "/var/lib/ganeti/server.pem", 1)
    assert not report.take()
    cluster.unfinished_renewal(report, "/var/lib/ganeti/server.pem", 2)
    (finding,) = report.take()
    assert "was cut short" in finding.text
    assert "run gnt-cluster renew-crypto --new-cluster-certificate" in finding.text


def test_a_certificate_that_all_nodes_share_is_reported_with_the_command() -> None:
    report = Report()
    cluster.shared_certificate(report, "/var/lib/ganeti/server.pem", is_shared=False)
    assert not report.take()
    cluster.shared_certificate(report, "/var/lib/ganeti/server.pem", is_shared=True)
    (finding,) = report.take()
    assert "the same on all nodes" in finding.text
    assert finding.text.endswith("renew-crypto --new-cluster-certificate")


def test_a_certificate_with_time_left_is_not_reported() -> None:
    assert not _lines("/var/lib/ganeti/server.pem", 31 * _DAY_S)


def test_a_damaged_store_of_the_master_is_reported_with_the_way_out() -> None:
    snapshot = clusters.snapshot(nodes=2)
    report = Report()
    cluster.own_store(report, snapshot, None)
    assert not report.take()
    cluster.own_store(report, snapshot, "store.db: damaged: x")
    (finding,) = report.take()
    assert "store.db: damaged: x" in finding.text
    assert finding.text.endswith("with gnt-cluster master-failover there")
    cluster.own_store(report, clusters.snapshot(nodes=1), "x")
    (finding,) = report.take()
    assert "add a master candidate now" in finding.text
