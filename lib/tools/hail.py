"""``hail``: the allocator program; reads a request, prints one line of JSON.

The same solver runs in the master daemon for the allocator of this name; this program
is for other callers, for trying things out and for saved requests.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any, Final

from ganeti.htools import answer, grid, model, request, simulate
from ganeti.tools import node_table, placing

NAME: Final = "hail"
_VERBOSE_REQUEST: Final = 3

OPTIONS: Final = (
    placing.NODES,
    placing.SAVE,
    placing.TEXT,
    placing.SIMULATE,
    placing.VERBOSE,
    placing.Option("ignore-dynu", "take the utilisation of all instances as zero"),
    placing.Option("ignore-soft-errors", "soft rules of target nodes do not count"),
    placing.NO_CAPACITY,
    placing.Option(
        "restrict-allocation-to",
        "the only nodes for new instances",
        metavar="NODE,...",
        parse=placing.names,
        completion="manynodes",
    ),
    placing.STATIC_MEMORY,
)


def main() -> int:
    """Run the program."""
    return placing.run(placing.Parser(NAME, OPTIONS), _answer, arguments="file 1 1")


def _answer(options: Mapping[str, Any], arguments: list[str]) -> int:
    if not arguments:
        placing.fail("This program needs an input file.")
    if len(arguments) > 1:
        placing.fail("Only one argument is accepted (the input file)")
    data = _read(arguments[0])
    how = answer.Options(
        capacity_checks=not options["no-capacity-checks"],
        ignore_soft=bool(options["ignore-soft-errors"]),
        restrict_to=options["restrict-allocation-to"],
        busy=not options["ignore-dynu"],
        static_memory=options["static-kvm-node-memory"],
    )
    cluster = _cluster(options)
    if cluster is None:
        cluster = request.read_cluster(data, static_memory=how.static_memory)
    if options["verbose"] >= _VERBOSE_REQUEST:
        asked = data.get("request") if isinstance(data, dict) else None
        sys.stderr.write(f"Received request: {json.dumps(asked)}\n")
    _show(options, grid.State(cluster), "pre-ialloc", "Initial cluster")
    found = answer.solve(data, how, cluster=cluster)
    _show(options, found.after, "post-ialloc", "Final cluster")
    sys.stdout.write(f"{json.dumps(found.answer, separators=(',', ':'))}\n")
    return 0


def _read(path: str) -> Any:
    """Return the decoded request; ``-`` is standard input.

    Raises:
        DataError, OSError: it cannot be decoded or read.
    """
    try:
        if path == "-":
            return json.loads(sys.stdin.buffer.read())
        with open(path, "rb") as stream:
            return json.loads(stream.read())
    except ValueError as err:
        raise model.DataError(f"request {path}: is no JSON: {err}") from err
    except RecursionError as err:
        raise model.DataError(f"request {path}: is nested too deeply") from err


def _cluster(options: Mapping[str, Any]) -> model.Cluster | None:
    """Return another source's cluster data, None for the request's own."""
    if options["simulate"]:
        return simulate.load(options["simulate"])
    if options["text-data"]:
        return placing.read_text(options["text-data"])
    return None


def _show(
    options: Mapping[str, Any], state: grid.State, suffix: str, what: str
) -> None:
    if options["print-nodes"] is not None:
        node_table.show(state, options["print-nodes"], what)
    if options["save"]:
        words = "before allocation" if suffix == "pre-ialloc" else "after allocation"
        placing.save(options["save"], state, suffix, words)
