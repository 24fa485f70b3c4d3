"""Procedures about the agent in a guest, and about its firmware."""

import contextlib

from ganeti.base import errors
from ganeti.base.net import guest_addresses as addresses
from ganeti.model.objects.filled import InstanceX
from ganeti.node.calls.registry import LocalNode, procedure

#: Seconds after which no further guest is asked.
_ALL_S = 20.0


@procedure("guest_addresses")
def guest_addresses(
    node: LocalNode, hypervisor: str, names: list[str]
) -> dict[str, addresses.Rows]:
    """Return the addresses that guests report; guests that say nothing are left out."""
    driver = node.hypervisor(hypervisor)
    end = node.clock.monotonic() + _ALL_S
    answers = {}
    for name in names:
        if node.clock.monotonic() >= end:
            break
        with contextlib.suppress(errors.HypervisorError):
            answers[name] = driver.guest_addresses(name)
    return answers


@procedure("guest_firmware")
def guest_firmware(node: LocalNode, instance: InstanceX) -> tuple[str, str]:
    """Return copies of a guest's UEFI variables and TPM, empty if it has none here."""
    return node.hypervisor(instance.hypervisor).firmware_state(instance.name)


@procedure("guest_freeze")
def guest_freeze(node: LocalNode, instance: InstanceX, limit: float) -> None:
    """Freeze the file systems of a guest for at most ``limit`` seconds."""
    node.hypervisor(instance.hypervisor).freeze(instance.name, limit)


@procedure("guest_thaw")
def guest_thaw(node: LocalNode, instance: InstanceX) -> bool:
    """Thaw the file systems of a guest; return whether they were frozen until now."""
    return node.hypervisor(instance.hypervisor).thaw(instance.name)
