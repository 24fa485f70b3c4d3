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
from ganeti.base.constants import disks
from ganeti.master import config
from ganeti.model import objects
from ganeti.model.objects import params
from ganeti.operations import base
from ganeti.operations.instance import checks, common
from ganeti.operations.instance.disks import (
    mirror_records,
    mirror_states,
    node_disks,
    volumes,
)
from ganeti.protocols.rpc import calls, encode

#: End of the name of a data volume; left out in the name of its metadata.
_DATA: Final = "_data"


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
    mirror_records.check_nodes(snapshot, "drbd", [primary, secondary], instance.name)
    checks.node_takes_instances(snapshot, secondary, instance.name)
    for node in (primary, secondary):
        volumes.check_exclusive(snapshot, node, "drbd", instance.name)
    future = [
        _mirror(disk, (primary, secondary), _children(snapshot, primary, disk))
        for disk in plain
    ]
    volumes.require_space(ctx, [secondary], future, instance.name)
    # The primary node has the data volumes already.
    metadata = [disk.children[1] for disk in future]
    volumes.require_space(ctx, [primary], metadata, instance.name)


def _children(
    snapshot: objects.Snapshot, primary: str, disk: objects.Disk
) -> list[tuple[str, str]]:
    """Return group and name of the data and the metadata volume."""
    group, name = disk.logical_id
    metadata = mirror_records.meta_group(snapshot, primary, group)
    return [(group, name), (metadata, f"{name.removesuffix(_DATA)}_meta")]


def _mirror(
    disk: objects.Disk, nodes: tuple[str, str], places: Sequence[tuple[str, str]]
) -> objects.Disk:
    """Return a disk as a mirror whose identifiers are not reserved."""
    sizes = (disk.size, disks.DRBD_META_SIZE)
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
            mirror_records.record(
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
    # `is_committed` recognises the new records by their uuids.
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
            # Before the notes, which would have volumes of others removed after a
            # failure.
            self._require_free()
        with self._noted():
            save(self.work)
            try:
                self._prepare()
                self._commit()
            except errors.GenericError as err:
                # Otherwise the commit may be durable, and the next master looks at the
                # records.
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
                edit.add_disk(mirror_records.with_port(edit, disk))
            record = edit.snapshot.instances[self._uuid]
            edit.update(record.replace(disks=tuple(disk.uuid for disk in self.new)))
            for disk in self.old:
                edit.remove_disk(disk.uuid)

    def _finish(self) -> None:
        """Do what follows the commit, which can be repeated."""
        if self.is_to_mirror:
            self._synchronise()
            return
        # A list, because all removals are tried although one fails.
        if not all([*map(self._remove_second, self.old), *map(self._strip, self.old)]):
            self.ctx.log.warn(
                "volumes of the old mirror are still there",
                hint="the master removes them as soon as their node answers",
            )
            self.ctx.config.disk_notes.leave(self.ctx.owner)
        if self.work.was_active:
            node_disks.assemble(self.ctx, self.instance)

    def _synchronise(self) -> None:
        ctx, work = self.ctx, self.work
        node_disks.assemble(ctx, self.instance)
        degraded = mirror_states.wait_for_sync(ctx, self.instance, once=not work.waits)
        if degraded:
            raise mirror_states.degraded_error(self.instance, degraded)
        if work.was_active:
            return
        if work.waits:
            node_disks.shutdown(ctx, self.instance)
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
            node_disks.assemble(self.ctx, self.instance, ignore_secondaries=True)
        elif not self.is_to_mirror:
            node_disks.shutdown(self.ctx, self.instance)

    # Notes
    def _noted(self) -> contextlib.AbstractContextManager[None]:
        """Make durable what may be left behind; leave it to the sweep of a failure."""
        primary = (self.instance.primary_node,)
        # The data volume of the primary node is a disk of its own, and is never
        # removed.
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
                name = "/".join(volume.logical_id)
                status = self.ctx.rpc.call_node(
                    node, calls.blockdev_find(self._wire(volume))
                ).unwrap(f"{self.what}: cannot find out whether {name} exists")
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
            node_disks.assemble(ctx, instance, ignore_secondaries=True)
            if not is_away:
                # The nodes have only begun to connect.
                mirror_states.wait_for_sync(ctx, self.instance, once=True)
        try:
            mirror_states.require_complete(
                ctx,
                self.instance,
                mirror_states.of(ctx.snapshot, self.instance),
                instance.primary_node,
                "convert its disks",
                is_peer_away=is_away,
            )
        except errors.OpPrereqError as err:
            raise errors.OpExecError(str(err.args[0])) from err

    def _shut_down(self) -> None:
        if self.instance.disks_active and not node_disks.shutdown(
            self.ctx, self.instance
        ):
            raise errors.OpExecError(f"{self.what}: its disks cannot be deactivated")

    def _create(self) -> None:
        """Create the mirrors around the present volumes, without a connection.

        Raises:
            OpExecError: a node refused.
        """
        primary = self.instance.primary_node
        wires = [self._wire(disk) for disk in self.old]
        sized = mirror_records.with_sizes(
            self.ctx, self.what, primary, wires, self.new, needs_all=True
        )
        for index, disk in enumerate(sized):
            for node in (self.secondary, primary):
                self.ctx.log.message(
                    f"* creating {node_disks.label(index)} on {self._name(node)}:"
                    f" {node_disks.place(disk)}"
                )
                creation = calls.blockdev_create(
                    self._wire(disk),
                    # Where it is created as primary, DRBD calls the present content
                    # valid.
                    *(disk.size, self.instance.name, node == primary),
                    f"originstname+{self.instance.name}",
                    params.has_exclusive_storage(self.ctx.snapshot, node),
                )
                self.ctx.rpc.call_node(node, creation).unwrap(
                    f"{self.what}: cannot create {node_disks.label(index)}"
                )

    def _remove_second(self, disk: objects.Disk) -> bool:
        """Remove a mirror from the secondary node; return whether it is gone."""
        return self._remove(self.secondary, disk)

    def _strip(self, disk: objects.Disk) -> bool:
        """Remove all of a mirror from the primary node but its data."""
        primary = self.instance.primary_node
        # The device keeps the metadata open, and LVM removes no open volume.
        answer = self.ctx.rpc.call_node(
            primary, calls.blockdev_shutdown(self._wire(disk))
        )
        what = f"cannot shut down {node_disks.place(disk)} of {self.what}"
        if self.ctx.warn_failed(answer, what):
            return False
        return self._remove(primary, disk.children[1])

    def _remove(self, node: str, disk: objects.Disk) -> bool:
        self.ctx.log.message(
            f"* removing {node_disks.place(disk)} on {self._name(node)}"
        )
        answer = self.ctx.rpc.call_node(node, calls.blockdev_remove(self._wire(disk)))
        what = f"cannot remove {node_disks.place(disk)} of {self.what}"
        return not self.ctx.warn_failed(answer, what)

    # Calls
    def _name(self, node: str) -> str:
        return self.ctx.node_name(node)

    def _wire(self, disk: objects.Disk) -> dict[str, Any]:
        return encode.disk(self.ctx.snapshot, disk, self.instance)
