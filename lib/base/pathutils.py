"""Paths on a node.

`Paths` is built once by a program's ``main`` from the environment and passed down;
nothing else reads ``GANETI_ROOTDIR`` or ``GANETI_HOSTNAME``. In a virtual cluster
every path except those of programs is below the node's root directory. Every command
imports this module first, so it imports little.
"""

import os
from collections.abc import Mapping
from typing import Final, NamedTuple

from ganeti import _buildconf
from ganeti.base import errors

ROOTDIR_ENV = "GANETI_ROOTDIR"
HOSTNAME_ENV = "GANETI_HOSTNAME"
#: Prefix of a path that means the same path on the receiving node.
VIRTUAL_PREFIX = "/###-VIRTUAL-PATH-###,"
#: Paths that are the same on all nodes of a virtual cluster.
VIRTUAL_EXEMPT = frozenset({"/etc/hosts"})

#: Error code; this module is below those of ``constants.ecodes``.
_WRONG_ENVIRONMENT = "environment_error"


class Paths(NamedTuple):
    """Directories and files of one node.

    Attributes:
        root: root directory of a virtual node, empty on a real one.
        hostname: fully qualified name of this node.
    """

    root: str = ""
    hostname: str = ""

    def at(self, path: str) -> str:
        """Return the local form of an absolute path."""
        return f"{self.root}{path}"

    @property
    def is_virtual(self) -> bool:
        """Return whether this is a node of a virtual cluster."""
        return bool(self.root)

    # Directories
    @property
    def data_dir(self) -> str:
        """State directory."""
        return self.at(f"{_buildconf.LOCALSTATEDIR}/lib/ganeti")

    @property
    def run_dir(self) -> str:
        """Run-time directory."""
        return self.at(f"{_buildconf.LOCALSTATEDIR}/run/ganeti")

    @property
    def socket_dir(self) -> str:
        """Directory of the unix sockets."""
        return f"{self.run_dir}/socket"

    @property
    def log_dir(self) -> str:
        """Log directory."""
        return self.at(f"{_buildconf.LOCALSTATEDIR}/log/ganeti")

    @property
    def lock_dir(self) -> str:
        """Directory of lock files, which belongs to root alone.

        Everybody may create files in the lock directory of the system, and could hold
        our locks there.
        """
        return f"{self.run_dir}/lock"

    @property
    def conf_dir(self) -> str:
        """Configuration directory, written by the administrator."""
        return self.at(f"{_buildconf.SYSCONFDIR}/ganeti")

    @property
    def backup_dir(self) -> str:
        """Directory of configuration backups."""
        return self.at(f"{_buildconf.LOCALSTATEDIR}/backups")

    @property
    def root_ssh_dir(self) -> str:
        """SSH directory of root, the only user that logs in between nodes."""
        return self.at("/root/.ssh")

    @property
    def sshd_dir(self) -> str:
        """Directory of sshd's host keys."""
        return self.at("/etc/ssh")

    # Files
    def data(self, name: str) -> str:
        """Return a file in the state directory."""
        return f"{self.data_dir}/{name}"

    @property
    def store_db(self) -> str:
        """Database of configuration and jobs, or its copy."""
        return self.data("store.db")

    @property
    def server_pem(self) -> str:
        """Cluster certificate; in clusters of earlier releases also its key."""
        return self.data("server.pem")

    @property
    def server_key_pem(self) -> str:
        """Key of the cluster's certificate authority, only on master candidates."""
        return self.data("server-key.pem")

    @property
    def client_pem(self) -> str:
        """This node's certificate and key."""
        return self.data("client.pem")

    @property
    def hmac_key(self) -> str:
        """Key of confd messages."""
        return self.data("hmac.key")

    @property
    def query_socket(self) -> str:
        """LUXI socket that 3.x clients use."""
        return f"{self.socket_dir}/ganeti-query"

    @property
    def master_socket(self) -> str:
        """LUXI socket that 2.x clients use."""
        return f"{self.socket_dir}/ganeti-master"

    @property
    def rapi_socket_dir(self) -> str:
        """Directory of the remote API's socket, which the daemon's group enters."""
        return f"{self.run_dir}/socket-rapi"

    @property
    def rapi_socket(self) -> str:
        """LUXI socket of the remote API: with its methods and opcodes alone."""
        return f"{self.rapi_socket_dir}/ganeti-master"

    @property
    def hooks_dir(self) -> str:
        """Hook scripts."""
        return f"{self.conf_dir}/hooks"

    @property
    def tools_dir(self) -> str:
        """Helper programs; the same on all nodes of a machine."""
        return _buildconf.TOOLSDIR

    @property
    def daemons_dir(self) -> str:
        """Daemon programs."""
        return _buildconf.SBINDIR

    @property
    def daemon_util(self) -> str:
        """The program that starts and stops daemons."""
        return f"{self.tools_dir}/daemon-util"

    @property
    def os_search_path(self) -> tuple[str, ...]:
        """Directories with OS definitions, first match wins."""
        return tuple(self.at(path) for path in _buildconf.OS_SEARCH_PATH)

    @property
    def es_search_path(self) -> tuple[str, ...]:
        """Directories with providers of external storage, first match wins."""
        return tuple(self.at(path) for path in _buildconf.ES_SEARCH_PATH)

    @property
    def iallocator_search_path(self) -> tuple[str, ...]:
        """Directories with allocators; a virtual node's own directory is the first."""
        installed = tuple(_buildconf.IALLOCATOR_SEARCH_PATH)
        own = tuple(self.at(path) for path in installed) if self.is_virtual else ()
        return own + installed

    def pid_file(self, daemon: str) -> str:
        """Return a daemon's pid file."""
        return f"{self.run_dir}/{daemon}.pid"

    def state_file(self, daemon: str) -> str:
        """Return the file with the state of a daemon, see `ganeti.daemons.common`."""
        return f"{self.run_dir}/{daemon}.state"

    # Paths on the wire
    def virtualize(self, path: str) -> str:
        """Return the form of a local path that another node understands.

        Raises:
            ProgrammerError: the path is not below this node's root.
        """
        if not self.root or path in VIRTUAL_EXEMPT:
            return path
        if not path.startswith(f"{self.root}/"):
            raise errors.ProgrammerError(f"{path} is not below {self.root}")
        return VIRTUAL_PREFIX + path[len(self.root) :]

    def localize(self, path: str) -> str:
        """Return the local form of a path that another node sent.

        Raises:
            GenericError: the path is not in virtual form on a virtual node.
        """
        if not self.root or path in VIRTUAL_EXEMPT:
            return path
        if not path.startswith(VIRTUAL_PREFIX):
            raise errors.GenericError(f"{path}: not a path of a virtual cluster")
        return self.at(os.path.normpath("/" + path[len(VIRTUAL_PREFIX) :].lstrip("/")))


def from_environ(environ: Mapping[str, str]) -> Paths:
    """Return the paths according to the environment.

    Raises:
        OpPrereqError: one of the two variables is missing or wrong.
    """
    root, name = environ.get(ROOTDIR_ENV, ""), environ.get(HOSTNAME_ENV, "")
    if bool(root) != bool(name):
        raise errors.OpPrereqError(
            f"environment: {ROOTDIR_ENV} and {HOSTNAME_ENV} must be set together, or"
            f" neither of them on a real node; found {root!r} and {name!r}",
            _WRONG_ENVIRONMENT,
        )
    if not root:
        return Paths(hostname=os.uname().nodename)
    root = os.path.normpath(root)
    if not root.startswith("/") or os.path.basename(root) != name:
        raise errors.OpPrereqError(
            f"environment variable {ROOTDIR_ENV}: wanted an absolute path that ends in"
            f" {name!r}, the value of {HOSTNAME_ENV}; found {root!r}",
            _WRONG_ENVIRONMENT,
        )
    return Paths(root=root, hostname=name)


#: They, and directories below them, never hold disks.
SYSTEM_DIRECTORIES: Final = frozenset(
    {
        "/boot",
        "/dev",
        "/etc",
        "/home",
        "/proc",
        "/root",
        "/sys",
        *(
            f"{prefix}/{name}"
            for prefix in ("", "/usr", "/usr/local")
            for name in ("bin", "lib", "lib32", "lib64", "libx32", "sbin")
        ),
    }
)


def system_directory_around(path: str) -> str | None:
    """Return the system directory that a normalised path is or is in, if any."""
    # Few commands ask, and this import loads a dozen modules.
    from pathlib import PurePosixPath

    plain = PurePosixPath(path)
    if plain in (PurePosixPath(), PurePosixPath("/")):
        return "/"
    return next(
        (name for name in sorted(SYSTEM_DIRECTORIES) if plain.is_relative_to(name)),
        None,
    )
