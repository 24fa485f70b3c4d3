"""Everything that can break on nodes is found by ``gnt-cluster verify``.

Each test breaks one thing on real nodes, finds its code alone, so nothing is left of the
tests before, sees it become a warning when asked to, and repairs it.
"""

import contextlib
import hashlib
import os
import shutil

import pytest

pytestmark = [pytest.mark.daemon]
FAKE_STATE = "/var/run/ganeti/fake-hypervisor"
INSTANCE = "db1.vc.test"
#: Leftovers of a creation that was killed.
LEFT = "00000000-0000-4000-8000-000000000001.file.disk0"


@pytest.fixture(scope="module")
def cluster(cluster_of):
    """Three nodes, and a running instance with a disk on the second one."""
    actual = cluster_of(3)
    actual.check(
        *("gnt-instance", "add", "-t", "file", "-s", "4m", "-o", "tiny+default"),
        *("--no-nics", "-n", "node2", INSTANCE),
    )
    # The news of the instance has come to all nodes then.
    actual.wait_until_clean()
    return actual


@contextlib.contextmanager
def stopped_daemon(cluster):
    cluster.command("kill", "node3", "ganeti-noded")
    try:
        yield
    finally:
        cluster.command("start", "node3", "ganeti-noded")
        # The node gets what it missed as soon as the master sees it.
        cluster.wait_until_clean()


@contextlib.contextmanager
def changed(path, text="changed\n"):
    """Give a file other contents, and later its own again."""
    before = path.read_bytes()
    mode = path.stat().st_mode
    try:
        # Written in place: a reader of the name sees old or new, never nothing.
        path.with_suffix(".new").write_text(text)
        path.with_suffix(".new").replace(path)
        yield
    finally:
        path.write_bytes(before)
        path.chmod(mode)


@contextlib.contextmanager
def gone(path):
    """Take a file or directory away, and bring it back."""
    away = path.parent.with_name(f"{path.parent.name}.away") / path.name
    away.parent.mkdir()
    path.rename(away)
    try:
        yield
    finally:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        away.replace(path)
        away.parent.rmdir()


@contextlib.contextmanager
def added(path, text="", mode=0o644):
    """Make a file, and the directories it needs, for a while."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def elsewhere(cluster):
    """The instance runs on another node than the recorded one."""
    state = cluster.file(f"{FAKE_STATE}/{INSTANCE}", node="node2")
    other = cluster.file(f"{FAKE_STATE}/{INSTANCE}", node="node3")
    with added(other, state.read_text()):
        yield


@contextlib.contextmanager
def other_os(cluster):
    """The operating system is another one on one node."""
    place = cluster.file("/srv/ganeti/os/tiny", node="node3")
    with gone(place):
        shutil.copytree(place.parent.with_name("os.away") / "tiny", place)
        (place / "ganeti_api_version").write_text("15\n")
        yield


@contextlib.contextmanager
def other_certificate(cluster):
    """A node shows the certificate of another one."""
    mine = cluster.file("/var/lib/ganeti/client.pem", node="node3")
    others = cluster.file("/var/lib/ganeti/client.pem", node="node2")
    with changed(mine, others.read_text()):
        yield


def disk_of(cluster):
    folder = cluster.file(f"/srv/ganeti/file-storage/{INSTANCE}", node="node2")
    (actual,) = folder.iterdir()
    return actual


def data(cluster, name, node="node3"):
    return cluster.file(f"/var/lib/ganeti/{name}", node=node)


#: broken part -> the way to break it, the codes expected, words of the finding
BREAKS = {
    "the node daemon is dead": (
        stopped_daemon,
        {"ENODERPC", "ENODENET", "ENODEHOOKS"},
        "node3",
    ),
    "a distributed file differs": (
        lambda cluster: changed(data(cluster, "spice-ca.pem")),
        {"ECLUSTERFILECHECK"},
        "spice-ca.pem",
    ),
    "a distributed file is missing": (
        lambda cluster: gone(data(cluster, "rapi.pem")),
        {"ECLUSTERFILECHECK"},
        "rapi.pem",
    ),
    "a value of the simple configuration differs": (
        lambda cluster: changed(data(cluster, "ssconf_master_node"), "node9.vc.test\n"),
        {"ECLUSTERFILECHECK"},
        "ssconf_master_node",
    ),
    "the operating system differs": (other_os, {"ENODEOS"}, "tiny"),
    "the operating system is missing": (
        lambda cluster: gone(cluster.file("/srv/ganeti/os/tiny", node="node3")),
        {"ENODEOS"},
        "tiny",
    ),
    "the instance does not run": (
        lambda cluster: gone(cluster.file(f"{FAKE_STATE}/{INSTANCE}", node="node2")),
        {"EINSTANCEDOWN"},
        INSTANCE,
    ),
    "the instance runs on the wrong node, too": (
        elsewhere,
        {"EINSTANCEWRONGNODE"},
        INSTANCE,
    ),
    "somebody else's instance runs": (
        lambda cluster: added(
            cluster.file(f"{FAKE_STATE}/stray.vc.test", node="node1"), "0\n128\n1\n"
        ),
        {"ENODEORPHANINSTANCE"},
        "stray.vc.test",
    ),
    "a disk is missing": (
        # It is still there under another name.
        lambda cluster: gone(disk_of(cluster)),
        {"EINSTANCEFAULTYDISK", "ENODEORPHANLV"},
        INSTANCE,
    ),
    "a disk file is left over": (
        lambda cluster: added(
            cluster.file(f"/srv/ganeti/file-storage/killed/{LEFT}", node="node3")
        ),
        {"ENODEORPHANLV"},
        f"rm /srv/ganeti/file-storage/killed/{LEFT}",
    ),
    "the client certificate is another node's": (
        other_certificate,
        {"ECLUSTERCLIENTCERT"},
        "node3",
    ),
    "the client certificate is missing": (
        lambda cluster: gone(data(cluster, "client.pem")),
        {"ECLUSTERCLIENTCERT"},
        "node3",
    ),
    "the storage directory is missing": (
        lambda cluster: gone(cluster.file("/srv/ganeti/file-storage", node="node3")),
        {"ENODEFILESTORAGEPATHUNUSABLE"},
        "/srv/ganeti/file-storage",
    ),
    "a verification hook fails": (
        lambda cluster: added(
            cluster.file("/etc/ganeti/hooks/cluster-verify-post.d/10-no", node="node3"),
            "#!/bin/sh\necho not amused\nexit 1\n",
            0o755,
        ),
        {"ENODEHOOKS"},
        "not amused",
    ),
}


#: Breaks that an installed product is tried with, since they depend on where files are.
CORE = {"the operating system is missing", "a verification hook fails"}
EVERY_BREAK = [
    pytest.param(what, marks=[pytest.mark.core] if what in CORE else [])
    for what in BREAKS
]
CLEAN = (0, {"ERROR": [], "WARNING": []})


def findings(cluster, *options):
    """Run verify; returns exit code, and lines of findings by type."""
    done = cluster.run("gnt-cluster", "verify", "--error-codes", *options)
    assert "Traceback" not in done.output
    actual = {"ERROR": [], "WARNING": []}
    kind = ""
    for line in done.stdout.splitlines():
        if "   " in line and kind:  # output of a script in the last finding
            actual[kind][-1] += line.strip()
        kind, _, rest = line.partition("  - ")[2].partition(":")
        if kind in actual:
            actual[kind].append(rest)
        else:
            kind = ""
    return done.code, actual


def codes(lines):
    return {line.partition(":")[0] for line in lines}


def digest(cluster):
    """Return a fingerprint of what the nodes' configuration files say."""
    total = hashlib.sha256()
    for node in ("node1", "node2", "node3"):
        for path in sorted(cluster.file("/var/lib/ganeti", node=node).glob("ssconf_*")):
            total.update(path.name.encode() + path.read_bytes())
    return total.hexdigest()


@pytest.mark.core
def test_redistribution_repairs_files(cluster):
    """Make files that differ equal, as an administrator does."""
    for name in ("ssconf_node_list", "spice-ca.pem"):
        path = data(cluster, name)
        path.chmod(0o600)
        path.write_text("changed\n")
    code, actual = findings(cluster)
    assert (code, codes(actual["ERROR"])) == (1, {"ECLUSTERFILECHECK"})
    assert len(actual["ERROR"]) == 2
    cluster.check("gnt-cluster", "redist-conf")
    assert findings(cluster) == CLEAN


def test_files_of_the_administrator_are_shared_and_compared(cluster):
    conf = cluster.file("/etc/ganeti/shared-files")
    mine = cluster.file("/opt/site/routes")
    mine.parent.mkdir(parents=True)
    mine.write_text("10.0.0.0/8\n")
    conf.write_text("# of this site\n/opt/site/routes\n")
    code, actual = findings(cluster)
    assert (code, codes(actual["ERROR"])) == (1, {"ECLUSTERFILECHECK"})
    cluster.check("gnt-cluster", "redist-conf")
    assert findings(cluster) == CLEAN
    nodes = [node.name for node in cluster.layout.nodes]
    for node in nodes[1:]:
        assert cluster.file("/opt/site/routes", node=node).read_text() == "10.0.0.0/8\n"
    conf.write_text("/opt/site/routes\n/var/lib/ganeti/server.pem\n")
    done = cluster.run("gnt-cluster", "redist-conf")
    assert done.code == 1
    assert "shared-files line 2: /var/lib/ganeti/server.pem: files of" in done.stderr
    for node in nodes:
        cluster.file("/etc/ganeti/shared-files", node=node).unlink()
    assert findings(cluster) == CLEAN


@pytest.mark.core
def test_a_healthy_cluster_is_clean(cluster):
    assert findings(cluster) == CLEAN


@pytest.mark.parametrize("what", EVERY_BREAK)
def test_what_is_broken_is_found_and_can_be_ignored(cluster, what):
    breaks, expected, text = BREAKS[what]
    before = digest(cluster)
    with breaks(cluster):
        code, actual = findings(cluster)
        assert (code, codes(actual["ERROR"])) == (1, expected), actual
        assert any(text in line for line in actual["ERROR"])
        ignored = [word for name in sorted(expected) for word in ("-I", name)]
        code, actual = findings(cluster, *ignored)
        assert (code, actual["ERROR"]) == (0, []), actual
        assert codes(actual["WARNING"]) >= expected
    assert digest(cluster) == before


def test_a_hook_that_cannot_be_run_is_no_hook(cluster):
    hook = cluster.file("/etc/ganeti/hooks/cluster-verify-post.d/10-no", node="node2")
    with added(hook, "#!/bin/sh\nexit 1\n", 0o644):
        assert findings(cluster)[0] == 0


def test_an_offline_node_is_not_asked(cluster):
    cluster.check("gnt-node", "modify", "-O", "yes", "node3")
    try:
        with stopped_daemon(cluster):
            done = cluster.run("gnt-cluster", "verify", "-v")
    finally:
        cluster.check("gnt-node", "modify", "-f", "-O", "no", "node3")
        cluster.wait_until_clean()
    assert done.code == 0, done.output
    assert "* Skipping offline node node3.vc.test" in done.stdout
    assert "  - NOTICE: 1 offline node(s) found." in done.stdout


def test_a_disk_that_grew_unrecorded_is_found_and_a_retry_heals_it(cluster):
    file = disk_of(cluster)
    size = file.stat().st_size
    os.truncate(file, size + (4 << 20))  # a growth by 4 MiB, killed then
    code, actual = findings(cluster)
    assert (code, codes(actual["WARNING"])) == (0, {"EINSTANCEFAULTYDISK"})
    assert f"gnt-cluster repair-disk-sizes {INSTANCE}" in actual["WARNING"][0]
    cluster.check("gnt-instance", "grow-disk", INSTANCE, "0", "4m")
    assert file.stat().st_size == size + (4 << 20)
    assert findings(cluster) == CLEAN
    os.truncate(file, size + (8 << 20))
    cluster.check("gnt-cluster", "repair-disk-sizes", INSTANCE)
    assert findings(cluster) == CLEAN


def test_nothing_is_left_behind(cluster):
    assert findings(cluster) == CLEAN
    stray = [
        name
        for node in ("node1", "node2", "node3")
        for _, folders, names in os.walk(cluster.file("/", node=node))
        for name in (*folders, *names)
        if name.endswith((".away", ".new"))
    ]
    assert stray == []


def test_a_node_can_be_a_candidate_again_after_it_could_not(cluster):
    cluster.check("gnt-node", "modify", "--master-capable=no", "node3")
    cluster.wait_until_clean()
    done = cluster.run("gnt-node", "modify", "--master-capable=yes", "node3")
    assert not done.failed, done.output
    assert "WARNING" not in done.output
    cluster.wait_until_clean()
