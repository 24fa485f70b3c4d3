"""Nodes with volumes and DRBD devices, which refuse whatever DRBD or LVM would refuse.

A guest writes before every call, so each copy has the number of the last write that
reached it. `MirrorNodes.require_right` says whether the nodes have what is recorded.
"""

import dataclasses

from fakes.rpc import failure
from ganeti.operations.mcpu.simulated_nodes import disk_status

MIB = 1024 * 1024


@dataclasses.dataclass
class Volume:
    """A volume; both parts of a mirror remember in which pair they were made."""

    size: int
    pair: str
    content: int = 0
    is_valid: bool = False


@dataclasses.dataclass
class Device:
    """A DRBD device: its parts, or None without a disk."""

    peer: str
    data: str | None = None
    meta: str | None = None
    port: int | None = None
    is_primary: bool = False
    handshake: int = 0


class MirrorNodes:
    """Answers node calls from the state of volumes and devices."""

    def __init__(self):
        self.volumes = {}  # (node, "group/name") -> Volume
        self.devices = {}  # (node, minor) -> Device
        self.written = {}  # key of a primary device -> number of its last write
        self.looks = 0
        self.is_stuck = False  # whether nothing is copied
        self.handshake = 0  # number of looks at a new device until it is connected
        self.comparing = 0  # how many of them find the nodes comparing their data
        self.broken = {}  # (procedure, node) -> why it fails
        self.unheard = {}  # the same, once, after the work: the answer is lost
        self.made = 0
        self.generations = {}  # node -> identifiers of its data, if they differ

    def script(self):
        """Return the script of a `fakes.rpc.FakeRunner`."""
        space = {"storage_size": 90000, "storage_free": 80000}
        fixed = {
            "node_info": lambda _node, args: ["boot", [space for _unit in args[0]], []],
            "hooks_runner": [],
            "instance_info": {},
        }
        own = {
            name.removeprefix("do_"): self._step(name)
            for name in dir(self)
            if name.startswith("do_")
        }
        return fixed | own

    def _step(self, name):
        act = getattr(self, name)

        def step(node, args):
            self.write()
            place = name.removeprefix("do_"), node
            if why := self.broken.get(place):
                return failure(why)
            answer = act(node, args)
            why = self.unheard.pop(place, None)
            return failure(why) if why else answer

        return step

    # Preparation
    def add(self, disk, *, primary=None):
        """Have a mirror on both of its nodes, complete and connected."""
        if disk.dev_type == "plain":
            (node,) = disk.nodes
            self.volumes[node, _key(disk)] = Volume(
                disk.size, f"{node}/{disk.uuid}", content=7, is_valid=True
            )
            return
        first, second, port, *minors, _secret = disk.logical_id
        for node, peer, minor in zip(
            (first, second), (second, first), minors, strict=True
        ):
            data, meta = (_key(child) for child in disk.children)
            for child in disk.children:
                self.volumes[node, _key(child)] = Volume(
                    child.size, f"{node}/{disk.uuid}", is_valid=True
                )
            if primary is not None:
                self.devices[node, minor] = Device(
                    peer, data, meta, port, is_primary=node == primary
                )

    def split(self, first, second):
        """Have the guest write on both of two nodes, which lose each other."""
        for node, present in ((first, "2"), (second, "6")):
            self.generations[node] = tuple(
                digit * 16 for digit in (present, "4", "0", "0")
            )
        for device in self.devices.values():
            device.port = None
        self.write()

    # State
    def write(self):
        """Let the guest write to every primary device."""
        for key, device in self.devices.items():
            if not device.is_primary:
                continue
            copies = [self._data(key)]
            peer = self._peer(key)
            if peer is not None:
                copies.append(self._data(peer))
            valid = [copy for copy in copies if copy is not None and copy.is_valid]
            assert valid, "the guest has lost its disk"
            last = self.written.get(key, 0)
            assert max(copy.content for copy in valid) == last, "old data"
            self.written[key] = last + 1
            for copy in valid:
                copy.content = last + 1

    def _data(self, key):
        device = self.devices[key]
        if device.data is None:
            return None
        return self.volumes[key[0], device.data]

    def _peer(self, key):
        """Return the key of the device that a device is connected with."""
        device = self.devices[key]
        for other, candidate in self.devices.items():
            if (
                device.port is not None
                and candidate.port == device.port
                and (other[0], candidate.peer) == (device.peer, key[0])
            ):
                return other
        return None

    def require_right(self, snapshot, *, is_active=True):
        """Fail unless the nodes have exactly what is recorded, complete everywhere."""
        volumes, devices = set(), set()
        for disk in snapshot.disks.values():
            if disk.dev_type == "plain":
                volumes |= {(node, _key(disk)) for node in disk.nodes}
                continue
            first, second, port, *minors, _secret = disk.logical_id
            for node, minor in zip((first, second), minors, strict=True):
                volumes |= {(node, _key(child)) for child in disk.children}
                if not is_active:
                    continue
                devices.add((node, minor))
                device = self.devices[node, minor]
                assert device.port == port
                assert device.data == _key(disk.children[0])
                copy = self._data((node, minor))
                assert copy.is_valid
                assert copy.content == self.written.get((first, minors[0]), 0)
        assert set(self.volumes) == volumes
        assert set(self.devices) == devices

    # Volumes
    def do_blockdev_find(self, node, args):
        disk = args[0]
        parts = disk["children"] if disk["dev_type"] == "drbd" else [disk]
        is_there = any((node, _key(part)) in self.volumes for part in parts)
        return disk_status(disk) if is_there else None

    def do_blockdev_getdimensions(self, node, args):
        return [
            [self.volumes[node, _key(disk)].size * MIB, None]
            if (node, _key(disk)) in self.volumes
            else None
            for disk in args[0]
        ]

    def do_blockdev_rename(self, node, args):
        problems = []
        for disk, new in args[0]:
            old, wanted = (node, _key(disk)), (node, "/".join(new))
            if old not in self.volumes or wanted in self.volumes:
                problems.append(f"cannot rename {old} to {wanted}")
            else:
                # LVM renames it. Under its old name, DRBD would find another volume.
                assert not self._is_used(*old), f"{old} is renamed while in use"
                self.volumes[wanted] = self.volumes.pop(old)
        return failure("; ".join(problems)) if problems else None

    def _is_used(self, node, name):
        return any(
            key[0] == node and name in (device.data, device.meta)
            for key, device in self.devices.items()
        )

    # Disks
    def do_blockdev_create(self, node, args):
        disk = args[0]
        if disk["dev_type"] == "plain":
            self.volumes[node, _key(disk)] = Volume(disk["size"], "", is_valid=True)
            return list(disk["logical_id"])
        if (node, _minor(disk)) in self.devices:
            return failure("minor in use")
        names = [_key(child) for child in disk["children"]]
        present = self.volumes.get((node, names[0]))
        if args[3] and present is not None and (node, names[1]) not in self.volumes:
            # The data of the primary node becomes that of the mirror.
            size = disk["children"][1]["size"]
            self.volumes[node, names[1]] = Volume(size, present.pair)
            return list(disk["logical_id"])
        if any((node, name) in self.volumes for name in names):
            return failure(f"{names}: exist already")
        self.made += 1
        for child, name in zip(disk["children"], names, strict=True):
            self.volumes[node, name] = Volume(
                child["size"], f"{node}/{self.made}", is_valid=args[3]
            )
        return list(disk["logical_id"])

    def do_blockdev_remove(self, node, args):
        disk = args[0]
        if disk["dev_type"] == "plain":
            if self._is_used(node, _key(disk)):
                return failure(f"{_key(disk)} is in use")
            self.volumes.pop((node, _key(disk)), None)
            return None
        device = self.devices.get((node, _minor(disk)))
        if device is not None and device.data == _key(disk["children"][0]):
            if device.is_primary:
                return failure("device is held open")
            del self.devices[node, _minor(disk)]
        for child in disk["children"]:
            if self._is_used(node, _key(child)):
                return failure(f"{_key(child)} is in use")
            self.volumes.pop((node, _key(child)), None)
        return None

    def do_blockdev_assemble(self, node, args):
        disk, _instance, on_primary, _index = args
        if disk["dev_type"] == "plain":
            return [f"/dev/{_key(disk)}", "/link" if on_primary else None, None]
        key, (data, meta) = (node, _minor(disk)), map(_key, disk["children"])
        for name in (data, meta):
            if (node, name) not in self.volumes:
                return failure(f"{name}: no such volume")
        device = self.devices.get(key)
        if device is not None and device.data not in (None, data):
            return failure(f"minor {key} is in use with {device.data}")
        if device is None:
            device = self.devices[key] = Device(_other(disk, node))
            device.handshake = self.handshake
        if device.data is None:
            self._attach(key, data, meta)
        port = disk["dynamic_params"]["port"]
        if port is not None:
            device.port, device.peer = port, _other(disk, node)
        if on_primary:
            copies = [self._data(key)]
            if (peer := self._peer(key)) is not None:
                copies.append(self._data(peer))
            if not any(copy is not None and copy.is_valid for copy in copies):
                return failure("no valid data")
            device.is_primary = True
            valid = [copy for copy in copies if copy is not None and copy.is_valid]
            self.written.setdefault(key, max(copy.content for copy in valid))
        return ["/dev/drbd0", "/link" if on_primary else None, None]

    def _attach(self, key, data, meta):
        volume, about = self.volumes[key[0], data], self.volumes[key[0], meta]
        assert volume.pair == about.pair, "new data meets old metadata"
        self.devices[key].data, self.devices[key].meta = data, meta

    def do_blockdev_shutdown(self, node, args):
        if args[0]["dev_type"] == "plain":
            return
        self.devices.pop((node, _minor(args[0])), None)

    def do_blockdev_removechildren(self, node, args):
        disk, parts = args
        device = self.devices.get((node, _minor(disk)))
        assert [part["logical_id"] for part in parts] == [
            child["logical_id"] for child in disk["children"]
        ]
        if device is None:
            return failure("is not active")
        if device.is_primary and device.data is not None:
            peer = self._peer((node, _minor(disk)))
            copy = None if peer is None else self._data(peer)
            if copy is None or not copy.is_valid:
                return failure("the other node has no valid data")
        device.data = device.meta = None
        return None

    def do_blockdev_addchildren(self, node, args):
        disk, _parts = args
        key = node, _minor(disk)
        data, meta = (_key(child) for child in disk["children"])
        if key not in self.devices or self.devices[key].data is not None:
            return failure("is not without a disk")
        if not {(node, data), (node, meta)} <= set(self.volumes):
            return failure("no such volume")
        self._attach(key, data, meta)
        self.volumes[node, data].is_valid = False
        return None

    # Connections
    def do_drbd_disconnect_net(self, node, args):
        for disk in args[0]:
            if (device := self.devices.get((node, _minor(disk)))) is not None:
                device.port = None

    def do_drbd_attach_net(self, node, args):
        for disk in args[0]:
            device = self.devices.get((node, _minor(disk)))
            if device is None:
                return failure("is not active on this node")
            device.port = disk["dynamic_params"]["port"]
            device.peer = _other(disk, node)
        return None

    # Status
    def do_blockdev_getmirrorstatus_multi(self, node, args):
        return [[True, self._status(node, disk)] for disk in args[0]]

    def _status(self, node, disk):
        key = node, _minor(disk)
        device = self.devices.get(key)
        # DRBD calls one without volumes and without a connection unconfigured.
        if device is None or (device.data is None and device.port is None):
            return disk_status(disk) | {
                "dev_path": "",
                "is_degraded": True,
                "ldisk_status": 3,
            }
        own, peer = self._data(key), self._peer(key)
        is_comparing = False
        if peer is not None and self.devices[key].handshake:
            for end in (key, peer):
                self.devices[end].handshake -= 1
            peer = None
            is_comparing = self.devices[key].handshake < self.comparing
        other = None if peer is None else self._data(peer)
        both = [copy for copy in (own, other) if copy is not None]
        is_syncing = len(both) == 2 and {copy.is_valid for copy in both} == {
            True,
            False,
        }
        if is_syncing:
            self.looks += 1
            if self.looks % 3 == 0 and not self.is_stuck:
                last = max(copy.content for copy in both if copy.is_valid)
                for copy in both:
                    copy.is_valid, copy.content = True, last
                is_syncing = False
        is_whole = len(both) == 2 and all(copy.is_valid for copy in both)
        kernel = self._kernel(
            key, own, other, is_met=peer is not None, is_syncing=is_syncing
        )
        if is_comparing:
            kernel["connection"] = "WFBitMapS"
        local = 4 if own is None else 1 if own.is_valid else 2 if is_syncing else 3
        return disk_status(disk) | {
            "is_degraded": not is_whole,
            "ldisk_status": local,
            "sync_percent": 50.0 if is_syncing else None,
            "estimated_time": 1.0 if is_syncing else None,
            "mirror": kernel,
        }

    def _kernel(self, key, own, other, *, is_met, is_syncing):
        """Return the words of the kernel for the state of a device."""
        device, way = self.devices[key], "WFConnection"
        if is_met or (own is None and self._peer(key) is not None):
            way = "Connected"
        elif device.port is None:
            way = "StandAlone"
        if is_syncing:
            way = "SyncSource" if own.is_valid else "SyncTarget"
        return {
            "connection": way,
            "role": "Primary" if device.is_primary else "Secondary",
            "disk": _word(own),
            "peer_disk": _word(other) if way != "StandAlone" else "DUnknown",
            "generations": self.generations.get(key[0], ()) if own else (),
        }


def _word(copy):
    if copy is None:
        return "Diskless"
    return "UpToDate" if copy.is_valid else "Inconsistent"


def _key(volume):
    """Return ``group/name`` of a volume, given as a record or as nodes get it."""
    logical_id = volume["logical_id"] if isinstance(volume, dict) else volume.logical_id
    return "/".join(logical_id)


def _minor(disk):
    return disk["dynamic_params"]["local-minor"]


def _other(disk, node):
    return next(uuid for uuid in disk["logical_id"][:2] if uuid != node)
