"""Procedures that write files of the cluster: ancillary files, ssconf, hosts.

Only files on a fixed list, and on the administrator's list of shared files, are
accepted, so that a caller with cluster rights cannot replace arbitrary files of a node.
The fixed list lacks the cluster certificate, since
replacing it would cut the connection, and the list of storage directories.
"""

import grp
import os
import pwd
from collections.abc import Callable
from typing import Any, Final

from ganeti.base import daemon_users, errors
from ganeti.base.constants import misc
from ganeti.base.filesystem import files, hosts_file, shared_files
from ganeti.base.net import netutils
from ganeti.node.calls.guests import leftovers
from ganeti.node.calls.registry import LocalNode, procedure
from ganeti.protocols import ssconf
from ganeti.protocols.rpc import wire

#: Files of the state directory that may be uploaded.
_DATA_FILES: Final = (
    "config.data",
    "known_hosts",
    "hmac.key",
    *misc.CANDIDATE_FILES,
    "spice.pem",
    "spice-ca.pem",
)
#: Files of the configuration directory that may be uploaded.
_CONF_FILES: Final = (
    "kvm-vif-bridge",
    "scripts/master-ip-setup",
    shared_files.NAME,
)
_HOSTS_MODE: Final = 0o644


def allowed_files(node: LocalNode) -> frozenset[str]:
    """Return the local paths that may be uploaded, besides VNC password files."""
    paths = node.paths
    allowed = {paths.data(name) for name in _DATA_FILES}
    allowed |= {f"{paths.conf_dir}/{name}" for name in _CONF_FILES}
    allowed.add(paths.at(netutils.HOSTS_FILE))
    for driver in node.hypervisors.values():
        for names in driver.ancillary_files():
            allowed.update(names)
    allowed.update(shared_files.read(paths).paths)
    return frozenset(allowed)


@procedure("upload_file")
def upload_file(node: LocalNode, file_name: tuple[Any, ...]) -> None:
    """Write a file that is passed as one array; see `upload_file_single`."""
    if len(file_name) != 7:
        raise errors.ParseError(
            f"upload_file: wanted 7 elements, found {len(file_name)}"
        )
    upload_file_single(node, *file_name)


@procedure("upload_file_single")
def upload_file_single(
    node: LocalNode,
    file_name: str,
    content: list[Any],
    mode: int | None,
    uid: str,
    gid: str,
    atime: float,
    mtime: float,
) -> None:
    """Write a file on the list, atomically.

    Raises:
        GenericError: the path is not absolute or not on the list.
        ParseError: the content cannot be unpacked.
    """
    path = _local(node, file_name)
    if not os.path.isabs(path):
        raise errors.GenericError(f"upload of {file_name}: wanted an absolute path")
    if not (
        shared_files.is_password_file(path, node.paths) or path in allowed_files(node)
    ):
        raise errors.GenericError(
            f"upload of {file_name}: not on the list of files that may be uploaded"
        )
    reader = daemon_users.reader_group(path, node.paths)
    owner, group = _owner(uid, gid) if reader is None else (0, reader)
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    files.write_file(
        path,
        wire.unpack(content),
        mode=0o600 if mode is None else mode & 0o777,
        uid=owner,
        gid=group,
        times=(atime, mtime),
    )


def _local(node: LocalNode, path: str) -> str:
    if path == netutils.HOSTS_FILE:
        # All nodes use the same path; a virtual node never changes the machine's file.
        return node.paths.at(path)
    return os.path.normpath(node.paths.localize(path))


def _owner(user: str, group: str) -> tuple[int, int]:
    """Return the ids of a user and a group; -1 where they cannot be changed."""
    try:
        ids = pwd.getpwnam(user).pw_uid, grp.getgrnam(group).gr_gid
    except KeyError as err:
        raise errors.GenericError(f"no such user or group: {err}") from err
    return ids if os.geteuid() == 0 else (-1, -1)


@procedure("write_ssconf_files")
def write_ssconf_files(node: LocalNode, values: dict[str, str]) -> None:
    """Replace ssconf files; remove what instances left that are not listed any more."""
    before = leftovers.listed(node) if "instance_list" in values else None
    ssconf.write(node.paths, values)
    if before and (removed := before.difference(leftovers.listed(node) or before)):
        leftovers.sweep(node, removed)


@procedure("etc_hosts_modify")
def etc_hosts_modify(node: LocalNode, mode: str, name: str, ip: str | None) -> bool:
    """Add a host to the hosts file, or remove it again.

    Added lines end with a comment, and only such lines are ever removed. A host that
    already has this address is not added.

    Raises:
        GenericError: unknown mode, or the wrong arguments for it.
    """
    path = node.paths.at(netutils.HOSTS_FILE)
    if mode == misc.ETC_HOSTS_ADD:
        if not ip or not netutils.is_address(ip):
            raise errors.GenericError(
                f"hosts entry {name}: {ip!r} is not an IP address"
            )
        _rewrite_hosts(path, lambda lines: hosts_file.with_host(lines, name, ip))
    elif mode == misc.ETC_HOSTS_REMOVE:
        if ip:
            raise errors.GenericError(
                f"hosts entry {name}: wanted no address with mode remove"
            )
        _rewrite_hosts(path, lambda lines: hosts_file.without_host(lines, name))
    else:
        raise errors.GenericError(f"hosts file: unknown mode {mode!r}")
    return True


def _rewrite_hosts(path: str, change: Callable[[list[str]], list[str]]) -> None:
    """Replace the hosts file if its lines change."""
    try:
        old = files.read_file(path).decode().splitlines()
        mode = os.stat(path).st_mode & 0o777
    except FileNotFoundError:
        old, mode = [], _HOSTS_MODE
        os.makedirs(os.path.dirname(path), exist_ok=True)
    new = change(old)
    if new != old:
        files.write_file(path, "".join(f"{entry}\n" for entry in new), mode=mode)
