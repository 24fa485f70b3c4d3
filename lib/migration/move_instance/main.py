"""Main function of ``move-instance``."""

import concurrent.futures
import logging
import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import Final

from ganeti.base.constants import exitcodes
from ganeti.base.constants.protocols import export as export_constants
from ganeti.base.text import control_chars
from ganeti.migration.move_instance import jobs, settings
from ganeti.migration.move_instance.mover import Clients, MoveError, Mover
from ganeti.protocols import rapi

_LOGGER: Final = logging.getLogger(settings.NAME)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool; return the exit code."""
    parser = settings.build_parser()
    wanted = settings.parse(parser, parser.parse_args(argv))
    logging.basicConfig(
        level=logging.DEBUG if wanted.debug else logging.WARNING, stream=sys.stderr
    )
    try:
        return rapi.UsesRapiClient(run)(
            wanted,
            Clients(
                jobs.connect(wanted.source, logger=_LOGGER),
                jobs.connect(wanted.destination, logger=_LOGGER),
            ),
        )
    except KeyboardInterrupt:
        sys.stdout.flush()
        # The threads would wait for these jobs.
        os._exit(exitcodes.EXIT_FAILURE)
    except (MoveError, rapi.Error) as err:
        _complain(str(err))
    return exitcodes.EXIT_FAILURE


def _complain(line: str) -> None:
    sys.stderr.write(f"{settings.NAME}: {control_chars.escape(line)}\n")


def run(wanted: settings.Settings, clients: Clients) -> int:
    """Move all instances; print a line about each at the end; return the exit code.

    If the user ends it, prepared keys that no export has used are removed.

    Raises:
        MoveError: the clusters cannot exchange instances.
        Error: one of the clusters does not answer.
    """
    movers: list[Mover] = []
    try:
        return _run(wanted, clients, movers)
    except KeyboardInterrupt:
        _complain("ended by the user; jobs that run go on in both clusters")
        for mover in movers:
            mover.discard_key()
        raise


def _run(wanted: settings.Settings, clients: Clients, movers: list[Mover]) -> int:
    """Move all instances; ``movers`` gets the mover of each whose move begins."""
    check_tool(wanted, clients)
    printing = threading.Lock()

    def move(name: str) -> str:
        """Return the failure of a move, empty after success."""

        def say(line: str) -> None:
            with printing:
                sys.stdout.write(f"{name}: {control_chars.escape(line)}\n")
                sys.stdout.flush()

        mover = Mover(name, wanted, clients, say, wait=time.sleep)
        movers.append(mover)
        try:
            mover.run()
        except MoveError as err:
            return str(err)
        return ""

    pool = concurrent.futures.ThreadPoolExecutor(wanted.parallel)
    failures = list(pool.map(move, wanted.instances))
    pool.shutdown()
    for name, failure in zip(wanted.instances, failures, strict=True):
        outcome = f"Failed: {control_chars.escape(failure)}" if failure else "Success"
        sys.stdout.write(f"{name}: {outcome}\n")
    return exitcodes.EXIT_FAILURE if any(failures) else exitcodes.EXIT_SUCCESS


def check_tool(wanted: settings.Settings, clients: Clients) -> None:
    """Refuse a compression tool that one of the clusters does not allow.

    Otherwise the other one would wait for the transfer in vain. Both clusters are asked
    in any case, so nothing begins if one cannot be reached or trusted.
    """
    for where, client in (
        (wanted.source.name, clients.source),
        (wanted.destination.name, clients.destination),
    ):
        try:
            allowed = client.GetInfo()["compression_tools"]
        except rapi.Error as err:
            raise MoveError(f"cluster {where}: {err}") from err
        if wanted.compress not in (export_constants.IEC_NONE, *allowed):
            raise MoveError(
                f"--compress: wanted one of {', '.join(['none', *allowed])} for cluster"
                f" {where}, found {wanted.compress}"
            )


if __name__ == "__main__":
    sys.exit(main())
