"""Fast start and end of a placement program: the code that runs before NumPy loads.

Each launcher calls ``main`` with the name of the program's module. Options and clusters
are not handled here.
"""

import contextlib
import gc
import importlib
import os
import signal
import sys
from types import ModuleType
from typing import Final, NoReturn

#: Size of NumPy's thread pool. The matrices of the programs are too small to profit
#: from threads, and creating them takes longer than a run on a small cluster.
_THREADS: Final = "OPENBLAS_NUM_THREADS"
#: New objects before a garbage collection; the programs create few and end soon.
_GARBAGE: Final = 200_000
#: Module that msgspec imports if it is installed, although the standard library has the
#: same names; importing it takes as long as all of msgspec.
_BACKPORTS: Final = "typing_extensions"


def main(module: str) -> NoReturn:
    """Run the program of a module and exit.

    SIGINT ends the program at once, as usual for commands that only read. A program
    that executes a plan installs its own handler for that time.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.environ.setdefault(_THREADS, "1")
    gc.disable()
    program = _imported(module)
    gc.freeze()
    gc.set_threshold(_GARBAGE)
    gc.enable()
    code = _ended(program)
    # Freeing every object takes a fifth of a short run; and the interpreter would try
    # once more to write what nobody takes.
    os._exit(code)


def _ended(program: ModuleType) -> int:
    """Run a program; return its exit code, or 1 if its output could not be written."""
    try:
        code: int = program.main()
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        return 1
    except OSError as err:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"Error: standard output: {err.strerror or err}\n")
            sys.stderr.flush()
        return 1
    return code


def _imported(module: str) -> ModuleType:
    """Import the module of a program.

    Launchers contain the paths of packages at build time, which saves the scan of all
    site directories. The scan is done only if the packages are no longer there.
    """
    try:
        _import_msgspec()
        return importlib.import_module(module)
    except ModuleNotFoundError:
        import site

        site.main()
        return importlib.import_module(module)


def _import_msgspec() -> None:
    if _BACKPORTS in sys.modules:
        return
    sys.modules[_BACKPORTS] = None  # type: ignore[assignment]
    try:
        importlib.import_module("msgspec")
    finally:
        del sys.modules[_BACKPORTS]
