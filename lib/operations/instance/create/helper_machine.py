"""Helper machines: guests that work on the disks of a stopped instance.

A helper machine has the name, the hypervisor and the memory of the instance, and boots
from a copy of an image of the cluster. It powers itself off when its work is done. Each
step can be repeated, also after a restart of the master daemon.
"""

from collections.abc import Mapping
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.model import objects
from ganeti.model.objects import params
from ganeti.operations import base
from ganeti.operations.instance import capacity, checks, common
from ganeti.protocols.rpc import calls, encode

#: Seconds between two questions whether it runs.
POLL_S: Final = 2.0
#: Longest time that may be requested, in seconds: 30 days.
MAX_S: Final = 30 * 86400.0
_KVM: Final[dict[str, Any]] = {
    # Without it, a machine cannot power itself off.
    "acpi": True,
    "boot_order": "disk",
    "cdrom_image_path": "",
    "cdrom2_image_path": "",
    "firmware": "bios",
    "floppy_image_path": "",
    "initrd_path": "",
    "kernel_path": "",
    # An image that does not boot must not make the firmware boot the instance's disks.
    "kvm_extra": "-boot strict=on",
    "reboot_behavior": "exit",
    "shared_directories": "",
    "spice_bind": "",
    # The emulator refuses these without a display.
    "spice_image_compression": "",
    "spice_ip_version": 0,
    "spice_jpeg_wan_compression": "",
    "spice_password_file": "",
    "spice_streaming_video": "",
    "spice_use_tls": False,
    "spice_zlib_glz_wan_compression": "",
    "tpm": False,
    "usb_devices": "",
    "use_guest_agent": False,
    "user_shutdown": False,
    "vnc_bind_address": "",
    "vnc_password_file": "",
    "vnc_x509_path": "",
    "vnc_x509_verify": False,
}
_XEN: Final[dict[str, Any]] = {
    "acpi": True,
    "boot_order": "c",
    "cdrom_image_path": "",
    "pci_pass": "",
    "reboot_behavior": "exit",
    "vnc_bind_address": "",
}
#: Hypervisors that boot a helper machine -> parameters, besides those of the cluster.
PARAMETERS: Final[Mapping[str, dict[str, Any]]] = {"kvm": _KVM, "xen-hvm": _XEN}


def require_image(
    what: str, image: str, hypervisor: str, *, option: str, parameter: str
) -> None:
    """Refuse a helper machine that could not boot.

    Args:
        what: the instance and the operation, for errors.
        image: image of the cluster, empty without one.
        hypervisor: of the instance.
        option: command that sets the image.
        parameter: what the image is, for errors.

    Raises:
        OpPrereqError: names what is missing, and who can mend it.
    """
    if not image:
        raise errors.OpPrereqError(
            f"{what} needs {parameter} for the helper machine, and the cluster has"
            f" none; set it with {option}",
            ecodes.ECODE_STATE,
        )
    if hypervisor not in PARAMETERS:
        raise errors.refusal(
            f"{what}: wanted a hypervisor that boots images, which are"
            f" {', '.join(PARAMETERS)}; found {hypervisor}"
        )


def require_memory(ctx: base.Context, instance: objects.Instance) -> None:
    """Refuse if the primary node has too little memory for the helper machine.

    Raises:
        OpPrereqError: wanted and free memory.
    """
    backend = params.fill_beparams(ctx.snapshot, instance)
    checks.require_memory(
        ctx,
        instance.primary_node,
        instance.name,
        backend["maxmem"],
        hypervisor=instance.hypervisor,
        hv=params.fill_hvparams(ctx.snapshot, _bare(instance))
        | PARAMETERS[instance.hypervisor],
        rule=capacity.MemoryRule(most_mib=backend["maxmem"]),
    )


def _bare(instance: objects.Instance) -> objects.Instance:
    """Return the record without what belongs to the guest alone."""
    return instance.replace(
        os="", osparams={}, osparams_private={}, hvparams={}, nics=()
    )


def wire(
    ctx: base.Context,
    instance: objects.Instance,
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the instance as node calls about its helper machine take it.

    Args:
        ctx: dependencies of the opcode.
        instance: the instance.
        more: hypervisor parameters besides `PARAMETERS`.
    """
    hvparams = PARAMETERS[instance.hypervisor] | dict(more or {})
    return encode.instance(ctx.snapshot, _bare(instance), hvparams=hvparams)


def add_image(
    ctx: base.Context, instance: objects.Instance, image: str, what: str
) -> None:
    """Make the boot disk of the helper machine on the primary node.

    Raises:
        OpExecError: the node cannot use the image.
    """
    ctx.log.message("* copying the image of the helper machine")
    ctx.rpc.call_node(
        instance.primary_node, calls.helper_image_add(wire(ctx, instance), image)
    ).unwrap(what)


class Watch:
    """Questions whether a helper machine runs, of a node that may be silent a while."""

    def __init__(
        self, ctx: base.Context, instance: objects.Instance, what: str
    ) -> None:
        self._ctx = ctx
        self._instance = instance
        self._what = what
        self._silent_since: float | None = None

    def is_running(self) -> bool:
        """Return whether it runs, as far as is known.

        Raises:
            OpExecError: the node is silent for too long.
        """
        now = self._ctx.clock.monotonic()
        try:
            info = common.query_runtime(self._ctx, self._instance)
        except errors.GenericError as err:
            if self._silent_since is None:
                self._silent_since = now
            if now - self._silent_since > common.SILENCE_S:
                raise errors.OpExecError(
                    f"{self._what}: its primary node has not answered for"
                    f" {common.SILENCE_S:g} s"
                ) from err
            return True
        self._silent_since = None
        return info.is_running


def end(ctx: base.Context, instance: objects.Instance) -> None:
    """End the helper machine if it runs, and remove its own disks.

    A node that does not answer, as when its daemon is restarted, is asked for a while.

    Raises:
        OpExecError: it may still run, so the instance must not be started.
    """
    common.ask_again(
        ctx, instance.primary_node, calls.helper_end(wire(ctx, instance))
    ).unwrap(f"instance {instance.name}: cannot end its helper machine")
