"""Our placement programs and another implementation's of the same names."""

import pathlib
import shutil
import subprocess

_TOP = pathlib.Path(__file__).resolve().parents[3]
#: Distributions put the allocator where only the node daemon looks.
_ELSEWHERE = "/usr/lib/ganeti/iallocators"
PACKAGE = "ganeti-htools"


def ours(name: str) -> str | None:
    """Return the path of one of our programs, None when it is not offered."""
    path = _TOP / "build" / "bin" / name
    return str(path) if path.exists() else None


def theirs(name: str) -> str | None:
    """Return the path of another implementation's program, None without one."""
    mine = ours(name)
    actual = shutil.which(name) or shutil.which(name, path=_ELSEWHERE)
    same = actual and mine and pathlib.Path(actual).resolve().samefile(mine)
    return None if same else actual


def install() -> None:
    """Install the distribution's package; needs the rights to."""
    subprocess.run(
        ["apt-get", "install", "-y", "--no-install-recommends", PACKAGE],
        check=True,
        timeout=600,
    )
