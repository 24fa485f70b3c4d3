"""Whole command lines of guests by their parameters, in test/data/kvm.

A run begins with the default parameters, one disk and one NIC. The last lines are the
devices as hotplug adds them.
"""

import json
import pathlib

import msgspec
import pytest

from fakes import golden, guests, nodes
from ganeti.base import errors, pathutils
from ganeti.model.objects.filled import DiskX, InstanceX, NicX
from ganeti.node.hypervisor.kvm import argv, runtime
from ganeti.node.hypervisor.kvm.devices import disks_and_nics as devices
from ganeti.node.hypervisor.kvm.files import Files

PATH = pathlib.Path(__file__).parents[5] / "data" / "kvm" / "commands.txt"
FILES = Files(pathutils.Paths("/v/n1", "n1"), "web1")
FACTS = argv.EmulatorFacts("pc-9.9", {"eth7": "192.0.2.9"})


def _instance(params):
    backend = {"maxmem": 256, "minmem": 128, "vcpus": 4}
    wire = guests.kvm_instance("web1", guests.kvm_params(**params), beparams=backend)
    return msgspec.convert({**wire, "network_port": 11005}, InstanceX)


def _disks(given):
    return [
        msgspec.convert(nodes.disk(number, dev_type=kind, mode=mode), DiskX)
        for number, (kind, mode) in enumerate(given)
    ]


def _nics(count):
    parameters = {"mode": "bridged", "link": "br0", "vlan": ""}
    return [
        NicX(
            mac=f"aa:00:00:00:00:0{number}",
            uuid=nodes.UUID.format(number),
            nicparams=parameters,
        )
        for number in range(count)
    ]


def _started(record, disks, nics):
    """Return the runtime of a start, with a path for each disk."""
    hvp = record.hvparams
    places = devices.DeviceSlots(
        (),
        int(hvp["kvm_pci_reservations"]),
        q35=devices.is_q35(hvp["machine_version"] or FACTS.machine),
    )
    return runtime.Runtime(
        tuple(argv.build(record, FILES, FACTS)),
        tuple(
            runtime.plugged_nic(nic, places.for_nic(nic, hvp["nic_type"]))
            for nic in nics
        ),
        dict(hvp),
        tuple(
            (
                runtime.plugged_disk(disk, places.for_disk(disk, hvp["disk_type"])),
                f"/dev/d{number}",
                None,
            )
            for number, disk in enumerate(disks)
        ),
    )


def _command(words):
    """Yield the arguments, options with their values in a line, and the devices."""
    given = json.loads(" ".join(words))
    disks = _disks(given.pop("DISKS", [["plain", "rw"]]))
    nics = _nics(given.pop("NICS", 1))
    queues = given.pop("QUEUES", 1)
    extras = {"accel": "kvm", **given.pop("EXTRAS", {})}
    plan = _started(_instance(given), disks, nics)
    fds = [range(10 + 8 * number, 10 + 8 * number + queues) for number in range(9)]
    arguments = [
        devices.nic_args(
            nic,
            tap_fds=fds[number],
            vhost_fds=fds[number + 4],
            bootindex=devices.nic_bootindex(plan.hvparams, number),
        )
        for number, nic in enumerate(plan.nics)
    ]
    blocks = frozenset(path for disk, path, _ in plan.disks if disk.dev_type != "file")
    extras = argv.Extras(nics=arguments, block_paths=blocks, **extras)
    line = ""
    for word in argv.complete(plan, extras):
        if word.startswith("-") and line:
            yield line
            line = word
        else:
            line = f"{line} {word}".strip()
    yield line
    for disk, path, _ in plan.disks:
        if disk.hvinfo is not None:
            node = devices.blockdev(disk, path, plan.hvparams, is_block=False)
            yield f"blockdev-add {json.dumps(node)}"
            yield f"device_add {json.dumps(devices.disk_device(disk, plan.hvparams))}"


def run(words):
    """Print a command line, or the reason why there is none."""
    try:
        print("\n".join(_command(words)))
    except errors.GenericError as err:
        print(f"{type(err).__name__} {err}")
    return 0


@pytest.mark.parametrize("words", [words for words, _ in golden.runs(PATH)])
def test_a_command_line_is_the_transcript(words):
    golden.check(PATH, words, run)
