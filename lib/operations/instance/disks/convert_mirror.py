"""Conversion of a stopped instance between ``plain`` and ``drbd``, without a copy.

The volumes of the primary node stay as they are, under their names: a mirror gets them
as its data volumes, and leaves them behind when it is converted back. The metadata and
the volumes of the secondary node are noted before they are made, or before their record
is gone, so an interrupted conversion leaves nothing behind. One commit exchanges the
records: before it, a conversion is undone, after it, it is completed.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from ganeti.base import errors
from ganeti.base.constants import disks as disk_constants
from ganeti.master import config
from ganeti.model import objects
from ganeti.model.objects import params
from ganeti.operations import base
from ganeti.operations.instance import checks, common
from ganeti.operations.instance.disks import disks_on_nodes as disks
from ganeti.operations.instance.disks import mirror_specs, mirrors, volumes
from ganeti.protocols.rpc import encode

#: End of the name of a data volume; left out in the name of its metadata.
_DATA: Final = "_data"
_BYTES_OF_MIB: Final = 1024 * 1024


class Work(msgspec.Struct, frozen=True):
    """A conversion, as it is stored for a restart of the master daemon.

    Attributes:
        target: the template afterwards.
        old: records of the disks before.
        new: their future records, of mirrors without ports.
        was_active: whether the disks were active before.
        waits: whether the end of a synchronisation is waited for.
    """

    target: str
    old: list[dict[str, Any]]
    new: list[dict[str, Any]]
    was_active: bool
    waits: bool


def nodes(work: Work) -> list[str]:
    """Return the uuids of all nodes of a conversion."""
    disks_ = [objects.from_dict(objects.Disk, item) for item in (*work.old, *work.new)]
    return sorted({node for disk in disks_ for node in disk.nodes})


def is_possible(source: str, target: str) -> bool:
    """Return whether two templates are converted without a copy."""
    return {source, target} == {"plain", "drbd"}


# Checks
def check_to_mirror(
    ctx: base.Context,
    instance: objects.Instance,
    secondary: str,
    plain: Sequence[objects.Disk],
) -> None:
    """Refuse a conversion to mirrors that is not possible.

    Args:
        ctx: dependencies of the opcode.
        instance: the instance.
        secondary: uuid of the node that is to get the second copies.
        plain: the disks as plain ones.

    Raises:
        OpPrereqError: a node does not allow it.
    """
    snapshot, primary = ctx.snapshot, instance.primary_node
    mirror_specs.check_nodes(snapshot, "drbd", [primary, secondary], instance.name)
    checks.node_takes_instances(snapshot, secondary, instance.name)
    for node in (primary, secondary):
        volumes.check_exclusive(snapshot, node, "drbd", instance.name)
    future = [
        _mirror(disk, (primary, secondary), _children(snapshot, primary, disk))
        for disk in plain
    ]
    volumes.require_space(ctx, [secondary], future, instance.name)
    metadata = [disk.children[1] for disk in future]
    volumes.require_space(ctx, [primary], metadata, instance.name)


def _children(
    snapshot: objects.Snapshot, primary: str, disk: objects.Disk
) -> list[tuple[str, str]]:
    """Return group and name of the data and the metadata volume."""
    group, name = disk.logical_id
    metadata = mirror_specs.meta_group(snapshot, primary, group)
    return [(group, name), (metadata, f"{name.removesuffix(_DATA)}_meta")]


def _mirror(
    disk: objects.Disk, nodes: tuple[str, str], places: Sequence[tuple[str, str]]
) -> objects.Disk:
    """Return a disk as a mirror whose identifiers are not reserved."""
    sizes = (disk.size, disk_constants.DRBD_META_SIZE)
    children = tuple(
        disk.replace(
            uuid="", dev_type="plain", logical_id=place, nodes=nodes, size=size
        )
        for place, size in zip(places, sizes, strict=True)
    )
    return disk.replace(dev_type="drbd", nodes=nodes, children=children)


# Records
def to_mirror(
    ctx: base.Context, instance: objects.Instance, secondary: str, *, waits: bool
) -> Work:
    """Return the conversion of plain disks to mirrors, with new identifiers."""
    snapshot, primary = ctx.snapshot, instance.primary_node
    old = snapshot.instance_disks(instance)
    new = []
    for disk in old:
        (group, name), (meta_group, meta) = _children(snapshot, primary, disk)
        future = _renewed(ctx, disk)
        new.append(
            mirror_specs.record(
                ctx,
                future,
                (primary, secondary),
                groups=(group, meta_group),
                names=(name, meta),
            )
        )
    return _work(instance, "drbd", old, new, waits=waits)


def to_plain(ctx: base.Context, instance: objects.Instance) -> Work:
    """Return the conversion of mirrors to the volumes of the primary node."""
    old = ctx.snapshot.instance_disks(instance)
    new = [
        _renewed(ctx, disk).replace(
            dev_type="plain",
            logical_id=disk.children[0].logical_id,
            nodes=(instance.primary_node,),
            children=(),
        )
        for disk in old
    ]
    return _work(instance, "plain", old, new, waits=False)


def _renewed(ctx: base.Context, disk: objects.Disk) -> objects.Disk:
    now = ctx.clock.time()
    uuid = ctx.config.reserve_uuid(ctx.owner)
    return disk.replace(uuid=uuid, serial_no=1, ctime=now, mtime=now)


def _work(
    instance: objects.Instance,
    target: str,
    old: Sequence[objects.Disk],
    new: Sequence[objects.Disk],
    *,
    waits: bool,
) -> Work:
    return Work(
        target,
        [objects.to_dict(disk) for disk in old],
        [objects.to_dict(disk) for disk in new],
        was_active=instance.disks_active,
        waits=waits,
    )


class Conversion(common.InstanceWork):
    """The steps of one conversion."""

    def __init__(
        self, ctx: base.Context, instance: objects.Instance, work: Work
    ) -> None:
        super().__init__(ctx, instance)
        self.work = work
        self.old, self.new = (
            [objects.from_dict(objects.Disk, item) for item in items]
            for items in (work.old, work.new)
        )

    @property
    def is_to_mirror(self) -> bool:
        """Whether plain disks become mirrors."""
        return self.work.target == "drbd"

    @property
    def mirrors(self) -> list[objects.Disk]:
        """The records of the mirrors, the old ones or the new ones."""
        return self.new if self.is_to_mirror else self.old

    @property
    def secondary(self) -> str:
        """The node that gets second copies, or loses them."""
        primary = self.instance.primary_node
        return next(node for node in self.mirrors[0].nodes if node != primary)

    @property
    def is_committed(self) -> bool:
        """Whether the instance has the new disks."""
        return list(self.instance.disks) == [disk.uuid for disk in self.new]

    # Flow
    def run(self, save: Callable[[Work], None]) -> None:
        """Convert the disks.

        Args:
            save: stores the work for a restart of the master daemon.

        Raises:
            OpExecError: it failed; before the commit, everything was undone.
        """
        if self.is_to_mirror:
            self._require_free()
        with self._noted():
            save(self.work)
            try:
                self._prepare()
                self._commit()
            except errors.GenericError as err:
                if not errors.is_outcome_unknown(err):
                    self._undo()
                raise
            self._finish()

    def resume(self) -> None:
        """Complete a conversion that was recorded; undo one that was not.

        Raises:
            OpExecError: it was undone.
        """
        with self._noted():
            if self.is_committed:
                self.ctx.log.message(
                    "* the master daemon was restarted; the conversion goes on"
                )
                self._finish()
                return
            self.ctx.log.message(
                "* the master daemon was restarted before the conversion was recorded;"
                " undoing it"
            )
            self._undo()
        raise errors.OpExecError(
            f"{self.what}: the master daemon was restarted during the conversion; the"
            # They may be those in between, of a conversion in two steps.
            f" disks are {self.old[0].dev_type}, with all data; repeat the command"
        )

    def _prepare(self) -> None:
        if self.is_to_mirror:
            self._shut_down()
            self._create()
            return
        self._require_data()
        self._shut_down()

    def _commit(self) -> None:
        self.ctx.log.message(f"* recording the disks as {self.work.target}")
        with self.ctx.config.edit(self.ctx.owner) as edit:
            for disk in self.new:
                edit.add_disk(mirror_specs.with_port(edit, disk))
            record = edit.snapshot.instances[self._uuid]
            edit.update(record.replace(disks=tuple(disk.uuid for disk in self.new)))
            for disk in self.old:
                edit.remove_disk(disk.uuid)

    def _finish(self) -> None:
        """Do what follows the commit, which can be repeated."""
        if self.is_to_mirror:
            self._synchronise()
            return
        if not all([*map(self._remove_second, self.old), *map(self._strip, self.old)]):
            self.ctx.log.warn(
                "volumes of the old mirror are still there",
                hint="the master removes them as soon as their node answers",
            )
            self.ctx.config.disk_notes.leave(self.ctx.owner)
        if self.work.was_active:
            disks.assemble(self.ctx, self.instance)

    def _synchronise(self) -> None:
        ctx, work = self.ctx, self.work
        disks.assemble(ctx, self.instance)
        degraded = mirrors.wait_for_sync(ctx, self.instance, once=not work.waits)
        if degraded:
            raise mirrors.degraded_error(self.instance, degraded)
        if work.was_active:
            return
        if work.waits:
            disks.shutdown(ctx, self.instance)
        else:
            ctx.log.info(
                "the disks stay active, since they are being synchronised; see"
                " gnt-instance info"
            )

    def _undo(self) -> None:
        """Go back to the old disks, which are unchanged."""
        if self.is_to_mirror:
            gone = [*map(self._remove_second, self.new), *map(self._strip, self.new)]
            if not all(gone):
                self.ctx.config.disk_notes.leave(self.ctx.owner)
        if self.work.was_active:
            disks.assemble(self.ctx, self.instance, ignore_secondaries=True)
        elif not self.is_to_mirror:
            disks.shutdown(self.ctx, self.instance)

    # Notes
    def _noted(self) -> contextlib.AbstractContextManager[None]:
        """Make durable what may be left behind; leave it to the sweep of a failure."""
        primary = (self.instance.primary_node,)
        made = [
            note
            for disk in self.mirrors
            for note in (
                config.MadeDisk(disk, (self.secondary,)),
                config.MadeDisk(disk.children[1], primary, device=disk),
            )
        ]
        note = config.DiskNote(self.instance.name, tuple(made))
        return self.ctx.config.disk_notes.noted(self.ctx.owner, note)

    # Steps
    def _require_free(self) -> None:
        """Refuse volumes that have the places of new ones.

        Raises:
            OpExecError: there are some.
        """
        for mirror in self.new:
            places = [(self.secondary, child) for child in mirror.children]
            places.append((self.instance.primary_node, mirror.children[1]))
            for node, volume in places:
                answer = self._call("blockdev_find", node, volume)
                name = "/".join(volume.logical_id)
                status = answer.unwrap(
                    f"{self.what}: cannot find out whether {name} exists"
                )
                if status is not None:
                    raise errors.OpExecError(
                        f"{self.what}: volume {name} exists on node {self._name(node)}"
                        " already; if nobody needs it, remove it there (lvremove)"
                    )

    def _require_data(self) -> None:
        """Have the mirrors active, and check that the primary node has all data.

        Raises:
            OpExecError: it may lack some.
        """
        ctx, instance = self.ctx, self.instance
        is_away = ctx.snapshot.nodes[self.secondary].offline
        if not instance.disks_active:
            ctx.log.message("* activating the disks to compare both copies")
            disks.assemble(ctx, instance, ignore_secondaries=True)
            if not is_away:
                # The nodes have only begun to connect.
                mirrors.wait_for_sync(ctx, self.instance, once=True)
        try:
            mirrors.require_complete(
                ctx,
                self.instance,
                mirrors.of(ctx.snapshot, self.instance),
                instance.primary_node,
                "convert its disks",
                is_peer_away=is_away,
            )
        except errors.OpPrereqError as err:
            raise errors.OpExecError(str(err.args[0])) from err

    def _shut_down(self) -> None:
        if self.instance.disks_active and not disks.shutdown(self.ctx, self.instance):
            raise errors.OpExecError(f"{self.what}: its disks cannot be deactivated")

    def _create(self) -> None:
        """Create the mirrors around the present volumes, without a connection.

        Raises:
            OpExecError: a node refused.
        """
        primary = self.instance.primary_node
        for index, disk in enumerate(self._sized()):
            for node in (self.secondary, primary):
                self.ctx.log.message(
                    f"* creating {disks.label(index)} on {self._name(node)}:"
                    f" {disks.place(disk)}"
                )
                self._call(
                    *("blockdev_create", node, disk),
                    *(disk.size, self.instance.name, node == primary),
                    f"originstname+{self.instance.name}",
                    params.has_exclusive_storage(self.ctx.snapshot, node),
                ).unwrap(f"{self.what}: cannot create {disks.label(index)}")

    def _sized(self) -> list[objects.Disk]:
        """Return the mirrors with data volumes as large as the present ones.

        LVM rounds sizes up, perhaps differently on another node.

        Raises:
            OpExecError: the primary node does not report the sizes.
        """
        primary = self.instance.primary_node
        wires = [self._wire(disk) for disk in self.old]
        rows = self.ctx.rpc.call_one("blockdev_getdimensions", primary, wires).unwrap(
            f"{self.what}: cannot get the sizes of its volumes"
        )
        if len(rows or ()) != len(self.old) or not all(rows):
            raise errors.OpExecError(
                f"{self.what}: node {self._name(primary)} does not report the sizes of"
                f" its {len(self.old)} volumes"
            )
        sized = []
        for disk, (size, _spindles) in zip(self.new, rows, strict=True):
            data, *others = disk.children
            actual = -(-int(size) // _BYTES_OF_MIB)
            data = data.replace(size=max(data.size, actual))
            sized.append(disk.replace(children=(data, *others)))
        return sized

    def _remove_second(self, disk: objects.Disk) -> bool:
        """Remove a mirror from the secondary node; return whether it is gone."""
        return self._remove(self.secondary, disk)

    def _strip(self, disk: objects.Disk) -> bool:
        """Remove all of a mirror from the primary node but its data."""
        primary = self.instance.primary_node
        answer = self._call("blockdev_shutdown", primary, disk)
        what = f"cannot shut down {disks.place(disk)} of {self.what}"
        if common.warn_failed(self.ctx, answer, what):
            return False
        return self._remove(primary, disk.children[1])

    def _remove(self, node: str, disk: objects.Disk) -> bool:
        self.ctx.log.message(f"* removing {disks.place(disk)} on {self._name(node)}")
        answer = self._call("blockdev_remove", node, disk)
        what = f"cannot remove {disks.place(disk)} of {self.what}"
        return not common.warn_failed(self.ctx, answer, what)

    # Calls
    def _name(self, node: str) -> str:
        return common.node_name(self.ctx, node)

    def _wire(self, disk: objects.Disk) -> dict[str, Any]:
        return encode.disk(self.ctx.snapshot, disk, self.instance)

    def _call(self, procedure: str, node: str, disk: objects.Disk, *args: Any) -> Any:
        return self.ctx.rpc.call_one(procedure, node, self._wire(disk), *args)
