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
from ganeti.base.filesystem import files, shared_files
from ganeti.base.net import ip, netutils
from ganeti.node.calls import guest_files
from ganeti.node.calls.registry import LocalNode, procedure
from ganeti.protocols import ssconf
from ganeti.protocols.rpc import wire

_ETC_HOSTS_ADD: Final = "add"
_ETC_HOSTS_REMOVE: Final = "remove"

# Changes of the lines of ``/etc/hosts``.
#
# Lines that Ganeti adds end with a comment. All other lines are the administrator's:
# they stay, except that a host loses its name in a line with another address of the
# same family, because a resolver takes the first line with a name.

#: Comment at the end of lines that Ganeti added.
MARK: Final = "# added by Ganeti"


def with_host(lines: list[str], name: str, address: str) -> list[str]:
    """Return the lines with a host that has this address.

    Args:
        lines: of a hosts file, without newlines.
        name: full name of the host.
        address: IPv4 or IPv6 address.
    """
    kept: list[str] = []
    for line in lines:
        kept += _without_name(line, name) if _differs(line, address) else [line]
    wanted = ip.parse(address)
    if not any(_address(line) == wanted and name in _words(line) for line in kept):
        kept.append(f"{address}\t{name} {_short(name)} {MARK}")
    return kept


def without_host(lines: list[str], name: str) -> list[str]:
    """Return the lines without a host in those that `with_host` added."""
    kept: list[str] = []
    for line in lines:
        kept += _without_name(line, name) if line.rstrip().endswith(MARK) else [line]
    return kept


def _words(line: str) -> list[str]:
    """Return address and names of a line, nothing for a comment."""
    return line.partition("#")[0].split()


def _address(
    line: str,
) -> ip.Address | None:
    words = _words(line)
    try:
        return ip.parse(words[0]) if words else None
    except ValueError:
        return None


def _differs(line: str, address: str) -> bool:
    """Return whether a line has another address of the same family."""
    listed, wanted = _address(line), ip.parse(address)
    if listed is None or listed.version != wanted.version:
        return False
    return listed != wanted


def _without_name(line: str, name: str) -> list[str]:
    """Return the line without a host, nothing if it has no other names."""
    address, *names = _words(line) or [""]
    if name not in names:
        return [line]
    left = [word for word in names if word not in (name, _short(name))]
    if not left:
        return []
    _text, hash_sign, comment = line.partition("#")
    tail = f" {hash_sign}{comment}" if hash_sign else ""
    return [f"{address}\t{' '.join(left)}{tail}"]


def _short(name: str) -> str:
    return name.partition(".")[0]


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
#: Bytes of the hosts file that are no UTF-8, as in comments, are written as they were.
_ANY_BYTES: Final = "surrogateescape"


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
    before = guest_files.listed(node) if "instance_list" in values else None
    ssconf.write(node.paths, values)
    if before and (removed := before.difference(guest_files.listed(node) or before)):
        guest_files.sweep(node, removed)


@procedure("etc_hosts_modify")
def etc_hosts_modify(node: LocalNode, mode: str, name: str, ip: str | None) -> bool:
    """Add a host to the hosts file, or remove it again.

    Added lines end with a comment, and only such lines are ever removed. A host that
    already has this address is not added.

    Raises:
        GenericError: unknown mode, or the wrong arguments for it.
    """
    path = node.paths.at(netutils.HOSTS_FILE)
    if mode == _ETC_HOSTS_ADD:
        if not ip or not netutils.is_address(ip):
            raise errors.GenericError(
                f"hosts entry {name}: {ip!r} is not an IP address"
            )
        _rewrite_hosts(path, lambda lines: with_host(lines, name, ip))
    elif mode == _ETC_HOSTS_REMOVE:
        if ip:
            raise errors.GenericError(
                f"hosts entry {name}: wanted no address with mode remove"
            )
        _rewrite_hosts(path, lambda lines: without_host(lines, name))
    else:
        raise errors.GenericError(f"hosts file: unknown mode {mode!r}")
    return True


def _rewrite_hosts(path: str, change: Callable[[list[str]], list[str]]) -> None:
    """Replace the hosts file if its lines change."""
    try:
        old = files.read_file(path).decode(errors=_ANY_BYTES).splitlines()
        mode = os.stat(path).st_mode & 0o777
    except FileNotFoundError:
        old, mode = [], _HOSTS_MODE
        os.makedirs(os.path.dirname(path), exist_ok=True)
    new = change(old)
    if new != old:
        text = "".join(f"{entry}\n" for entry in new)
        files.write_file(path, text.encode(errors=_ANY_BYTES), mode=mode)
