"""One case of the bench: a tool, a generated cluster, and the value of its result."""

import dataclasses
import json
import pathlib
import re

from beside import measure
from beside.records import Result
from fakes import made_clusters
from fakes.made_clusters import Made, Shape

TOOLS = ("hail", "hbal", "hspace")
NEW = "new.bench.test"
_STEP = re.compile(r"^ +\d+\. .* => .* +(-?[\d.]+) a=")
_LAST = re.compile(r"^Cluster score improved from [\d.]+ to ([\d.]+)$", re.MULTILINE)
_FIRST = re.compile(r"^Initial score: ([\d.]+)$", re.MULTILINE)
_KEY = re.compile(r"^HTS_(\w+)='?([^'\n]*)'?$", re.MULTILINE)


def shapes(size: int) -> list[tuple[Shape, int]]:
    """Return the clusters of a size: shapes and seeds."""
    seeds = {20: 3, 100: 2}.get(size, 1)
    plain = [
        (Shape(size, template=template), seed)
        for template in made_clusters.TEMPLATES
        for seed in range(1, seeds + 1)
    ]
    return [*plain, *((shape, 1) for shape in _special(size))]


def _special(size: int) -> list[Shape]:
    return [
        Shape(size, tags="exclusion"),
        Shape(size, tags="migration"),
        Shape(size, tags="location"),
        Shape(size, per_node=5, tight=True),
        Shape(size, template="mixed", mixed=True, odd=True, offline=size // 10),
        Shape(size, forthcoming=0.1),
        Shape(size, template="plain", exclusive=True),
    ]


def prepare(tool: str, shape: Shape, made: Made, directory: pathlib.Path) -> list[str]:
    """Write a tool's input and return the words of its command line."""
    template = "drbd" if shape.template == "mixed" else shape.template
    if tool == "hail":
        spindles = 1 if shape.exclusive else None
        row = made_clusters.instance(template, [], spindles=spindles)
        data = made.request(made_clusters.allocation(NEW, row))
        (directory / "request").write_text(json.dumps(data))
        return [str(directory / "request")]
    path = directory / "cluster.data"
    path.write_text(made.text())
    if tool == "hbal":
        return ["-t", str(path)]
    return ["-t", str(path), "--machine-readable=yes", f"--disk-template={template}"]


def judge(tool: str, shape: Shape, made: Made, run: measure.Run) -> Result:
    """Say what a tool's output is worth."""
    if tool == "hail":
        return _allocation(shape, made, run)
    if tool == "hbal":
        return _plan(run)
    return _capacity(run)


def _allocation(shape: Shape, made: Made, run: measure.Run) -> Result:
    try:
        answer = json.loads(run.out)
    except ValueError:
        return _nothing(run)
    nodes = tuple(answer["result"])
    if not answer["success"]:
        return Result("refused", None, 0, (), is_whole=True)
    template = "drbd" if shape.template == "mixed" else shape.template
    spindles = 1 if shape.exclusive else None
    row = made_clusters.instance(template, list(nodes), spindles=spindles)
    after = dataclasses.replace(
        made,
        nodes={name: dict(node) for name, node in made.nodes.items()},
        instances=dict(made.instances),
    )
    after.add(NEW, row)
    score = score_of(after)
    return Result(f"score {score:.6f}", score, 1, nodes, is_whole=True)


def score_of(made: Made) -> float:
    """Return the score of a cluster, by our library."""
    # Loaded late: without its memory this process is small.
    from ganeti.decisions.htools.model import text
    from ganeti.decisions.htools.score import components
    from ganeti.decisions.htools.state import node_state

    return components.value(node_state.derive(text.load(made.text(), "made")))


def _plan(run: measure.Run) -> Result:
    steps = tuple(line for line in run.out.splitlines() if _STEP.match(line))
    is_whole = run.seconds is not None
    if run.code > 0 or not _FIRST.search(run.out):
        if "Nothing to do" in run.out:
            return Result("nothing to do", 0.0, 0, (), is_whole=True)
        return _nothing(run)
    last = _LAST.search(run.out) or _FIRST.search(run.out)
    actual = _STEP.match(steps[-1]) if steps and not is_whole else last
    score = float(actual.group(1)) if actual else None
    words = f"{len(steps)} moves to {score:.6f}"
    return Result(words, score, len(steps), steps, is_whole=is_whole)


def _capacity(run: measure.Run) -> Result:
    keys = dict(_KEY.findall(run.out))
    try:
        there, tiered = int(keys["INI_INST_CNT"]), int(keys["TRL_INST_CNT"])
        standard = int(keys["ALLOC_INSTANCES"])
    except KeyError:
        return _nothing(run)
    words = f"{tiered - there} tiered, {standard} standard"
    counts = (tiered - there, standard)
    return Result(words, -float(sum(counts)), sum(counts), counts, is_whole=True)


def _nothing(run: measure.Run) -> Result:
    reported = run.err.strip().splitlines()
    words = (
        "no answer" if run.seconds is None else f"failed: {(reported or [''])[-1]:.60}"
    )
    return Result(words, None, 0, (), is_whole=False)


def verdict(tool: str, ours: Result, theirs: Result) -> str:
    """Compare two results from our side."""
    if not theirs.is_whole and not (tool == "hbal" and theirs.steps):
        return "only ours" if ours.is_whole else "neither"
    if not ours.is_whole:
        return "WORSE: no answer"
    if not theirs.is_whole:
        return _start(ours, theirs)
    if ours.steps == theirs.steps:
        return "same"
    if tool == "hspace":
        pairs = list(zip(ours.steps, theirs.steps, strict=True))
        return "more" if all(a >= b for a, b in pairs) else "FEWER"
    if ours.score is None or theirs.score is None:
        return "only ours" if theirs.score is None else "WORSE: refused"
    if tool == "hbal" and ours.count > theirs.count:
        return "MORE MOVES"
    worse = ours.score > theirs.score + 1e-8
    return "WORSE" if worse else "better" if ours.score < theirs.score else "equal"


def _start(ours: Result, theirs: Result) -> str:
    """Compare a plan with the start of one that was not ended."""
    shared = len(theirs.steps)
    if ours.steps[:shared] == theirs.steps[:shared]:
        return f"first {shared} moves the same"
    mine = _STEP.match(ours.steps[min(shared, len(ours.steps)) - 1])
    is_worse = mine is None or float(mine.group(1)) > (theirs.score or 0.0)
    return f"first {shared} moves {'WORSE' if is_worse else 'better'}"
