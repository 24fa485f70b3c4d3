"""Install this tree for the machines, with its own interpreter, below ``build/lab``."""

import hashlib
import os
import pathlib
import shutil
import subprocess

TOP = pathlib.Path(__file__).parents[2]
STORED = TOP / "build" / "lab"
#: Debian's packages of the lab, unpacked by autotools/setup-env --lab.
PACKAGES = STORED / "packages"
#: The result of make install, with the interpreter; a machine has it at its root.
PRODUCT = STORED / "product"
#: Place of the interpreter, as in the Debian package.
VENV = "usr/lib/ganeti/venv"
_STAGE = STORED / "stage"
_BUILD = STORED / "build"
_SOURCES = ("lib", "daemons", "tools", "man", "doc", "autotools", "configure.ac")


class LabError(Exception):
    """Something that the user of the lab can mend."""


def check(*argv, cwd=TOP, **more):
    """Run a command; its output is shown only if it fails."""
    done = subprocess.run(
        [str(word) for word in argv],
        cwd=cwd,
        text=True,
        capture_output=True,
        check=False,
        **more,
    )
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()[-20:]
        raise LabError(f"{argv[0]} failed with {done.returncode}:\n" + "\n".join(lines))
    return done.stdout


def _files():
    """Yield the files of the tree that an installation is made from."""
    listed = check(
        *("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"),
        *("--", ".", ":!test"),
    )
    for name in sorted(set(listed.split("\0")) - {""}):
        if (TOP / name).is_file():
            yield name


def _digest(names):
    total = hashlib.sha256()
    for name in names:
        total.update(name.encode() + b"\0" + (TOP / name).read_bytes())
    return total.hexdigest()


def _make_venv():
    wanted = hashlib.sha256((TOP / "requirements.txt").read_bytes()).hexdigest()
    stamp = STORED / "stage.sum"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    shutil.rmtree(_STAGE, ignore_errors=True)
    venv = _STAGE / VENV
    check("/usr/bin/python3", "-m", "venv", venv)
    pip = (venv / "bin" / "python", "-m", "pip", "install", "-q")
    check(*pip, "--disable-pip-version-check", "-r", "requirements.txt")
    stamp.write_text(wanted)


def install():
    """Install the tree, unless this state of it is installed; return whether it was."""
    names = list(_files())
    wanted = _digest(names)
    stamp = STORED / "product.sum"
    if stamp.exists() and stamp.read_text() == wanted:
        return False
    stamp.unlink(missing_ok=True)
    _make_venv()
    shutil.rmtree(_BUILD, ignore_errors=True)
    _BUILD.mkdir(parents=True)
    check("xargs", "-0", "cp", "--parents", "-t", _BUILD, input="\0".join(names))
    check("./autogen.sh", cwd=_BUILD)
    python = _STAGE / VENV / "bin" / "python"
    places = ("--prefix=/usr", "--sysconfdir=/etc", "--localstatedir=/var")
    check("./configure", *places, f"PYTHON={python}", cwd=_BUILD)
    # The manual pages take longer than all the rest, and no machine needs them.
    pages = _BUILD / "build" / "man"
    pages.mkdir(parents=True)
    (pages / "none.7").touch()
    # A running machine keeps reading the files it has open: their names change.
    new = STORED / "product.new"
    shutil.rmtree(new, ignore_errors=True)
    check("make", "-o", "build/stamp-man", "install", f"DESTDIR={new}", cwd=_BUILD)
    check("cp", "-a", _STAGE / VENV, new / VENV)
    _remove_stage(new)
    lib = new / "usr/lib/ganeti"
    compiler = ("/usr/bin/python3", "-m", "compileall", "-q", "-s", new, "-p", "/")
    check(*compiler, "--invalidation-mode", "unchecked-hash", lib)
    shutil.rmtree(PRODUCT, ignore_errors=True)
    new.rename(PRODUCT)
    shutil.rmtree(_BUILD)
    stamp.write_text(wanted)
    return True


def _remove_stage(new):
    """Take the path of the stage out of all installed texts."""
    stage = str(_STAGE)
    listed = subprocess.run(
        ["grep", "-rlIF", stage, str(new)], text=True, capture_output=True, check=False
    )
    for name in listed.stdout.splitlines():
        path = pathlib.Path(name)
        mode = path.stat().st_mode
        path.write_text(path.read_text().replace(stage, ""))
        os.chmod(path, mode)
