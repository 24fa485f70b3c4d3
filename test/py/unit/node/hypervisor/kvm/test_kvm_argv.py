"""Command lines of KVM guests."""

import os
import re

import msgspec
import pytest

from fakes import clusters, emulators, guests, nodes
from ganeti.base import errors, pathutils
from ganeti.base.text import hv_syntax
from ganeti.model.objects import consoles
from ganeti.model.objects.filled import DiskX, InstanceX, NetInfo, NicX
from ganeti.node.hypervisor import networks
from ganeti.node.hypervisor.kvm import argv, checks, launch, runtime
from ganeti.node.hypervisor.kvm.devices import disks_and_nics as devices
from ganeti.node.hypervisor.kvm.devices import display
from ganeti.node.hypervisor.kvm.files import Files

FILES = Files(pathutils.Paths("/v/n1", "n1"), "web1")
RUN = "/v/n1/var/run/ganeti/kvm-hypervisor"


def instance(**params):
    beparams = {"maxmem": 256, "minmem": 128, "vcpus": 2}
    wire = guests.kvm_instance("web1", guests.kvm_params(**params), beparams=beparams)
    return msgspec.convert({**wire, "network_port": 11005}, InstanceX)


def build(**params):
    return argv.build(
        instance(**params), FILES, argv.EmulatorFacts("pc-9.9", {"eth7": "192.0.2.9"})
    )


def values(args, option):
    return [args[i + 1] for i, arg in enumerate(args[:-1]) if arg == option]


def disk(number=1, **more):
    return msgspec.convert(nodes.disk(number, **more), DiskX)


def nic(number=1):
    return NicX(
        mac=f"aa:00:00:00:00:0{number}",
        uuid=nodes.UUID.format(number),
        nicparams={"mode": "bridged", "link": "br0", "vlan": ""},
    )


def test_the_plain_command():
    args = build()
    assert args[:5] == ["/usr/bin/kvm", "-name", "web1", "-m", "256"]
    for option, wanted in (
        ("-smp", ["2"]),
        ("-pidfile", [f"{RUN}/pid/web1"]),
        ("-machine", ["pc-9.9"]),
        ("-uuid", [nodes.UUID.format(200)]),
        ("-serial", [f"unix:{RUN}/ctrl/web1.serial,server=on,wait=off"]),
        (
            "-qmp",
            [
                f"unix:{RUN}/ctrl/web1.{kind},server=on,wait=off"
                for kind in ("qmp", "kvmd")
            ],
        ),
        ("-display", ["none"]),
        ("-device", ["virtio-balloon,id=balloon"]),
        ("-kernel", []),
        ("-boot", []),
        ("-action", []),
    ):
        assert values(args, option) == wanted, option
    assert "-daemonize" in args


STRICT = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"


@pytest.mark.parametrize(
    ("extra", "has_user", "wanted"),
    [
        ("", False, STRICT),
        ("-global foo=script", False, STRICT),
        ("-netdev tap,id=x,script=no,downscript=no", False, STRICT),
        ("", True, STRICT.replace("privileges=deny", "privileges=allow")),
        ("-sandbox off", False, None),
        ("-sandbox on,spawn=deny", True, None),
        *(
            (
                extra,
                False,
                STRICT.replace("privileges=deny", "privileges=children").replace(
                    "spawn=deny", "spawn=allow"
                ),
            )
            for extra in (
                "-netdev bridge,br=br0,id=x",
                "-netdev tap,helper=/usr/lib/qemu/qemu-bridge-helper,id=x",
                "-netdev tap,script=/etc/up,id=x",
                "-netdev user,id=x,smb=/srv",
                "-incoming 'exec:cat /tmp/x'",
            )
        ),
    ],
)
def test_the_filter_allows_what_the_options_need(extra, has_user, wanted):
    assert argv.sandbox({"kvm_extra": extra}, has_user=has_user) == wanted


def test_an_emulator_with_a_filter_does_not_detach_itself():
    plan = runtime.Runtime(("qemu", "-daemonize", "-x"), (), {}, ())
    args = argv.complete(plan, argv.Extras(accel="tcg", sandbox=STRICT))
    assert "-daemonize" not in args
    assert values(args, "-sandbox") == [STRICT]
    args = argv.complete(plan, argv.Extras(accel="tcg"))
    assert "-daemonize" in args
    assert "-sandbox" not in args


@pytest.mark.parametrize(
    ("params", "option", "wanted"),
    [
        ({"acpi": False}, "-machine", "pc-9.9,acpi=off"),
        ({"machine_version": "q35"}, "-machine", "q35"),
        ({"cpu_cores": 2, "cpu_sockets": 1}, "-smp", "2,cores=2,sockets=1"),
        ({"serial_console": False}, "-serial", "none"),
        ({"user_shutdown": True}, "-action", "shutdown=pause"),
        ({"boot_order": "network"}, "-boot", "order=n"),
        ({"cpu_type": "qemu64,+x"}, "-cpu", "qemu64,+x"),
        ({"use_localtime": True}, "-rtc", "base=localtime"),
        ({"mem_path": "/hugepages"}, "-mem-path", "/hugepages"),
        ({"keymap": "de"}, "-k", "de"),
        ({"kvm_extra": "-foo 'a b'"}, "-foo", "a b"),
        ({"disk_type": "scsi-hd"}, "-device", "lsi,id=scsi"),
        ({"io_threads": 2}, "-object", "iothread,id=io1"),
        (
            {
                "io_threads": 2,
                "disk_type": "scsi",
                "scsi_controller_type": "virtio-scsi-pci",
            },
            "-device",
            "virtio-scsi-pci,id=scsi,iothread=io0",
        ),
        ({"soundhw": "ac97"}, "-device", "AC97,audiodev=snd0"),
        (
            {"usb_devices": "host:1d6b:2"},
            "-device",
            "usb-host,vendorid=0x1d6b,productid=0x2",
        ),
        ({"virtio_rng": True}, "-object", "rng-random,id=rng0,filename=/dev/urandom"),
        ({"virtio_rng": True}, "-device", "virtio-rng-pci,rng=rng0"),
        ({"floppy_image_path": "/a,b"}, "-drive", "if=floppy,format=raw,file=/a,,b"),
        ({"vnc_bind_address": "0.0.0.0"}, "-vnc", ":5105"),
        ({"vnc_bind_address": "192.0.2.1"}, "-vnc", "192.0.2.1:5105"),
        ({"vnc_bind_address": "::1"}, "-vnc", "[::1]:5105"),
        ({"vnc_bind_address": "eth7"}, "-vnc", "192.0.2.9:5105"),
        ({"vnc_bind_address": "/run/vnc"}, "-vnc", "unix:/run/vnc/web1.vnc"),
        (
            {"vnc_bind_address": "::", "vnc_tls": True},
            "-vnc",
            ":5105,tls-creds=vnctls0",
        ),
        (
            {"vnc_bind_address": "::", "vnc_password_file": "/p"},
            "-vnc",
            ":5105,password=on",
        ),
        ({"vnc_bind_address": "::"}, "-device", "usb-tablet"),
        ({"spice_bind": "eth7"}, "-vga", "qxl"),
    ],
)
def test_what_a_parameter_changes(params, option, wanted):
    assert wanted in values(build(**params), option)


def test_kernel_arguments_end_with_the_console():
    args = build(kernel_path="/k", initrd_path="/i", boot_order="network")
    assert values(args, "-kernel") == ["/k"]
    assert values(args, "-initrd") == ["/i"]
    assert values(args, "-append") == ["root=/dev/vda1 ro console=ttyS0,38400"]
    assert values(args, "-boot") == []


def test_spice_options():
    [text] = values(
        build(spice_bind="192.0.2.1", spice_streaming_video="off"), "-spice"
    )
    assert text == (
        "addr=192.0.2.1,port=11005,disable-ticketing=on,streaming-video=off,agent-mouse=on"
    )
    [text] = values(
        build(spice_bind="::1", spice_use_tls=True, spice_use_vdagent=False), "-spice"
    )
    assert text == (
        "addr=::1,tls-port=11005,tls-ciphers=HIGH:-DES:-3DES:-EXPORT:-DH,"
        "x509-key-file=/v/n1/var/lib/ganeti/spice.pem,"
        "x509-cert-file=/v/n1/var/lib/ganeti/spice.pem,"
        "x509-cacert-file=/v/n1/var/lib/ganeti/spice-ca.pem,"
        "disable-ticketing=on,agent-mouse=off"
    )


def test_bootable_cdrom_is_first_unless_a_kernel_is_given():
    params = {"boot_order": "cdrom", "cdrom_image_path": "/cd"}
    first = [x for x in values(build(**params), "-device") if "cdrom0" in x]
    assert first == ["virtio-blk-pci,drive=cdrom0,bootindex=1"]
    assert "bootindex" not in str(build(**params, kernel_path="/k"))
    assert "ide-cd,bus=ide.1,unit=0,drive=cdrom0" in values(
        build(**params, kernel_path="/k", cdrom_disk_type="ide"), "-device"
    )


def started(*, disks=(), nics=(), **params):
    record = instance(**params)
    places = devices.DeviceSlots((), 12)
    kind = record.hvparams["disk_type"]
    return runtime.Runtime(
        tuple(argv.build(record, FILES, argv.EmulatorFacts("pc"))),
        tuple(
            runtime.plugged_nic(item, places.for_nic(item, "paravirtual"))
            for item in nics
        ),
        record.hvparams,
        tuple(
            (runtime.plugged_disk(item, places.for_disk(item, kind)), f"/l:{i}", None)
            for i, item in enumerate(disks)
        ),
    )


def test_completion_adds_what_only_this_start_knows():
    plan = started()
    fresh = argv.complete(plan, argv.Extras("tcg"))
    assert values(fresh, "-accel") == ["tcg"]
    assert values(fresh, "-net") == ["none"]
    assert fresh[-1] == "-S"
    extras = argv.Extras(
        "kvm", user="nobody", chroot="/c", incoming="tcp:192.0.2.1:8102"
    )
    waiting = argv.complete(plan, extras)
    assert values(waiting, "-runas") == ["nobody"]
    assert values(waiting, "-chroot") == ["/c"]
    assert values(waiting, "-incoming") == ["tcp:192.0.2.1:8102"]
    # It waits for the master, too, when it has arrived.
    assert "-S" in waiting


def test_disks_have_nodes_devices_and_slots_after_the_reserved_ones():
    plan = started(disks=[disk(1), disk(2, mode="ro")])
    args = argv.complete(plan, argv.Extras("tcg", block_paths=frozenset({"/l:1"})))
    first, second = (msgspec.json.decode(text) for text in values(args, "-blockdev"))
    assert first["node-name"] == "disk-0c1d2e3f-4a5b-4c6d"
    assert first["file"]["filename"] == "/l:0"
    assert (first["file"]["driver"], second["file"]["driver"]) == (
        "file",
        "host_device",
    )
    assert (first["read-only"], second["read-only"]) == (False, True)
    assert values(args, "-device")[-2:] == [
        (
            "virtio-blk-pci,id=disk-0c1d2e3f-4a5b-4c6d,bus=pci.0,addr=0xc,"
            "drive=disk-0c1d2e3f-4a5b-4c6d,write-cache=on,bootindex=1"
        ),
        (
            "virtio-blk-pci,id=disk-0c1d2e3f-4a5b-4c6d,bus=pci.0,addr=0xd,"
            "drive=disk-0c1d2e3f-4a5b-4c6d,write-cache=on"
        ),
    ]


@pytest.mark.parametrize(
    ("cache", "kind", "direct", "write_cache"),
    [
        ("default", "file", False, "on"),
        ("writethrough", "file", False, "off"),
        ("none", "file", True, "on"),
        ("writethrough", "sharedfile", True, "on"),
    ],
)
def test_cache_modes(cache, kind, direct, write_cache):
    plan = started(disks=[disk(1, dev_type=kind)], disk_cache=cache)
    args = argv.complete(plan, argv.Extras("tcg"))
    [node] = (msgspec.json.decode(text) for text in values(args, "-blockdev"))
    assert node["cache"] == {"direct": direct, "no-flush": False}
    assert f"write-cache={write_cache}" in values(args, "-device")[-1]


@pytest.mark.parametrize(
    ("params", "threads"),
    [
        ({"io_threads": 2}, ["io0", "io1", "io0"]),
        ({"io_threads": 1}, ["io0"] * 3),
        ({"io_threads": 0}, [None] * 3),
        ({"io_threads": 2, "disk_type": "ide"}, [None] * 3),
        ({"io_threads": 2, "disk_type": "scsi"}, [None] * 3),
    ],
)
def test_slots_of_disks_choose_their_threads(params, threads):
    plan = started(disks=[disk(i) for i in range(1, 4)], **params)
    args = argv.complete(plan, argv.Extras("tcg"))
    rows = [row for row in values(args, "-device") if "drive=disk-" in row]
    actual = [row.partition("iothread=")[2].partition(",")[0] or None for row in rows]
    assert actual == threads
    objects = {f"iothread,id={name}" for name in threads if name}
    assert objects <= set(values(args, "-object"))
    # A disk that is added later has its thread by the rule.
    (first, _, _) = plan.disks[0]
    added = devices.disk_device(first, plan.hvparams)
    assert added.get("iothread") == threads[0]


def test_scsi_and_ide_places():
    places = devices.DeviceSlots((), 12)
    actual = [places.for_disk(disk(i), "scsi") for i in range(2)]
    assert [info["scsi-id"] for info in actual] == [0, 1]
    # QEMU has no disk at another channel or LUN of these controllers.
    assert {(info["bus"], info["channel"], info["lun"]) for info in actual} == {
        ("scsi.0", 0, 0)
    }
    after = devices.DeviceSlots([{"scsi-id": 0}, {"unit": 0}], 12)
    assert after.for_disk(disk(), "scsi-hd")["scsi-id"] == 1
    assert after.for_disk(disk(), "ide")["unit"] == 1
    actual = [places.for_disk(disk(i), "ide") for i in range(3)]
    assert [(info["bus"], info["unit"]) for info in actual] == [
        ("ide.0", 0),
        ("ide.0", 1),
        ("ide.1", 0),
    ]
    assert places.for_disk(disk(), "pflash") is None


def test_slots_run_out_with_an_error():
    places = devices.DeviceSlots([{"addr": "0x1e"}], 30)
    assert places.for_nic(nic(), "paravirtual")["addr"] == "0x1f"
    with pytest.raises(errors.HotplugError, match="no free PCI slot: all 32"):
        places.for_nic(nic(2), "e1000")


def test_nic_arguments():
    plan = started(nics=[nic()])
    one = devices.nic_args(plan.nics[0], tap_fds=[7])
    assert one == [
        "-netdev",
        "type=tap,id=nic-0c1d2e3f-4a5b-4c6d,fd=7",
        "-device",
        (
            "virtio-net-pci,id=nic-0c1d2e3f-4a5b-4c6d,bus=pci.0,addr=0xc,"
            "netdev=nic-0c1d2e3f-4a5b-4c6d,mac=aa:00:00:00:00:01"
        ),
    ]
    two = devices.nic_args(plan.nics[0], tap_fds=[7, 8], vhost_fds=[9, 10])
    assert two[1].endswith("fds=7:8,vhost=on,vhostfds=9:10")
    assert two[3].endswith("mq=on,vectors=6")
    user = devices.nic_args(plan.nics[0], tap_fds=[])
    assert user[1] == "type=user,id=nic-0c1d2e3f-4a5b-4c6d"
    assert user[3] == one[3]


@pytest.mark.parametrize("order", ["disk", "cdrom", "network", "floppy"])
@pytest.mark.parametrize("kernel", ["", "/boot/vmlinuz"])
def test_no_two_devices_have_one_place_in_the_boot_order(order, kernel):
    """QEMU refuses a second device with the place of another one."""
    params = {"boot_order": order, "kernel_path": kernel, "cdrom_image_path": "/cd"}
    plan = started(disks=[disk(1), disk(2)], nics=[nic(1), nic(2)], **params)
    nics = [
        devices.nic_args(
            item, tap_fds=[7], bootindex=devices.nic_bootindex(plan.hvparams, index)
        )
        for index, item in enumerate(plan.nics)
    ]
    text = " ".join(argv.complete(plan, argv.Extras("tcg", nics)))
    places = re.findall(r"bootindex=(\d+)", text)
    wanted = {"disk": ["1"], "cdrom": ["1"], "network": ["1", "2"], "floppy": []}
    assert places == ([] if kernel else wanted[order])


def test_runtime_survives_the_way_to_another_virtual_node():
    text = runtime.export(FILES, started(disks=[disk()], nics=[nic()]))
    assert "/v/n1/" not in text


def test_a_digest_stands_for_a_long_name_in_socket_paths_alone():
    paths = pathutils.Paths("/v/n1", "n1")
    for length in (55, 56, 57, 200):
        files = Files(paths, "a" * length)
        plain = f"{RUN}/ctrl/{files.name}.monitor"
        short = files.control("monitor")
        assert len(short) <= 107
        assert (short == plain) == (len(plain) <= 107)
        assert files.marker("shutdown") == f"{RUN}/ctrl/{files.name}.shutdown"
    other = Files(paths, "a" * 199 + "b").control("monitor")
    assert other != short
    # Nobody can give an instance the name of another one's sockets.
    with pytest.raises(errors.HypervisorError, match="not a host name"):
        Files(paths, os.path.basename(other).partition(".")[0])


def test_a_name_that_fits_no_file_is_refused_with_one_sentence():
    effects = emulators.Effects()
    with emulators.guest_files() as known:
        launch.remove_remains(effects, Files(known.paths, "a" * 246))
        with pytest.raises(errors.HypervisorError, match="at most 246 letters for KVM"):
            launch.remove_remains(effects, Files(known.paths, "a" * 247))


def test_a_long_path_of_a_vnc_socket_is_refused():
    most = 107 - len("/web1.vnc")
    assert f"unix:/{'d' * (most - 1)}/web1.vnc" in build(
        vnc_bind_address=f"/{'d' * (most - 1)}"
    )
    with pytest.raises(errors.HypervisorError, match="longer than 107 bytes: /d"):
        build(vnc_bind_address=f"/{'d' * most}")


def test_long_socket_paths_are_refused():
    files = Files(pathutils.Paths("/v" * 50, "n1"), "web1")
    with pytest.raises(errors.HypervisorError, match="socket path"):
        files.control("serial")


@pytest.mark.parametrize(
    ("mask", "vcpus", "wanted"),
    [
        ("all", 2, [None, None]),
        ("0-3,^2", 1, [{0, 1, 3}]),
        ("0:all:2-3", 3, [{0}, None, {2, 3}]),
    ],
)
def test_cpu_masks(mask, vcpus, wanted):
    assert launch.assign_cpus(mask, vcpus) == wanted


@pytest.mark.parametrize("mask", ["", "x", "3-1", "0,^0", "1-", "-1"])
def test_wrong_cpu_masks(mask):
    with pytest.raises(errors.ParseError, match="CPU mask"):
        hv_syntax.parse_mask(mask)


def test_mask_of_the_wrong_length():
    with pytest.raises(
        errors.HypervisorError,
        match="as many as the 3 of backend parameter vcpus, found 2",
    ):
        launch.assign_cpus("0:1", 3)


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"vnc_bind_address": "::", "spice_bind": "::"}, "exclude"),
        ({"vnc_x509_verify": True}, "needs vnc_x509_path"),
        ({"security_model": "user"}, "needs security_domain"),
        ({"security_domain": "me"}, "needs security_model"),
        ({"boot_order": "cdrom"}, "needs cdrom_image_path"),
        ({"kernel_path": "/k", "root_path": ""}, "needs root_path"),
        ({"serial_speed": 12345}, "serial_speed 12345"),
        ({"disk_aio": "native"}, "needs disk_cache none"),
        ({"spice_use_tls": True}, "needs spice_bind"),
        ({"cpu_mask": "x"}, "CPU mask"),
    ],
)
def test_parameters_that_do_not_go_together(params, text):
    checks.check_combinations(guests.kvm_params())
    with pytest.raises(errors.HypervisorError, match=text):
        checks.check_combinations(guests.kvm_params(**params))


def test_missing_files_are_named():
    params = guests.kvm_params(kernel_path="/no/kernel")
    with pytest.raises(
        errors.HypervisorError, match=r"kernel_path.*none at /no/kernel"
    ):
        checks.check_files(params)
    checks.check_files(
        guests.kvm_params(kvm_path="/bin/sh", cdrom_image_path="http://x/y")
    )


def test_a_display_without_a_port():
    with pytest.raises(errors.HypervisorError, match="network port"):
        display.arguments(
            instance(vnc_bind_address="::").replace(network_port=None), FILES, {}
        )


def reached(port=11005, **params):
    host = consoles.ConsoleHost("192.0.2.1", 22, "root", "/tools")
    record = clusters.instance(1, name="web1", network_port=port)
    return consoles.describe(record, params, host)


def test_a_serial_console_comes_first_then_vnc_then_spice():
    every = {"vnc_bind_address": "0.0.0.0", "spice_bind": "192.0.2.7"}
    serial = reached(serial_console=True, **every)
    assert (serial.kind, serial.host, serial.port) == ("ssh", "192.0.2.1", 22)
    assert serial.command[-1] == "web1"
    vnc = reached(serial_console=False, **every)
    assert (vnc.kind, vnc.host, vnc.port) == ("vnc", "192.0.2.1", 11005)
    assert vnc.display == 5105
    spice = reached(spice_bind="192.0.2.7")
    assert (spice.kind, spice.host, spice.port) == ("spice", "192.0.2.7", 11005)
    for nothing in (reached(), reached(None, **every), reached(vnc_bind_address="/x")):
        assert nothing.kind == "msg"
        assert "web1" in nothing.message


def test_network_script_environment():
    network = NetInfo(name="net1", uuid="u1", network="192.0.2.0/24", tags=("a", "b"))
    card = nic().replace(ip="192.0.2.5", name="front", netinfo=network)
    env = networks.environment(instance().replace(tags=("t1", "t2")), card, 0, "gnt3")
    assert env == {
        "PATH": "/sbin:/bin:/usr/sbin:/usr/bin",
        "INSTANCE": "web1",
        "MAC": "aa:00:00:00:00:01",
        "MODE": "bridged",
        "INTERFACE": "gnt3",
        "INTERFACE_INDEX": "0",
        "INTERFACE_UUID": nodes.UUID.format(1),
        "INTERFACE_NAME": "front",
        "TAGS": "t1 t2",
        "IP": "192.0.2.5",
        "LINK": "br0",
        "BRIDGE": "br0",
        "NETWORK_NAME": "net1",
        "NETWORK_UUID": "u1",
        "NETWORK_SUBNET": "192.0.2.0/24",
        "NETWORK_TAGS": "a b",
    }


@pytest.mark.parametrize(
    ("vlan", "wanted"),
    [
        ("", []),
        (".5", ["tag=5"]),
        (":1:2", ["trunks=1,2"]),
        (".5:1:2", ["tag=5", "trunks=1,2", "vlan_mode=native-untagged"]),
    ],
)
def test_vlan_options(vlan, wanted):
    assert networks.vlan_options(vlan) == wanted


def test_a_guest_of_another_ganeti_keeps_its_default_devices():
    facts = argv.EmulatorFacts("pc-9.9", has_defaults=True)
    args = argv.build(instance(usb_mouse="tablet"), FILES, facts)
    assert "-nodefaults" not in args
    assert args.count("-usb") == 1
    assert build().count("-nodefaults") == 1
    assert "-usb" not in build()


def test_files_of_disks_are_inherited_and_have_no_path():
    plan = started(disks=[disk(1), disk(2)])
    args = argv.complete(plan, argv.Extras("tcg", disk_fds={"/l:0": 14, "/l:1": 9}))
    nodes = [msgspec.json.decode(text) for text in values(args, "-blockdev")]
    names = [devices.device_id("disk", disk(number).uuid) for number in (1, 2)]
    assert values(args, "-add-fd") == [
        f"set=1,fd=14,opaque={names[0]}",
        f"set=2,fd=9,opaque={names[1]}",
    ]
    places = [node["file"]["filename"] for node in nodes]
    assert places == ["/dev/fdset/1", "/dev/fdset/2"]
    assert not any("/l:" in word for word in args)
