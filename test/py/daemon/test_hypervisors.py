"""Guarantees of both hypervisors, and those that only real guests can show."""

import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import ssl
import subprocess
import termios

import msgspec
import pytest

from fakes import guests, nodes
from fakes.patience import until
from ganeti.base import errors
from ganeti.bootstrap import crypto
from ganeti.model.objects.filled import InstanceX
from ganeti.node.hypervisor.kvm.devices import hotplug
from ganeti.node.hypervisor.kvm.files import Files
from ganeti.node.hypervisor.kvm.moving import sending
from ganeti.node.hypervisor.kvm.qmp import Qmp

#: Guests migrate to fixed ports; an address for each run keeps runs apart.
LOCAL = f"127.88.{os.getpid() // 250 % 250}.{os.getpid() % 250 + 1}"

pytestmark = [
    pytest.mark.daemon,
    pytest.mark.skipif(
        not shutil.which("qemu-system-x86_64"), reason="needs an emulator"
    ),
]


@pytest.fixture(scope="module")
def boot(tmp_path_factory):
    directory = str(tmp_path_factory.mktemp("boot"))
    guests.make_boot(directory)
    return directory


@pytest.fixture
def directory():
    with guests.short_directory() as path:
        yield path


@pytest.fixture
def node(directory):
    return nodes.make_node(directory, "n1")


@pytest.fixture
def other(directory):
    return nodes.make_node(directory, "n2")


@pytest.fixture(params=["fake", "kvm"])
def record(request):
    if request.param == "fake":
        return nodes.instance()
    return guests.kvm_instance("web1", guests.kvm_params())


def start(node, record, *, paused=False):
    nodes.call(node, "instance_start", record, paused, [])


def names(node, record):
    return nodes.call(node, "instance_list", [record["hypervisor"]], {})


def info(node, record):
    args = (record["name"], record["hypervisor"], record["hvparams"])
    return nodes.call(node, "instance_info", *args)


def driver(node, record):
    return node.hypervisor(record["hypervisor"])


# The contract


def test_a_started_guest_is_seen_and_a_stopped_one_is_not(node, record):
    start(node, record)
    assert names(node, record) == ["web1"]
    seen = info(node, record)
    assert (seen["vcpus"], seen["state"]) == (1, 0)
    assert seen["memory"] == 128
    assert nodes.call(
        node, "all_instances_info", [record["hypervisor"]], {}
    ).keys() == {"web1"}
    nodes.call(node, "instance_shutdown", record, 0, [])
    assert names(node, record) == []
    assert info(node, record) == {}


def test_starting_a_running_guest_is_an_error_of_the_driver(node, record):
    start(node, record)
    instance = msgspec.convert(record, InstanceX)
    with pytest.raises(errors.HypervisorError, match="already running"):
        driver(node, record).start(instance, [], paused=False)
    with pytest.raises(errors.HypervisorError, match="already running"):
        driver(node, record).accept(instance, "", LOCAL, [])


def test_a_guest_that_does_not_run_refuses_everything(node, record):
    instance = msgspec.convert(record, InstanceX)
    hypervisor = driver(node, record)
    for attempt in (
        lambda: hypervisor.stop("web1", hvparams=record["hvparams"], force=True),
        lambda: hypervisor.reboot(instance),
        lambda: hypervisor.balloon(instance, 64),
        lambda: hypervisor.migratable(instance),
        lambda: hypervisor.migration_info(instance),
        lambda: hypervisor.migrate(instance, LOCAL, live=True),
        lambda: hypervisor.hotplug_check(instance),
    ):
        with pytest.raises(errors.HypervisorError, match="web1"):
            attempt()
    hypervisor.cleanup("web1")


def test_reboot_keeps_the_guest(node, record):
    start(node, record)
    nodes.call(node, "instance_reboot", record, "soft", 0, [])
    nodes.call(node, "instance_reboot", record, "hard", 0, [])
    assert names(node, record) == ["web1"]


def test_node_figures(node, record):
    actual = driver(node, record).node_info({})
    assert 0 < actual["memory_free"] < actual["memory_total"]
    assert actual["cpu_total"] >= 1
    assert driver(node, record).verify({}) is None


def test_a_guest_moves_and_is_only_at_its_target(node, other, record):
    record["hvparams"]["migration_port"] = 18102
    start(node, record)
    migrate(node, other, record)
    assert (names(node, record), names(other, record)) == ([], ["web1"])
    assert info(other, record)["state"] == 0


def test_an_aborted_migration_changes_nothing(node, other, record):
    record["hvparams"]["migration_port"] = 18103
    start(node, record)
    text = nodes.call(node, "migration_info", record)
    nodes.call(other, "accept_instance", record, text, LOCAL)
    nodes.call(node, "instance_finalize_migration_src", record, False, True)
    nodes.call(other, "instance_finalize_migration_dst", record, text, False)
    assert (names(node, record), names(other, record)) == (["web1"], [])
    assert info(node, record)["state"] == 0


def test_the_source_of_a_migration_does_not_choose_what_the_target_runs(
    node, other, tmp_path
):
    params = guests.kvm_params(migration_port=18109)
    record = guests.kvm_instance("web1", params)
    start(node, record)
    argv, *rest = json.loads(nodes.call(node, "migration_info", record))
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/owned\n")
    evil.chmod(0o700)
    text = json.dumps([[str(evil), *argv[1:]], *rest])
    nodes.call(other, "accept_instance", record, text, LOCAL)
    assert names(other, record) == ["web1"]
    pid = Files(other.paths, "web1").alive_pid()
    with open(f"/proc/{pid}/cmdline") as src:
        assert src.read().startswith(params["kvm_path"])
    assert not (tmp_path / "owned").exists()
    # Options that the record lacks reach no command line either.
    nodes.call(other, "instance_finalize_migration_dst", record, text, False)
    text = json.dumps([[*argv, "-device", "evil"], *rest])
    nodes.call(other, "accept_instance", record, text, LOCAL)


def test_a_guest_moves_though_its_record_has_changed_since_its_start(node, other):
    record = guests.kvm_instance("web1", guests.kvm_params(migration_port=18110))
    start(node, record)
    record["beparams"] = {"maxmem": 256, "minmem": 256, "vcpus": 2}
    record["hvparams"] |= {"acpi": False, "nic_type": "e1000", "cdrom_image_path": "/x"}
    migrate(node, other, record)
    assert (names(node, record), names(other, record)) == ([], ["web1"])
    actual = info(other, record)
    assert (actual["memory"], actual["vcpus"], actual["state"]) == (128, 1, 0)
    # Nobody takes that migration for the next one, which would end the guest here.
    with Qmp(Files(other.paths, "web1").control("qmp"), "web1") as qmp:
        assert qmp.execute("query-migrate")["status"] == "completed"
        assert sending.state_of(qmp) == {}


def migrate(node, other, record, *, live=True):
    nodes.call(node, "instance_migratable", record)
    text = nodes.call(node, "migration_info", record)
    nodes.call(other, "accept_instance", record, text, LOCAL)
    nodes.call(node, "instance_migrate", "cluster", record, LOCAL, live)

    def ended():
        status = nodes.call(node, "instance_get_migration_status", record)
        return status if status["status"] != "active" else None

    status = until("the migration ends", ended)
    assert status["status"] == "completed"
    nodes.call(node, "instance_finalize_migration_src", record, True, live)
    nodes.call(other, "instance_finalize_migration_dst", record, text, True)
    return status


# Real guests


@pytest.fixture
def tiny(boot):
    return guests.kvm_instance("web1", guests.kvm_params(boot, io_threads=2))


@pytest.mark.sampled
def test_a_guest_reads_its_seed_before_and_after_a_migration(node, other, boot):
    params = guests.kvm_params(boot, migration_port=18111)
    record = guests.kvm_instance("web1", params)
    files = {"user-data": "#cloud-config\nmark: one-two\n", "meta-data": "a: b\n"}
    record["cloud_init"] = files
    start(node, record)
    read = "mount -t iso9660 /dev/vda /tmp && cat /tmp/user-data && umount /tmp\r"
    with guests.Console(node, "web1") as console:
        console.login()
        console.send(read)
        console.wait_for("mark: one-two")
    seed = Files(node.paths, "web1").seed
    assert os.stat(seed).st_mode & 0o777 == 0o600
    # The target's seed is made of the master's record of today.
    record["cloud_init"] = files | {"user-data": "mark: three\n"}
    migrate(node, other, record)
    assert not os.path.exists(seed)
    with guests.Console(other, "web1") as console:
        console.send("echo 3 > /proc/sys/vm/drop_caches\r" + read)
        console.wait_for("mark: three")
    nodes.call(other, "instance_shutdown", record, 0, [])
    assert not os.path.exists(Files(other.paths, "web1").seed)


def test_a_guest_goes_on_under_its_filter_at_the_other_node_and_back(node, other, tiny):
    tiny["hvparams"] |= {"migration_port": 18104, "migration_bandwidth": 1000}
    start(node, tiny)
    require_filtered(node)
    with guests.Console(node, "web1") as console:
        console.wait_for("tiny login: ")
        before = console.wait_for_counter(above=1)
    status = migrate(node, other, tiny)
    assert status["transferred_ram"] > 0
    require_filtered(other)
    with guests.Console(other, "web1") as console:
        after = console.wait_for_counter(above=before)
        assert console.wait_for_counter(above=after) > after
    kvm = f"{node.paths.run_dir}/kvm-hypervisor"
    assert os.listdir(f"{kvm}/ctrl") == os.listdir(f"{kvm}/conf") == []
    migrate(other, node, tiny, live=False)
    with guests.Console(node, "web1") as console:
        assert console.wait_for_counter(above=after) > after
    nodes.call(node, "instance_reboot", tiny, "hard", 0, [])
    assert process_status(node, "Seccomp")[0] == "2"


def process_status(node, word):
    """Return a line of the emulator's /proc/PID/status, and its arguments."""
    pid = Files(node.paths, "web1").alive_pid()
    with open(f"/proc/{pid}/status") as src:
        (line,) = [line for line in src if line.startswith(f"{word}:")]
    with open(f"/proc/{pid}/cmdline") as src:
        return line.split()[1], src.read().split("\0")


def require_filtered(node):
    """The emulator has a system call filter."""
    strict = "elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
    filters, argv = process_status(node, "Seccomp_filters")
    assert int(filters) >= 1
    assert argv[argv.index("-sandbox") + 1] == f"on,obsolete=deny,{strict}"
    assert process_status(node, "NoNewPrivs")[0] == "1"


@pytest.mark.sampled
def test_a_shared_disk_is_at_hand_after_the_move(directory, node, other, boot):
    shared = "/srv/ganeti/shared-file-storage"
    os.mkdir(f"{directory}/shared")
    for place in (node, other):
        os.symlink(f"{directory}/shared", place.paths.at(shared))
        with open(f"{place.paths.conf_dir}/file-storage-paths", "a") as out:
            out.write(f"{shared}\n")
    disk = nodes.disk(1, size=32, dev_type="sharedfile")
    disk["logical_id"] = ["loop", f"{shared}/web1/disk0"]
    params = guests.kvm_params(boot, migration_port=18106, migration_bandwidth=1000)
    record = guests.kvm_instance("web1", params, disks_info=[disk])
    nodes.call(node, "file_storage_dir_create", f"{shared}/web1")
    nodes.call(node, "blockdev_create", disk, 32, "web1", True, "", False)
    os.makedirs(node.paths.os_search_path[0])
    os.symlink(guests.TINY, f"{node.paths.os_search_path[0]}/tiny")
    nodes.call(node, "instance_os_add", record, False, 0)
    start(node, record)
    with guests.Console(node, "web1") as console:
        console.wait_for("web1 login: ")
        console.login()
        console.send("echo before > /disk/proof; sync; echo done\r")
        console.wait_for(r"\r\ndone\r")
    migrate(node, other, record)
    with guests.Console(other, "web1") as console:
        console.send("echo after >> /disk/proof; sync; cat /disk/proof\r")
        console.wait_for(r"\r\nbefore\r\nafter\r")
        nodes.call(other, "instance_shutdown", record, guests.BOOT_S, [])
    assert names(other, record) == []


def test_the_power_button_shuts_the_guest_down(node, tiny):
    start(node, tiny)
    with guests.Console(node, "web1") as console:
        console.wait_for("tiny login: ")
        nodes.call(node, "instance_shutdown", tiny, guests.BOOT_S, [])
        console.wait_for("tiny powers down")
    assert names(node, tiny) == []


def test_a_killed_emulator_is_noticed_and_its_leftovers_go(node, tiny):
    start(node, tiny)
    pid_file = f"{node.paths.run_dir}/kvm-hypervisor/pid/web1"
    with open(pid_file) as src:
        os.kill(int(src.read()), signal.SIGKILL)
    until("the emulator ends", lambda: info(node, tiny) == {})
    assert names(node, tiny) == []
    nodes.call(node, "instance_shutdown", tiny, 10, [])
    assert not os.path.exists(pid_file)
    start(node, tiny)
    assert names(node, tiny) == ["web1"]


@pytest.mark.sampled
def test_a_guest_that_ends_itself_differs_from_a_stopped_one(node, tiny):
    tiny["hvparams"]["user_shutdown"] = True
    start(node, tiny)
    with guests.Console(node, "web1") as console:
        console.login()
        console.send("poweroff -f\r")
        until("its own shutdown", lambda: info(node, tiny)["state"] == 1)
    assert names(node, tiny) == ["web1"]
    start(node, tiny)
    assert info(node, tiny)["state"] == 0
    with guests.Console(node, "web1") as console:
        console.wait_for("tiny login: ")
        nodes.call(node, "instance_shutdown", tiny, guests.BOOT_S, [])
    assert info(node, tiny) == {}


def test_a_paused_guest_waits(node, tiny):
    start(node, tiny, paused=True)
    with guests.Console(node, "web1") as console, pytest.raises(AssertionError):
        console.wait_for(".", 1)
    with Qmp(Files(node.paths, "web1").control("qmp"), "web1") as qmp:
        # As it was before its first step: neither running nor stopped on its way.
        assert qmp.execute("query-status")["status"] == "prelaunch"


def test_installed_disk_boots_by_itself_and_takes_a_new_name(node):
    os.makedirs(node.paths.os_search_path[0])
    os.symlink(guests.TINY, f"{node.paths.os_search_path[0]}/tiny")
    [row] = nodes.call(node, "os_diagnose")
    assert row[2:] == [
        *(True, "", ["default", "quiet"]),
        [
            ["motd", "text shown at login"],
            ["interval", "seconds between steps of the counter, 1 to 3600"],
        ],
        *([20], True),
    ]
    disk = nodes.disk(size=40)
    record = guests.kvm_instance(
        "web1", guests.kvm_params(), osparams={"motd": "be kind"}
    )
    record |= {"disks_info": [disk], "disks": [disk["uuid"]]}
    nodes.make_disks(node, record)
    nodes.call(node, "instance_os_add", record, False, 0)
    nodes.call(node, "instance_run_rename", {**record, "name": "web2"}, "web1", 0)
    start(node, record)
    with guests.Console(node, "web1") as console:
        console.wait_for("web2 login: ")
        console.send("root\r")
        console.wait_for("be kind\r\n(?s:.*)# ")
        console.send("cat /disk/boots\r")
        console.wait_for(r"\r\n1\r\n")
        nodes.call(node, "instance_shutdown", record, guests.BOOT_S, [])
    start(node, record)
    with guests.Console(node, "web1") as console:
        console.wait_for("web2 login: ")
        console.login()
        console.send("cat /disk/boots\r")
        console.wait_for(r"\r\n2\r\n")


def monitor(node, command):
    """Let the emulator of web1 execute a command without arguments."""
    with Qmp(Files(node.paths, "web1").control("qmp"), "web1") as qmp:
        qmp.execute(command)


@pytest.mark.sampled
def test_disks_are_plugged_resized_and_unplugged_live(node, tiny, monkeypatch):
    start(node, tiny)
    disk = nodes.disk(3, size=8)
    record = {**tiny, "disks_info": [disk]}
    nodes.make_disks(node, record)
    _, link, uri = nodes.call(node, "blockdev_assemble", disk, tiny, True, 0)
    with guests.Console(node, "web1") as console:
        console.login()
        nodes.call(node, "hotplug_supported", tiny)
        plug = ("disk", disk, [link, uri], 0)
        nodes.call(node, "hotplug_device", tiny, "hotadd", *plug)
        # A master that was restarted repeats the call.
        nodes.call(node, "hotplug_device", tiny, "hotadd", *plug)
        sizes = "cat /sys/block/vda/size; echo seen\r"
        console.send(f"until [ -e /sys/block/vda ]; do sleep 0.1; done; {sizes}")
        console.wait_for(r"\r\n16384\r\nseen")
        nodes.call(node, "blockdev_grow", disk, 8, False, True, False)
        nodes.call(node, "resize_disk", record, disk, 16 * 1024 * 1024)
        with pytest.raises(errors.HypervisorError, match="would cut off its end"):
            nodes.call(node, "resize_disk", record, disk, 16)
        console.text = ""
        console.send(sizes)
        console.wait_for(r"\r\n32768\r\nseen")
        nodes.call(node, "hotplug_device", tiny, "hotremove", *plug)
        console.text = ""
        # The quotes keep the terminal's echo of the command from being its output.
        console.send("ls /sys/block; echo go''ne\r")
        assert "vda" not in console.wait_for(r"\r\n(?s:(.*))gone\r").group(1)
        # A guest that does not answer keeps its disk, and releases it later.
        nodes.call(node, "hotplug_device", tiny, "hotadd", *plug)
        monitor(node, "stop")
        with monkeypatch.context() as patch, pytest.raises(errors.HotplugError) as kept:
            patch.setattr(hotplug, "_UNPLUG_S", 0.5)
            nodes.call(node, "hotplug_device", tiny, "hotremove", *plug)
        assert "the guest did not release it within 0.5 s" in str(kept.value)
        monitor(node, "cont")
        nodes.call(node, "hotplug_device", tiny, "hotremove", *plug)


@pytest.mark.sampled
def test_vnc_pinning_and_ballooning(node, boot):
    password = node.paths.at("/password")
    with open(password, "w") as out:
        out.write("secret\n")
    params = guests.kvm_params(
        boot,
        vnc_bind_address=os.path.dirname(password),
        vnc_password_file=password,
        cpu_mask="0:0",
    )
    beparams = {"maxmem": 160, "minmem": 96, "vcpus": 2}
    record = guests.kvm_instance("web1", params, beparams=beparams)
    start(node, record)
    assert os.path.exists(f"{os.path.dirname(password)}/web1.vnc")
    with guests.Console(node, "web1") as console:
        console.wait_for("tiny login: ")
    nodes.call(node, "instance_balloon_memory", record, 112)
    until("the balloon", lambda: info(node, record)["memory"] == 112)


@pytest.mark.parametrize(
    "params",
    [
        {"spice_bind": LOCAL, "spice_use_tls": True},
        {
            "spice_bind": LOCAL,
            "spice_use_tls": True,
            "use_chroot": True,
            "security_model": "user",
            "security_domain": "nobody",
        },
    ],
    ids=["root", "user"],
)
def test_a_viewer_with_the_file_of_the_cluster_trusts_its_displays(node, boot, params):
    os.makedirs(node.paths.data_dir, exist_ok=True)
    crypto.write_spice(node.paths, "cluster.example.com")
    port = 11321
    start(
        node,
        guests.kvm_instance(
            "web1", guests.kvm_params(boot, **params), network_port=port
        ),
    )
    context = ssl.create_default_context(cafile=node.paths.data(crypto.SPICE_CA_PEM))
    # The certificate is the same on all nodes, so viewers compare the subject instead.
    context.check_hostname = False
    with (
        socket.create_connection((LOCAL, port), timeout=60) as plain,
        context.wrap_socket(plain) as encrypted,
    ):
        subject = encrypted.getpeercert()["subject"]
    assert subject == ((("commonName", "ganeti.example.com"),),)


def test_errors_leave_nothing(node, boot):
    bad = guests.kvm_instance("web1", guests.kvm_params(boot, cpu_type="nonsense"))
    with pytest.raises(errors.HypervisorError, match="nonsense"):
        start(node, bad)
    nic = {"mac": "aa:00:00:00:00:01", "uuid": nodes.UUID.format(300)}
    nic["nicparams"] = {"mode": "bridged", "link": "nobridge0", "vlan": ""}
    lost = guests.kvm_instance("web1", guests.kvm_params(boot), nics=[nic])
    with pytest.raises(errors.HypervisorError, match="nobridge0 does not exist"):
        start(node, lost)
    occupied = guests.kvm_params(boot, vnc_bind_address="192.0.2.1")
    display = guests.kvm_instance("web1", occupied, network_port=11000)
    with pytest.raises(errors.HypervisorError, match=r"ended at its start.*192"):
        start(node, display)
    assert names(node, bad) == []
    kvm = f"{node.paths.run_dir}/kvm-hypervisor"
    assert os.listdir(f"{kvm}/ctrl") == os.listdir(f"{kvm}/conf") == []


def test_random_numbers_of_the_node_reach_a_confined_guest(node, boot):
    confined = {
        "use_chroot": True,
        "security_model": "user",
        "security_domain": "nobody",
    }
    params = guests.kvm_params(boot, virtio_rng=True, **confined)
    start(node, guests.kvm_instance("web1", params))
    with guests.Console(node, "web1") as console:
        console.login()
        console.send("cat /sys/class/misc/hw_random/rng_current\r")
        console.wait_for(r"virtio_rng\.0")
        console.send("head -c 64 /dev/hwrng | wc -c\r")
        console.wait_for(r"\r\n64\r\n")


def test_an_emulator_without_filters_is_used_without_one(node, directory):
    actual = shutil.which("qemu-system-x86_64")
    old = f"{directory}/old-qemu"
    with open(old, "w") as out:
        out.write(
            "#!/bin/sh\n"
            'case " $* " in *" -sandbox "*) echo no filters >&2; exit 1;; esac\n'
            f'exec {actual} "$@"\n'
        )
    os.chmod(old, 0o755)
    record = guests.kvm_instance("web1", guests.kvm_params(kvm_path=old))
    start(node, record)
    assert process_status(node, "Seccomp")[0] == "0"
    assert "-daemonize" in process_status(node, "Seccomp")[1]


def test_a_filter_of_the_administrator_counts(node):
    params = guests.kvm_params(kvm_extra="-sandbox off")
    start(node, guests.kvm_instance("web1", params))
    assert process_status(node, "Seccomp")[0] == "0"


def test_acceleration_is_proven_once(node):
    params = guests.kvm_params(kvm_flag="")
    record = guests.kvm_instance("web1", params)
    start(node, record)
    pid = subprocess.run(
        ["cat", f"{node.paths.run_dir}/kvm-hypervisor/pid/web1"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    with open(f"/proc/{pid}/cmdline") as src:
        accel = src.read().split("\0-accel\0")[1].split("\0")[0]
    verdict = f"{node.paths.run_dir}/kvm-hypervisor/acceleration"
    if os.access("/dev/kvm", os.W_OK):
        with open(verdict) as src:
            assert ('"works":true' in src.read()) == (accel == "kvm")
    else:
        assert accel == "tcg"


@pytest.mark.sampled
def test_the_console_program_shows_lets_go_and_leaves(node, tiny):
    start(node, tiny, paused=True)
    request = {"instance": tiny, "node": node_record(), "group": {}}
    request |= {"hvParams": tiny["hvparams"], "beParams": {}}
    answer = nodes.call(node, "instance_console_info", {"web1": request})["web1"]
    assert (answer["kind"], answer["host"], answer["port"]) == (
        "ssh",
        "127.0.0.9",
        2222,
    )
    master, terminal = pty.openpty()
    before = termios.tcgetattr(terminal)
    program = subprocess.Popen(
        answer["command"], stdin=terminal, stdout=terminal, stderr=terminal
    )
    try:
        read_until(master, b"is paused, unpausing")
        read_until(master, b"tiny login: ")
        os.write(master, b"root\r")
        read_until(master, b"# ")
        os.write(master, b"echo $((6 * 7))\r")
        read_until(master, b"\n42\r\n")
        os.write(master, b"\x1d")
        assert program.wait(60) == 0
    finally:
        program.kill()
        program.wait()
    assert termios.tcgetattr(terminal) == before
    assert info(node, tiny)["state"] == 0
    os.close(master)
    os.close(terminal)


def node_record():
    return {
        "name": "n1",
        "primary_ip": "127.0.0.9",
        "secondary_ip": "127.0.0.9",
        "master_candidate": True,
        "offline": False,
        "drained": False,
        "group": "g",
        "master_capable": True,
        "vm_capable": True,
        "ndparams": {"ssh_port": 2222},
        "powered": True,
        "uuid": nodes.UUID.format(100),
        "serial_no": 1,
    }


def read_until(fd, wanted):
    seen = b""
    while wanted not in seen:
        ready, _, _ = select.select([fd], [], [], guests.BOOT_S)
        assert ready, f"no {wanted!r} in {seen!r}"
        seen += os.read(fd, 4096)


def test_a_stopped_guest_goes_on_when_its_way_is_cut_short(node, other):
    params = guests.kvm_params(migration_port=18107, migration_bandwidth=1)
    record = guests.kvm_instance("web1", params)
    start(node, record)
    text = nodes.call(node, "migration_info", record)
    nodes.call(other, "accept_instance", record, text, LOCAL)

    def state():
        guest = Files(node.paths, "web1")
        with Qmp(guest.control("qmp"), "web1") as qmp:
            return qmp.execute("query-status")["status"]

    assert state() == "running"
    nodes.call(node, "instance_migrate", "cluster", record, LOCAL, False)
    assert state() in {"paused", "finish-migrate", "postmigrate"}
    nodes.call(node, "instance_finalize_migration_src", record, False, False)
    nodes.call(other, "instance_finalize_migration_dst", record, text, False)
    assert state() == "running"
    assert names(other, record) == []


def test_qemu_reports_why_a_migration_failed(node, other):
    params = guests.kvm_params(migration_port=18111, migration_bandwidth=1)
    record = guests.kvm_instance("web1", params)
    start(node, record)
    text = nodes.call(node, "migration_info", record)
    nodes.call(other, "accept_instance", record, text, LOCAL)
    nodes.call(node, "instance_migrate", "cluster", record, LOCAL, True)
    os.kill(Files(other.paths, "web1").alive_pid(), signal.SIGKILL)

    def failed():
        status = nodes.call(node, "instance_get_migration_status", record)
        return status if status["status"] == "failed" else None

    status = until("the migration fails", failed)
    assert re.search(
        "refused|reset|closed|pipe|write|channel", status["error"], re.IGNORECASE
    )
    nodes.call(other, "instance_finalize_migration_dst", record, text, False)
    nodes.call(node, "instance_finalize_migration_src", record, False, True)
    assert (names(node, record), names(other, record)) == (["web1"], [])
    assert info(node, record)["state"] == 0
