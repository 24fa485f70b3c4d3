"""Layout of a virtual cluster: names, addresses, ports and directories of nodes.

The layout is written once, to ``vcluster.json`` in the cluster's directory; every later
command reads it.
"""

import dataclasses
import hashlib
import json
import os
from typing import Any, Final, Self

from ganeti import _buildconf
from ganeti.base import errors
from ganeti.base.constants import daemons
from ganeti.base.filesystem import files
from ganeti.base.pathutils import HOSTNAME_ENV, ROOTDIR_ENV, Paths

STATE_FILE: Final = "vcluster.json"
DOMAIN: Final = "vc.test"
CLUSTER_HOST: Final = f"cluster.{DOMAIN}"
#: The cluster's address ends in .1, nodes start at .10; later nodes overflow into
#: the next octet.
FIRST_NODE: Final = 10
MAX_NODES: Final = 1000
#: Bridge of isolated nodes for guests; it has the node's address.
GUEST_BRIDGE: Final = "br0"
#: Port of the nodes' SSH servers in simple mode, where 22 may be the machine's own.
SIMPLE_SSH_PORT: Final = 2022


@dataclasses.dataclass(frozen=True)
class Node:
    """One node: its name, address and directory."""

    name: str
    address: str
    root: str

    @property
    def short(self) -> str:
        """The first part of the name."""
        return self.name.split(".", 1)[0]


@dataclasses.dataclass(frozen=True)
class Layout:
    """Layout of a virtual cluster.

    Attributes:
        directory: directory of the cluster; the nodes' roots are below it.
        isolated: whether nodes have their own namespaces.
        network: first two octets of all addresses, such as ``127.93``.
        master: name of the node on which the cluster was created.
        nodes: all nodes.
        bindir: directory of the helper programs.
        monitoring: whether the agents of the nodes and the maintenance daemon run.
    """

    directory: str
    isolated: bool
    network: str
    master: str
    nodes: tuple[Node, ...]
    bindir: str
    monitoring: bool = False

    @property
    def cluster_address(self) -> str:
        """Address of the cluster name."""
        return f"{self.network}.0.1"

    @property
    def ssh_port(self) -> int:
        """Port of the nodes' SSH servers."""
        return 22 if self.isolated else SIMPLE_SSH_PORT

    @property
    def bridge(self) -> str:
        """Name of the bridge that joins isolated nodes."""
        return f"gvc{self.network.replace('.', '-')}"

    @property
    def shared_directory(self) -> str:
        """Directory of the storage that all nodes share."""
        return os.path.join(self.directory, "shared")

    @property
    def master_node(self) -> Node:
        """The node on which the cluster was created."""
        return self.node(self.master)

    @property
    def has_etcd(self) -> bool:
        """Whether the cluster keeps its state in etcd."""
        return os.path.isdir(os.path.join(self.directory, "etcd"))

    def others(self, node: Node) -> list[Node]:
        """Return all nodes but one."""
        return [other for other in self.nodes if other != node]

    def node(self, name: str) -> Node:
        """Return a node by its full or short name.

        Raises:
            OpPrereqError: no node has this name.
        """
        for node in self.nodes:
            if name in (node.name, node.short):
                return node
        known = ", ".join(node.short for node in self.nodes)
        raise errors.OpPrereqError(
            f"node {name}: not in the virtual cluster; its nodes are {known}",
            "unknown_entity",
        )

    def paths(self, node: Node) -> Paths:
        """Return the paths of a node as its own programs use them."""
        if self.isolated:
            return Paths(hostname=node.name)
        return Paths(root=node.root, hostname=node.name)

    def host_path(self, node: Node, path: str) -> str:
        """Return the path on this machine of an absolute path of a node."""
        return f"{node.root}{path}"

    def environment(self, node: Node) -> dict[str, str]:
        """Return the environment of programs on a node."""
        system = "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"
        path = f"{self.bindir}:{_buildconf.SBINDIR}:{_buildconf.BINDIR}:{system}"
        env = {"PATH": path, "LC_ALL": "C.UTF-8", "HOME": node.root}
        if self.isolated:
            return env | {"HOME": "/root"}
        return env | {ROOTDIR_ENV: node.root, HOSTNAME_ENV: node.name}

    def to_dict(self) -> dict[str, Any]:
        """Return the layout as stored."""
        return dataclasses.asdict(self)

    def save(self) -> None:
        """Write the layout."""
        text = json.dumps(self.to_dict(), indent=1) + "\n"
        files.write_file(os.path.join(self.directory, STATE_FILE), text, mode=0o644)

    @classmethod
    def load(cls, directory: str) -> Self:
        """Read the layout of a cluster.

        Raises:
            OpPrereqError: the directory has no virtual cluster.
        """
        path = os.path.join(directory, STATE_FILE)
        try:
            data = json.loads(files.read_file(path))
        except FileNotFoundError:
            raise errors.OpPrereqError(
                f"{directory}: no virtual cluster here; `vcluster up` creates one",
                "unknown_entity",
            ) from None
        data["nodes"] = tuple(Node(**node) for node in data["nodes"])
        return cls(**data)

    @staticmethod
    def exists(directory: str) -> bool:
        """Return whether a directory has a virtual cluster."""
        return os.path.exists(os.path.join(directory, STATE_FILE))


def plan(
    directory: str,
    *,
    count: int,
    isolated: bool,
    network: str,
    bindir: str,
    prefix: str = "node",
    monitoring: bool = False,
) -> Layout:
    """Return the layout of a new cluster.

    Raises:
        OpPrereqError: the number of nodes is out of range.
    """
    if not 1 <= count <= MAX_NODES:
        raise errors.OpPrereqError(
            f"number of nodes: wanted 1 to {MAX_NODES}, found {count}", "wrong_input"
        )
    nodes = []
    for position in range(count):
        high, low = divmod(FIRST_NODE + position, 250)
        name = f"{prefix}{position + 1}.{DOMAIN}"
        root = os.path.join(directory, name)
        nodes.append(Node(name, f"{network}.{high}.{low + 1}", root))
    return Layout(
        directory, isolated, network, nodes[0].name, tuple(nodes), bindir, monitoring
    )


def candidate_networks(directory: str, *, isolated: bool) -> list[str]:
    """Return networks in the order of trying; the first is a hash of the directory."""
    start = int.from_bytes(hashlib.sha256(directory.encode()).digest()[:4], "big")
    first = "10" if isolated else "127"
    return [f"{first}.{1 + (start + step) % 254}" for step in range(254)]


def os_definitions() -> list[str]:
    """Return the directories of OS definitions in the source tree or the package."""
    places = (
        os.path.join(_buildconf.DATADIR, "tools/os"),
        os.path.join(_buildconf.DATADIR, "os"),
        *_buildconf.OS_SEARCH_PATH,
    )
    directories = []
    for place in places:
        if os.path.isdir(place):
            directories += [
                os.path.join(place, name) for name in sorted(os.listdir(place))
            ]
    return [path for path in directories if os.path.isdir(path)]


def hosts_text(layout: Layout) -> str:
    """Return the hosts file of all nodes."""
    lines = ["127.0.0.1 localhost", f"{layout.cluster_address} {CLUSTER_HOST} cluster"]
    lines += [f"{node.address} {node.name} {node.short}" for node in layout.nodes]
    return "\n".join(lines) + "\n"


def defaults_text(address: str, *, monitoring: bool = False) -> str:
    """Return the daemons' settings.

    Args:
        address: to bind to; empty for all, as on nodes with a network of their own,
            which answer on the address of the cluster, too.
        monitoring: whether the daemons that watch the nodes run: they would double the
            memory of a large cluster on one machine.
    """
    # With many node daemons on one machine, locked memory would exhaust it. A machine
    # with virtual clusters need not have the users of daemons.
    named = {
        "NODED": "--no-mlock",
        "CONFD": "--allow-root",
        "MOND": "--allow-root",
        "RAPI": "--allow-root",
        "MAINTD": "",
    }
    bind = f"-b {address}" if address else ""
    text = "".join(
        f'{name}_ARGS="{f"{bind} {rest}".strip()}"\n' for name, rest in named.items()
    )
    disabled = "" if monitoring else "ganeti-mond ganeti-maintd"
    return f'{text}DISABLED_DAEMONS="{disabled}"\n'


#: Ports of a node's daemons, by name.
PORTS: Final = {name: row.port for name, row in daemons.DAEMONS.items() if row.port}
