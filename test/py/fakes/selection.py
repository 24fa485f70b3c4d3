"""Which tests a run of pytest plays, by their marks.

Tests marked ``long`` are played with ``--long`` only. Of those marked ``sampled``, which are
whole proofs of minutes, ``--sample N`` plays one in N, others for each commit. A test with a
mark of its own is drawn by itself; of a file with the mark, all tests or none.

``--examples N`` draws one in N examples of each property test: others for each commit, with
1 all of them, others in each run.
"""

import hashlib
import os
import random

from fakes import seeds


def add_options(parser):
    """Add the options of a selection to those of pytest."""
    parser.addoption("--long", action="store_true", help="also tests marked long")
    parser.addoption(
        "--sample", type=int, default=1, metavar="N",
        help="of the tests marked sampled, one in N (default: all)",
    )  # fmt: skip
    parser.addoption(
        "--examples", type=int, default=0, metavar="N",
        help="one in N examples of property tests (default: all, as Hypothesis does)",
    )  # fmt: skip


def draw_examples(config):
    """Set how many examples Hypothesis draws, and from which seed."""
    import hypothesis

    calm = hypothesis.settings.get_profile("ci")
    # A busy machine draws slowly, and that is no fault.
    hypothesis.settings.register_profile(
        "plain", hypothesis.settings(calm, derandomize=False)
    )
    config.option.hypothesis_profile = config.option.hypothesis_profile or "plain"
    if one_in := config.getoption("--examples"):
        os.environ[seeds.EXAMPLES_ONE_IN] = str(one_in)
        profile = hypothesis.settings(
            calm, derandomize=False, max_examples=seeds.examples(calm.max_examples)
        )
        hypothesis.settings.register_profile("drawn", profile)
        option = config.option
        option.hypothesis_profile = "drawn"
        # Workers have the seed of the main process.
        option.hypothesis_seed = option.hypothesis_seed or str(
            seeds.of_tree(seeds.TOP) if one_in > 1 else random.getrandbits(31)
        )


def leave_out(config, items):
    """Remove the tests that this run does not play."""
    one_in, is_long = config.getoption("--sample"), config.getoption("--long")
    seed = seeds.of_tree(seeds.TOP)

    def is_played(item):
        if item.get_closest_marker("long") and not is_long:
            return False
        key = _key(item)
        return key is None or is_drawn(key, seed, one_in)

    played, left_out = [], []
    for item in items:
        (played if is_played(item) else left_out).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = played


def _key(item):
    """Return the name by which a test is drawn; nothing if it is always played."""
    if any(mark.name == "sampled" for mark in item.own_markers):
        return item.nodeid
    if item.get_closest_marker("sampled"):
        return item.nodeid.partition("::")[0]
    return None


def is_drawn(key, seed, one_in):
    """Return whether a name is among the one in so many that a seed draws."""
    digest = hashlib.sha256(f"{seed} {key}".encode()).digest()
    return int.from_bytes(digest[:8]) % one_in == 0


def say_what_is_left_out(terminalreporter, config):
    """Write which tests were left out, and the command that plays all of them."""
    left = []
    if not config.getoption("--long"):
        left.append("those marked long")
    if (one_in := config.getoption("--sample")) > 1:
        left.append(f"all but one in {one_in} of those marked sampled")
    if config.getoption("--examples"):
        seed = config.option.hypothesis_seed
        terminalreporter.write_line(f"property tests: --hypothesis-seed={seed}")
    if left:
        text = f"left out: {' and '.join(left)}; test/run STAGE --all plays all"
        terminalreporter.write_line(text)
