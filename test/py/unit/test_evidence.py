"""Parts of nodes' logs that failed daemon tests show."""

from fakes import evidence

KEY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"


def node(top):
    for folder in ("var/log/ganeti", "var/lib/ganeti"):
        (top / folder).mkdir(parents=True)
    (top / "var/lib/ganeti/server.pem").write_text(f"-----BEGIN KEY-----\n{KEY}\n")
    return top / "var/log/ganeti"


def test_ends_of_logs_are_shown_without_secrets(tmp_path):
    logs = node(tmp_path / "node1.tst")
    lines = [f"line {number}" for number in range(100)]
    (logs / "node-daemon.log").write_text("\n".join([*lines, f"sent {KEY}", "last\n"]))
    (logs / "empty.log").touch()
    shown = evidence.of_cluster(tmp_path)
    assert "node1.tst/var/log/ganeti/node-daemon.log\n" in shown
    assert "line 99\n(left out)\nlast\n" in shown
    assert "line 1\n" not in shown
    assert KEY not in shown
    assert "empty.log" not in shown


def test_nothing_there_is_no_trouble(tmp_path):
    assert evidence.of_cluster(tmp_path / "none") == ""
    assert evidence.of_node(tmp_path) == ""
