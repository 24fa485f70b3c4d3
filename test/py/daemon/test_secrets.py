"""Secrets stay where they belong: never in logs, job files, command lines or errors."""

import contextlib
import pathlib
import threading

import pytest

from fakes.patience import job_status, until
from fakes.rapi_requests import ask

pytestmark = pytest.mark.daemon
#: Looks at the command lines while the script is at work.
ENOUGH = 5
PRIVATE, SECRET = "hidden-private-4711", "hidden-secret-4712"
#: Goes on until the command lines were looked at a few times, and fails.
SCRIPT = """#!/bin/sh
test -n "$OSP_OWNER" || exit 3
touch "${0%/*}/at-work"
left=600
while [ ! -e "${0%/*}/seen" ] && [ $left -gt 0 ]; do
  sleep 0.1
  left=$((left - 1))
done
echo "$0 fails on purpose" >&2
exit 1
"""


@pytest.fixture
def os_definition(vcluster):
    """An operating system on node1 that takes parameters."""
    place = vcluster.file("/srv/ganeti/os/vault")
    place.mkdir()
    for name in ("create", "import", "export", "rename"):
        (place / name).write_text(SCRIPT)
    (place / "verify").write_text("#!/bin/sh\nexit 0\n")
    for name in ("create", "import", "export", "rename", "verify"):
        (place / name).chmod(0o755)
    (place / "ganeti_api_version").write_text("20\n")
    (place / "variants.list").write_text("default\n")
    (place / "parameters.list").write_text("owner who\ntoken what\n")
    yield "vault+default"
    for path in place.iterdir():
        path.unlink()
    place.rmdir()


def create(os_name):
    return {
        "OP_ID": "OP_INSTANCE_CREATE",
        "instance_name": "vault.vc.test",
        "mode": "create",
        "disk_template": "file",
        "disks": [{"size": 4}],
        "nics": [],
        "os_type": os_name,
        "pnode": "node1.vc.test",
        "hypervisor": "fake",
        "osparams_private": {"owner": PRIVATE},
        "osparams_secret": {"token": SECRET},
        "start": False,
        "reason": [],
    }


class CommandLines(threading.Thread):
    """Watches the arguments of all processes for some words.

    Args:
        words: what is looked for.
        place: where the script at work says so, and waits for the file ``seen``.
    """

    def __init__(self, words, place):
        super().__init__()
        self.words = [word.encode() for word in words]
        self.place = place
        self.actual = set()
        self.looks = 0
        self.end = threading.Event()

    def run(self):
        while not self.end.wait(0.02):
            self.looks += (self.place / "at-work").exists()
            if self.looks > ENOUGH:
                (self.place / "seen").touch()
            for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    line = path.read_bytes()
                    if any(word in line for word in self.words):
                        self.actual.add(line)


def files_with(vcluster, directory, word):
    """Return the files below a directory of any node that hold a word."""
    return [
        path
        for node in vcluster.layout.nodes
        for path in vcluster.file(directory, node.short).rglob("*")
        if path.is_file() and word in content(path)
    ]


def content(path):
    """Return what a file has; nothing if it is gone, as one that is replaced."""
    with contextlib.suppress(FileNotFoundError):
        return path.read_bytes()
    return b""


@pytest.fixture
def failed_job(vcluster, os_definition):
    """A creation with secrets that failed; (job id, watched command lines)."""
    place = vcluster.file("/srv/ganeti/os/vault")
    watcher = CommandLines([PRIVATE, SECRET], place)
    watcher.start()
    try:
        with contextlib.closing(vcluster.luxi()) as client:
            job = client.call("SubmitJob", [[create(os_definition)]])
            job_status(client, job)
    finally:
        watcher.end.set()
        watcher.join()
    yield job, watcher
    vcluster.run("gnt-instance", "remove", "-f", "--ignore-failures", "vault.vc.test")


def test_secret_parameters_are_nowhere_to_be_read(vcluster, failed_job):
    job, watcher = failed_job
    info = vcluster.check("gnt-job", "info", str(job))
    assert "fails on purpose" in info
    assert watcher.looks > ENOUGH
    assert not watcher.actual
    shown = [
        info,
        vcluster.check("gnt-job", "list", "-o", "id,ops,opresult,oplog,summary"),
        vcluster.run("gnt-instance", "info", "vault.vc.test").output,
        vcluster.run("gnt-instance", "list", "-o", "+osparams,custom_osparams").output,
    ]
    for word in (PRIVATE, SECRET):
        assert all(word not in text for text in shown)
        for place in ("/var/log/ganeti", "/var/run/ganeti"):
            assert files_with(vcluster, place, word.encode()) == []
    # Private values are part of the configuration; secret ones are stored nowhere.
    assert files_with(vcluster, "/var/lib/ganeti", SECRET.encode()) == []


def test_a_refused_opcode_does_not_repeat_its_secrets(vcluster, os_definition):
    wrong = create(os_definition)
    wrong["osparams_secret"] = [SECRET]
    wrong["osparams_private"] = {"nonsense": PRIVATE}
    with contextlib.closing(vcluster.luxi()) as client:
        with pytest.raises(Exception) as caught:
            client.call("SubmitJob", [[wrong]])
        assert SECRET not in str(caught.value)
        assert PRIVATE not in str(caught.value)


def test_tokens_of_the_remote_api_are_shown_once(vcluster):
    words = ["gnt-rapi-token", "add", "--rights", "read", "--expires", "1h", "signs-in"]
    token = vcluster.check(*words).strip()

    def asked(method, path, bearer):
        headers = {"Authorization": f"Bearer {bearer}"}
        return ask(vcluster, method, path, headers)

    until("it is read", lambda: asked("GET", "/2/journal", token)[0] == 200)
    value = asked("POST", "/2/session", token)[1]
    assert asked("GET", "/2/journal", value["token"])[0] == 200
    assert asked("DELETE", f"/2/session/{'x' * 16}", value["token"])[0] == 404
    shown = vcluster.check("gnt-cluster", "sessions", "--json", "list")
    shown += vcluster.check("gnt-cluster", "audit", "--json")
    vcluster.check("gnt-rapi-token", "remove", "signs-in")
    assert asked("GET", "/2/journal", value["token"])[0] == 401
    for word in (token, value["token"]):
        assert word not in shown
        for place in ("/var/log/ganeti", "/var/run/ganeti", "/var/lib/ganeti"):
            assert files_with(vcluster, place, word[2:].encode()) == []


@pytest.mark.parametrize(
    "name",
    ["hmac.key", "cluster-domain-secret", "server-key.pem", "client.pem", "rapi.pem"],
)
def test_keys_of_the_cluster_are_not_logged(vcluster, name):
    path = vcluster.file(f"/var/lib/ganeti/{name}")
    if not path.exists():
        pytest.skip(f"this cluster has no {name}")
    lines = [line for line in path.read_bytes().splitlines() if b"-----" not in line]
    assert files_with(vcluster, "/var/log/ganeti", lines[0]) == []
    if name != "rapi.pem":
        assert path.stat().st_mode & 0o007 == 0
