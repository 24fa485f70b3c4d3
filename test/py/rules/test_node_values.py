"""Values from nodes are data, never addresses, commands, paths, keys or terms."""

import pathlib
import textwrap

import pytest

from fakes import taint

TOP = pathlib.Path(__file__).resolve().parents[3]
#: Packages that read answers of nodes.
PACKAGES = (
    *("automation", "bootstrap", "commands", "daemons/masterd", "decisions/repair"),
    *("decisions/verify", "master", "operations", "store"),
)
#: Violations that are none, with the reason.
_OWN_FILE = (
    "the path of this node's store, with numbers and a digest of its own history"
)
ACCEPTED = {
    ("bootstrap.renew_crypto", "ssconf.write"): "content from the own configuration",
    ("store.copies.branches", "glob.escape"): _OWN_FILE,
    ("store.copies.branches", "glob.glob"): _OWN_FILE,
    ("store.copies.branches", "os.path.exists"): _OWN_FILE,
    ("store.copies.branches", "os.path.join"): _OWN_FILE,
    ("store.copies.branches", "os.rename"): _OWN_FILE,
    ("store.copies.branches", "os.stat"): _OWN_FILE,
    ("store.copies.branches", "os.unlink"): _OWN_FILE,
    (
        "store.copies.election",
        "Term",
    ): "next_number bounds the numbers of the candidates",
}


def test_no_answer_of_a_node_is_used_as_path_command_address_key_or_term():
    check = taint.Check(taint.modules(TOP / "lib", PACKAGES))
    violations = check.violations()
    assert [str(v) for v in violations if (v.module, v.call) not in ACCEPTED] == []
    present = {(v.module, v.call) for v in violations}
    assert set(ACCEPTED) <= present, "accepted, but not there any more"


def violations(*sources):
    texts = {f"m{number}": textwrap.dedent(s) for number, s in enumerate(sources)}
    return [v.call for v in taint.Check(texts).violations()]


SAMPLES = {
    "a command of the console": """
        def console(rpc, process, node):
            answer = rpc.call_node(node, calls.instance_console_info({}))
            info = answer.unwrap("no console")
            process.run(["ssh", "-l", info["user"], info["host"]])
        """,
    "a path, over a helper and an attribute": """
        class Unit:
            def execute(self):
                self.where = self._ask()["path"]
                self._write(f"/srv/{self.where}")

            def _ask(self):
                return self.rpc.call_node("n1", calls.blockdev_assemble()).payload

            def _write(self, path):
                with open(path) as src:
                    return src.read()
        """,
    "an address": """
        def peers(answers, ctx):
            for name, answer in answers.items():
                reported = dict(answer.payload or {})
                for address in reported.values():
                    ctx.tcp_ping(address, 1811, None)
        """,
    "a key": """
        def join(shell, path):
            result = shell.run(["cat", "/root/.ssh/id_rsa.pub"])
            line = result.stdout.strip()
            authorized_keys.add(path, [line])
        """,
    "a term": """
        def highest(answers):
            numbers = [answer.payload["term"] for answer in answers.values()]
            return Term(max(numbers), "")
        """,
    "a path, in another module": """
        from ganeti import m1

        def go(rpc):
            m1.keep(rpc.call_node("n1", calls.version()).unwrap("x"))
        """,
}
OTHER = """
    import os

    def keep(name):
        os.unlink(os.path.join("/var", name))
    """


@pytest.mark.parametrize("name", SAMPLES)
def test_a_violation_is_reported(name):
    assert violations(SAMPLES[name], OTHER)


@pytest.mark.parametrize(
    "source",
    [
        """
        def key(shell, path):
            result = shell.run(["cat", "x"])
            line = keys.one_public_key(result.stdout, "rsa", "n1")
            authorized_keys.update_node_keys(path, "add", {"n1": [line]})
        """,
        """
        def record(answer, records, paths):
            os.unlink(records[answer.payload["name"]])
            open(records.get(answer.payload))
        """,
        """
        def size(answer):
            return os.truncate("/x", int(answer.payload))
        """,
        """
        def failed(answer, log):
            log.warn(f"node: {answer.payload}")
            open("/x")
        """,
    ],
)
def test_validated_values_are_not_reported(source):
    assert violations(source) == []
