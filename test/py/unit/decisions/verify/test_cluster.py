"""Verification of the cluster: certificates, lost objects, rules, keys, etcd."""

import pytest

from fakes import clusters
from ganeti.decisions.verify import Report, cluster
from ganeti.model.objects import Update

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


# Nodes of no group, and instances that are nowhere.

NO_GROUP = "00000000-0000-4000-8000-0000000000ff"


def actual(*extra):
    report = Report()
    cluster.dangling(report, clusters.snapshot(nodes=2, instances=1, extra=extra))
    return [(f.code, f.name, f.text) for f in report.take()]


def test_a_cluster_in_order_has_none():
    assert actual() == []


@pytest.mark.parametrize("number", [1, 2])
def test_a_node_of_no_group_is_named_with_the_instances_on_it(number):
    lost = clusters.node(number, group=NO_GROUP)
    nodes, *instances = actual(lost)
    assert nodes[:2] == ("ECLUSTERDANGLINGNODES", lost.name)
    assert [row[:2] for row in instances] == (
        [("ECLUSTERDANGLINGINST", lost.name)] if number == 1 else []
    )
    assert all("inst1.example.com" in text for _code, _name, text in instances)


def test_an_instance_on_a_node_that_is_not_there_is_named_with_its_uuid():
    gone = clusters.node_uuid(7)
    ((code, name, text),) = actual(clusters.instance(1, primary_node=gone))
    assert (code, name) == ("ECLUSTERDANGLINGINST", gone)
    assert "inst1.example.com" in text


def test_disks_of_no_instance_are_named_the_largest_first():
    disks = [clusters.drbd_disk(f"d{n}", 1, 2, size=n * 1024) for n in range(1, 13)]
    owner = clusters.instance(1, disks=("d12",))
    snapshot = clusters.snapshot(nodes=2, instances=0, extra=[owner, *disks])
    lines = cluster.detached(snapshot)
    assert lines[0] == (
        "disk d11 (drbd, 11264 MiB) belongs to no instance; 'gnt-instance modify --disk"
        " d11:attach INSTANCE' attaches it"
    )
    assert [line.split()[1] for line in lines[:10]] == [
        f"d{n}" for n in range(11, 1, -1)
    ]
    assert lines[10:] == ["1 more disks belong to no instance"]


# Stored rules and regular expressions that cannot be evaluated are warnings.


def test_what_is_skipped_is_named_with_the_command_that_mends_it():
    snapshot = clusters.snapshot(nodes=1, reserved_lvs=["root.*", "(?!x)"])
    report = Report()
    cluster.rules(report, snapshot, {"u1": "predicate: wrong"})
    wrong, reserved = [finding.line() for finding in report.take()]
    assert wrong == (
        "  - WARNING: cluster : job filter u1 is skipped: predicate: wrong; replace it,"
        " or remove it with gnt-filter delete u1"
    )
    assert reserved == (
        "  - WARNING: cluster : reserved_lvs: an entry is skipped: regular expression"
        " '(?!x)': invalid perl operator: (?!; the syntax is RE2's, without look-around"
        " and references; replace it with gnt-cluster modify --reserved-lvs"
    )
    assert report.is_clean


def test_sound_rules_are_not_named():
    report = Report()
    cluster.rules(report, clusters.snapshot(nodes=1, reserved_lvs=["root.*"]), {})
    assert report.take() == []


# Nodes with the same SSH host keys, and those without recorded ones, are reported.

COMMAND = "run gnt-cluster renew-crypto --new-ssh-host-keys"


def lines(*host_keys, **settings):
    """Return the warnings about nodes with these keys."""
    snapshot = clusters.snapshot(nodes=len(host_keys), **settings)
    snapshot = snapshot.apply(
        Update("nodes", node.uuid, node.replace(ssh_host_keys=own))
        for node, own in zip(
            sorted(snapshot.nodes.values(), key=lambda node: node.name),
            host_keys,
            strict=True,
        )
    )
    report = Report()
    cluster.shared_host_keys(report, snapshot)
    reported = report.take()
    assert report.is_clean  # warnings
    return [finding.text for finding in reported]


def test_nodes_with_own_keys_are_right():
    assert lines(("a", "b"), ("c",)) == []


@pytest.mark.parametrize(
    ("own", "settings"), [(((),), {}), (((), ()), {"modify_ssh_setup": False})]
)
def test_one_node_alone_and_unmanaged_keys_are_right(own, settings):
    assert lines(*own, **settings) == []


def test_nodes_of_earlier_releases_are_reported():
    (line,) = lines((), (), ("x",))
    assert "node1.example.com, node2.example.com" in line
    assert "node3" not in line
    assert line.endswith(COMMAND)


def test_nodes_that_share_a_key_are_reported_once():
    (line,) = lines(("a", "b"), ("c",), ("a", "b", "d"))
    assert "nodes node1.example.com, node3.example.com share SSH host keys" in line
    assert line.endswith(COMMAND)


# The servers of a store in etcd: what is left when some are lost.


@pytest.mark.parametrize(
    ("lost", "count", "rest"),
    [
        (1, 3, "if one more fails, the master ends"),
        (1, 5, "1 more may fail"),
        (2, 3, "no majority is left"),
        (1, 1, "no majority is left"),
    ],
)
def test_each_lost_server_is_an_error(lost, count, rest):
    report = Report()
    cluster.store_servers(
        report,
        [(f"e{n}:2379", "silent" if n < lost else "") for n in range(count)],
    )
    findings = list(report.take())
    assert [each.code for each in findings] == ["ECLUSTERFILECHECK"] * lost
    assert (
        findings[0].text
        == f"server e0:2379 of the store in etcd cannot be used ({rest}): silent"
    )


def test_healthy_servers_are_not_mentioned():
    report = Report()
    cluster.store_servers(report, [("e:2379", "")])
    assert report.is_clean
