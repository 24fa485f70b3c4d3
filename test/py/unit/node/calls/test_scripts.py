"""Hooks, allocators and restricted commands, as real programs."""

import dataclasses
import os
import pathlib

import pytest

from fakes import nodes
from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.node.calls import scripts


@pytest.fixture
def node(tmp_path):
    return nodes.make_node(tmp_path, time=nodes.CountedClock())


def program(path, text, mode=0o755):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as stream:
        stream.write(f"#!/bin/sh\n{text}\n")
    os.chmod(path, mode)


def test_hooks_run_in_order_with_their_own_environment(node, monkeypatch):
    monkeypatch.setenv("LEAK", "from the daemon")
    top = f"{node.paths.hooks_dir}/node-add-pre.d"
    program(f"{top}/20-fail", r"""printf "\nbad\nworse \n\n" >&2; exit 3""")
    program(f"{top}/10-ok", 'echo "$GANETI_OP_CODE$LEAK"')
    program(f"{top}/30.skipped", "echo never")
    program(f"{top}/40-plain", "echo never", mode=0o644)
    program(f"{top}/50-blank", "echo; exit 1")
    env = {"PATH": "/bin:/usr/bin", "GANETI_OP_CODE": "OP_NODE_ADD"}
    assert nodes.call(node, "hooks_runner", "node-add", "pre", env) == [
        ("node-add-pre.d/10-ok", 2, "OP_NODE_ADD"),
        ("node-add-pre.d/20-fail", 1, "bad\nworse"),
        ("node-add-pre.d/30.skipped", 0, ""),
        ("node-add-pre.d/40-plain", 0, ""),
        ("node-add-pre.d/50-blank", 1, ""),
    ]
    assert nodes.call(node, "hooks_runner", "node-add", "post", env) == []


def test_a_variable_that_no_program_can_get_is_left_out_and_named(node):
    top = f"{node.paths.hooks_dir}/instance-start-pre.d"
    program(f"{top}/10-tags", 'echo "${GANETI_INSTANCE_TAGS-none} $GANETI_LEFT_OUT"')
    tags = " ".join(f"{number:0128}" for number in range(1100))
    env = {"PATH": "/bin:/usr/bin", "GANETI_INSTANCE_TAGS": tags}
    assert nodes.call(node, "hooks_runner", "instance-start", "pre", env) == [
        ("instance-start-pre.d/10-tags", 2, "none GANETI_INSTANCE_TAGS")
    ]


def test_a_hook_that_was_killed_says_so(node):
    top = f"{node.paths.hooks_dir}/node-add-pre.d"
    program(f"{top}/10-silent", "kill -9 $$")
    program(f"{top}/20-loud", "echo begun; kill -9 $$")
    env = {"PATH": "/bin:/usr/bin"}
    assert nodes.call(node, "hooks_runner", "node-add", "pre", env) == [
        ("node-add-pre.d/10-silent", 1, "(was ended by signal 9)"),
        ("node-add-pre.d/20-loud", 1, "begun\n(was ended by signal 9)"),
    ]


@pytest.mark.parametrize("code", [0, 1])
def test_the_output_of_a_hook_is_bounded(node, code):
    top = f"{node.paths.hooks_dir}/node-add-post.d"
    text = f"echo first; yes | head -c 3000000; echo last; exit {code}"
    program(f"{top}/10-verbose", text)
    env = {"PATH": "/bin:/usr/bin"}
    [(_name, _status, output)] = nodes.call(
        node, "hooks_runner", "node-add", "post", env
    )
    assert len(output) < 70_000
    assert output.startswith("first\ny\n")
    assert output.endswith("y\nlast")
    assert "bytes of output left out" in output


@pytest.mark.parametrize("args", [("../x", "pre"), ("node-add", "during"), ("", "pre")])
def test_wrong_hooks_are_refused(node, args):
    with pytest.raises(errors.HooksFailure):
        nodes.call(node, "hooks_runner", *args, {})


class OwnPlugins(Paths):
    @property
    def iallocator_search_path(self):
        return (self.at("/allocators"),)


def with_allocator(node, text):
    paths = OwnPlugins(node.paths.root, node.paths.hostname)
    program(f"{paths.root}/allocators/own", text)
    return dataclasses.replace(node, paths=paths)


def test_allocators_get_a_file_and_options(node):
    actual = with_allocator(node, 'cat "$1"; shift; echo "$@"')
    params = {"mode": "fast", "flag": None}
    answer = nodes.call(actual, "iallocator_runner", "own", '{"a": 1}', params)
    assert answer == '{"a": 1}--flag --mode=fast\n'


def test_allocator_failures(node):
    actual = with_allocator(node, "echo no room >&2; exit 2")
    with pytest.raises(errors.OpExecError, match=r"own exited with code 2: no room"):
        nodes.call(actual, "iallocator_runner", "own", "{}", None)
    for name in ("missing", "../own"):
        with pytest.raises(errors.OpExecError, match=name):
            nodes.call(actual, "iallocator_runner", name, "{}", None)


@pytest.mark.parametrize(
    ("text", "limit_s", "words"),
    [
        ("sleep 600", 0.3, "own did not end in time and was killed"),
        ("yes", 60, r"printed too much \(wanted at most 20000 bytes, found 2\d+"),
        ("kill -9 $$", 60, "own was ended by signal 9"),
        ("head -c 9000 /dev/zero | tr '\\0' x; echo why >&2; exit 1", 60, "xwhy$"),
    ],
)
def test_allocators_that_misbehave(node, monkeypatch, text, limit_s, words):
    monkeypatch.setattr(scripts, "_ALLOCATOR_S", limit_s)
    monkeypatch.setattr(scripts, "_ALLOCATOR_OUTPUT", 20000)
    actual = with_allocator(node, text)
    with pytest.raises(errors.OpExecError, match=words) as caught:
        nodes.call(actual, "iallocator_runner", "own", "{}", None)
    assert len(str(caught.value)) < 2200


def _without_rights(path):
    path.chmod(0o644)


def _directory(path):
    path.unlink()
    path.mkdir()


def _broken_link(path):
    path.unlink()
    path.symlink_to("nowhere")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_without_rights, "is not executable"),
        (_directory, "is a directory"),
        (_broken_link, "is a broken link"),
    ],
)
def test_a_file_that_is_no_program_differs_from_no_file(node, spoil, words):
    actual = with_allocator(node, "true")
    path = pathlib.Path(actual.paths.iallocator_search_path[0], "own")
    spoil(path)
    with pytest.raises(errors.OpExecError) as caught:
        nodes.call(actual, "iallocator_runner", "own", "{}", None)
    wanted = f"iallocator own: wanted a program, {path} {words}"
    assert str(caught.value) == wanted


@pytest.mark.parametrize("text", ["hello\n", "#!/nonexistent/interpreter\n"])
def test_allocators_that_cannot_be_started_have_a_wrong_first_line(node, text):
    actual = with_allocator(node, "true")
    path = pathlib.Path(actual.paths.iallocator_search_path[0], "own")
    path.write_text(text)
    words = f"iallocator own: check the interpreter in its first line: {path}: "
    with pytest.raises(errors.OpExecError, match=words):
        nodes.call(actual, "iallocator_runner", "own", "{}", None)


def test_bytes_that_are_no_text_do_no_harm(node):
    actual = with_allocator(node, "printf '\\377\\376{}'")
    assert (
        nodes.call(actual, "iallocator_runner", "own", "{}", None) == "\ufffd\ufffd{}"
    )


def restricted(node, name="show", mode=0o755):
    top = f"{node.paths.conf_dir}/restricted-commands"
    program(f"{top}/show", 'echo "out$LEAK"', mode=mode)
    os.chmod(top, 0o755)
    return nodes.call(node, "restricted_command", name)


def test_a_restricted_command_runs_with_an_empty_environment(node, monkeypatch):
    monkeypatch.setenv("LEAK", "from the daemon")
    assert restricted(node) == "out\n"


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("missing", 0o755),
        ("../show", 0o755),
        ("show", 0o775),
        ("show", 0o644),
        (" ", 0o755),
    ],
)
def test_refusals_are_slow_and_do_not_say_why(node, name, mode):
    with pytest.raises(errors.OpExecError) as caught:
        restricted(node, name, mode)
    assert str(caught.value) == f"executing command {name!r} failed"
    assert node.clock.now == 1010.0


def test_repair_commands_get_json_on_their_input(node):
    top = f"{node.paths.conf_dir}/node-repair-commands"
    program(f"{top}/fix", "cat")
    os.chmod(top, 0o755)
    assert nodes.call(node, "repair_command", "fix", {"disk": 3}) == '{"disk":3}'
    with pytest.raises(errors.OpExecError, match="'show' failed"):
        nodes.call(node, "repair_command", "show", None)


def test_hooks_that_cannot_be_listed_are_left_out(node, caplog):
    os.makedirs(node.paths.hooks_dir)
    with open(f"{node.paths.hooks_dir}/node-add-pre.d", "w"):
        pass
    assert nodes.call(node, "hooks_runner", "node-add", "pre", {}) == []
    assert "hooks in node-add-pre.d: " in caplog.text


def test_a_hook_that_cannot_be_started_fails(node):
    path = f"{node.paths.hooks_dir}/node-add-pre.d/10-broken"
    program(path, "")
    with open(path, "w") as stream:
        stream.write("#!/no/such/interpreter\n")
    ((name, status, text),) = nodes.call(node, "hooks_runner", "node-add", "pre", {})
    assert (name, status) == ("node-add-pre.d/10-broken", 1)
    assert "10-broken" in text
