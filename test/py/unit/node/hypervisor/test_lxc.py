"""Containers of LXC: their configuration, root disk, limits and life."""

import pathlib
import types

import msgspec
import pytest

from fakes import nodes
from fakes.processes import FakeRunner
from ganeti.base import errors, pathutils
from ganeti.base.constants.parameters import hvparams
from ganeti.base.process import RunResult
from ganeti.model.objects.filled import DiskX, InstanceX
from ganeti.node import hypervisor
from ganeti.node.hypervisor import lxc as driver
from ganeti.node.hypervisor import lxc_cgroups as cgroups
from ganeti.node.hypervisor import registry
from ganeti.node.hypervisor.base import AttachedDisk

GIB = 1 << 30
RUNNING = "NAME STATE   PID \nweb1 RUNNING 248 \nweb2 STOPPED -   \n"
NOBODY = "NAME STATE PID \n"


def instance(vcpus=2, nics=(), **params):
    table = hvparams.HYPERVISOR["lxc"]
    wire = nodes.instance(
        hypervisor="lxc",
        disks=1,
        hvparams={name: row.default for name, row in table.items()} | params,
        beparams={"maxmem": 256, "minmem": 128, "vcpus": vcpus},
        nics=list(nics),
    )
    return msgspec.convert(wire, InstanceX)


def nic(mode="bridged", mac="aa:00:00:11:22:33", link="br7", vlan=""):
    params = {"mode": mode, "link": link, "vlan": vlan}
    return {"mac": mac, "nicparams": params, "uuid": nodes.UUID.format(9)}


def lines(**more):
    text = driver.build_config(
        instance(**more),
        root="/run/r",
        mount=["/bin/mount", "--", "/dev/x y", "/run/r"],
        console_log="/var/c",
    )
    return text.splitlines()


def test_a_container_has_limits_and_no_network_of_the_node():
    text = lines(cpu_mask="0,3")
    assert text[:10] == [
        "lxc.uts.name = web1",
        "lxc.pty.max = 255",
        "lxc.tty.max = 6",
        "lxc.console.logfile = /var/c",
        "lxc.console.size = 8388608",
        "lxc.console.rotate = 1",
        "lxc.rootfs.path = dir:/run/r",
        "lxc.hook.version = 1",
        "lxc.hook.pre-mount = /bin/mount -- '/dev/x y' /run/r",
        "lxc.mount.auto = proc:mixed sys:ro",
    ]
    assert "lxc.cgroup2.cpuset.cpus = 0,3" in text
    assert "lxc.cgroup2.memory.max = 268435456" in text
    assert text.index("lxc.cgroup2.devices.deny = a") < text.index(
        "lxc.cgroup2.devices.allow = c 1:3 rw"
    )
    assert "lxc.cap.drop = sys_boot" in text
    assert text[-1] == "lxc.net.0.type = empty"


def test_a_container_has_its_nics_and_additional_settings_last():
    text = lines(
        nics=[nic(), nic(mac="aa:00:00:11:22:34")], extra_config="lxc.a=b,lxc.c=d"
    )
    assert text[-12:] == [
        *("lxc.net.0.type = veth", "lxc.net.0.link = br7"),
        *("lxc.net.0.hwaddr = aa:00:00:11:22:33", "lxc.net.0.name = eth0"),
        "lxc.net.0.flags = up",
        *("lxc.net.1.type = veth", "lxc.net.1.link = br7"),
        *("lxc.net.1.hwaddr = aa:00:00:11:22:34", "lxc.net.1.name = eth1"),
        "lxc.net.1.flags = up",
        *("lxc.a=b", "lxc.c=d"),
    ]
    assert not any("cpuset" in line for line in text)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"nics": [nic("routed")]}, "NIC 0 has mode routed; .* only bridged"),
        ({"nics": [nic(link="br7\nlxc.hook.stop = /x")]}, "wanted a setting .* line"),
        ({"cpu_mask": "0-2"}, "cpu_mask 0-2: wanted as many .* the 2 .*, found 3"),
        ({"cpu_mask": "x"}, "wanted a number or a range"),
    ],
)
def test_settings_that_containers_cannot_have(given, text):
    with pytest.raises(errors.HypervisorError, match=f"instance web1: .*{text}"):
        lines(**given)


@pytest.mark.parametrize(
    ("vlan", "expected"),
    [
        ("", []),
        (".100", ["id = 100"]),
        (":200:300", ["id = none", "tagged.id = 200", "tagged.id = 300"]),
        (".100:200", ["id = 100", "tagged.id = 200"]),
    ],
)
def test_a_nic_is_in_its_vlans_alone(vlan, expected):
    actual = [line for line in lines(nics=[nic(vlan=vlan)]) if ".vlan." in line]
    assert actual == [f"lxc.net.0.veth.vlan.{line}" for line in expected]


def test_swap_space_is_limited_where_the_kernel_counts_it(tmp_path):
    for words, counts in (("quiet", True), ("quiet swapaccount=0", False)):
        path = tmp_path / "cmdline"
        path.write_text(f"{words}\n")
        assert cgroups.limits_swap(str(path)) is counts


# The root disk
def attached(path, mode="rw"):
    disk = msgspec.convert(nodes.disk(mode=mode), DiskX)
    return AttachedDisk(disk, str(path))


def mount_of(path, mode="rw", **answers):
    runner = FakeRunner(**answers)
    effects = types.SimpleNamespace(process=runner)
    return driver.root_mount_command(effects, attached(path, mode), "/run/r")


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "disk"
    path.touch()
    return path


FILE_SYSTEM = (0, "DEVNAME=/x\nTYPE=ext4\n", "")
PARTITIONS = (0, "DEVNAME=/x\nPTTYPE=gpt\n", "")


def test_a_file_is_mounted_over_a_loop_device(image):
    words = mount_of(image, blkid=FILE_SYSTEM)
    assert words == ["/bin/mount", "-o", "loop", "--", str(image), "/run/r"]


def test_a_device_is_mounted_as_its_mode_says():
    words = mount_of("/dev/null", "ro", blkid=FILE_SYSTEM)
    assert words == ["/bin/mount", "-o", "ro", "--", "/dev/null", "/run/r"]
    assert mount_of("/dev/null", blkid=FILE_SYSTEM)[1] == "--"


def test_the_first_partition_is_mounted():
    words = mount_of("/dev/null", blkid=PARTITIONS, partx=(0, " 2048 65011712\n", ""))
    assert words[2] == "loop,offset=1048576,sizelimit=65011712"


@pytest.mark.parametrize(
    ("blkid", "partx", "text"),
    [
        ((2, "", ""), None, "found neither a file system nor a partition table"),
        ((8, "", ""), None, "blkid exited with code 8"),
        (PARTITIONS, (1, "", ""), "wanted a partition .* exited with code 1"),
        (PARTITIONS, (0, "1 2\n3 4\n", ""), "wanted a partition"),
        (PARTITIONS, (0, "-1 5\n", ""), "wanted a partition"),
        (PARTITIONS, (0, "٣ 5\n", ""), "wanted a partition"),
    ],
)
def test_disks_without_a_root_file_system(image, blkid, partx, text):
    with pytest.raises(errors.HypervisorError, match=f"disk {nodes.UUID[:8]}.*{text}"):
        mount_of(image, blkid=blkid, partx=partx)


def test_the_real_programs_find_a_partition(tmp_path):
    node = nodes.make_node(tmp_path)
    image = tmp_path / "disk"
    sector = bytearray(512)
    sector[446:462] = bytes((0, 0, 0, 0, 0x83, 0, 0, 0)) + b"\0\x08\0\0\0\x10\0\0"
    sector[510:] = b"\x55\xaa"
    image.write_bytes(bytes(sector) + bytes(4 << 20))
    effects = types.SimpleNamespace(process=node.process)
    words = driver.root_mount_command(effects, attached(image), "/run/r")
    assert words[2] == "loop,offset=1048576,sizelimit=2097152"


# Control groups
@pytest.fixture
def group(tmp_path):
    """The group of a container whose programs have made a group below it."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(
        "1:cpu:/x\n0::/lxc.payload.web1/init.scope\n"
    )
    path = tmp_path / "lxc.payload.web1"
    path.mkdir()
    return path, cgroups.of_process(7, root=str(tmp_path), proc=str(tmp_path))


def test_consumption_and_limits_of_a_container(group):
    path, made = group
    assert (made.memory_mib(), made.vcpus(), made.time_s(), made.used_mib()) == (
        None, None, 0.0, 0,
    )  # fmt: skip
    (path / "memory.max").write_text("67108864\n")
    (path / "memory.current").write_text(f"{GIB}\n")
    (path / "cpuset.cpus.effective").write_text("0-2,7\n")
    (path / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    assert (made.memory_mib(), made.vcpus(), made.time_s(), made.used_mib()) == (
        64, 4, 2.5, 1024,
    )  # fmt: skip
    made.set_memory(32)
    assert (path / "memory.max").read_text() == "33554432"
    (path / "memory.max").write_text("max\n")
    assert made.memory_mib() is None


def test_a_process_that_ended_or_is_in_no_container_has_no_group(tmp_path):
    assert cgroups.of_process(7, proc=str(tmp_path)) is None
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text("0::/system.slice/x\n")
    assert cgroups.of_process(7, proc=str(tmp_path)) is None


def test_missing_controllers_are_named(tmp_path):
    assert "wanted cgroups of version 2" in cgroups.problem(root=str(tmp_path))
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    assert "no controller cpuset, io" in cgroups.problem(["io"], root=str(tmp_path))
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory\n")
    assert cgroups.problem(["io"], root=str(tmp_path)) is None


# The life of a container
class Lxc(FakeRunner):
    """LXC's programs around one container."""

    def __init__(self, **answers):
        self.listed = NOBODY
        answers = {"lxc_ls": lambda _argv: (0, self.listed, ""), **answers}
        super().__init__(blkid=FILE_SYSTEM, lxc_start=self._start, **answers)
        self.failure = None

    def _start(self, argv):
        if self.failure is None:
            self.listed = RUNNING
            return self.DONE
        log = pathlib.Path(argv[argv.index("-o") + 1])
        with log.open("a") as out:
            out.write(self.failure)
        return 1, "", "lxc-start: the container failed to start"


@pytest.fixture
def lxc(tmp_path, monkeypatch):
    monkeypatch.setattr(cgroups, "mount_if_missing", lambda effects: None)
    monkeypatch.setattr(cgroups, "problem", lambda extra=(): None)
    runner = Lxc(lxc_stop=FakeRunner.DONE)
    paths = pathutils.Paths(f"{tmp_path}/n1", "n1")
    for path in (paths.run_dir, paths.log_dir):
        pathlib.Path(path).mkdir(parents=True)
    effects = hypervisor.NodeEffects(paths, runner, nodes.CountedClock())
    made = registry.drivers(effects)["lxc"]
    return types.SimpleNamespace(runner=runner, driver=made, paths=paths)


def start(lxc, image, **params):
    lxc.driver.start(instance(**params), [attached(image)], paused=False)


def files(lxc):
    return sorted(
        path.name for path in pathlib.Path(lxc.paths.run_dir, "lxc").rglob("*")
    )


def test_a_container_starts_and_leaves_nothing(lxc, image):
    start(lxc, image)
    assert files(lxc) == ["config", "instance", "rootfs", "web1"]
    assert lxc.driver.list_names() == ["web1"]
    with pytest.raises(errors.HypervisorError, match="web1: already running"):
        start(lxc, image)
    with pytest.raises(errors.HypervisorError, match=r"cannot clean up, .* is running"):
        lxc.driver.cleanup("web1")
    lxc.driver.stop("web1", hvparams={}, force=False)
    lxc.driver.stop("web1", hvparams={}, force=True)
    base = f"{lxc.paths.run_dir}/lxc/instance"
    assert [line for line in lxc.runner.lines if line.startswith("lxc-stop")] == [
        f"lxc-stop -P {base} --nokill --nowait -n web1",
        f"lxc-stop -P {base} --kill -n web1",
    ]
    lxc.runner.listed = NOBODY
    lxc.driver.cleanup("web1")
    assert files(lxc) == ["instance"]
    count = len(lxc.runner.lines)
    lxc.driver.stop("web1", hvparams={}, force=True)
    assert lxc.runner.lines[count:] == []


def test_a_failed_start_has_the_first_reason_of_its_own_try(lxc, image):
    head = "lxc-start web1 20261126012550.327 {} x - ../x.c:f:1 - {}\n"
    lxc.runner.failure = head.format("WARN", "odd") + head.format("ERROR", "no bridge")
    for reason in ("no bridge", "no device"):
        text = f"instance web1: cannot start: {reason}; see .*/lxc/web1.log"
        with pytest.raises(errors.HypervisorError, match=text):
            start(lxc, image)
        assert files(lxc) == ["instance"]
        lxc.runner.failure = head.format("ERROR", "no device")


def test_a_root_file_system_that_cannot_be_mounted_is_the_reason(lxc, image):
    lxc.runner.failure = "l w 1 ERROR u - ../u.c:r:1 - Script exited with status 32\n"
    with pytest.raises(errors.HypervisorError, match="root file system cannot be"):
        start(lxc, image)


def test_a_container_that_ends_at_once_has_not_started(lxc, image):
    lxc.runner.answers["lxc-start"] = FakeRunner.DONE
    with pytest.raises(
        errors.HypervisorError, match=r"ended immediately; .*console.log"
    ):
        start(lxc, image)
    assert files(lxc) == ["instance"]


def test_a_container_that_does_not_start_in_time_is_killed(lxc, image):
    def slow(argv, **options):
        assert options["timeout_s"] == 7.0
        lxc.runner.listed = RUNNING
        return RunResult(tuple(argv), None, 9, "", "", timed_out=True)

    usual = lxc.runner.run
    lxc.runner.run_bounded = lambda argv, **options: (
        slow if argv[0] == "lxc-start" else usual
    )(argv, **options)
    with pytest.raises(errors.HypervisorError, match="not running after 7 seconds"):
        start(lxc, image, startup_timeout=7)
    assert lxc.runner.lines[-1].endswith("--kill -n web1")


def test_a_container_needs_a_disk(lxc):
    with pytest.raises(errors.HypervisorError, match=r"web1: .* needs a disk"):
        lxc.driver.start(instance(), [], paused=False)


def test_a_container_without_the_right_to_reboot_is_not_asked_to(lxc, image):
    with pytest.raises(errors.HypervisorError, match="web1: not running"):
        lxc.driver.reboot(instance())
    start(lxc, image)
    lxc.driver._describe = lambda row: row
    with pytest.raises(
        errors.HypervisorError, match="drop_capabilities takes sys_boot"
    ):
        lxc.driver.reboot(instance())
    lxc.driver.reboot(instance(drop_capabilities="sys_time"))
    assert lxc.runner.lines[-2].endswith("--reboot --timeout 120 -n web1")


def test_a_container_is_not_migratable_so_that_it_can_be_failed_over(lxc, image):
    with pytest.raises(errors.HypervisorError, match="web1: not running"):
        lxc.driver.migratable(instance())
    start(lxc, image)
    lxc.driver._describe = lambda row: row
    with pytest.raises(errors.HypervisorError, match="does not support migration"):
        lxc.driver.migratable(instance())
    lxc.driver.resize_disk(instance(), None, 1)


def test_files_of_others_in_the_root_directory_are_never_removed(lxc):
    inside = pathlib.Path(lxc.paths.run_dir, "lxc/instance/web1/rootfs/etc")
    inside.mkdir(parents=True)
    with pytest.raises(errors.HypervisorError, match=r"cannot remove .*rootfs"):
        lxc.driver.cleanup("web1")
    assert inside.is_dir()


def test_a_node_without_the_programs_or_with_an_old_release_is_named(lxc, monkeypatch):
    monkeypatch.setattr(driver.shutil, "which", lambda name, path: None)
    assert "programs lxc-start, " in lxc.driver.verify()
    monkeypatch.setattr(driver.shutil, "which", lambda name, path: f"/bin/{name}")
    for version, text in (("3.1.0\n", "release 4.0 or newer"), ("5.0.2\n", None)):
        lxc.runner.answers["lxc-start"] = (0, version, "")
        problem = lxc.driver.verify()
        assert problem is None if text is None else text in problem


def test_the_list_has_containers_that_run():
    text = (
        "NAME  STATE   PID  \nweb2  FROZEN  9    \nweb1  RUNNING 248  \na STOPPED - \n"
    )
    assert driver.parse_list(text) == [("web1", 248), ("web2", 9)]
    assert driver.parse_list("") == []


def test_wrong_parameters_are_refused_before_a_start(lxc):
    params = instance(devices="all").hvparams
    with pytest.raises(errors.HypervisorError, match="parameter devices"):
        lxc.driver.validate(params)
    lxc.driver.validate(instance().hvparams)
