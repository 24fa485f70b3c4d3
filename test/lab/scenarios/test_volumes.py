"""Instances on logical volumes, and a disk of a node that fails, on real LVM."""

import json

import pytest

GROUP = "xenvg"
LVMSTRAP = "/usr/lib/ganeti/tools/lvmstrap"
WEB1, WEB2 = "web1.lab.test", "web2.lab.test"
ADD = (
    *("gnt-instance", "add", "-t", "plain", "--no-install", "--no-nics"),
    *("--ignore-ipolicy", "-B", "memory=64m", "-n", "lab1"),
)
#: Makes the root directory of a container.
BUSYBOX = """rm -rf /var/log/ganeti/lxc; cd /tmp
mkdir -p root/bin root/sbin root/proc root/sys root/dev root/etc
cp /bin/busybox root/bin/sh && ln -sf ../bin/sh root/sbin/init
echo '::sysinit:echo booted' > root/etc/inittab"""


@pytest.fixture
def volumes(first_machine):
    """A cluster of one machine with a volume group of two disks."""
    machines = first_machine
    machines.check("wipefs", "-qaf", "/dev/vdb", "/dev/vdc")
    made = machines.check(LVMSTRAP, "create", "-d", "vdb,vdc", "-g", GROUP)
    assert made.startswith("Done! VG: size ")
    assert made.endswith(" GiB, disks: vdb,vdc\n")
    machines.check(
        *("gnt-cluster", "init", "--vg-name", GROUP, "--enabled-hypervisors", "fake"),
        *("--enabled-disk-templates", "plain,file", "--master-netdev", "br0"),
        *("-N", "link=br0", "--no-etc-hosts", "cluster.lab.test"),
    )
    yield machines
    machines.lab.leave("lab1", ("/dev/vdb", "/dev/vdc"))


def sizes(machines):
    """Return name -> MiB of the logical volumes."""
    text = machines.check(
        *("lvs", "--reportformat", "json", "--units", "m", "--nosuffix"),
        *("-o", "lv_name,lv_size", GROUP),
    )
    rows = json.loads(text)["report"][0]["lv"]
    return {row["lv_name"]: int(float(row["lv_size"])) for row in rows}


def units(machines, kind, *fields):
    """Return the rows of storage units, by name."""
    text = machines.check("gnt-node", "list-storage", "-t", kind, "--json")
    return {
        row["name"]: tuple(row[name] for name in fields) for row in json.loads(text)
    }


@pytest.mark.sampled
def test_volumes_live_as_their_disks_and_a_failed_disk_is_taken_out(volumes):
    machines = volumes
    _used_disks_are_refused(machines)
    _life_of_a_disk(machines)
    _stripes(machines)
    _container(machines)
    _adoption(machines)
    _a_disk_fails(machines)


def _used_disks_are_refused(machines):
    """The group is there with both disks: lvmstrap shows that and makes no other."""
    text = machines.check(LVMSTRAP, "diskinfo", "--json", "-d", "vdb,vdc")
    shown = {disk["name"]: (disk["used"], disk["info"]) for disk in json.loads(text)}
    used = (True, f"is a physical volume of group {GROUP}")
    assert shown == {"vdb": used, "vdc": used}
    create = (LVMSTRAP, "create", "-d", "vdb,vdc", "-g")
    assert "exists on this machine" in machines.refuse(*create, GROUP)
    assert used[1] in machines.refuse(*create, "more")


def _life_of_a_disk(machines):
    machines.check(*ADD, "--disk", "0:size=100m", WEB1)
    (name,) = sizes(machines)
    assert name.endswith(".disk0")
    assert sizes(machines)[name] == 100
    tags = machines.check("lvs", "--noheadings", "-o", "lv_tags", GROUP)
    assert tags.strip() == f"originstname+{WEB1}"
    machines.check("gnt-instance", "grow-disk", "--ignore-ipolicy", WEB1, "0", "60m")
    assert sizes(machines)[name] == 160
    listed = machines.check(
        "gnt-node", "volumes", "--no-headers", "-o", "name,instance"
    )
    assert listed.split() == [name, WEB1]
    text = machines.refuse(*ADD, "--disk", "0:size=900g", WEB2)
    assert (
        "needs 921600 MiB (900.0 GiB) in volume group xenvg of node lab1.lab.test"
        in text
    )
    # To files and back: the content stays.
    device = f"/dev/{GROUP}/{name}"
    machines.check("sh", "-c", f"echo kept > {device}; sync {device}")
    machines.check("gnt-instance", "modify", "-t", "file", WEB1)
    assert sizes(machines) == {}
    machines.check("gnt-instance", "modify", "-t", "plain", WEB1)
    (name,) = sizes(machines)
    assert machines.check("head", "-n", "1", f"/dev/{GROUP}/{name}") == "kept\n"
    machines.check("gnt-instance", "remove", "-f", WEB1)
    assert sizes(machines) == {}


def _segments(machines):
    """Return (number of stripes, their size in KiB) of each segment."""
    text = machines.check(
        *("lvs", "--segments", "--noheadings", "--units", "k", "--nosuffix"),
        *("-o", "stripes,stripe_size", GROUP),
    )
    return [
        tuple(int(float(word)) for word in row.split()) for row in text.splitlines()
    ]


def _stripes(machines):
    """Volumes have stripes of the wanted size, also where they have grown."""
    modify = ("gnt-cluster", "modify", "-D")
    machines.check(*modify, "plain:stripes=2,stripe_size=256")
    machines.check(*ADD, "--disk", "0:size=200m", WEB1)
    assert _segments(machines) == [(2, 256)]
    grow = ("gnt-instance", "grow-disk", "--ignore-ipolicy", WEB1, "0")
    machines.check(*grow, "104m")
    assert _segments(machines) == [(2, 256)]
    # With the space left on one disk alone, it grows without stripes.
    machines.check("pvchange", "-x", "n", "/dev/vdc")
    machines.check(*grow, "64m")
    assert _segments(machines) == [(2, 256), (1, 0)]
    machines.check("pvchange", "-x", "y", "/dev/vdc")
    machines.check("gnt-instance", "remove", "-f", WEB1)
    machines.check(*modify, "plain:stripe_size=8192")
    text = machines.refuse(*ADD, "--disk", "0:size=200m", WEB1)
    assert f"volume group {GROUP} has extents of 4096 KiB" in text
    assert "needs stripes of 2 or more" in machines.refuse(*modify, "plain:stripes=1")
    machines.check(*modify, "plain:stripes=1,stripe_size=0")


def _container(machines):
    """A container of busybox starts from a volume, has its limits, and ends if asked."""
    # Without sys_boot in the list the container may switch itself off.
    params = (
        "lxc:drop_capabilities=sys_module,cpu_mask=0,"
        r"extra_config=lxc.apparmor.profile=unconfined\,lxc.signal.halt=SIGUSR2"
    )
    machines.check("gnt-cluster", "modify", "--enabled-hypervisors", "fake,lxc")
    machines.check(
        *(*ADD[:4], "--no-install", "--net", "0:link=br0", "--no-start", *ADD[6:]),
        *("-H", params, "--disk", "0:size=64m", WEB1),
    )
    machines.check("sh", "-c", BUSYBOX)
    (name,) = sizes(machines)
    mke2fs = ("mke2fs", "-q", "-F", "-t", "ext4", "-d", "/tmp/root")
    machines.check(*mke2fs, f"/dev/{GROUP}/{name}")
    machines.check("gnt-instance", "startup", WEB1)
    fields = "hypervisor,status,oper_ram,oper_vcpus"
    listed = machines.check("gnt-instance", "list", "--no-headers", "-o", fields)
    assert listed.split() == ["lxc", "running", "64M", "1"]
    inside = machines.check("cat", f"/sys/fs/cgroup/lxc.payload.{WEB1}/cpuset.cpus")
    assert inside.strip() == "0"
    assert "veth" in machines.check("ip", "-br", "link", "show", "master", "br0")
    # Its root file system is mounted nowhere else.
    assert name.replace("-", "--") not in machines.check("cat", "/proc/mounts")
    # It ends before the time at which it would be killed.
    machines.check("gnt-instance", "shutdown", "--timeout", "600", WEB1)
    log = machines.check("cat", f"/var/log/ganeti/lxc/{WEB1}.console.log")
    assert "booted" in log
    assert "Requesting system poweroff" in log
    machines.check("gnt-instance", "remove", "-f", WEB1)
    assert machines.check("ls", "/run/ganeti/lxc/instance") == ""


def _adoption(machines):
    machines.check("lvcreate", "-q", "-y", "-L", "64m", "-n", "old", GROUP)
    machines.check("sh", "-c", f"echo kept > /dev/{GROUP}/old")
    text = machines.refuse(*ADD, "--disk", "0:adopt=absent", WEB1)
    assert "has no volume xenvg/absent" in text
    machines.check(*ADD, "--disk", "0:adopt=old", WEB1)
    ((name, size),) = sizes(machines).items()
    assert (name.endswith(".disk0"), size) == (True, 64)
    assert machines.check("head", "-n", "1", f"/dev/{GROUP}/{name}") == "kept\n"
    machines.check("gnt-instance", "remove", "-f", WEB1)


def _a_disk_fails(machines):
    """Disk vdc returns errors: no new volume there, instances off it, group repaired."""
    modify = ("gnt-node", "modify-storage", "lab1", "lvm-pv")
    machines.check(*modify[:2], "--allocatable", "no", *modify[2:], "/dev/vdb")
    machines.check(*ADD, "--disk", "0:size=100m", WEB1)
    machines.check(*modify[:2], "--allocatable", "yes", *modify[2:], "/dev/vdb")
    machines.check(*modify[:2], "--allocatable", "no", *modify[2:], "/dev/vdc")
    assert units(machines, "lvm-pv", "allocatable") == {
        "/dev/vdb": (True,),
        "/dev/vdc": (False,),
    }
    machines.check(*ADD, "--disk", "0:size=100m", WEB2)
    on = machines.check("gnt-node", "volumes", "--no-headers", "-o", "instance,phys")
    assert {tuple(line.split()) for line in on.strip().split("\n")} == {
        (WEB1, "/dev/vdc"),
        (WEB2, "/dev/vdb"),
    }
    machines.lab.fail_disk("lab1", 1, ["read", "write"])
    info = machines.run("gnt-cluster", "verify-disks")
    assert "Traceback" not in info.stdout + info.stderr
    machines.check("gnt-node", "repair-storage", "lab1", "lvm-vg", GROUP)
    assert list(units(machines, "lvm-pv", "size")) == ["/dev/vdb"]
    # The instance beside it is as before.
    ((_name, size),) = sizes(machines).items()
    assert size == 100
    done = machines.run("gnt-node", "repair-storage", "lab1", "lvm-vg", "absent")
    assert done.returncode != 0
    assert "absent" in done.stdout + done.stderr


def _digests(machines, pattern):
    """Return the digests of the files that a pattern matches, in order of the names."""
    text = machines.check("sh", "-c", f"sha256sum {pattern}")
    return [line.split()[0] for line in text.splitlines()]


@pytest.mark.long
def test_exports_are_copied_from_snapshots(volumes):
    """A running instance is exported and runs on; a full group harms nothing."""
    machines = volumes
    machines.check(*ADD, "--disk", "0:size=64m", WEB1)
    ((name, _size),) = sizes(machines).items()
    device = f"/dev/{GROUP}/{name}"
    fill = "head -c 64M /dev/urandom > {0}; sync {0}"
    machines.check("sh", "-c", fill.format(device))
    before = _digests(machines, device)
    machines.check("gnt-instance", "startup", WEB1)
    export = ("gnt-backup", "export", "-n", "lab1")
    machines.check(*export, "--noshutdown", WEB1)
    assert sizes(machines) == {name: 64}
    assert _digests(machines, f"/srv/ganeti/export/{WEB1}/*.dump") == before
    running = ("gnt-instance", "list", "--no-headers", "-o", "status", WEB1)
    assert machines.check(*running).strip() == "running"
    # Nothing is left of a snapshot for which there is no room.
    machines.check("lvcreate", "-q", "-y", "-l", "100%FREE", "-n", "full", GROUP)
    text = machines.refuse(*export, WEB1)
    assert "cannot take a snapshot of disk/0" in text
    assert sorted(sizes(machines)) == sorted([name, "full"])
    assert machines.check(*running).strip() == "running"
    assert _digests(machines, f"/srv/ganeti/export/{WEB1}/*.dump") == before
    machines.check("lvremove", "-q", "-f", f"{GROUP}/full")
    machines.check("gnt-instance", "remove", "-f", WEB1)
