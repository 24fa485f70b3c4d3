"""Heartbeats on shared storage: signs of life of nodes that need no network.

A process of each node (`ganeti.node.collectors.heartbeat`) writes a small signed file
to the directories of shared disks, and reads those of other nodes on request. It alone
touches the storage, so it alone hangs with it. The node daemon exchanges requests and
answers with it in two files of the run-time directory, see `ask`.

A heartbeat is data that others may have forged. It counts if the key of the cluster
signed it for this node within the last minutes, and only as a sign that a node lives.
"""

import contextlib
import errno
import hashlib
import hmac
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Final

import msgspec

from ganeti.base import errors, pathutils
from ganeti.base.constants.misc import MAX_ASKED_ABOUT
from ganeti.base.filesystem import files
from ganeti.node.storage import allowed
from ganeti.protocols import ssconf

#: Seconds between two heartbeats.
PERIOD_S: Final = 2.0
#: Directory of the heartbeats in a directory of disks. No instance has such a name.
DIRECTORY: Final = ".ganeti-heartbeats"
#: Seconds by which clocks of two nodes may differ, as for confd.
MAX_SKEW_S: Final = 300.0
#: Seconds after which a request, and an answer, are out of date.
_FRESH_S: Final = 15.0
_MAX_FILE: Final = 2048
_MAX_LOCAL: Final = 256 << 10
_MAX_KEY: Final = 4096
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
#: Begin of each signed text, so that no other message of the key is a heartbeat.
_PURPOSE: Final = b"ganeti heartbeat\0"
_NO_LINK: Final = os.O_NOFOLLOW | os.O_CLOEXEC

Run = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}\Z")]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Beat(msgspec.Struct, frozen=True):
    """A heartbeat; further fields, of a node with a later release, are ignored.

    Attributes:
        node: name of the node.
        boot: id of the boot of its kernel.
        run: id of the process that writes.
        count: number of the heartbeat in this run.
        time: seconds since 1970.
    """

    node: str
    boot: Annotated[str, msgspec.Meta(max_length=64)]
    run: Run
    count: Count
    time: float


class _Signed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    msg: str
    hmac: str


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The present state of the process of this node.

    Attributes:
        written: directory -> when a heartbeat was written there last, in seconds of the
            monotonic clock (0 for never), and the error of the last attempt.
        looked: when heartbeats of others were read last; 0 for never.
        beats: name of a node -> run and count of its heartbeat.
        problems: name of a node -> why its heartbeat does not count.
    """

    written: dict[str, tuple[float, str]] = {}
    looked: float = 0.0
    beats: dict[str, tuple[Run, Count]] = {}
    problems: dict[str, str] = {}


class _Request(msgspec.Struct, frozen=True):
    """Wanted nodes, and the time of the request in seconds of the monotonic clock."""

    at: float
    nodes: list[str]


def is_name(name: str) -> bool:
    """Return whether a text can be the name of a node, and of a file."""
    return _NAME.fullmatch(name) is not None


# Files of heartbeats
def sealed(beat: Beat, key: bytes) -> bytes:
    """Return the content of a file."""
    text = msgspec.json.encode(beat)
    return msgspec.json.encode(_Signed(text.decode(), _signature(text, key)))


def opened(data: bytes, key: bytes, *, node: str, now: float) -> Beat:
    """Return the heartbeat in a file.

    Args:
        data: content of the file.
        key: of the cluster.
        node: name of the node that it should be about.
        now: seconds since 1970.

    Raises:
        GenericError: it does not count; the text says why.
    """
    try:
        signed = msgspec.json.decode(data, type=_Signed)
        text = signed.msg.encode()
    except (ValueError, msgspec.DecodeError) as err:
        raise errors.GenericError("it is malformed") from err
    # Before anything of the text is read, which may be anybody's until then.
    if not hmac.compare_digest(signed.hmac.encode(), _signature(text, key).encode()):
        raise errors.GenericError("the key of the cluster did not sign it")
    try:
        beat = msgspec.json.decode(text, type=Beat)
    except (ValueError, msgspec.DecodeError) as err:
        raise errors.GenericError("it is malformed") from err
    if beat.node != node:
        raise errors.GenericError(f"it is one of node {beat.node!r:.100}")
    # A comparison that is true for no time that is not a number.
    if not abs(beat.time - now) <= MAX_SKEW_S:
        raise errors.GenericError(
            f"it is out of date, or clocks differ by more than {MAX_SKEW_S:g} seconds"
        )
    return beat


def _signature(text: bytes, key: bytes) -> str:
    return hmac.new(key, _PURPOSE + text, hashlib.sha256).hexdigest()


def cluster_key(paths: pathutils.Paths) -> bytes:
    """Return the key of the cluster; OSError or GenericError if it cannot be read."""
    return files.read_file(paths.hmac_key, max_size=_MAX_KEY)


def places(paths: pathutils.Paths, kinds: Sequence[str]) -> list[str]:
    """Return the local directories of shared disks, sorted. This may hang.

    Args:
        paths: of this node.
        kinds: of `disks.DTS_SHARED_DIRS`.

    Raises:
        GenericError, OSError: a directory is not allowed on this node, or not known.
    """
    store = ssconf.SimpleStore(paths)
    local = []
    if "sharedfile" in kinds and (shared := store.shared_file_storage_dir()):
        local.append(allowed.check(paths, shared, exact_ok=True))
    if "gluster" in kinds and (base := store.gluster_storage_dir()):
        from ganeti.node.storage import gluster

        local += gluster.mount_points(paths, base)
    return sorted(local)


class Shelf:
    """The directory of heartbeats in a directory of shared disks. Calls may hang."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write(self, name: str, data: bytes) -> None:
        """Replace the file of a node; OSError if that fails."""
        _replace(self._fd, name, data, mode=0o600)

    def read(self, name: str) -> bytes:
        """Return the file of a node, however others have changed the directory.

        Raises:
            OSError: it cannot be read.
            GenericError: it is no regular file, or too large.
        """
        # Opening a pipe that somebody has put there would wait for a writer.
        flags = os.O_RDONLY | os.O_NONBLOCK | _NO_LINK
        fd = os.open(name, flags, dir_fd=self._fd)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise errors.GenericError("it is no regular file")
            data = os.read(fd, _MAX_FILE + 1)
        finally:
            os.close(fd)
        if len(data) > _MAX_FILE:
            raise errors.GenericError(f"it is larger than {_MAX_FILE} bytes")
        return data


@contextlib.contextmanager
def shelf(place: str) -> Iterator[Shelf]:
    """Open the directory of heartbeats in a directory of disks; create it there.

    Raises:
        OSError: there is no such directory of disks, or it cannot be used.
        GenericError: somebody else than this user can write to it.
    """
    top = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(DIRECTORY, 0o700, dir_fd=top)
        fd = os.open(DIRECTORY, os.O_RDONLY | os.O_DIRECTORY | _NO_LINK, dir_fd=top)
    finally:
        os.close(top)
    try:
        # Whoever can write to the directory can remove the files of all nodes.
        info = os.fstat(fd)
        if info.st_uid != os.geteuid() or info.st_mode & 0o022:
            raise errors.GenericError(
                f"{place}/{DIRECTORY}: wanted a directory of user {os.geteuid()} that"
                f" nobody else can write to, found user {info.st_uid} and mode"
                f" {stat.S_IMODE(info.st_mode):o}"
            )
        yield Shelf(fd)
    finally:
        os.close(fd)


def _replace(directory: int, name: str, data: bytes, *, mode: int) -> None:
    """Replace a file atomically; nothing is synced, its next content follows soon."""
    # A file or link that a killed process or another node left is not written to.
    new = f".{name}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new, dir_fd=directory)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK
    fd = os.open(new, flags, mode, dir_fd=directory)
    try:
        os.fchmod(fd, mode)
        # A full file system takes a part of it; the file of before is better than that.
        if os.write(fd, data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(fd)
    os.rename(new, name, src_dir_fd=directory, dst_dir_fd=directory)


# Exchange between processes of this node
def local_directory(paths: pathutils.Paths) -> str:
    """Return the directory of the request and of the state, which is in memory."""
    return f"{paths.run_dir}/heartbeats"


def _write_local(paths: pathutils.Paths, name: str, data: bytes) -> None:
    directory = local_directory(paths)
    files.make_dir(directory, 0o755)
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | _NO_LINK)
    try:
        _replace(fd, name, data, mode=0o644)
    finally:
        os.close(fd)


def write_state(paths: pathutils.Paths, state: State) -> None:
    """Replace the state of this node; OSError if that fails."""
    _write_local(paths, "state", msgspec.json.encode(state))


def read_state(paths: pathutils.Paths) -> State | None:
    """Return the state of this node; None if there is none that can be read."""
    with contextlib.suppress(OSError, ValueError, errors.GenericError):
        data = files.read_file(f"{local_directory(paths)}/state", max_size=_MAX_LOCAL)
        return msgspec.json.decode(data, type=State)
    return None


def remove_state(paths: pathutils.Paths) -> None:
    """Remove the state of this node."""
    with contextlib.suppress(OSError):
        files.remove_file(f"{local_directory(paths)}/state")


def ask(
    paths: pathutils.Paths, nodes: Sequence[str], now: float
) -> list[tuple[str, int] | None]:
    """Ask the process of this node for heartbeats; return those that it has read.

    This does not touch the storage and does not wait: the next call has the answer.

    Args:
        paths: of this node.
        nodes: their names.
        now: seconds of the monotonic clock.

    Returns:
        for each node run and count of its heartbeat; None if none is known.

    Raises:
        OSError: the request cannot be written.
    """
    _write_local(paths, "wanted", msgspec.json.encode(_Request(now, list(nodes))))
    state = read_state(paths)
    if state is None or not 0 <= now - state.looked < _FRESH_S:
        return [None for _name in nodes]
    return [state.beats.get(name) for name in nodes]


def wanted(paths: pathutils.Paths, now: float) -> list[str]:
    """Return the names of the nodes whose heartbeats were asked for recently."""
    with contextlib.suppress(OSError, ValueError, errors.GenericError):
        path = f"{local_directory(paths)}/wanted"
        data = files.read_file(path, max_size=_MAX_LOCAL)
        request = msgspec.json.decode(data, type=_Request)
        if 0 <= now - request.at < _FRESH_S:
            names = [name for name in request.nodes if is_name(name)]
            return names[:MAX_ASKED_ABOUT]
    return []


def newer(known: Mapping[str, Beat], beat: Beat) -> Beat:
    """Return the newer one of a heartbeat and the one of another directory."""
    before = known.get(beat.node)
    if before is None or (beat.time, beat.count) > (before.time, before.count):
        return beat
    return before
