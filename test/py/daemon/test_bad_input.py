"""Files that are not what they should be: one clear error, and nothing is changed."""

import contextlib
import shutil
import sqlite3

import pytest

from fakes import ended
from fakes.patience import until
from ganeti.base.filesystem import files
from ganeti.base.tls import authority, x509
from ganeti.bootstrap import crypto
from ganeti.store import schema

pytestmark = pytest.mark.daemon
STORE = "/var/lib/ganeti/store.db"
COMPANIONS = ("", "-wal", "-shm")


@pytest.fixture(scope="module")
def cluster(cluster_of):
    """Three master candidates: two are a majority when the file of one is lost."""
    made = cluster_of(3)
    made.wait_until_clean()
    return made


@pytest.fixture(scope="module")
def stranger(cluster_of):
    """Another cluster, whose master has the same name."""
    made = cluster_of(1)
    made.check("daemon-util", "stop", "ganeti-masterd")
    return made


@contextlib.contextmanager
def stopped(cluster, node, daemon):
    """Stop a daemon for a block; afterwards the node has its files again."""
    path = cluster.file(STORE, node)
    cluster.check("daemon-util", "stop", daemon, node=node)
    kept = {}
    for suffix in COMPANIONS:
        each = path.with_name(path.name + suffix)
        kept[each] = each.read_bytes() if each.exists() else None
    try:
        yield path
    finally:
        for each, content in kept.items():
            each.unlink(missing_ok=True)
            if content is not None:
                files.write_file(str(each), content, mode=0o640)
        cluster.check("daemon-util", "start", daemon, node=node)


def remove(path):
    for suffix in COMPANIONS:
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def settle(path):
    """Bring everything into the file itself."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def foreign(path, stranger):
    remove(path)
    for suffix in COMPANIONS:
        other = stranger.file(STORE + suffix)
        if other.exists():
            shutil.copy2(other, path.with_name(path.name + suffix))


def truncated(path, _stranger):
    settle(path)
    with path.open("r+b") as file:
        file.truncate(5 * 4096)


def future(path, _stranger):
    settle(path)
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")


def empty(path, _stranger):
    remove(path)
    path.touch(mode=0o640)


def missing(path, _stranger):
    remove(path)


@pytest.mark.sampled
def test_a_master_does_not_start_with_a_wrong_store(cluster, stranger):
    newest = "run 'gnt-cluster master-failover' on another master candidate"
    for spoil, wanted in (
        (foreign, ("this is the store of another cluster", newest)),
        (truncated, ("damaged: database disk image is malformed", newest)),
        (
            future,
            (
                "version 99",
                f"1 to {schema.VERSION}",
                "install the release that wrote it",
            ),
        ),
        (empty, ("nothing in it yet", newest)),
        (missing, ("there is no such database", newest)),
    ):
        with stopped(cluster, "node1", "ganeti-masterd") as path:
            spoil(path, stranger)
            before = path.read_bytes() if path.exists() else None
            done = cluster.run("ganeti-masterd", "-f", timeout_s=60)
            assert done.code == 1, (spoil.__name__, done.output)
            for text in (str(path), *wanted):
                assert text in done.stderr, (spoil.__name__, done.stderr)
            assert done.stderr.count("\n") == 1, done.stderr
            assert (path.read_bytes() if path.exists() else None) == before
    cluster.wait_until_clean()


@pytest.mark.parametrize(
    ("spoil", "wanted"),
    [
        (foreign, "found one of cluster"),
        (truncated, "store.db: damaged: "),
        (future, "needs software that knows version 99"),
    ],
)
def test_a_wrong_copy_is_set_aside_and_replaced(cluster, stranger, spoil, wanted):
    cluster.command("kill", "node2", "ganeti-noded")
    path = cluster.file(STORE, "node2")
    spoil(path, stranger)
    log = cluster.file("/var/log/ganeti/node-daemon.log", "node2")
    begun = len(log.read_text())
    cluster.command("start", "node2", "ganeti-noded")
    cluster.check("gnt-cluster", "add-tags", spoil.__name__)
    name = cluster.node("node2").name
    shown = ("gnt-node", "list", "--no-headers", "-o", "copy_state", name)
    until("the copy", lambda: cluster.check(*shown).strip() == "current")
    (line,) = [
        line for line in log.read_text()[begun:].splitlines() if "is replaced" in line
    ]
    assert wanted in line
    assert str(path) in line
    aside = path.with_name("store.db.damaged")
    assert aside.exists()
    cluster.wait_until_clean()


def spoil_inner_pages(path):
    """Overwrite what is not in the log."""
    with path.open("r+b") as file:
        for start in range(4096, path.stat().st_size, 4096):
            file.seek(start)
            file.write(b"\xff" * 4096)


@pytest.mark.sampled
def test_damage_below_a_running_master_is_found_before_it_starts_again(
    cluster, tmp_path
):
    path = cluster.file(STORE)
    cluster.check("daemon-util", "stop", "ganeti-masterd")
    settle(path)
    cluster.check("daemon-util", "start", "ganeti-masterd")
    spoil_inner_pages(path)
    output = cluster.run("gnt-cluster", "verify").output
    (line,) = [line for line in output.splitlines() if "ERROR" in line]
    assert f"{path}: damaged" in line
    assert "gnt-cluster master-failover" in line
    done = cluster.run("gnt-cluster", "backup-store", str(tmp_path / "backup"))
    assert done.code == 2
    assert f"{path}: damaged" in done.stderr
    assert not list(tmp_path.iterdir())
    cluster.check("gnt-cluster", "add-tags", "kept")
    # The way out that the line names, and back.
    cluster.check("gnt-cluster", "master-failover", node="node2")
    assert "kept" in cluster.check("gnt-cluster", "list-tags", node="node2").split()
    cluster.wait_until_clean("node2")
    assert path.with_name("store.db.damaged").exists()
    cluster.check("gnt-cluster", "master-failover")
    cluster.wait_until_clean()


def ended_pem(cluster, name, path):
    """Return the content of a file of certificates that have ended."""
    if name == "rapi.pem":
        return ended.again(x509.load(str(path))).pem
    issuer = crypto.load_authority(cluster.paths())
    if name == "server.pem":
        return ended.again(issuer).certificate_pem
    uuid, host = authority.names_of(x509.load_certificate(str(path)))
    return authority.issue_with_key(
        issuer, name=host, uuid=uuid, serial=1, validity_s=-60
    ).pem


@contextlib.contextmanager
def having_ended(cluster, name, node="node1"):
    """Have a certificate that has ended for a block."""
    path = cluster.file(f"/var/lib/ganeti/{name}", node)
    before = path.read_bytes()
    mode = path.stat().st_mode & 0o777
    files.write_file(str(path), ended_pem(cluster, name, path), mode=mode)
    try:
        yield path
    finally:
        files.write_file(str(path), before, mode=mode)


@pytest.mark.parametrize("name", ["client.pem", "server.pem"])
@pytest.mark.parametrize(
    "command", [("ganeti-masterd", "-f"), ("gnt-cluster", "master-failover")]
)
def test_nobody_becomes_master_with_a_certificate_that_has_ended(
    cluster, command, name
):
    node = "node1" if command[0] == "ganeti-masterd" else "node2"
    with (
        stopped(cluster, "node1", "ganeti-masterd"),
        having_ended(cluster, name, node) as path,
    ):
        done = cluster.run(*command, node=node, timeout_s=60)
        assert done.code == 1
        assert f"certificate {path}: ended on 20" in done.stderr
        assert "gnt-cluster renew-crypto --new-cluster-certificate" in done.stderr
        assert "with --without-master" in done.stderr
        assert "--no-voting" not in done.stderr
        assert "Traceback" not in done.output
    cluster.wait_until_clean()


def test_an_ended_certificate_of_the_remote_api_is_named_with_the_command(cluster):
    log = cluster.file("/var/log/ganeti/rapi-daemon.log")
    with having_ended(cluster, "rapi.pem") as path:
        cluster.check("daemon-util", "stop", "ganeti-rapi")
        begun = len(log.read_text())
        cluster.check("daemon-util", "start", "ganeti-rapi")
        output = cluster.run("gnt-cluster", "verify").output
        added = log.read_text()[begun:]
    for text in (output, added):
        [line] = [
            line for line in text.splitlines() if "ERROR" in line and str(path) in line
        ]
        assert "gnt-cluster renew-crypto --new-rapi-certificate" in line
    cluster.wait_until_clean()


def test_verify_names_certificates_that_have_ended(cluster):
    name = cluster.node("node2").name
    with having_ended(cluster, "client.pem", "node2"):
        output = cluster.run("gnt-cluster", "verify").output
    (line,) = [line for line in output.splitlines() if "ERROR" in line]
    assert name in line
    # Over the connection that the master has, or over a new one.
    assert "client certificate ended on 20" in line or "certificate has expired" in line
    cluster.wait_until_clean()


@pytest.mark.parametrize(
    ("option", "wanted"),
    [
        ("--uid-pool=5000-4000", "found 5000-4000, which is reversed"),
        ("--uid-pool=4000-4010,4010-4020", "4000-4010 and 4010-4020 overlap"),
        ("--add-uids=x", "wanted a uid or LOW-HIGH, found 'x'"),
        ("--add-uids=4294967296", "wanted a range within 0-4294967295"),
        ("--remove-uids=7", "range 7-7 is not in the pool"),
    ],
)
def test_wrong_user_ids_are_refused(cluster, option, wanted):
    done = cluster.run("gnt-cluster", "modify", option)
    assert done.code == 1
    assert wanted in done.stderr
    assert "Traceback" not in done.output
    with cluster.luxi() as client:
        assert client.call("QueryClusterInfo")["uid_pool"] == []


def test_a_client_of_confd_with_a_wrong_key_hears_nothing_and_says_why(cluster):
    done = cluster.run("confd-client", "--hmac", "0" * 40, "-t", "2", "ping")
    assert done.code == 1
    assert "key" in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.output
