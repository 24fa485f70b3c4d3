"""Creation of a Ganeti cluster on the machines of a virtual cluster.

The same code as ``gnt-cluster init`` and ``gnt-node add``, for many nodes at once.
"""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.base.constants import misc
from ganeti.base.process import Runner
from ganeti.bootstrap import jobs, node_add, options
from ganeti.bootstrap.init import initialise
from ganeti.devel.vcluster import layout as layout_module
from ganeti.devel.vcluster.lifecycle import StepTimer, in_parallel
from ganeti.model import opcodes
from ganeti.protocols import luxi
from ganeti.tools.joining import node_daemon_setup

QEMU: Final = "/usr/bin/qemu-system-x86_64"
#: Instance sizes that leave room for many instances on a test machine.
_BEPARAMS: Final = {"maxmem": 128, "minmem": 128, "vcpus": 1}


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the cluster.

    Attributes:
        hypervisors: enabled hypervisors, the default first.
        ssh_setup: whether the cluster manages SSH keys.
        store: address of a store in etcd, None for files.
    """

    hypervisors: tuple[str, ...]
    ssh_setup: bool
    store: str | None = None


def hypervisors() -> tuple[str, ...]:
    """Return the hypervisors that this machine can run, the default first."""
    return ("kvm", "fake") if os.access(QEMU, os.X_OK) else ("fake",)


def init_options(
    layout: layout_module.Layout, settings: Settings
) -> options.InitOptions:
    """Return the settings of the new cluster."""
    return options.InitOptions(
        cluster_name=layout_module.CLUSTER_HOST,
        enabled_hypervisors=settings.hypervisors,
        enabled_disk_templates=("diskless", "file", "sharedfile"),
        hvparams={"kvm": kvm_parameters(layout)}
        if "kvm" in settings.hypervisors
        else {},
        beparams=_BEPARAMS,
        nicparams=nic_parameters(layout),
        ndparams={"ssh_port": layout.ssh_port, "oob_program": oob_program(layout)},
        ipolicy=_small_policy(),
        master_netdev=layout_module.GUEST_BRIDGE if layout.isolated else "lo",
        modify_etc_hosts=False,
        modify_ssh_setup=settings.ssh_setup,
        store=settings.store,
    )


def nic_parameters(layout: layout_module.Layout) -> dict[str, Any]:
    """Return the default NIC: on the bridge of an isolated node.

    Simple nodes share the network of this machine, so their guests have a network of
    their own.
    """
    if layout.isolated:
        return {"mode": "bridged", "link": layout_module.GUEST_BRIDGE}
    return {"mode": "bridged", "link": misc.USER_NETWORK}


def _small_policy() -> dict[str, Any]:
    low = {"memory-size": 1, "disk-size": 1, "disk-count": 0}
    high = {"memory-size": 32768, "disk-size": 1048576, "disk-count": 16}
    rest = {"cpu-count": 1, "nic-count": 0, "spindle-use": 1}
    rest_high = {"cpu-count": 8, "nic-count": 8, "spindle-use": 12}
    return {
        "minmax": [{"min": low | rest, "max": high | rest_high}],
        "vcpu-ratio": 64.0,
    }


def kvm_parameters(layout: layout_module.Layout) -> dict[str, Any]:
    """Return parameters of guests that need no privileges: no tap, no VNC port.

    Guests boot a given kernel and RAM disk, so they need no boot loader.
    """
    return {
        "kvm_path": QEMU,
        "kernel_path": os.path.join(_boot_directory(layout), "vmlinuz"),
        "initrd_path": os.path.join(_boot_directory(layout), "initrd"),
        "kernel_args": "quiet",
        "vnc_bind_address": "",
        "vhost_net": False,
    }


def _boot_directory(layout: layout_module.Layout) -> str:
    return os.path.join(layout.directory, "boot")


def make_boot_files(layout: layout_module.Layout, process: Runner) -> None:
    """Write kernel and RAM disk of tiny guests.

    Raises:
        OpExecError: kernel or busybox is missing.
    """
    program = next(
        (
            path
            for directory in layout_module.os_definitions()
            if os.access(path := os.path.join(directory, "make-boot"), os.X_OK)
        ),
        None,
    )
    if program is None:
        raise errors.OpExecError(
            "boot files of guests: the OS definition tiny is missing"
        )
    result = process.run([program, _boot_directory(layout)], timeout_s=60)
    if result.failed:
        raise errors.OpExecError(
            f"boot files of guests: make-boot {result.reason}: {result.output.strip()}"
        )


def oob_program(layout: layout_module.Layout) -> str:
    """Return the path of the out-of-band helper, which cuts a node's power."""
    return os.path.join(layout.directory, "power")


def write_oob_program(layout: layout_module.Layout) -> None:
    """Write the out-of-band helper of the cluster."""
    program = os.path.join(layout.bindir, "vcluster")
    text = (
        "#!/bin/sh\n# Out-of-band helper: COMMAND NODE.\n"
        f"exec {program} -C '{layout.directory}' oob \"$@\"\n"
    )
    path = oob_program(layout)
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(text)
    os.chmod(path, 0o755)  # noqa: S103 a program


def create_cluster(
    layout: layout_module.Layout, process: Runner, timer: StepTimer, settings: Settings
) -> None:
    """Create the cluster on the first machine and add the others.

    Runs in the namespaces of the first machine, if it has any.

    Args:
        layout: the machines, which are up.
        process: starts daemons on the first machine.
        timer: prints the steps.
        settings: settings of the cluster.

    Raises:
        GenericError: a step failed.
    """
    write_oob_program(layout)
    if "kvm" in settings.hypervisors:
        make_boot_files(layout, process)
    paths = layout.paths(layout.master_node)
    initialise.init_cluster(
        paths,
        process,
        SystemClock(),
        init_options(layout, settings),
        feedback=lambda _text: None,
    )
    timer.step(f"cluster {layout_module.CLUSTER_HOST} on {layout.master}")
    others = layout.nodes[1:]
    if not others:
        return
    _add_nodes(layout, process, others, settings)
    timer.step(f"{len(others)} more nodes")


def _add_nodes(
    layout: layout_module.Layout,
    process: Runner,
    nodes: Sequence[layout_module.Node],
    settings: Settings,
) -> None:
    """Prepare nodes in parallel and add each one as soon as it is ready.

    The jobs run one after another: each locks the whole cluster.
    """
    paths = layout.paths(layout.master_node)

    def add(node: layout_module.Node) -> int:
        host_keys = None
        if settings.ssh_setup or layout.isolated:
            host_keys = _join(layout, node).ssh_host_keys
        else:
            _set_up_daemon(layout, process, node)
        op = opcodes.NodeAdd(
            node_name=node.name,
            node_setup=settings.ssh_setup,
            ssh_host_keys=None if host_keys is None else list(host_keys),
        )
        with luxi.Client.of_node(paths) as client:
            return int(client.call("SubmitJob", [[opcodes.encode(op)]]))

    numbers = in_parallel(add, nodes)
    with luxi.Client.of_node(paths) as client:
        for number in numbers:
            jobs.wait(client, number, lambda _text: None)


def _join(layout: layout_module.Layout, node: layout_module.Node) -> options.Joined:
    """Prepare a node over SSH, as ``gnt-node add`` does."""
    request = options.JoinRequest(
        name=node.name, ssh_key_check=False, ssh_port=layout.ssh_port
    )
    paths = layout.paths(layout.master_node)
    return node_add.join(paths, request, feedback=lambda _text: None)


def _set_up_daemon(
    layout: layout_module.Layout, process: Runner, node: layout_module.Node
) -> None:
    """Set up a node daemon directly, without SSH, which takes most of the time."""
    paths = layout.paths(layout.master_node)
    message = node_add.daemon_message(paths, layout_module.CLUSTER_HOST, node.name)
    node_daemon_setup.set_up(layout.paths(node), process, message, dry_run=False)
