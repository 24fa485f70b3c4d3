"""Features of KVM guests that need root: network cards, other users, chroots."""

import os
import pwd
import shutil
import subprocess
import sys

import pytest

from fakes import guests, nodes
from ganeti.base import errors

pytestmark = [
    pytest.mark.daemon,
    pytest.mark.root,
    pytest.mark.skipif(
        os.geteuid() != 0 or not shutil.which("qemu-system-x86_64"),
        reason="needs root and an emulator",
    ),
]
#: A new network needs a new view of it below /sys.
INSIDE = 'mount -t sysfs sysfs /sys && exec "$@"'
HERE = os.path.dirname(os.path.abspath(__file__))


def can_isolate():
    command = ["unshare", "-n", "ip", "link", "add", "br0", "type", "bridge"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


@pytest.fixture
def node():
    with guests.short_directory() as directory:
        os.chmod(directory, 0o711)
        yield nodes.make_node(directory, "n1")


def status(node):
    with open(f"{node.paths.run_dir}/kvm-hypervisor/pid/web1") as src:
        pid = src.read().strip()
    with open(f"/proc/{pid}/status") as src:
        uid = next(line.split()[1] for line in src if line.startswith("Uid:"))
    return int(uid), os.readlink(f"/proc/{pid}/root")


def capabilities(node):
    """Return the capabilities of the emulator, which has a system call filter."""
    with open(f"{node.paths.run_dir}/kvm-hypervisor/pid/web1") as src:
        pid = src.read().strip()
    with open(f"/proc/{pid}/status") as src:
        rows = dict(line.split(":", 1) for line in src)
    assert rows["Seccomp"].strip() == "2"
    return int(rows["CapEff"], 16) | int(rows["CapPrm"], 16)


@pytest.mark.sampled
@pytest.mark.skipif(not can_isolate(), reason="needs network namespaces and bridges")
def test_nics(tmp_path):
    guests.make_boot(str(tmp_path))
    with guests.short_directory() as directory:
        args = (f"{HERE}/nics_inside.py", directory, str(tmp_path))
        result = subprocess.run(
            ["unshare", "-n", "-m", "sh", "-c", INSIDE, "sh", sys.executable, *args],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
    assert result.stdout.endswith("all good\n"), result.stdout + result.stderr


def test_a_guest_as_a_given_user_in_a_chroot_takes_disks(node):
    params = guests.kvm_params(
        security_model="user", security_domain="nobody", use_chroot=True
    )
    record = guests.kvm_instance("web1", params)
    nodes.call(node, "instance_start", record, True, [])
    uid, root = status(node)
    assert uid == pwd.getpwnam("nobody").pw_uid
    assert root == f"{node.paths.run_dir}/kvm-hypervisor/chroot/web1"
    assert capabilities(node) == 0
    disk = nodes.disk(1)
    nodes.make_disks(node, {**record, "disks_info": [disk]})
    extra = nodes.call(node, "blockdev_assemble", disk, record, True, 0)[1:]
    nodes.call(node, "hotplug_device", record, "hotadd", "disk", disk, extra, 0)
    nodes.call(node, "instance_shutdown", record, 0, [])
    assert os.listdir(f"{node.paths.run_dir}/kvm-hypervisor/chroot") == []


def test_users_of_the_pool_are_taken_and_given_back(node):
    os.makedirs(node.paths.data_dir)
    uid = pwd.getpwnam("games").pw_uid
    with open(f"{node.paths.data_dir}/ssconf_uid_pool", "w") as out:
        out.write(f"{uid}\n")
    params = guests.kvm_params(security_model="pool")
    record = guests.kvm_instance("web1", params)
    second = guests.kvm_instance("web2", params)
    nodes.call(node, "instance_start", record, True, [])
    assert status(node) == (uid, "/")
    with pytest.raises(errors.HypervisorError, match="no free user id"):
        nodes.call(node, "instance_start", second, True, [])
    pool = f"{node.paths.run_dir}/uid-pool"
    assert os.listdir(pool) == [str(uid)]
    nodes.call(node, "instance_shutdown", record, 0, [])
    assert os.listdir(pool) == []
    nodes.call(node, "instance_start", second, True, [])


def test_unknown_users_are_named(node):
    params = guests.kvm_params(security_model="user", security_domain="nosuchuser")
    record = guests.kvm_instance("web1", params)
    with pytest.raises(
        errors.HypervisorError, match="user 'nosuchuser' of the emulator does not exist"
    ):
        nodes.call(node, "instance_start", record, True, [])
