"""Changes of the mutation tool: what they are, and what they leave alone."""

import io

import pytest

from mutants import __main__ as command
from mutants import changes, operators, reach, trees

CODE = '''\
"""Module."""
import os
LIMIT_S = 30.0
def send(fd: int | None, *, mode: int = 3) -> None:
    """Send."""
    if fd is None:
        raise ValueError("no descriptor")
    _log.info("sending %d", 4)
    assert fd > 5
    os.fsync(fd)
    os.open("file", mode, timeout_s=9)
'''


def applied(code):
    """Return the changed lines of all mutants of a code."""
    actual = set()
    for mutants in changes.changes_of("lib/a.py", code):
        for mutant in mutants:
            old, new = code.splitlines(), mutant.apply(code).splitlines()
            actual |= {b.strip() for a, b in zip(old, new, strict=True) if a != b}
    return actual


def test_other_exceptions_are_caught_in_place_of_dotted_ones():
    operator = operators.all_operators()["ExceptionReplacer"]
    for example in operator.examples():
        code = changes.mutate_code(
            example.pre_mutation_code, operator, example.occurrence
        )
        assert code == example.post_mutation_code


@pytest.mark.parametrize("operator", operators.OWN)
def test_each_operator_does_what_its_examples_show(operator):
    for example in operator.examples():
        assert operator.__name__ in operators.all_operators()
        code = changes.mutate_code(
            example.pre_mutation_code, operator(), example.occurrence
        )
        assert code == example.post_mutation_code


def test_guards_calls_arguments_and_numbers_are_changed():
    assert applied(CODE) >= {
        "if not fd is None:",
        "if fd is not None:",
        "pass",
        'os.open("fileX", mode, timeout_s=9)',
        'os.open("file", mode)',
    }


def test_types_texts_assertions_and_durations_are_left_alone():
    lines = {line.strip() for line in CODE.splitlines()}
    for line in applied(CODE) - lines:
        assert not line.startswith(("LIMIT_S", '"""', "_log", "assert", "raise"))
        assert "timeout_s=8" not in line
        assert "Any" not in line
        assert "int & None" not in line


def test_arguments_that_are_not_used_are_left_alone():
    code = "def f(a, b, c):\n    del a, b\n    del c[0]\n    del c.x\n"
    lines = {m.line for some in changes.changes_of("lib/a.py", code) for m in some}
    assert lines == {3, 4}


def test_a_sample_depends_on_the_seed_alone(tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "a.py").write_text(CODE)
    first = changes.sample(tmp_path, "a", 5, 1)
    assert changes.sample(tmp_path, "a", 5, 1) == first
    assert len(first[1]) == 5
    assert changes.sample(tmp_path, "a", 5, 2) != first
    with pytest.raises(LookupError, match="no package b"):
        changes.sample(tmp_path, "b", 5, 1)


MATCH = """\
def act(value):
    match value:
        case 1 | 2:
            send(value)
        case _:
            raise ValueError
"""


def test_a_statement_with_cases_ends_before_the_first_of_them():
    lines = {mutant.line: mutant.lines for mutant in flat("lib/a.py", MATCH)}
    assert lines[4] == (4,)
    assert lines[6] == (6,)
    assert changes.Syntax(MATCH).statement_lines(2) == (2,)


def flat(path, code):
    return [mutant for same in changes.changes_of(path, code) for mutant in same]


def test_one_sample_of_the_whole_library_has_files_of_all_packages(tmp_path):
    for path in ("a.py", "b/c.py", "b/d/e.py", "_buildconf.py"):
        file = tmp_path / "lib" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(CODE)
    positions, mutants = changes.sample(tmp_path, "", 10**6, 1)
    assert positions == len(mutants)
    assert {mutant.path for mutant in mutants} == {
        "lib/a.py",
        "lib/b/c.py",
        "lib/b/d/e.py",
    }


@pytest.mark.parametrize("arguments", [["all", "http"], ["all", "--near"]])
def test_the_whole_library_goes_with_nothing_else(arguments, capsys):
    assert command.main(arguments) == 2
    assert "'all' is the whole library" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("noticed", "tried", "low", "high"),
    [(0, 0, 0.0, 1.0), (10, 10, 0.72, 1.0), (0, 10, 0.0, 0.28), (120, 150, 0.73, 0.86)],
)
def test_a_share_has_an_interval(noticed, tried, low, high):
    assert command.interval(noticed, tried) == pytest.approx((low, high), abs=0.005)


def test_a_measurement_that_is_ended_early_goes_on_where_it_was(tmp_path, monkeypatch):
    now = {f"test/py/unit/test_{name}.py": "1" for name in "abc"}
    now |= {"lib/a.py": "1"}
    monkeypatch.setattr(reach, "PIECE", 2)
    known, pieces = reach.Reach(), []

    def measure(_tree, modules, _workers):
        if len(pieces) == 1:
            raise KeyboardInterrupt
        pieces.append(modules)

    monkeypatch.setattr(known, "_measure", measure)
    stored = tmp_path / "reach.json"
    with pytest.raises(KeyboardInterrupt):
        known.update(None, now, 1, lambda: known.save(stored))
    again = reach.Reach.load(stored)
    assert pieces == [["test/py/unit/test_a.py", "test/py/unit/test_b.py"]]
    assert again.stale_modules(now) == {"test/py/unit/test_c.py"}


def test_tests_of_changed_files_are_measured_again():
    known = reach.Reach(
        {
            "digests": {
                "lib/a.py": "1",
                "lib/b.py": "1",
                "test/py/unit/test_b.py": "1",
            },
            "seconds": {"test/py/unit/test_a.py::x": 1.0},
            "lines": {"lib/a.py": {"1": ["test/py/unit/test_a.py::x"]}},
        }
    )
    now = {"lib/a.py": "2", "lib/b.py": "1", "test/py/unit/test_b.py": "1"}
    now |= {"test/py/unit/test_a.py": "1", "test/py/unit/test_c.py": "1"}
    known.digests["test/py/unit/test_a.py"] = "1"
    assert known.stale_modules(now) == {
        "test/py/unit/test_a.py",
        "test/py/unit/test_c.py",
    }


def test_near_tests_are_those_named_after_a_package():
    paths = [
        "lib/store/wire.py",
        "test/py/unit/store/conftest.py",
        "test/py/unit/store/test_wire.py",
        "test/py/unit/protocols/http/test_pool.py",
        "test/py/unit/test_store_file.py",
        "test/py/property/test_store.py",
        "test/py/property/test_config.py",
    ]
    actual = reach.near(dict.fromkeys(paths, "digest"), ["store", "hypervisor/kvm"])
    assert sorted(set(paths) - set(actual)) == [
        "test/py/property/test_config.py",
        "test/py/unit/protocols/http/test_pool.py",
    ]


def test_a_run_may_take_much_longer_than_measured_but_ends():
    seconds = {"quick": 0.01, "slow": 4.0, "other": 60.0}
    whole, single = command.limits(["quick", "slow"], seconds)
    assert 4 * 4.01 < whole < 60
    assert 4 * 4.0 < single < whole
    assert command.limits([], seconds)[0] > 0


def test_a_value_is_tested_by_those_who_import_it(tmp_path):
    files = {
        "lib/table.py": "LIMIT = 1\n",
        "lib/user.py": "from ganeti import table\ndef use():\n    return table.LIMIT\n",
        "lib/far.py": "def use():\n    import ganeti.user\n",
        "test/py/unit/test_table.py": "import ganeti.table\nimport ganeti.user\n",
    }
    for path, code in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(code)
    names = [
        f"test/py/unit/test_{name}.py::test"
        for name in ("table", "user", "far", "other")
    ]
    direct, user, far, other = names
    known = reach.Reach(
        {
            "digests": dict.fromkeys(files, "1"),
            "seconds": dict.fromkeys(names, 1.0),
            "lines": {
                "lib/user.py": {"3": [user]},
                "lib/far.py": {"2": [far]},
                "lib/other.py": {"1": [other]},
            },
        }
    )
    known.read_imports(tmp_path)

    def tests(path, line, *, in_function):
        return known.tests_of(
            changes.Mutant(path, line, (line,), "NumberReplacer", 0, in_function)
        )

    assert tests("lib/table.py", 1, in_function=False) == [direct, user, far, other]
    # A test module that imports it may execute it in what its tests share.
    assert tests("lib/user.py", 3, in_function=True) == [user, direct]
    assert tests("lib/far.py", 2, in_function=True) == [far]
    # Nobody executes it in the process of a test.
    assert tests("lib/table.py", 7, in_function=True) == [direct]
    assert tests("lib/none.py", 7, in_function=True) == []


class Server:
    """In the place of the process that runs tests; ends without an answer if empty."""

    def __init__(self, answer):
        self.stdin, self.stdout = io.StringIO(), io.StringIO(answer)
        self.is_over = False

    def wait(self):
        self.is_over = True


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        (['"unnoticed"\n'], trees.UNNOTICED),
        (["", '"unnoticed"\n'], trees.UNNOTICED),
        (["", ""], trees.NOTICED),
    ],
)
def test_a_run_that_ends_its_server_is_repeated_once(
    tmp_path, monkeypatch, answers, outcome
):
    servers = [Server(answer) for answer in answers]
    left = list(servers)
    monkeypatch.setattr(trees.subprocess, "Popen", lambda *_, **__: left.pop(0))
    tree = trees.Tree.__new__(trees.Tree)
    tree.top, tree._process = tmp_path / "copy", None
    tree.top.mkdir()
    assert tree.run(["test"], 5, 1) == outcome
    assert left == []
    assert [server.is_over for server in servers] == [not text for text in answers]
    tree.close()
    assert not tree.top.exists()
