"""Simulations in a process of their own.

The order of sets decides between nodes that are equally good, so a run is repeatable
only in a process whose hashes have a seed. The process gets a `Request` as a line of
JSON and answers with a line per report of progress, and a last one with the result.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import IO, Final

import msgspec

import ganeti
from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.devel.sim.description import ClusterDescription
from ganeti.devel.sim.events import Event
from ganeti.devel.sim.simulation import Report, Simulation

#: Largest seed that Python takes for its hashes.
MAX_SEED: Final = 4_294_967_295
_PROGRAM: Final = """\
import sys
sys.path.insert(0, sys.argv[1])
from ganeti.devel.sim import apart
apart.main(sys.stdin.buffer, sys.stdout.buffer)
"""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A simulation that is wanted.

    Attributes:
        description: the cluster at the begin.
        events: of the simulation.
        begin: seconds since 1970.
        seconds: how long.
    """

    description: ClusterDescription
    events: tuple[Event, ...]
    begin: float
    seconds: float


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the answer: one of these."""

    at_s: float | None = None
    report: Report | None = None
    problem: str = ""
    is_defect: bool = False


def play(request: Request, seed: int, on_progress: Callable[[float], None]) -> Report:
    """Simulate in a new process.

    Args:
        request: the simulation.
        seed: decides between equals.
        on_progress: called repeatedly with the simulated seconds.

    Raises:
        OpPrereqError: the description is wrong.
        ProgrammerError: the simulator failed.
    """
    library = os.path.dirname(next(iter(ganeti.__path__)))
    words = [sys.executable, "-s", "-P", "-c", _PROGRAM, library]
    kept = {name: os.environ[name] for name in ("PATH", "TZ") if name in os.environ}
    with _process(words, kept | {"PYTHONHASHSEED": str(seed)}) as (stdin, stdout):
        # It may have ended: then there is no answer.
        with contextlib.suppress(BrokenPipeError):
            stdin.write(msgspec.json.encode(request))
            stdin.close()
        for data in stdout:
            line = msgspec.json.decode(data, type=_Line)
            if line.at_s is not None:
                on_progress(line.at_s)
            elif line.report is not None:
                return line.report
            elif line.is_defect:
                raise errors.ProgrammerError(f"simulation: {line.problem}")
            else:
                raise errors.OpPrereqError(line.problem, ecodes.ECODE_INVAL)
    raise errors.ProgrammerError("simulation: its process ended without a result")


@contextlib.contextmanager
def _process(
    words: list[str], environ: dict[str, str]
) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Start a process; end it at the end, also when the user interrupts."""
    with subprocess.Popen(
        words,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            yield process.stdin, process.stdout
        finally:
            process.kill()


def main(stdin: IO[bytes], stdout: IO[bytes]) -> None:
    """Answer a request."""
    import logging

    # The timeline has what matters.
    logging.disable(logging.CRITICAL)

    def write(line: _Line) -> None:
        stdout.write(msgspec.json.encode(line) + b"\n")
        stdout.flush()

    request = msgspec.json.decode(stdin.read(), type=Request)
    try:
        simulation = Simulation(
            request.description, request.events, begin=request.begin
        )
        report = simulation.run(request.seconds, lambda at_s: write(_Line(at_s=at_s)))
    except errors.OpPrereqError as err:
        write(_Line(problem=str(err.args[0])))
    except Exception as err:  # noqa: BLE001 - reported
        write(_Line(problem=f"{type(err).__name__}: {err}", is_defect=True))
    else:
        write(_Line(report=report))
