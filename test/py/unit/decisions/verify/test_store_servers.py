"""The servers of a store in etcd: what is left when some are lost."""

import pytest

from ganeti.decisions.verify import Report, cluster


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
