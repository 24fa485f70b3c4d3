"""Untrusted operating systems are installed by real helper machines under QEMU."""

import contextlib
import os
import shutil

import pytest

from fakes import guests
from fakes.patience import job_end, until

pytestmark = [
    pytest.mark.daemon,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not shutil.which("qemu-system-x86_64"), reason="needs an emulator"
    ),
]

NAME = "web1.vc.test"
SECRET = "hidden-secret-4713"
IMAGE, HALTS = "/srv/ganeti/images/install.raw", "/srv/ganeti/images/helper.raw"
#: Seconds for a job; a helper machine of its own takes ten on an idle machine.
PATIENCE_S = 300
#: A text of the host there ends the script that waits.
GO_AT = 4096
SCRIPT = rb"""#!/bin/sh
put() { dd of="$1" bs=512 conv=sync,notrunc,fsync 2>/dev/null; }
look() { dd if="$DISK_0_PATH" bs=512 skip=8 count=1 iflag=direct 2>/dev/null | tr -d '\000'; }
echo "installing for $OSP_OWNER"
case $OSP_ACT in
  fail) printf 'no \033[31mroom\n'; exit 3 ;;
  forge) printf 'ganeti-install-1 exit 0 \033[31m' | put /dev/vdc; poweroff -f ;;
  wait)
    printf waiting | put "$DISK_0_PATH"
    until [ "$(look)" = go ]; do usleep 100000; done ;;
esac
[ -z "$GANETI_TOOLS_DIR$DISK_0_URI" ] || exit 4
ls /sys/class/net
printf '%s|' "$INSTANCE_NAME" "$OSP_OWNER" "$OSP_TOKEN" "$INSTANCE_REINSTALL" |
  put "$DISK_0_PATH"
"""


@pytest.fixture(scope="module")
def cluster(cluster_of):
    made = cluster_of(1, "kvm,fake")
    place = made.file("/srv/ganeti/images")
    place.mkdir(parents=True)
    guests.install_image(str(made.file(IMAGE)))
    guests.image(str(place), guests.HALTS)
    with made.file("/etc/ganeti/image-sources").open("a") as sources:
        sources.write("/srv/ganeti/images\n")
    definition = made.file("/srv/ganeti/os/vault")
    definition.mkdir(parents=True)
    for name in ("import", "export", "rename", "verify"):
        (definition / name).write_text("#!/bin/sh\nexit 0\n")
        (definition / name).chmod(0o755)
    (definition / "create_untrusted").write_bytes(SCRIPT)
    (definition / "create_untrusted").chmod(0o755)
    (definition / "ganeti_api_version").write_text("20\n")
    (definition / "variants.list").write_text("default\n")
    (definition / "parameters.list").write_text("owner who\ntoken what\nact how\n")
    return made


@pytest.fixture(autouse=True)
def image(cluster):
    """Set the install image; at the end no part of a helper machine is left."""
    cluster.check("gnt-cluster", "modify", "--install-image", IMAGE)
    yield
    left = [
        *cluster.file("/var/lib/ganeti/helper-disks").glob("*"),
        *cluster.file("/var/run/ganeti/os-export").glob("*"),
        *cluster.file("/var/run/ganeti/helper-machines").glob("*"),
        *cluster.file("/var/run/ganeti/kvm-hypervisor/pid").glob("*"),
    ]
    cluster.run("gnt-instance", "remove", "-f", "--ignore-failures", NAME)
    assert left == []


def creation(act="", **changes):
    return {
        "OP_ID": "OP_INSTANCE_CREATE",
        "instance_name": NAME,
        "mode": "create",
        "disk_template": "file",
        "disks": [{"size": 16}],
        "nics": [],
        "os_type": "vault+default",
        "pnode": "node1.vc.test",
        "hypervisor": "kvm",
        "beparams": {"memory": 192},
        "osparams": {"owner": "it's me", "act": act},
        "osparams_secret": {"token": SECRET},
        "start": False,
        "reason": [],
        **changes,
    }


def submit(cluster, op):
    with contextlib.closing(cluster.luxi()) as client:
        return client.call("SubmitJob", [[op]])


def end_of(cluster, job):
    """Return the state and the log of a job that has ended, and its error."""
    with contextlib.closing(cluster.luxi()) as client:
        state, log = job_end(client, job, timeout_s=PATIENCE_S)
        ((results,),) = client.call("QueryJobs", [[job], ["opresult"]])
    return state, "\n".join(str(entry[3]) for entry in log), str(results)


def log_of(cluster, job):
    with contextlib.closing(cluster.luxi()) as client:
        return str(client.call("QueryJobs", [[job], ["oplog"]]))


def run(cluster, op):
    return end_of(cluster, submit(cluster, op))


def disk_of(cluster):
    [path] = cluster.file("/srv/ganeti/file-storage").glob(f"{NAME}/*")
    return path


def content(cluster):
    return disk_of(cluster).read_bytes()[:512].rstrip(b"\0").decode()


def state_of(cluster):
    fields = "admin_state,oper_state"
    words = ("gnt-instance", "list", "--no-headers", "-o", fields, NAME)
    return cluster.check(*words).split()


def test_a_system_is_installed_and_installed_again(cluster):
    state, log, error = run(cluster, creation())
    assert state == "success", log + error
    assert content(cluster) == f"{NAME}|it's me|{SECRET}||"
    again = {
        "OP_ID": "OP_INSTANCE_REINSTALL",
        "instance_name": NAME,
        "osparams": {"owner": "you"},
        "osparams_secret": {"token": SECRET},
        "reason": [],
    }
    state, log, error = run(cluster, again)
    assert state == "success", log + error
    assert content(cluster) == f"{NAME}|you|{SECRET}|1|"
    assert SECRET not in log + error
    for directory in ("/var/log/ganeti", "/var/lib/ganeti/queue", "/var/run/ganeti"):
        for path in cluster.file(directory).rglob("*"):
            assert not path.is_file() or SECRET.encode() not in path.read_bytes()


@pytest.mark.parametrize(
    ("act", "wanted"),
    [
        ("fail", ["wanted exit code 0, found 3", "installing for it's me / no "]),
        ("forge", ["found a text that starts with", IMAGE]),
    ],
)
def test_what_the_guest_says_is_data(cluster, act, wanted):
    state, log, error = run(cluster, creation(act))
    assert state == "error"
    start = f"instance {NAME}: cannot install OS vault+default on node node1.vc.test"
    for text in (start, *wanted):
        assert text in error, error
    assert "\033" not in log + error
    assert SECRET not in log + error
    assert state_of(cluster) == ["down", "N"]


@pytest.mark.parametrize(
    ("image_path", "limits", "text"),
    [
        (HALTS, {"helper_startup_timeout": 3}, "did not begin its work in 3 s"),
        (IMAGE, {"helper_shutdown_timeout": 3}, "did not power itself off in 3 s"),
    ],
)
def test_a_machine_that_does_not_end_is_ended(cluster, image_path, limits, text):
    cluster.check("gnt-cluster", "modify", "--install-image", image_path)
    state, log, error = run(cluster, creation("wait", **limits))
    assert state == "error", log
    assert text in error
    assert state_of(cluster) == ["down", "N"]


def test_an_installation_goes_on_when_daemons_are_killed(cluster):
    job = submit(cluster, creation("wait"))
    path = until(
        "the disk is there",
        lambda: next(
            iter(cluster.file("/srv/ganeti/file-storage").glob(f"{NAME}/*")), None
        ),
    )
    until(
        "the script is at work",
        lambda: path.read_bytes()[:7] == b"waiting",
        timeout_s=PATIENCE_S,
    )
    [pid_file] = cluster.file("/var/run/ganeti/kvm-hypervisor/pid").glob("*")
    pid = pid_file.read_text()
    for daemon in ("ganeti-masterd", "ganeti-noded"):
        cluster.command("kill", "node1", daemon)
    with open(f"/proc/{pid.strip()}/cmdline", "rb") as line:
        assert SECRET.encode() not in line.read()
    for daemon in ("ganeti-noded", "ganeti-masterd"):
        cluster.command("start", "node1", daemon)
    until("it continues", lambda: "of web1.vc.test continues" in log_of(cluster, job))
    assert pid_file.read_text() == pid
    fd = os.open(path, os.O_WRONLY)
    os.pwrite(fd, b"go", GO_AT)
    os.close(fd)
    state, log, error = end_of(cluster, job)
    assert state == "success", log + error
    assert content(cluster) == f"{NAME}|it's me|{SECRET}||"
