"""Nodes with finite memory and space, which refuse what does not fit."""

from fakes.rpc import failure
from fakes.simulation import Simulation
from ganeti.operations.mcpu.simulated_nodes import guest_info

#: The place of disks that all nodes share.
SHARED = "shared"


class FiniteNodes(Simulation):
    """Nodes whose guests take memory, and whose disk files take space, in MiB.

    Disk files in the shared directory take space that all nodes share. A guest takes its ``maxmem``, or what is free if that is at least its ``minmem``.
    """

    def __init__(self, memory=8192, space=65536):
        super().__init__()
        self.memory, self.space, self.shared_space = memory, space, 2 * space
        self.taken = {}  # (instance name, node) -> MiB of a guest
        self.place = {}  # path of a disk -> node, or SHARED
        self.overdrawn = []  # (text, node) of guests and disks that did not fit

    def free_memory(self, node):
        used = sum(mib for (_name, at), mib in self.taken.items() if at == node)
        return self.memory - used

    def free_space(self, place):
        used = sum(mib for path, mib in self.files.items() if self.place[path] == place)
        return (self.shared_space if place == SHARED else self.space) - used

    def do_node_info(self, node, args):
        units, hypervisors = args
        storage = [
            {
                "type": kind,
                "name": key,
                "storage_free": self.free_space(SHARED if "shared" in key else node),
                "storage_size": self.shared_space if "shared" in key else self.space,
            }
            for kind, key, _params in units
        ]
        free = self.free_memory(node)
        memory = {
            "memory_total": self.memory,
            "memory_free": free,
            "memory_dom0": 0,
            "cpu_total": 64,
            "cpu_dom0": 1,
            "hv_version": "7.2",
        }
        return ["boot", storage, [memory] if hypervisors else []]

    def guests_on(self, node, _hypervisors):
        return {
            name: guest_info(mib, 1)
            for (name, at), mib in self.taken.items()
            if at == node
        }

    def do_blockdev_create(self, node, args):
        path = args[0]["logical_id"][1]
        place = SHARED if "/shared-" in path else node
        if args[1] > self.free_space(place):
            self.overdrawn.append((f"disk {args[0]['uuid']} on {node}", node))
            return failure("no space left on device")
        self.place[path] = place
        return super().do_blockdev_create(node, args)

    def do_blockdev_grow(self, node, args):
        place = self.place[args[0]["logical_id"][1]]
        if args[2] and args[1] > self.free_space(place):
            return failure("no space left on device")
        return super().do_blockdev_grow(node, args)

    def do_file_storage_dir_rename(self, node, args):
        before = dict(self.files)
        answer = super().do_file_storage_dir_rename(node, args)
        for path in set(self.files) - set(before):
            old = f"{args[0]}/{path.rpartition('/')[2]}"
            self.place[path] = self.place.pop(old)
        return answer

    def do_instance_start(self, node, args):
        record = args[0]
        free, least = self.free_memory(node), record["beparams"]["minmem"]
        if (record["name"], node) not in self.taken:
            if least > free:
                self.overdrawn.append((f"guest {record['name']} on {node}", node))
                return failure("cannot allocate memory")
            self.taken[record["name"], node] = min(free, record["beparams"]["maxmem"])
        return super().do_instance_start(node, args)

    def do_instance_reboot(self, node, args):
        record, kind = args[:2]
        if kind == "hard":
            self.taken.pop((record["name"], node), None)
            return self.do_instance_start(node, (record,))
        return None

    def do_instance_shutdown(self, node, args):
        self.taken.pop((args[0]["name"], node), None)
        return super().do_instance_shutdown(node, args)

    def do_instance_finalize_migration_dst(self, node, args):
        record = args[0]
        source = self.leaving.get(record["name"], (None, None))[0]
        answer = super().do_instance_finalize_migration_dst(node, args)
        if answer is None and args[2]:
            taken = self.taken.pop((record["name"], source), None)
            if taken is not None:
                if taken > self.free_memory(node):
                    self.overdrawn.append(
                        (f"migrated {record['name']} to {node}", node)
                    )
                self.taken[record["name"], node] = taken
        return answer

    def do_instance_balloon_memory(self, node, args):
        key = args[0]["name"], node
        if args[1] - self.taken.get(key, 0) > self.free_memory(node):
            self.overdrawn.append((f"memory of {key[0]} on {node}", node))
        self.taken[key] = args[1]

    def fail(self, node):
        """Lose all guests of a node, as in a power failure."""
        for name, at in list(self.taken):
            if at == node:
                del self.taken[name, at]
                self.runs_on(name).discard(node)
