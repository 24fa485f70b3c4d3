"""``lvmstrap``: which disks are free, and that making a group is all or nothing.

`Machine` answers as util-linux 2.38 and LVM 2.03 do; its rows are recorded ones.
"""

import errno
import json
import os
import re
import stat

import pytest

from fakes.processes import FakeRunner
from ganeti.base import errors
from ganeti.base.process import SystemRunner
from ganeti.migration import lvmstrap, lvmstrap_disks

OURS = "Ganeti-lvms-trap-KHKa-IV5d-Lifw-i4j3Jy"
OTHER = "VKmVv1-pI6J-28Pd-TY3B-E0S8-lpHR-n9mOIN"
GIB = 1 << 30


def device(name, number, kind="disk", bus="block:scsi:pci", **changes):
    """Return a row of lsblk."""
    row = {
        "kname": name,
        "path": f"/dev/{name}",
        "maj:min": number,
        "type": kind,
        "size": 10 * GIB,
        "rm": False,
        "hotplug": False,
        "ro": False,
        "subsystems": bus,
        "mountpoints": [None],
        "serial": f"S{name}",
        "wwn": None,
    }
    if "children" in changes or kind == "part":
        row["children"] = []
    return row | changes


def part(name, number, *mounts, **changes):
    return device(name, number, "part", mountpoints=list(mounts) or [None], **changes)


class Machine(FakeRunner):
    """A machine with disks. ``failing``: word of a command -> its error."""

    def __init__(self, *rows):
        super().__init__(
            lsblk=self._lsblk,
            wipefs=self._wipefs,
            pvs=self._pvs,
            vgs=self._vgs,
            pvcreate=self._pvcreate,
            vgcreate=self._vgcreate,
            pvremove=self._pvremove,
            vgremove=self._vgremove,
            sfdisk=self._sfdisk,
            udevadm=self.DONE,
        )
        self.rows = list(rows)
        self.signatures, self.labels, self.tables = {}, {}, {}
        self.failing, self.unreadable, self.before = {}, {}, {}
        self.claims, self.open, self.in_use = {}, {}, set()
        self.has_partition_devices = True
        self.changes = []

    # The kernel
    def claim(self, path, number):
        return self.claims.get(path)

    def users(self):
        return self.open

    def run(self, argv, **options):
        word = argv[0]
        if "create" in word or "remove" in word or options.get("stdin"):
            self.changes.append(f"{word} {argv[-1]}")
        self.stdin = options.get("stdin")
        if word in self.before:
            self.before.pop(word)()
        result = super().run(argv, **options)
        if word in self.failing:
            wanted, error = self.failing[word]
            if wanted == argv[-1]:
                return type(result)(result.argv, 5, None, "", error)
        return result

    def volume(self, path, uuid, group=""):
        self.signatures[path] = [("LVM2_member", uuid)]
        self.labels[path] = (uuid, group)

    def _lsblk(self, argv):
        assert argv[1:4] == ("--json", "--bytes", "--output")
        return 0, json.dumps({"blockdevices": self.rows}), ""

    def _wipefs(self, argv):
        path = argv[-1]
        if argv[1] == "--json":
            if path in self.unreadable:
                return 1, "", self.unreadable[path]
            listed = [
                {"device": path[5:], "offset": "0x1", "type": kind, "uuid": uuid}
                for kind, uuid in self.signatures.get(path, ())
            ]
            return 0, json.dumps({"signatures": listed}), ""
        assert argv[1:3] == ("--quiet", "--all")
        self.changes.append(f"wipefs {path}")
        self.signatures.pop(path, None)
        del self.tables[path]
        self.row(path)["children"] = []
        return self.DONE

    def row(self, path):
        return next(row for row in self.rows if row["path"] == path)

    def _pvs(self, argv):
        listed = [
            {
                "pv_name": path,
                "pv_uuid": uuid,
                "vg_name": group,
                "pv_in_use": "used" if group or path in self.in_use else "",
            }
            for path, (uuid, group) in self.labels.items()
        ]
        return 0, json.dumps({"report": [{"pv": listed}]}), ""

    def _vgs(self, argv):
        groups = {group for _, group in self.labels.values() if group}
        listed = [
            {"vg_name": name, "vg_size": "20472.00", "vg_free": "20472.00"}
            for name in sorted(groups)
        ]
        return 0, json.dumps({"report": [{"vg": listed}]}), ""

    def _pvcreate(self, argv):
        uuid, path = argv[-2:]
        assert argv[1:-2] == ("-q", "--norestorefile", "--zero", "y", "--uuid")
        if path not in self.failing.get("pvcreate", ()):
            self.volume(path, uuid)
        return self.DONE

    def _vgcreate(self, argv):
        group, *paths = argv[2:]
        for path in paths:
            if path not in self.failing.get("vgcreate", ()):
                self.labels[path] = (self.labels[path][0], group)
        return self.DONE

    def _vgremove(self, argv):
        for path, (uuid, group) in self.labels.items():
            if group == argv[-1]:
                self.labels[path] = (uuid, "")
        return self.DONE

    def _pvremove(self, argv):
        if argv[-1] not in self.failing.get("pvremove", ()):
            del self.labels[argv[-1]], self.signatures[argv[-1]]
        return self.DONE

    def _sfdisk(self, argv):
        path = argv[-1]
        if argv[1] == "--json":
            if path not in self.tables:
                return 1, "", f"sfdisk: {path}: does not contain a partition table"
            return 0, json.dumps({"partitiontable": self.tables[path]}), ""
        assert argv[1:-1] == ("--quiet", "--wipe-partitions", "always")
        label, identity, only = self.stdin.splitlines()
        assert label == "label: gpt"
        assert (
            only
            == f"type={lvmstrap_disks.LVM_TYPE}, name={lvmstrap_disks.PARTITION_NAME}"
        )
        self.table(path, identity.removeprefix("label-id: "))
        return self.DONE

    def table(self, path, identity="AB12", name=lvmstrap_disks.PARTITION_NAME):
        only = {"node": f"{path}1", "type": lvmstrap_disks.LVM_TYPE, "name": name}
        self.tables[path] = {"label": "gpt", "id": identity, "partitions": [only]}
        self.signatures[path] = [("gpt", None), ("gpt", None), ("PMBR", None)]
        number = self.row(path)["maj:min"] + "1"
        if self.has_partition_devices:
            self.row(path)["children"] = [part(f"{path[5:]}1", number)]

    def state(self):
        return (dict(self.signatures), dict(self.labels), dict(self.tables))


@pytest.fixture
def machine():
    """Two empty disks, and the disk of the system."""
    system = [part("sda1", "8:1", "/boot"), part("sda2", "8:2", "[SWAP]")]
    made = Machine(
        device("sdc", "8:32"),
        device("sda", "8:0", children=system),
        device("sdb", "8:16"),
    )
    made.signatures["/dev/sda"] = [("gpt", None), ("gpt", None), ("PMBR", None)]
    return made


@pytest.fixture
def run(machine, monkeypatch, capsys):
    """Return a function that runs the tool as root: (exit status, output, errors)."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(lvmstrap, "SystemRunner", lambda: machine)
    monkeypatch.setattr(lvmstrap, "SystemKernel", lambda: machine)

    def run_main(*words):
        status = lvmstrap.main(words)
        return (status, *capsys.readouterr())

    return run_main


def look(machine, *words, removable=False):
    return lvmstrap_disks.Disks(machine, machine, allow_removable=removable).look(words)


def info(machine, name):
    (disk,) = look(machine, name)
    return disk.info


# diskinfo
def test_the_table_has_all_disks_in_natural_order(run):
    used = "sda1 is mounted on /boot; sda2 is swap in use; has partitions sda1, sda2;"
    used += " has a partition table (gpt)"
    titles = "Name Size[M] Used Mount        LVM? Info"
    status, out, err = run("diskinfo")
    assert (status, err) == (0, "")
    assert out == (
        f"{titles.ljust(titles.index('Info') + len(used))}\n"
        f"sda    10240 yes  /boot,[SWAP] no   {used}\n"
        "sdb    10240 no   -            no   empty\n"
        "sdc    10240 no   -            no   empty\n"
    )


def test_the_list_is_available_as_json(run, machine):
    machine.volume("/dev/sdb", OTHER, "xenvg")
    status, out, _ = run("diskinfo", "--json", "-d", "sdb")
    assert status == 0
    assert json.loads(out) == [
        {
            "name": "sdb",
            "path": "/dev/sdb",
            "size": 10240,
            "used": True,
            "mounts": [],
            "lvm": True,
            "info": "is a physical volume of group xenvg",
        }
    ]


def test_texts_of_the_system_cannot_change_the_terminal(run, machine):
    machine.rows[0]["mountpoints"] = ["/a\x1b[2J"]
    _, out, _ = run("diskinfo")
    assert "\x1b" not in out
    assert "/a\\x1b[2J" in out


@pytest.mark.parametrize(
    ("row", "listed"),
    [
        (device("vda", "254:0", bus="block:virtio:pci"), True),
        (device("nvme0n1", "259:0", bus="block:nvme:pci"), True),
        (device("md0", "9:0", "raid1", "block"), True),
        (device("dm-0", "253:0", "mpath", "block"), True),
        (device("sdx", "8:99", size=0), False),
        (device("drbd0", "147:0", bus="block"), False),
        (device("rbd0", "252:0", bus="block:rbd"), False),
        (device("zram0", "251:0", bus="block"), False),
        (device("loop0", "7:0", "loop", "block"), False),
        (device("sr0", "11:0", "rom"), False),
        (device("dm-1", "253:1", "lvm", "block"), False),
    ],
)
def test_disks_are_hardware_and_arrays(row, listed):
    assert [disk.path for disk in look(Machine(row))] == [row["path"]] * listed


def test_an_array_below_several_disks_is_one_disk():
    array = device("md0", "9:0", "raid1", "block")
    machine = Machine(
        device("sda", "8:0", children=[array]), device("sdb", "8:16", children=[array])
    )
    assert [disk.name for disk in look(machine)] == ["md0", "sda", "sdb"]
    assert info(machine, "sda") == "is part of md0 (raid1)"


def test_a_loop_device_is_a_disk_if_it_is_named():
    machine = Machine(device("loop0", "7:0", "loop", "block"))
    assert info(machine, "loop0") == "empty"


def test_links_lead_to_disks(machine, tmp_path):
    link = tmp_path / "by-id"
    link.symlink_to("/dev/sdc")
    assert [d.name for d in look(machine, str(link), "sdb", "/dev/sdc")] == [
        *("sdc", "sdb")
    ]


# Why a disk is used
@pytest.mark.parametrize(
    ("signature", "text"),
    [
        (("ext4", "1"), "has a file system or other data (ext4)"),
        (("swap", "1"), "has a file system or other data (swap)"),
        (("dos", None), "has a partition table (dos)"),
        (("PMBR", None), "has a partition table (PMBR)"),
        (("gpt", None), "has a partition table (gpt)"),
        (
            ("linux_raid_member", "1"),
            "is part of an array of disks (linux_raid_member)",
        ),
        (("LVM2_member", OTHER), "is a physical volume that LVM does not list"),
        (("LVM2_member", OURS), "is a physical volume that LVM does not list"),
    ],
)
def test_a_signature_makes_a_disk_used(machine, run, signature, text):
    machine.signatures["/dev/sdb"] = [signature]
    assert info(machine, "sdb") == text
    status, out, err = run("create", "-d", "sdc,sdb")
    assert (status, out, machine.changes) == (1, "", [])
    assert err == (
        f"lvmstrap: disk sdb: {text} (if nothing of it is needed: wipefs --all"
        " /dev/sdb)\n"
    )


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"ro": True}, "is read-only"),
        ({"rm": True}, "is removable"),
        ({"hotplug": True}, "is removable"),
        ({"mountpoints": ["/srv", "/mnt"]}, "is mounted on /srv; is mounted on /mnt"),
        ({"mountpoints": ["[SWAP]"]}, "is swap in use"),
        (
            {"children": [device("dm-3", "253:3", "crypt")]},
            "is part of dm-3 (crypt)",
        ),
        ({"children": [part("sdb1", "8:17")]}, "has partitions sdb1"),
        (
            {"children": [part("sdb1", "8:17", children=[part("x", "1:1", "/x")])]},
            "x is mounted on /x; has partitions sdb1",
        ),
    ],
)
def test_what_lsblk_says_makes_a_disk_used(machine, run, changes, text):
    machine.row("/dev/sdb").update(changes)
    assert info(machine, "sdb") == text
    status, _, err = run("create", "-d", "sdb")
    assert (status, machine.changes) == (1, [])
    assert err.startswith(f"lvmstrap: disk sdb: {text}")


def test_a_removable_disk_is_used_on_request_alone(machine, run):
    machine.row("/dev/sdb")["rm"] = True
    assert "(allow it with -r)" in run("create", "-d", "sdb")[2]
    assert run("create", "-r", "-d", "sdb")[0] == 0


def test_a_disk_that_the_kernel_or_a_process_has_is_used(machine):
    machine.claims["/dev/sdb"] = "is in use by the kernel"
    machine.open["8:32"] = "17 (qemu-system-x86)"
    assert info(machine, "sdb") == "is in use by the kernel"
    assert info(machine, "sdc") == "is open in process 17 (qemu-system-x86)"


def test_a_disk_that_cannot_be_read_is_used(machine):
    machine.unreadable["/dev/sdb"] = "wipefs: error: /dev/sdb: Input/output error\n"
    assert info(machine, "sdb") == (
        "is not readable: wipefs exited with code 1: wipefs: error: /dev/sdb:"
        " Input/output error"
    )


def test_a_physical_volume_of_somebody_else_is_used(machine):
    machine.volume("/dev/sdb", OTHER)
    assert info(machine, "sdb") == "is a physical volume without a group"


def test_a_physical_volume_of_a_group_that_lvm_does_not_know_is_used(machine):
    machine.volume("/dev/sdb", OURS)
    machine.in_use.add("/dev/sdb")
    assert info(machine, "sdb") == "is a physical volume without a group"


def test_a_copy_of_a_physical_volume_is_used(machine):
    machine.volume("/dev/sdb", OURS)
    machine.volume("/dev/sdc", OURS)
    assert all(disk.reasons for disk in look(machine))
    assert not look(machine, "sdb")[0].reasons


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("sdz", "disk sdz: this machine has no such disk"),
        ("sda1", "disk sda1: wanted a whole disk or an array of disks, found a"),
        ("drbd0", "a device of type disk without hardware"),
    ],
)
def test_other_names_are_refused(machine, run, word, text):
    machine.rows.append(device("drbd0", "147:0", bus="block"))
    status, out, err = run("create", "-d", word)
    assert (status, out) == (1, "")
    assert text in err


@pytest.mark.parametrize(
    "answer",
    ["", "[]", '{"blockdevices": [{}]}', '{"blockdevices": [{"path": "/tmp/a"}]}'],
)
def test_an_unclear_list_of_devices_is_one_error(machine, run, answer):
    machine.answers["lsblk"] = (0, answer, "")
    status, _, err = run("diskinfo")
    assert status == 1
    assert err.startswith("lvmstrap: lsblk: no list of devices in its output: ")


def test_an_unclear_content_makes_a_disk_used(machine):
    machine.answers["wipefs"] = (0, '{"signatures": [1]}', "")
    assert info(machine, "sdb").startswith("has unknown content")


def test_without_lvm_nothing_is_done(machine, run, monkeypatch):
    def no_lvm(argv):
        raise errors.CommandError(f"{argv[0]}: cannot be run: not found")

    machine.answers["pvs"] = machine.answers["vgs"] = no_lvm
    for words in (("diskinfo",), ("create", "--alldisks")):
        status, out, err = run(*words)
        assert (status, out) == (1, "")
        assert err.startswith("lvmstrap: cannot use LVM: ")
        assert err.endswith("its tools are in the package lvm2\n")


def test_other_users_than_root_are_refused(run, machine, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert run("diskinfo") == (1, "", "lvmstrap: run this as root\n")
    assert machine.commands == []


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "required: diskinfo|create"),
        (("show",), "invalid choice: 'show'"),
        (("create",), "create wants either --disks or --alldisks"),
        (("create", "--alldisks", "-d", "a"), "wants either --disks or --alldisks"),
        (("create", "-d", "a,,b"), "wanted names of disks, found 'a,,b'"),
        (("create", "-d", "a\n"), "wanted names of disks, found 'a\\n'"),
        (("create", "-d", "a", "-g", "-x"), "-g/--vg-name"),
        (("create", "-d", "a", "-g", "a/b"), "'a/b' is no name of a volume group"),
        (("create", "-d", "a", "--json"), "--json belongs to diskinfo"),
    ],
)
def test_a_wrong_use_ends_with_2(machine, capsys, words, text):
    with pytest.raises(SystemExit) as caught:
        lvmstrap.parse(words)
    assert caught.value.code == 2
    assert text in capsys.readouterr().err


# create
def test_a_group_is_made_of_whole_disks(machine, run):
    assert run("create", "-d", "sdc,sdb", "-g", "fast") == (
        *(0, "Done! VG: size 19.99 GiB, disks: sdc,sdb\n", ""),
    )
    assert machine.changes == [
        *("pvcreate /dev/sdc", "pvcreate /dev/sdb", "vgcreate /dev/sdb")
    ]
    assert {group for _, group in machine.labels.values()} == {"fast"}
    for uuid, _ in machine.labels.values():
        assert re.fullmatch(r"Ganeti-lvms-trap(-\w{4}){3}-\w{6}", uuid, re.ASCII)


def test_all_free_disks_are_used_on_request(machine, run):
    assert run("create", "--alldisks")[1].endswith("disks: sdb,sdc\n")
    assert {group for _, group in machine.labels.values()} == {"xenvg"}
    status, _, err = run("create", "--alldisks", "-g", "more")
    assert status == 1
    assert err.startswith("lvmstrap: this machine has no free disk; disk sda: ")


def test_a_group_that_exists_is_refused(machine, run):
    machine.volume("/dev/sdb", OTHER, "xenvg")
    status, _, err = run("create", "-d", "sdc")
    assert (status, machine.changes) == (1, [])
    assert err.startswith("lvmstrap: volume group xenvg: exists on this machine; ")


def test_a_table_with_one_partition_is_made_on_request(machine, run):
    assert run("create", "-d", "sdb", "--use-sfdisk")[:2] == (
        *(0, "Done! VG: size 19.99 GiB, disks: sdb\n"),
    )
    assert machine.changes == [
        *("sfdisk /dev/sdb", "pvcreate /dev/sdb1", "vgcreate /dev/sdb1")
    ]
    (disk,) = look(machine, "sdb")
    assert disk.is_lvm
    assert "has partitions sdb1" in disk.info


def test_an_absent_sfdisk_is_one_error(machine, run):
    def absent(argv):
        raise errors.CommandError("sfdisk: cannot be run: not found")

    machine.answers["sfdisk"] = absent
    status, out, err = run("create", "-d", "sdb", "--use-sfdisk")
    assert (status, out) == (1, "")
    assert err == (
        "lvmstrap: disk sdb: sfdisk: cannot be run: not found; it is in the package"
        " fdisk\n"
    )


def test_a_partition_that_does_not_appear_is_taken_back(machine, run):
    machine.has_partition_devices = False
    before = machine.state()
    status, _, err = run("create", "-d", "sdb", "--use-sfdisk")
    assert status == 1
    assert "its new partition does not appear or is used" in err
    assert machine.state() == before


@pytest.mark.parametrize("extra", [(), ("--use-sfdisk",)])
@pytest.mark.parametrize("fails", ["pvcreate", "vgcreate"])
def test_a_failed_step_undoes_all(machine, run, fails, extra):
    before = machine.state()
    last = "/dev/sdc1" if extra else "/dev/sdc"
    machine.failing[fails] = (last, f"{fails}: no luck")
    status, out, err = run("create", "-d", "sdb,sdc", *extra)
    assert (status, out) == (1, "")
    assert err == f"lvmstrap: {fails} exited with code 5: {fails}: no luck\n"
    assert machine.state() == before


@pytest.mark.parametrize("prepared", [False, True])
def test_a_group_that_a_failed_vgcreate_has_made_is_removed(machine, run, prepared):
    if prepared:
        machine.volume("/dev/sdb", OURS)
    before = machine.state()
    create = machine.answers["vgcreate"]

    def made_but_failed(argv):
        create(argv)
        return 5, "", "killed"

    machine.answers["vgcreate"] = made_but_failed
    assert run("create", "-d", "sdb,sdc")[0] == 1
    assert "vgremove xenvg" in machine.changes
    assert machine.state() == before


def test_a_step_that_cannot_be_undone_is_named(machine, run):
    machine.failing |= {
        "vgcreate": ("/dev/sdc", "no luck"),
        "pvremove": ("/dev/sdb", "busy"),
    }
    status, _, err = run("create", "-d", "sdb,sdc")
    assert status == 1
    assert err == (
        "lvmstrap: vgcreate exited with code 5: no luck; physical volume /dev/sdb stays:"
        " pvremove exited with code 5: busy\n"
    )
    assert list(machine.labels) == ["/dev/sdb"]


def test_an_interrupt_undoes_all(machine, run):
    def interrupt():
        raise KeyboardInterrupt

    before = machine.state()
    machine.before["vgcreate"] = interrupt
    assert run("create", "-d", "sdb,sdc")[0] == 1
    assert machine.state() == before


def test_an_undo_leaves_what_others_have_made(machine, run):
    """Another program makes a physical volume of a disk in the last moment."""
    machine.before["pvcreate"] = lambda: machine.volume("/dev/sdb", OTHER)
    machine.failing["pvcreate"] = ("/dev/sdb", "Can't initialize it")
    assert run("create", "-d", "sdb")[0] == 1
    assert machine.labels == {"/dev/sdb": (OTHER, "")}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            lambda m: m.signatures.update({"/dev/sdc": [("ext4", "1")]}),
            "has changed since it was chosen: has a file system or other data (ext4)",
        ),
        (
            lambda m: m.row("/dev/sdc").update(serial="S5"),
            "has changed since it was chosen: it is another disk",
        ),
        (lambda m: m.rows.remove(m.row("/dev/sdc")), "this machine has no such disk"),
    ],
)
def test_a_disk_that_changes_after_the_look_stays_as_it_is(machine, run, change, text):
    before = list(machine.labels)
    machine.before["pvcreate"] = lambda: change(machine)
    status, _, err = run("create", "-d", "sdb,sdc")
    assert status == 1
    assert text in err
    assert list(machine.labels) == before
    assert machine.changes == ["pvcreate /dev/sdb", "pvremove /dev/sdb"]


# After a run that was killed
def kill_before(machine, run, program, *words):
    """Run until a program starts; nothing is undone."""

    class Killed(BaseException):
        pass

    def kill():
        raise Killed

    machine.before[program] = kill
    take_back = lvmstrap.Creation._take_back
    lvmstrap.Creation._take_back = lambda self: []
    try:
        with pytest.raises(Killed):
            run("create", "-d", "sdb,sdc", *words)
    finally:
        lvmstrap.Creation._take_back = take_back


@pytest.mark.parametrize("second", [(), ("--use-sfdisk",)])
@pytest.mark.parametrize("first", [(), ("--use-sfdisk",)])
@pytest.mark.parametrize("program", ["pvcreate", "vgcreate"])
def test_after_a_kill_the_next_run_goes_on(machine, run, program, first, second):
    kill_before(machine, run, program, *first)
    assert run("create", "-d", "sdb,sdc", *second)[:2] == (
        *(0, "Done! VG: size 19.99 GiB, disks: sdb,sdc\n"),
    )
    assert len(machine.labels) == 2
    assert {group for _, group in machine.labels.values()} == {"xenvg"}


def test_what_a_killed_run_leaves_is_shown_as_free(machine, run):
    kill_before(machine, run, "vgcreate")
    assert info(machine, "sdb") == "physical volume without a group, made by lvmstrap"
    kill_before(machine, run, "vgcreate")
    assert look(machine, "sdb")[0].reasons == ()


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.table("/dev/sdb", name="data"),
        lambda m: m.tables.pop("/dev/sdb"),
        lambda m: m.signatures.update({"/dev/sdb1": [("ext4", "1")]}),
        lambda m: m.volume("/dev/sdb1", OTHER),
        lambda m: m.volume("/dev/sdb1", OURS, "xenvg"),
        lambda m: m.unreadable.update({"/dev/sdb1": "error"}),
        lambda m: m.row("/dev/sdb")["children"][0].update(mountpoints=["/x"]),
        lambda m: m.signatures["/dev/sdb"].append(("ext4", "1")),
        lambda m: m.row("/dev/sdb")["children"].append(part("sdb2", "8:18")),
        lambda m: m.claims.update({"/dev/sdb1": "is in use by the kernel"}),
        lambda m: m.open.update({"8:161": "17 (qemu)"}),
    ],
)
def test_a_table_of_an_earlier_run_is_free_if_nothing_else_is_there(machine, change):
    machine.table("/dev/sdb")
    assert info(machine, "sdb") == "partition table made by lvmstrap"
    change(machine)
    assert look(machine, "sdb")[0].reasons != ()


# The kernel, and real programs
def test_only_the_device_with_the_right_number_can_be_claimed(monkeypatch):
    real = lvmstrap_disks.SystemKernel()
    assert real.claim("/dev/null", "1:3") == "is not the device that was found before"
    monkeypatch.setattr(lvmstrap_disks, "_is_block", stat.S_ISCHR)
    assert real.claim("/dev/null", "1:3") is None
    assert real.claim("/dev/null", "1:5") == "is not the device that was found before"
    text = "cannot be opened: No such file or directory"
    assert real.claim("/dev/absent", "1:5") == text


def test_a_device_in_exclusive_use_cannot_be_claimed(monkeypatch):
    def busy(path, flags):
        assert flags & os.O_EXCL
        assert flags & os.O_ACCMODE == os.O_RDONLY
        raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr(os, "open", busy)
    claimed = lvmstrap_disks.SystemKernel().claim("/dev/sdb", "8:16")
    assert claimed == "is in use by the kernel"


def test_processes_with_an_open_device_are_known(monkeypatch):
    monkeypatch.setattr(lvmstrap_disks, "_is_block", stat.S_ISCHR)
    with open("/dev/full", "rb"):
        assert re.fullmatch(r"\d+ \(.+\)", lvmstrap_disks.SystemKernel().users()["1:7"])


def test_lsblk_and_wipefs_of_this_machine_are_understood(tmp_path):
    """The real programs; a file stands for a disk with a swap signature."""
    image = tmp_path / "image"
    image.write_bytes(b"\0" * 131072)
    real = SystemRunner()
    assert not real.run(["mkswap", str(image)]).failed

    class Mixed(FakeRunner):
        def run(self, argv, **options):
            if argv[0] == "pvs":
                return super().run(argv, **options)
            return real.run(argv)

    made = Mixed(pvs=(0, '{"report": [{"pv": []}]}', ""))
    machine = lvmstrap_disks.Disks(
        made, lvmstrap_disks.SystemKernel(), allow_removable=False
    )
    assert isinstance(machine.look(), list)
    (outcome,) = machine._signatures([str(image)]).values()
    assert [signature.kind for signature in outcome] == ["swap"]
