"""How a placement program starts and ends quickly: the little that comes before NumPy.

Each launcher calls ``main`` with the module whose ``main`` does the work. Nothing here
knows options or clusters.
"""

import gc
import importlib
import os
import signal
import sys
from types import ModuleType
from typing import Final

#: The pool of threads that NumPy's algebra starts; the programs multiply no matrices of
#: a size for which it would pay, and making it takes longer than a small cluster.
_THREADS: Final = "OPENBLAS_NUM_THREADS"
#: New objects before a look for cycles; the programs make few and live shortly.
_GARBAGE: Final = 200_000
#: What msgspec prefers to the same names of the standard library where it is there;
#: reading it takes as long as all of msgspec.
_BACKPORTS: Final = "typing_extensions"


def main(module: str) -> int:
    """Run the program of a module and leave; returns only if output fails.

    An interrupt ends it there and then, as other commands that only look at things; a
    program that carries out a plan takes it in its own way meanwhile.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.environ.setdefault(_THREADS, "1")
    gc.disable()
    work = _imported(module)
    gc.freeze()
    gc.set_threshold(_GARBAGE)
    gc.enable()
    code: int = work.main()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        # The interpreter's own end tells it.
        return code
    # Freeing every object one by one takes a fifth of a short run.
    os._exit(code)


def _imported(module: str) -> ModuleType:
    """Import a program.

    Launchers know where packages were when they were made, which saves a look at all
    that is installed; if they are there no more, it is looked for.
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
