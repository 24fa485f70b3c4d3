"""Copies of the tree, and the runs of pytest in them.

A copy is what a mutant is written to. A process per copy has imported pytest and the
libraries; each run of tests is a fork of it, which saves most of the start-up time.
"""

import contextlib
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import time

#: Left out of a copy; its environment is that of the tree.
LEFT_BEHIND = shutil.ignore_patterns(
    ".git", ".venv", "build", "__pycache__", ".hypothesis", ".*_cache"
)
#: Libraries that the forks need not import again.
PRELOADED = (
    "pytest", "_pytest.assertion.rewrite", "pytest_timeout", "hypothesis", "msgspec",
    "numpy", "paramiko", "pycurl", "pyroute2", "OpenSSL", "cheroot.server", "sqlite3",
    "cryptography.x509", "asyncio", "multiprocessing", "unittest.mock", "qemu.qmp",
)  # fmt: skip
#: Output of the last run in a copy.
LOG = "build/tests.log"
NOTICED, UNNOTICED, TIMED_OUT = "noticed", "unnoticed", "timed out"


class Tree:
    """One copy of the tree, with a process that runs its tests."""

    def __init__(self, top, folder):
        """Copy the tree at top to a new folder, and make it runnable."""
        self.top = pathlib.Path(folder)
        shutil.copytree(top, self.top, ignore=LEFT_BEHIND, symlinks=True)
        (self.top / ".venv").symlink_to(pathlib.Path(sys.prefix))
        (self.top / "build").mkdir()
        (self.top / "build" / "peers").symlink_to(top / "build" / "peers")
        subprocess.run(["autotools/make-tree"], cwd=self.top, check=True)
        # Python compares the time of a file in seconds; the hash notices each change.
        subprocess.run(
            [
                sys.executable,
                "-m",
                "compileall",
                "-q",
                "--invalidation-mode",
                "checked-hash",
                "lib",
            ],
            cwd=self.top,
            check=True,
        )
        self._process = None

    def environment(self):
        """Return the environment of test runs in this copy."""
        here = pathlib.Path(__file__).parents[1]
        return os.environ | {
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": str(here),
            "OPENBLAS_NUM_THREADS": "1",
        }

    @contextlib.contextmanager
    def changed(self, mutant):
        """Apply a mutant to this copy as long as the context is open."""
        path = self.top / mutant.path
        original = path.read_text()
        path.write_text(mutant.apply(original))
        try:
            yield
        finally:
            path.write_text(original)

    def run(self, tests, limit_s, test_limit_s):
        """Run tests until the first fails and return the outcome.

        Args:
            tests: their names.
            limit_s: seconds until the run ends with the outcome that it timed out.
            test_limit_s: seconds until a single test fails.
        """
        order = {"tests": tests, "limit_s": limit_s, "test_limit_s": test_limit_s}
        answer = self._answer(json.dumps(order)) or self._answer(json.dumps(order))
        # A change may let a test end this process, too, as a wrong process id does.
        return json.loads(answer) if answer else NOTICED

    def _answer(self, order):
        """Return the answer of the process of this copy; empty if it has ended."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mutants.trees"],
                cwd=self.top,
                env=self.environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        try:
            self._process.stdin.write(f"{order}\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            self._end_process()
        return answer

    def log(self):
        """Return the end of the output of the last run."""
        return (self.top / LOG).read_text(errors="replace")[-2000:]

    def close(self):
        """End the process and remove the copy."""
        self._end_process()
        shutil.rmtree(self.top)

    def _end_process(self):
        if self._process is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process.stdout.close()
            self._process.wait()
            self._process = None


def _tests(tests, test_limit_s):
    """Run tests in this process, which is a fork, and end it with the exit code."""
    import hypothesis
    import pytest

    # A new session: what a broken test leaves behind is found by its group.
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    for number in (1, 2):
        os.dup2(os.open(LOG, flags, 0o600), number)
    hypothesis.settings.register_profile(
        "mutants",
        parent=hypothesis.settings.get_profile("ci"),
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    )
    arguments = ["-x", "-q", "--timeout", str(test_limit_s), "-p", "no:xdist"]
    # The preloaded plugins and libraries.
    arguments += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    code = pytest.main([*arguments, "--hypothesis-profile", "mutants", *tests])
    os._exit(int(code))


def _outcome(child, limit_s):
    """Wait for a fork and return the outcome; end it when its time is over."""
    deadline = time.monotonic() + limit_s
    descriptor = os.pidfd_open(child)
    try:
        is_over = select.select([descriptor], [], [], deadline - time.monotonic())[0]
    finally:
        os.close(descriptor)
    with contextlib.suppress(ProcessLookupError):
        # Also after a regular end: a test that failed may leave daemons.
        os.killpg(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if not is_over:
        return TIMED_OUT
    return UNNOTICED if os.waitstatus_to_exitcode(status) == 0 else NOTICED


def serve():
    """Answer each line of standard input, a list of tests, with an outcome."""
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            __import__(name)
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if not child:
            _tests(order["tests"], order["test_limit_s"])
        print(json.dumps(_outcome(child, order["limit_s"])), flush=True)


if __name__ == "__main__":
    serve()
