"""Which tests execute a line, and how long they take.

One run of the unit and property tests with coverage contexts gives both. The result is
kept in build/mutants; the next run repeats only the test modules that changed and those
that execute a changed file of the library.
"""

import hashlib
import json
import pathlib
import subprocess
import sys
from xml.etree import ElementTree as ET

import coverage

from mutants import imports

TESTS = ("test/py/unit", "test/py/property")
#: Test modules that are measured by one run of pytest; the result is kept after each.
PIECE = 40


def digests(top):
    """Return the digest of each file of the library and its tests by path."""
    actual = {}
    for folder in ("lib", *TESTS):
        for path in sorted((top / folder).rglob("*.py")):
            if path.name != "_buildconf.py":
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                actual[str(path.relative_to(top))] = digest
    return actual


def near(paths, packages):
    """Return the library and those test modules that are named after a package.

    Args:
        paths: digests by path, see `digests`.
        packages: below lib, for example ``store`` or ``hypervisor/kvm``.
    """
    first = {package.split("/")[0] for package in packages}
    return {
        path: digest
        for path, digest in paths.items()
        if not path.startswith(TESTS)
        or "/test_" not in path
        or any(
            path.startswith(f"{TESTS[0]}/{name}/") or f"/test_{name}" in path
            for name in first
        )
    }


def module_of(test):
    """Return the file of a test."""
    return test.split("::", 1)[0]


class Reach:
    """Tests by path and line of the library, and seconds by test."""

    def __init__(self, state=None):
        """Start with nothing, or with a stored state."""
        state = state or {"digests": {}, "seconds": {}, "lines": {}}
        self.digests = state["digests"]
        self.seconds = state["seconds"]
        self._lines = state["lines"]
        self._imports = imports.Imports(pathlib.Path(), ())

    @classmethod
    def load(cls, path):
        """Return the stored state, or an empty one."""
        if not path.exists():
            return cls()
        state = json.loads(path.read_text())
        tests = state.pop("tests")
        for lines in state["lines"].values():
            for number, indices in lines.items():
                lines[number] = [tests[index] for index in indices]
        return cls(state)

    def read_imports(self, top):
        """Read which module imports which in the tree at top; `tests_of` needs it."""
        self._imports = imports.Imports(top, self.digests)

    def save(self, path):
        """Store the state; tests by number, since a line may have thousands."""
        numbers = {test: number for number, test in enumerate(self.seconds)}
        state = {
            "digests": self.digests,
            "seconds": self.seconds,
            "tests": list(numbers),
            "lines": {
                path: {
                    line: [numbers[test] for test in tests]
                    for line, tests in lines.items()
                }
                for path, lines in self._lines.items()
            },
        }
        path.write_text(json.dumps(state))

    def stale_modules(self, now):
        """Return the test modules whose results do not fit the digests now."""
        changed = {path for path in self.digests | now if self._differs(path, now)}
        stale = {path for path in changed if path.startswith(TESTS)}
        for path in changed:
            for tests in self._lines.get(path, {}).values():
                stale.update(module_of(test) for test in tests)
        if any(path.startswith("lib/") and path not in self.digests for path in now):
            # New files: nobody knows yet which tests execute them.
            stale.update(path for path in now if path.startswith(TESTS))
        return {path for path in stale if path in now and "/test_" in path}

    def _differs(self, path, now):
        return self.digests.get(path) != now.get(path)

    def update(self, tree, now, workers, save=lambda: None):
        """Run the test modules that changed in a copy of the tree, and return them.

        Args:
            tree: copy to run them in.
            now: digests by path, see `digests`.
            workers: number of test processes.
            save: called after each piece; an update that is ended early goes on there.
        """
        modules = sorted(self.stale_modules(now))
        changed = {path for path in self.digests | now if self._differs(path, now)}
        gone = set(modules) | {path for path in changed if path not in now}
        self.seconds = {
            t: s for t, s in self.seconds.items() if module_of(t) not in gone
        }
        for path in changed:
            self._lines.pop(path, None)
        for lines in self._lines.values():
            for number, tests in lines.items():
                lines[number] = [test for test in tests if test in self.seconds]
        # A module without a digest is stale.
        self.digests = {path: now[path] for path in now if path not in modules}
        for first in range(0, len(modules), PIECE):
            piece = modules[first : first + PIECE]
            self._measure(tree, piece, workers)
            self.digests |= {path: now[path] for path in piece}
            save()
        return modules

    def _measure(self, tree, modules, workers):
        data = tree.top / "build" / "coverage"
        report = tree.top / "build" / "tests.xml"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-n",
            str(workers),
            "--timeout",
            "300",
        ]
        command += ["--hypothesis-profile", "ci", f"--junitxml={report}"]
        command += ["--cov=lib", "--cov-context=test", "--cov-report=", *modules]
        subprocess.run(
            command,
            cwd=tree.top,
            env=tree.environment() | {"COVERAGE_FILE": str(data)},
            stdout=sys.stderr,
            check=False,
        )
        passed = _passed(report)
        stored = coverage.CoverageData(str(data))
        stored.read()
        for file in stored.measured_files():
            path = file.removeprefix(f"{tree.top}/")
            known = self._lines.setdefault(path, {})
            for number, contexts in stored.contexts_by_lineno(file).items():
                tests = known.setdefault(str(number), [])
                names = {context.rsplit("|", 1)[0] for context in contexts}
                tests += sorted(name for name in names if _report_name(name) in passed)
        for tests in self._all_tests():
            for test in tests:
                self.seconds.setdefault(test, passed.get(_report_name(test), 0))

    def _all_tests(self):
        return (tests for lines in self._lines.values() for tests in lines.values())

    def tests_of(self, mutant):
        """Return the tests that a mutant may concern, the nearest and fastest first.

        Those that execute its statement, then all of the test modules that import its
        module: they may execute it while they are imported, or in a fixture that several
        tests share, which is measured for the first one alone. A statement outside functions runs when its
        module is imported, and its values may be used anywhere: there it is the tests that
        execute a function of the module, then those that import it or execute a function
        of its importers, and so on, and at last all others.

        A statement that no test executes may be one that runs in child processes, which
        are not measured: there it is the tests of the module that is named after it.
        """
        if mutant.in_function:
            lines = self._lines.get(mutant.path, {})
            tests = {test for line in mutant.lines for test in lines.get(str(line), ())}
            tests = tests or self._tests_in({_own_tests(mutant)})
            near = {
                path
                for path in self._imports.importers(mutant.path)
                if path.startswith(TESTS)
            }
            more = self._sorted(self._tests_in(near), mutant)
            return list(dict.fromkeys([*self._sorted(tests, mutant), *more]))
        order = {}
        for paths in self._imports.levels(mutant.path):
            order |= dict.fromkeys(self._sorted(self._tests_in(paths), mutant))
        return list(order | dict.fromkeys(self._sorted(self.seconds, mutant)))

    def _tests_in(self, paths):
        """Return the tests of test modules, and those that execute files of the library."""
        actual = {test for test in self.seconds if module_of(test) in paths}
        for path in paths:
            actual.update(*self._lines.get(path, {}).values())
        return actual

    def _sorted(self, tests, mutant):
        near = "/" + "/".join(mutant.path.removesuffix(".py").split("/")[1:2])
        return sorted(
            tests, key=lambda test: (near not in test, self.seconds[test], test)
        )


def _own_tests(mutant):
    """Return the test module that is named after the file of a mutant."""
    *folders, name = mutant.path.split("/")[1:]
    return "/".join([TESTS[0], *folders, f"test_{name}"])


def _report_name(test):
    """Return (class, name) by which the report of pytest names a test."""
    file, _, name = test.partition("::")
    parts = name.split("[", 1)
    classes, _, last = parts[0].rpartition("::")
    module = file.removesuffix(".py").replace("/", ".")
    name = last + ("[" + parts[1] if len(parts) > 1 else "")
    return ".".join([module, *filter(None, classes.split("::"))]), name


def _passed(report):
    """Return the seconds of each test that passed."""
    actual = {}
    for case in ET.parse(report).iter("testcase"):
        if not list(case):
            key = (case.get("classname"), case.get("name"))
            actual[key] = float(case.get("time"))
    return actual
