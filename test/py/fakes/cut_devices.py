"""Ends the master daemon while it adds devices to a guest of real QEMU; checks the rest.

The daemons are those of `crash_points`; the master daemon ends in place of its n-th durable
act, such as a write to the store or a request to a node. Afterwards the record of the
instance, the files and links on its node and the devices in QEMU agree, and the same
command succeeds.
"""

import dataclasses
import os
import pathlib

from fakes.cut_operations import CutCluster
from fakes.patience import until
from ganeti.node.hypervisor.kvm.files import Files
from ganeti.node.hypervisor.kvm.qmp import Qmp

GUEST = "web1.vc.test"
NODE = "node2"
#: Position in a row of a NIC that OP_INSTANCE_QUERY_DATA returns.
_MAC = 3
CREATE = {
    "OP_ID": "OP_INSTANCE_CREATE",
    "instance_name": GUEST,
    "mode": "create",
    "disk_template": "file",
    "disks": [{"size": 32}],
    "nics": [],
    "hypervisor": "kvm",
    "os_type": "tiny+default",
    "beparams": {"maxmem": 96, "minmem": 96},
    "ignore_ipolicy": True,
    "ip_check": False,
    "name_check": False,
    "wait_for_sync": False,
}


@dataclasses.dataclass(frozen=True)
class Case:
    """A change: what is added, and whether the guest runs."""

    kind: str
    is_live: bool

    def add(self):
        """Return the opcode that adds a device."""
        spec = {"size": 1} if self.kind == "disks" else {}
        return _modify(**{self.kind: [["add", -1, spec]]})

    def remove(self):
        """Return the opcode that removes it."""
        return _modify(**{self.kind: [["remove", -1, {}]]})


CASES = [Case(kind, live) for kind in ("disks", "nics") for live in (True, False)]


def _modify(**changes):
    op = {"OP_ID": "OP_INSTANCE_SET_PARAMS", "instance_name": GUEST}
    return op | {"ignore_ipolicy": True} | changes


class DeviceCluster(CutCluster):
    """A cluster with one guest under QEMU on node2."""

    HYPERVISORS = "kvm"

    def __init__(self, directory):
        super().__init__(directory)
        self._guest = Files(self.paths(NODE), GUEST)
        self.do(CREATE | {"pnode": self.layout.node(NODE).name, "start": False})

    def set_running(self, *, wanted):
        """Start or stop the guest; a started guest takes devices when this returns."""
        if (self._guest.alive_pid() is not None) == wanted:
            return
        if not wanted:
            self.do(
                {"OP_ID": "OP_INSTANCE_SHUTDOWN", "instance_name": GUEST, "timeout": 0}
            )
            return
        self.do({"OP_ID": "OP_INSTANCE_STARTUP", "instance_name": GUEST})
        self._command("serial", GUEST)

    # State
    def record(self):
        """Return (paths of the disks, MAC addresses) as recorded."""
        query = {"OP_ID": "OP_INSTANCE_QUERY_DATA", "instances": [GUEST]}
        info = self.do(query | {"static": True})[GUEST]
        disks = [self._local(disk["logical_id"][1]) for disk in info["disks"]]
        return disks, [nic[_MAC] for nic in info["nics"]]

    def _local(self, path):
        return self.layout.host_path(self.layout.node(NODE), path)

    def plugged(self):
        """Return (number of disks, MAC addresses) of the running guest."""
        with Qmp(self._guest.control("qmp"), GUEST) as qmp:
            rows = qmp.execute("qom-list", {"path": "/machine/peripheral"})
            names = {row["name"] for row in rows}
            blocks = qmp.execute("query-named-block-nodes", {"flat": True})
            nics = [name for name in names if name.startswith("nic-")]
            macs = [
                qmp.execute(
                    "qom-get",
                    {"path": f"/machine/peripheral/{name}", "property": "mac"},
                )
                for name in nics
            ]
        disks = {name for name in names if name.startswith("disk-")}
        nodes = {row["node-name"] for row in blocks if row["node-name"][:5] == "disk-"}
        assert disks == nodes, f"QEMU has devices {disks} and block nodes {nodes}"
        return len(disks), macs

    def agree(self):
        """Return the recorded devices; record, node and guest agree on them."""
        disks, macs = self.record()
        files = sorted(
            str(path)
            for path in pathlib.Path(self._local("/srv/ganeti/file-storage")).rglob("*")
            if path.is_file()
        )
        assert files == sorted(disks), "files of disks"
        links = pathlib.Path(self._local("/var/run/ganeti/instance-disks"))
        targets = (
            [os.readlink(path) for path in links.iterdir()] if links.exists() else []
        )
        assert set(targets) <= set(disks), f"links to {targets}"
        if self._guest.alive_pid() is not None:
            assert sorted(targets) == sorted(disks), "links of a running guest"
            count, plugged = self.plugged()
            assert (count, sorted(plugged)) == (len(disks), sorted(macs)), "QEMU"
        return len(disks), macs

    # Points
    def acts_of(self, case):
        """Return how many acts adding takes."""
        self.set_running(wanted=case.is_live)
        acts = self.acts_during(case.add())
        self.do(case.remove())
        assert self.agree() == (1, [])
        return acts

    def cut(self, case, acts):
        """End the daemon in place of an act; check; return the act."""
        what = self.cut_job(case.add(), acts)
        self._wait_until_all_agree()
        before = self.agree()
        if before == (1, []):
            self.do(case.add())
        after = self.agree()
        wanted = (2, 0) if case.kind == "disks" else (1, 1)
        assert (after[0], len(after[1])) == wanted, f"{before}, then {after}"
        self.do(case.remove())
        assert self.agree() == (1, [])
        return what

    def _wait_until_all_agree(self):
        seen = []

        def is_fine():
            try:
                self.agree()
            except AssertionError as err:
                seen.append(str(err))
                return False
            return True

        try:
            until("nothing to be left on the node", is_fine)
        except AssertionError as err:
            raise AssertionError(f"{err}: {seen[-1]}") from None
