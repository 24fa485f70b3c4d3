"""Releases of this software that are installed side by side, and the one in use.

With ``./configure --enable-versions`` the programs and the library of a release are in
``PREFIX/lib/ganeti/versions/X.Y.Z``. The link ``PREFIX/lib/ganeti/current`` leads to
the release in use, and programs, tools and library have links through it at their usual
places. So one replacement of one link switches the machine, and a program that runs
keeps the library of its own release. Without that option there is one release, and
`Layout.versions_dir` is empty.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from typing import Final, NamedTuple, Self

from ganeti import _buildconf
from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths

_VERSION: Final = re.compile(r"\d{1,5}\.\d{1,5}\.\d{1,5}")
_CURRENT: Final = "current"
#: Directories beside ``current`` that are links into the release in use.
_DIRECTORIES: Final = ("tools", "python")


def intent_file(paths: Paths) -> str:
    """Return the path of the file that says on the master: an upgrade is under way."""
    return paths.data("intent-to-upgrade")


def key(version: str) -> tuple[int, ...]:
    """Return the order of a version.

    Raises:
        OpPrereqError: it does not have the form ``X.Y.Z``.
    """
    if not _VERSION.fullmatch(version):
        raise errors.OpPrereqError(
            f"version {version!r:.40}: wanted X.Y.Z, such as 4.0.1", ecodes.ECODE_INVAL
        )
    return tuple(map(int, version.split(".")))


class Layout(NamedTuple):
    """The places of the releases of a machine.

    Attributes:
        versions_dir: directory of the releases; empty if there is only one.
        sbin_dir: directory of daemons and commands.
        bin_dir: directory of the programs that need no rights.
        root: prefix of all places, such as the ``DESTDIR`` of an installation.
    """

    versions_dir: str
    sbin_dir: str
    bin_dir: str
    root: str = ""

    @classmethod
    def of_build(cls, root: str = "") -> Self:
        """Return the layout that this software was configured with."""
        return cls(_buildconf.VERSIONS_DIR, _buildconf.SBINDIR, _buildconf.BINDIR, root)

    @property
    def home(self) -> str:
        """Directory of the links."""
        return self.root + os.path.dirname(self.versions_dir)

    @property
    def current(self) -> str:
        """The link to the release in use."""
        return f"{self.home}/{_CURRENT}"

    def directory(self, version: str) -> str:
        """Return the directory of a release, without the prefix."""
        return f"{self.versions_dir}/{version}"

    def program(self, version: str, place: str) -> str:
        """Return a program of a release, such as ``tools/daemon-util``."""
        return f"{self.directory(version)}/{place}"


def installed(layout: Layout) -> list[str]:
    """Return the installed releases, the newest last; empty if there is only one."""
    if not layout.versions_dir:
        return []
    try:
        names = os.listdir(layout.root + layout.versions_dir)
    except FileNotFoundError:
        return []
    return sorted(filter(_VERSION.fullmatch, names), key=key)


def in_use(layout: Layout) -> str:
    """Return the release in use; empty if there is none."""
    try:
        return os.path.basename(os.readlink(layout.current))
    except OSError:
        return ""


def use(layout: Layout, version: str) -> None:
    """Make a release the one in use on this machine; can be repeated.

    Programs that a release has and the one before had not get their links, and links
    to programs that it lacks are removed.

    Raises:
        OpPrereqError: the release is not installed.
        OSError: a link cannot be written.
    """
    if version not in installed(layout):
        raise errors.OpPrereqError(
            f"version {version}: not installed below {layout.versions_dir}; installed:"
            f" {', '.join(installed(layout)) or 'none'}",
            ecodes.ECODE_NOENT,
        )
    target = f"{os.path.basename(layout.versions_dir)}/{version}"
    _link(target, layout.current)
    for name in _DIRECTORIES:
        _link(f"{_CURRENT}/{name}", f"{layout.home}/{name}")
    for place, directory in _program_dirs(layout):
        for name in os.listdir(f"{layout.home}/{target}/{place}"):
            _link(f"{_through(layout)}/{place}/{name}", f"{directory}/{name}")
        for link in _links(layout, directory):
            if not os.path.exists(layout.root + os.readlink(link)):
                os.unlink(link)
    files.sync_dir(layout.home)


def install(layout: Layout, version: str) -> str:
    """Use a release that was installed, unless another one is in use.

    Returns:
        A line for the administrator.

    Raises:
        OpPrereqError: the place has an installation without versions.
    """
    for name in _DIRECTORIES:
        path = f"{layout.home}/{name}"
        if os.path.isdir(path) and not os.path.islink(path):
            raise errors.OpPrereqError(
                f"{path}: is a directory of an installation without versions; wanted a"
                " link. Run 'make uninstall' in the tree that it was installed from,"
                " and 'make install' again",
                ecodes.ECODE_STATE,
            )
    present = in_use(layout)
    if present not in ("", version) and present in installed(layout):
        return (
            f"Version {version} is installed, {present} stays in use; when all nodes"
            f" have it, run on the master: gnt-cluster upgrade --to {version}"
        )
    use(layout, version)
    return f"Version {version} is installed and in use"


def uninstall(layout: Layout, version: str) -> bool:
    """Remove the links to a release; return false if another one is in use."""
    if in_use(layout) not in ("", version):
        return False
    for _place, directory in _program_dirs(layout):
        for link in _links(layout, directory):
            os.unlink(link)
    for name in (*_DIRECTORIES, _CURRENT):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{layout.home}/{name}")
    return True


def _program_dirs(layout: Layout) -> tuple[tuple[str, str], ...]:
    """Return directory of a release -> directory with the links, which exists."""
    pairs = (("sbin", layout.sbin_dir), ("bin", layout.bin_dir))
    for _place, directory in pairs:
        os.makedirs(layout.root + directory, exist_ok=True)
    return tuple((place, layout.root + directory) for place, directory in pairs)


def _through(layout: Layout) -> str:
    """Return the place of the release in use, as links name it."""
    return f"{os.path.dirname(layout.versions_dir)}/{_CURRENT}"


def _links(layout: Layout, directory: str) -> Iterator[str]:
    """Return the links of a directory that lead to the release in use."""
    with os.scandir(directory) as entries:
        links = [entry.path for entry in entries if entry.is_symlink()]
    start = f"{_through(layout)}/"
    return (link for link in links if os.readlink(link).startswith(start))


def _link(target: str, path: str) -> None:
    """Make a link, or replace it in one step."""
    if os.path.islink(path) and os.readlink(path) == target:
        return
    temporary = f"{path}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    os.symlink(target, temporary)
    os.replace(temporary, path)
