"""Steps of a burn-in, in order, and the opcodes of each.

Nothing here asks or changes the cluster: a step gets the place of an instance as a
value and returns opcodes. All opcodes of a step and an instance are one job.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Final

from ganeti.base.constants import disks
from ganeti.commands.cli.waiting.jobs import Op, op
from ganeti.devel.burnin.settings import Settings

_DTS_COPYABLE: Final = ("file", "plain")
_REPLACE_DISK_PRI: Final = "replace_on_primary"
_REPLACE_DISK_SEC: Final = "replace_on_secondary"
_REPLACE_DISK_CHG: Final = "replace_new_secondary"


@dataclasses.dataclass(frozen=True)
class Place:
    """An instance and its nodes.

    Attributes:
        name: of the instance.
        primary: its node; empty if the allocator is to choose it.
        secondary: empty without a mirror, or if the allocator is to choose it.
        others: further nodes that may be used, in the order of preference.
    """

    name: str
    primary: str = ""
    secondary: str = ""
    others: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Step:
    """One step.

    Attributes:
        title: printed when it begins.
        ops: returns the opcodes for an instance.
        option: name of the option ``--no-NAME`` that leaves it out; empty for none.
        obstacle: returns why it cannot be done, given the settings and the number of
            nodes; empty if it can.
        is_running: guests run after it.
    """

    title: str
    ops: Callable[[Settings, Place], list[Op]]
    option: str = ""
    obstacle: Callable[[Settings, int], str] = lambda _settings, _nodes: ""
    is_running: bool = True


def places(settings: Settings, nodes: Sequence[str]) -> list[Place]:
    """Return where to create the instances: spread evenly, unless an allocator does."""
    if settings.iallocator:
        return [Place(name, others=tuple(nodes)) for name in settings.instances]
    is_mirrored = settings.template in disks.DTS_INT_MIRROR
    chosen = []
    for index, name in enumerate(settings.instances):
        turn = index % len(nodes)
        order = [*nodes[turn:], *nodes[:turn]]
        secondary = order[1] if is_mirrored else ""
        others = tuple(order[2 if is_mirrored else 1 :])
        chosen.append(Place(name, order[0], secondary, others))
    return chosen


def creation(settings: Settings, place: Place) -> list[Op]:
    """Return the opcode that creates an instance."""
    low, high = settings.memory
    return [
        op(
            "OP_INSTANCE_CREATE",
            mode="create",
            instance_name=place.name,
            os_type=settings.os_name,
            osparams=settings.osparams,
            disk_template=settings.template,
            disks=[{"size": size} for size in settings.disk_sizes],
            nics=[{}] if settings.has_nics else [],
            beparams={"minmem": low, "maxmem": high, "vcpus": settings.vcpus},
            hypervisor=settings.hypervisor or None,
            iallocator=settings.iallocator or None,
            pnode=place.primary or None,
            snode=place.secondary or None,
            ip_check=settings.ip_check,
            name_check=settings.name_check,
            start=True,
            wait_for_sync=True,
        )
    ]


def removal(_settings: Settings, place: Place) -> list[Op]:
    """Return the opcode that removes an instance."""
    return [_on("REMOVE", place, ignore_failures=True)]


def _on(word: str, place: Place, **parameters: Any) -> Op:
    return op(f"OP_INSTANCE_{word}", instance_name=place.name, **parameters)


def _stop_start(_settings: Settings, place: Place) -> list[Op]:
    return [_on("SHUTDOWN", place), _on("STARTUP", place)]


def _memory(settings: Settings, place: Place) -> list[Op]:
    return [_on("SET_PARAMS", place, runtime_mem=size) for size in settings.memory]


def _one_memory_size(settings: Settings, _nodes: int) -> str:
    low, high = settings.memory
    return "smallest and largest memory are equal" if low == high else ""


def _replace(settings: Settings, place: Place) -> list[Op]:
    return [
        _on("REPLACE_DISKS", place, mode=mode, early_release=settings.early_release)
        for mode in (_REPLACE_DISK_SEC, _REPLACE_DISK_PRI)
    ]


def _replace_secondary(settings: Settings, place: Place) -> list[Op]:
    chosen = settings.iallocator or None
    return [
        _on(
            "REPLACE_DISKS",
            place,
            mode=_REPLACE_DISK_CHG,
            iallocator=chosen,
            remote_node=None if chosen else place.others[0],
            early_release=settings.early_release,
        )
    ]


def _no_mirror(settings: Settings, _nodes: int) -> str:
    if settings.template in disks.DTS_INT_MIRROR:
        return ""
    return f"disks of template {settings.template} have no mirror"


def _no_third_node(settings: Settings, nodes: int) -> str:
    return _no_mirror(settings, nodes) or (
        f"needs three nodes, found {nodes}" if nodes < 3 else ""
    )


def _grow(settings: Settings, place: Place) -> list[Op]:
    return [
        _on("GROW_DISK", place, disk=index, amount=amount, wait_for_sync=True)
        for index, amount in enumerate(settings.growth)
        if amount
    ]


def _nothing_grows(settings: Settings, _nodes: int) -> str:
    if settings.template not in disks.DTS_GROWABLE:
        return _no_disks(settings, _nodes)
    return "" if any(settings.growth) else "the growth is 0"


def _target(settings: Settings, place: Place) -> dict[str, Any]:
    """Return the parameters that say where to: none for mirrored disks."""
    if settings.template in disks.DTS_INT_MIRROR:
        return {}
    if settings.iallocator:
        return {"iallocator": settings.iallocator}
    return {"target_node": place.others[0]}


def _failover(settings: Settings, place: Place) -> list[Op]:
    return [_on("FAILOVER", place, **_target(settings, place))]


def _migrate(settings: Settings, place: Place) -> list[Op]:
    # The clean-up must find everything in order.
    there = _on("MIGRATE", place, **_target(settings, place))
    return [there, _on("MIGRATE", place, cleanup=True)]


def _stays_on_its_node(settings: Settings, nodes: int) -> str:
    if settings.template not in disks.DTS_MIRRORED:
        return f"disks of template {settings.template} are on one node"
    return _one_node(nodes)


def _one_node(nodes: int) -> str:
    return "needs two nodes" if nodes < 2 else ""


def _move(_settings: Settings, place: Place) -> list[Op]:
    return [_on("MOVE", place, target_node=place.others[0])]


def _not_copied(settings: Settings, nodes: int) -> str:
    if settings.template not in _DTS_COPYABLE:
        return f"disks of template {settings.template} are not copied"
    return _one_node(nodes)


def _reinstall(settings: Settings, place: Place) -> list[Op]:
    return [
        _on("SHUTDOWN", place),
        _on("REINSTALL", place),
        _on("REINSTALL", place, os_type=settings.os_name),
        _on("STARTUP", place),
    ]


def _no_disks(settings: Settings, _nodes: int) -> str:
    return "" if settings.disk_sizes else "the instances have no disks"


def _reboot(settings: Settings, place: Place) -> list[Op]:
    return [_on("REBOOT", place, reboot_type=kind) for kind in settings.reboot_types]


def _renamed(settings: Settings, place: Place, name: str) -> list[Op]:
    checks = {"name_check": settings.name_check, "ip_check": False}
    return [_on("SHUTDOWN", place), _on("RENAME", place, new_name=name, **checks)]


def _rename_same(settings: Settings, place: Place) -> list[Op]:
    return [*_renamed(settings, place, place.name), _on("STARTUP", place)]


def _rename(settings: Settings, place: Place) -> list[Op]:
    spare = Place(settings.rename)
    return [
        *_renamed(settings, place, spare.name),
        _on("STARTUP", spare),
        *_renamed(settings, spare, place.name),
        _on("STARTUP", place),
    ]


def _no_spare_name(settings: Settings, _nodes: int) -> str:
    return "" if settings.rename else "no spare name was given"


def _add_and_remove(kind: str, place: Place, item: dict[str, Any]) -> list[Op]:
    """Return opcodes that add a device to a running guest, and remove it later."""
    # A guest that has just started may not let go of a device.
    return [
        _on("SET_PARAMS", place, **{kind: [["add", -1, item]]}),
        _on("SHUTDOWN", place),
        _on("SET_PARAMS", place, **{kind: [["remove", -1, {}]]}),
        _on("STARTUP", place),
    ]


def _nics(_settings: Settings, place: Place) -> list[Op]:
    return _add_and_remove("nics", place, {})


def _no_nics(settings: Settings, _nodes: int) -> str:
    return "" if settings.has_nics else "the instances have no NICs"


def _activate(_settings: Settings, place: Place) -> list[Op]:
    return [
        _on("ACTIVATE_DISKS", place),
        _on("SHUTDOWN", place),
        _on("ACTIVATE_DISKS", place),
        _on("DEACTIVATE_DISKS", place),
        _on("STARTUP", place),
    ]


def _disks(settings: Settings, place: Place) -> list[Op]:
    return _add_and_remove("disks", place, {"size": settings.disk_sizes[0]})


def _nothing(_settings: Settings, _place: Place) -> list[Op]:
    return []


def _export_import(_settings: Settings, place: Place) -> list[Op]:
    """Return the opcodes that replace an instance by its export."""
    target = place.others[0] if place.others else place.primary
    return [
        op(
            "OP_BACKUP_EXPORT",
            instance_name=place.name,
            target_node=target,
            long_sleep=True,
            remove_instance=True,
        ),
        op(
            "OP_INSTANCE_CREATE",
            mode="import",
            instance_name=place.name,
            src_node=target,
            pnode=place.primary,
            snode=place.secondary or None,
            disks=[],
            nics=[],
            start=True,
        ),
        op("OP_BACKUP_REMOVE", instance_name=place.name),
    ]


CREATION: Final = Step("Creating instances", creation)
#: The place of the questions to confd among the steps: they need no job.
CONFD: Final = Step("Asking confd", _nothing, "confd")
#: The step after which the instances are others of the same names.
EXPORTS: Final = Step(
    "Exporting and importing instances", _export_import, "importexport", _no_disks
)
STEPS: Final = (
    CREATION,
    Step("Stopping and starting instances", _stop_start, "startstop"),
    Step("Changing the memory of running instances", _memory, "", _one_memory_size),
    Step("Replacing disks on the same nodes", _replace, "replace1", _no_mirror),
    Step("Changing secondary nodes", _replace_secondary, "replace2", _no_third_node),
    Step("Growing disks", _grow, "", _nothing_grows),
    Step("Failing instances over", _failover, "failover", _stays_on_its_node),
    Step("Migrating instances", _migrate, "migrate", _stays_on_its_node),
    Step("Moving instances", _move, "move", _not_copied),
    EXPORTS,
    Step("Reinstalling instances", _reinstall, "reinstall", _no_disks),
    Step("Rebooting instances", _reboot, "reboot"),
    Step("Renaming instances to their own names", _rename_same, "renamesame"),
    CONFD,
    Step("Adding and removing NICs", _nics, "add-nics", _no_nics),
    Step("Activating and deactivating disks", _activate, "activate-disks", _no_disks),
    Step("Adding and removing disks", _disks, "add-disks", _no_disks),
    Step("Renaming instances", _rename, "", _no_spare_name),
)
REMOVAL: Final = Step("Removing instances", removal, is_running=False)
