"""ssconf: small text files with static cluster data on every node.

`SimpleStore` reads them; `write` replaces them, for node daemon and bootstrap tools.
`ganeti.master.config` computes their values.
"""

import os
import socket
import stat
from collections.abc import Mapping
from typing import Final

from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths, from_environ

__all__ = [
    "SimpleStore",
    "write",
]

#: Prefix of each file name.
FILEPREFIX: Final = "ssconf_"
#: Largest file, in bytes: 263,000 names of 254 letters. A name is in the store, too,
#: with more beside it, so the 128 MiB of a whole copy of the store end first.
MAX_SIZE: Final = 64 * 1024 * 1024
#: Keys, one file each.
KEYS: Final = (
    "cluster_name",
    "cluster_tags",
    "enabled_user_shutdown",
    "file_storage_dir",
    "gluster_storage_dir",
    "hvparams_chroot",
    "hvparams_fake",
    "hvparams_kvm",
    "hvparams_lxc",
    "hvparams_xen-hvm",
    "hvparams_xen-pvm",
    "hypervisor_list",
    "instance_list",
    "maintain_node_health",
    "master_candidates",
    "master_candidates_certs",
    "master_candidates_ips",
    "master_ip",
    "master_netdev",
    "master_netmask",
    "master_node",
    "networks",
    "node_list",
    "node_primary_ips",
    "node_secondary_ips",
    "node_vm_capable",
    "nodegroups",
    "offline_nodes",
    "online_nodes",
    "primary_ip_family",
    "release_version",
    "shared_file_storage_dir",
    "ssh_ports",
    "uid_pool",
)


class SimpleStore:
    """Reader of one node's ssconf files; every call reads the file again.

    All getters raise ConfigurationError when the file is missing or damaged.
    """

    def __init__(self, paths: Paths | None = None) -> None:
        """Use a node's paths; by default the paths that the environment selects."""
        self._paths = from_environ(os.environ) if paths is None else paths

    def path(self, key: str) -> str:
        """Return the path of a key's file.

        Raises:
            ProgrammerError: unknown key.
        """
        if key not in KEYS:
            raise errors.ProgrammerError(f"ssconf has no key {key!r}")
        return self._paths.data(FILEPREFIX + key)

    def get(self, key: str) -> str:
        """Return a value without its final newlines."""
        path = self.path(key)
        try:
            data = files.read_file(path, max_size=MAX_SIZE)
            return data.decode().rstrip("\n")
        except OSError as err:
            raise errors.ConfigurationError(f"{path}: {err.strerror}") from err
        except UnicodeDecodeError as err:
            raise errors.ConfigurationError(f"{path}: wanted UTF-8: {err}") from err
        except errors.GenericError as err:
            raise errors.ConfigurationError(str(err)) from err

    def get_or(self, key: str, default: str) -> str:
        """Return a value, or a default when the file is missing."""
        try:
            return self.get(key)
        except errors.ConfigurationError:
            return default

    def read_all(self) -> dict[str, str]:
        """Return the values of all keys that have a file."""
        return {key: self.get(key) for key in KEYS if os.path.exists(self.path(key))}

    def lines(self, key: str) -> list[str]:
        """Return a value as a list of its lines."""
        return [line for line in self.get(key).split("\n") if line]

    def _pairs(self, key: str, separator: str) -> dict[str, str]:
        pairs = {}
        for line in self.lines(key):
            name, mark, value = line.partition(separator)
            if not mark:
                raise errors.ConfigurationError(
                    f"{self.path(key)}: wanted NAME{separator}VALUE, found {line!r}"
                )
            pairs[name] = value
        return pairs

    # Cluster
    def cluster_name(self) -> str:
        """Return the name of the cluster."""
        return self.get("cluster_name")

    def cluster_tags(self) -> list[str]:
        """Return the tags of the cluster."""
        return self.lines("cluster_tags")

    def release_version(self) -> str:
        """Return the version that the master runs."""
        return self.get("release_version")

    def maintain_node_health(self) -> bool:
        """Return whether watchers stop the instances that offline nodes still run."""
        return self.get("maintain_node_health") == "True"

    def enabled_user_shutdown(self) -> bool:
        """Return whether users may shut down instances from inside."""
        return self.get("enabled_user_shutdown") == "True"

    def primary_ip_family(self) -> socket.AddressFamily:
        """Return the address family of node addresses; IPv4 when unknown."""
        text = self.get_or("primary_ip_family", str(int(socket.AF_INET)))
        try:
            return socket.AddressFamily(int(text))
        except ValueError as err:
            raise errors.ConfigurationError(
                f"{self.path('primary_ip_family')}: wanted a number of an address"
                f" family, found {text!r}"
            ) from err

    def GetUidPool(self) -> str:
        """Return the user-id pool, one range a line."""
        return self.get("uid_pool")

    # Master
    def master_node(self) -> str:
        """Return the name of the master node."""
        return self.get("master_node")

    def master_ip(self) -> str:
        """Return the address of the cluster."""
        return self.get("master_ip")

    def master_netdev(self) -> str:
        """Return the network device that carries the address of the cluster."""
        return self.get("master_netdev")

    def master_netmask(self) -> int:
        """Return the prefix length of the address of the cluster."""
        text = self.get("master_netmask")
        try:
            return int(text)
        except ValueError as err:
            raise errors.ConfigurationError(
                f"{self.path('master_netmask')}: wanted a number, found {text!r}"
            ) from err

    def master_candidates(self) -> list[str]:
        """Return the names of the master candidates, the master among them."""
        return self.lines("master_candidates")

    def master_candidates_ips(self) -> list[str]:
        """Return the addresses of the master candidates."""
        return self.lines("master_candidates_ips")

    def master_candidates_certs(self) -> dict[str, str]:
        """Return node uuid -> certificate digest of the candidates, {} if unknown."""
        try:
            return self._pairs("master_candidates_certs", "=")
        except errors.ConfigurationError:
            if os.path.exists(self.path("master_candidates_certs")):
                raise
            return {}

    # Nodes, groups, networks, instances
    def node_list(self) -> list[str]:
        """Return the names of all nodes."""
        return self.lines("node_list")

    def online_nodes(self) -> list[str]:
        """Return the names of the nodes that are not offline."""
        return self.lines("online_nodes")

    def offline_nodes(self) -> list[str]:
        """Return the names of the offline nodes."""
        return self.lines("offline_nodes")

    def node_primary_ips(self) -> dict[str, str]:
        """Return node name -> primary address."""
        return self._pairs("node_primary_ips", " ")

    def node_secondary_ips(self) -> dict[str, str]:
        """Return node name -> secondary address."""
        return self._pairs("node_secondary_ips", " ")

    def node_vm_capable(self) -> dict[str, bool]:
        """Return node name -> whether it runs instances."""
        return {
            name: value == "True"
            for name, value in self._pairs("node_vm_capable", "=").items()
        }

    def ssh_ports(self) -> dict[str, int]:
        """Return node name -> port of its ssh daemon."""
        return {name: int(port) for name, port in self._pairs("ssh_ports", "=").items()}

    def nodegroups(self) -> dict[str, str]:
        """Return group uuid -> name."""
        return self._pairs("nodegroups", " ")

    def networks(self) -> dict[str, str]:
        """Return network uuid -> name."""
        return self._pairs("networks", " ")

    def instance_list(self) -> list[str]:
        """Return the names of all instances."""
        return self.lines("instance_list")

    # Hypervisors and storage
    def hypervisor_list(self) -> list[str]:
        """Return the enabled hypervisors, the default first."""
        return self.lines("hypervisor_list")

    def hvparams(self, hypervisor: str) -> dict[str, str]:
        """Return the cluster's parameters of a hypervisor, as texts."""
        return self._pairs(f"hvparams_{hypervisor}", "=")

    def file_storage_dir(self) -> str:
        """Return the directory of file disks; may be empty."""
        return self.get("file_storage_dir")

    def shared_file_storage_dir(self) -> str:
        """Return the directory of shared file disks; may be empty."""
        return self.get("shared_file_storage_dir")

    def gluster_storage_dir(self) -> str:
        """Return the directory of gluster mounts; may be empty."""
        return self.get("gluster_storage_dir")


LOCK_NAME: Final = "ganeti-ssconf.lock"
LOCK_TIMEOUT_S: Final = 10.0
_MODE: Final = 0o444


def write(paths: Paths, values: Mapping[str, str], *, dry_run: bool = False) -> None:
    """Replace ssconf files, each one atomically, under the ssconf lock.

    Unchanged files are not written: most changes of a cluster concern one or two files,
    and each durable write costs disk time. A key that is refused does not keep the
    others from being written: the list of instances must not stop a new master.

    Args:
        paths: paths of the node.
        values: key -> text; a missing final newline is added unless it is empty.
        dry_run: check only.

    Raises:
        ConfigurationError: keys are unknown or values too long; all others were
            written.
        LockError: another writer holds the lock for too long.
    """
    texts, problems = {}, []
    for key, value in values.items():
        try:
            texts[key] = encode(key, value)
        except errors.ConfigurationError as err:
            problems.append(str(err))
    if texts and not dry_run:
        _replace(paths, texts)
    if problems:
        raise errors.ConfigurationError("; ".join(problems))


def _replace(paths: Paths, texts: Mapping[str, bytes]) -> None:
    with files.locked(f"{paths.lock_dir}/{LOCK_NAME}", timeout_s=LOCK_TIMEOUT_S):
        for key, data in texts.items():
            path = paths.data(FILEPREFIX + key)
            if not _is_right(path, data):
                files.write_file(path, data, mode=_MODE, sync_name=False)
        # Also when nothing was written: the last writer may have been killed.
        files.sync_dir(paths.data_dir)


def _is_right(path: str, data: bytes) -> bool:
    """Return whether a regular file of this user has this content and mode."""
    try:
        status = os.lstat(path)
        looks_right = (status.st_mode, status.st_uid) == (
            stat.S_IFREG | _MODE,
            os.geteuid(),
        )
        size = MAX_SIZE
        return looks_right and files.read_file(path, max_size=size) == data
    except (OSError, errors.GenericError):
        return False


def encode(key: str, value: str) -> bytes:
    """Return the content of a key's file.

    Raises:
        ConfigurationError: the key is unknown or the value too long.
    """
    if key not in KEYS:
        raise errors.ConfigurationError(f"ssconf has no key {key!r}")
    text = value if not value or value.endswith("\n") else f"{value}\n"
    data = text.encode()
    if len(data) > MAX_SIZE:
        raise errors.ConfigurationError(
            f"ssconf key {key}: {len(data)} bytes, wanted at most {MAX_SIZE}"
        )
    return data
