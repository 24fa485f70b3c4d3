"""Nodes that remember what they did: files of disks and guests, without processes."""

import os.path

from fakes.rpc import SUCCESSFUL_ACTS, failure, reads
from ganeti.operations.mcpu.simulated_nodes import guest_info


class Simulation:
    """Answers node calls from a state, as careful nodes would."""

    def __init__(self):
        self.files = {}  # path -> MiB
        self.wiped = {}  # path -> set of wiped MiB, by offset
        self.directories = set()
        self.guests = {}  # instance name -> nodes where its emulator is
        self.leaving = {}  # instance name -> (source, target)
        self.devices = {}  # uuid of a device of a guest -> its MAC address or path
        self.waiting = {}  # instance name -> node with an emulator that waits for it

    def script(self):
        """Return the script of a `fakes.rpc.FakeRunner`."""
        fixed = {
            "node_info": ["boot", [], [{"memory_free": 8192, "hv_version": "7.2"}]],
            "hooks_runner": [],
            "migration_info": "opaque",
            "blockdev_find": None,
            "blockdev_assemble": ["/dev/x", "/link", None],
        }
        own = {
            name.removeprefix("do_"): getattr(self, name)
            for name in dir(self)
            if name.startswith("do_")
        }
        return SUCCESSFUL_ACTS | reads(self) | fixed | own

    def runs_on(self, name):
        return self.guests.get(name, set())

    # Disks
    def do_file_storage_dir_create(self, _node, args):
        self.directories.add(args[0])

    def do_file_storage_dir_remove(self, _node, args):
        if any(os.path.dirname(path) == args[0] for path in self.files):
            return failure(f"{args[0]}: not empty")
        return self.directories.discard(args[0])

    def do_file_storage_dir_rename(self, _node, args):
        old, new = args
        if new in self.directories:
            return failure("both exist") if old in self.directories else None
        self.directories.remove(old)
        self.directories.add(new)
        for path in [p for p in self.files if os.path.dirname(p) == old]:
            self.files[f"{new}/{os.path.basename(path)}"] = self.files.pop(path)
        return None

    def do_blockdev_create(self, _node, args):
        path = args[0]["logical_id"][1]
        if path in self.files:
            return failure(f"{path}: exists")
        if os.path.dirname(path) not in self.directories:
            return failure(f"{path}: no directory")
        self.files[path] = args[1]
        return None

    def do_blockdev_remove(self, _node, args):
        self.files.pop(args[0]["logical_id"][1], None)
        self.wiped.pop(args[0]["logical_id"][1], None)

    def do_blockdev_wipe(self, _node, args):
        disk, offset, size = args
        path = disk["logical_id"][1]
        if offset + size > self.files.get(path, 0):
            return failure(f"{path}: too small")
        self.wiped.setdefault(path, set()).update(range(offset, offset + size))
        return None

    def do_blockdev_grow(self, _node, args):
        path, wanted = args[0]["logical_id"][1], args[0]["size"] + args[1]
        if not args[2]:
            self.files[path] = max(self.files[path], wanted)

    def do_blockdev_getdimensions(self, _node, args):
        sizes = [self.files.get(disk["logical_id"][1]) for disk in args[0]]
        return [None if size is None else [size << 20, None] for size in sizes]

    def do_blockdev_convert_part(self, _node, args):
        if args[0]["logical_id"][1] not in self.files:
            return failure("the source is missing")
        return None

    # Guests
    def guests_on(self, node, _hypervisors):
        return {
            name: guest_info(128, 1)
            for name, places in self.guests.items()
            if node in places
        }

    def guest_on(self, node, name):
        return self.guests_on(node, ()).get(name, {})

    def do_instance_list(self, node, _args):
        return [
            name
            for name in {*self.guests, *self.waiting}
            if node in self.runs_on(name) or self.waiting.get(name) == node
        ]

    def do_instance_start(self, node, args):
        record = args[0]
        self.guests.setdefault(record["name"], set()).add(node)
        for disk in record["disks_info"]:
            self.devices[disk["uuid"]] = disk["logical_id"][1]
        self.devices.update({nic["uuid"]: nic["mac"] for nic in record["nics"]})

    def do_instance_shutdown(self, node, args):
        record = args[0]
        self.runs_on(record["name"]).discard(node)
        for device in (*record["disks_info"], *record["nics"]):
            self.devices.pop(device["uuid"], None)

    def do_hotplug_device(self, _node, args):
        _instance, action, kind, device = args[:4]
        path = device["logical_id"][1] if kind == "disk" else device["mac"]
        if action == "hotremove":
            self.devices.pop(device["uuid"], None)
            return None
        if kind == "disk" and path not in self.files:
            return failure(f"{path}: does not exist")
        self.devices[device["uuid"]] = path
        return None

    def do_accept_instance(self, node, args):
        name = args[0]["name"]
        if node in self.runs_on(name) or self.waiting.get(name) == node:
            return failure("already running here")
        self.waiting[name] = node
        return None

    def do_instance_migrate(self, node, args):
        name = args[1]["name"]
        if name not in self.waiting:
            return failure("nobody waits")
        self.leaving[name] = (node, self.waiting[name])
        return None

    def do_instance_get_migration_status(self, node, args):
        if args[0]["name"] in self.leaving and node in self.runs_on(args[0]["name"]):
            return {"status": "completed"}
        return {"status": "failed"}

    def do_instance_finalize_migration_src(self, node, args):
        name = args[0]["name"]
        if args[1]:
            self.runs_on(name).discard(node)
            # Its note of the departure.
            self.leaving.pop(name, None)
        elif name in self.leaving:
            return failure("the guest has left")
        return None

    def do_instance_finalize_migration_dst(self, node, args):
        name = args[0]["name"]
        if args[2]:
            if self.waiting.get(name) == node:
                del self.waiting[name]
            elif node not in self.runs_on(name):
                return failure("did not arrive")
            self.guests.setdefault(name, set()).add(node)
        elif node in self.runs_on(name):
            return failure("runs here")
        else:
            self.waiting.pop(name, None)
        return None
