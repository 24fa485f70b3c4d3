"""``hail``: the allocator program; it reads a request and prints one line of JSON.

The master daemon runs the same solver for the allocator of this name. This program
serves other callers, experiments and saved requests.
"""

import json
import sys
from typing import Any, Final

from ganeti.commands.htools import loading, output, sources
from ganeti.commands.htools.loading import ProgramError
from ganeti.commands.htools.options import ParsedOptions
from ganeti.decisions.htools.hail import answer, request
from ganeti.decisions.htools.model import json_reader
from ganeti.decisions.htools.state import node_state

NAME: Final = "hail"
_VERBOSE_REQUEST: Final = 3


def main() -> int:
    """Run the program."""
    return loading.main(NAME, _answer, sys.argv[1:], arguments="file 1 1")


def _answer(parsed: ParsedOptions) -> int:
    if not parsed.arguments:
        raise ProgramError("This program needs an input file.")
    if len(parsed.arguments) > 1:
        raise ProgramError("Only one argument is accepted (the input file)")
    data = _read(parsed.arguments[0])
    options = answer.SolverOptions(
        capacity_checks=not parsed["nocap"],
        ignore_soft=bool(parsed["ise"]),
        restrict_to=parsed["rest"],
        busy=not parsed["nodyn"],
        static_memory=parsed["skm"],
    )
    from_request = None
    if not parsed["sim"] and parsed["t"] is None:
        from_request = request.read_cluster(data, static_memory=options.static_memory)
    cluster = loading.load(parsed, given=from_request)
    if parsed.verbosity >= _VERBOSE_REQUEST:
        received = data.get("request") if isinstance(data, dict) else None
        sys.stderr.write(f"Received request: {json.dumps(received)}\n")
    if parsed["p"] is not None or parsed["S"] is not None:
        _show(parsed, node_state.ClusterState(cluster), "pre-ialloc", "Initial cluster")
    solution = answer.solve(data, options, cluster=cluster)
    _show(parsed, solution.after, "post-ialloc", "Final cluster")
    if parsed["explain"]:
        _explain(solution, as_json=bool(parsed["json"]))
    sys.stdout.write(f"{json.dumps(solution.answer, separators=(',', ':'))}\n")
    return 0


def _explain(solution: answer.Solution, *, as_json: bool) -> None:
    """Print the nodes of new instances and the reasons on standard error."""
    explanation = solution.explanation()
    if as_json:
        document = [item.data() for item in explanation]
        sys.stderr.write(f"{json.dumps(document, separators=(',', ':'))}\n")
        return
    for item in explanation:
        sys.stderr.write("".join(f"{line}\n" for line in item.lines()))


def _read(path: str) -> Any:
    """Return the decoded request; ``-`` is standard input.

    Raises:
        DataError, OSError: the request cannot be decoded or read.
    """
    if path == "-":
        return json_reader.decode(sys.stdin.buffer.read(), "request -")
    return json_reader.decode(sources.read_bytes(path), f"request {path}")


def _show(
    parsed: ParsedOptions, state: node_state.ClusterState, suffix: str, what: str
) -> None:
    output.nodes_asked(state, parsed, f"{what} status")
    if parsed["S"] is not None:
        when = "before" if suffix == "pre-ialloc" else "after"
        loading.save(parsed, state.as_cluster(), suffix, f"{when} iallocator run")
