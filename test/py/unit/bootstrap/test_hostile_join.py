"""A machine that joins and sends more than its own key."""

import types

import pytest

from ganeti import errors, pathutils
from ganeti.bootstrap import crypto, node_add
from ganeti.process import RunResult
from ganeti.ssh import authorized_keys, keys, pubkeys

VICTIM = "00000000-0000-4000-8000-000000000001"


class Shell:
    """Answers each command with one text."""

    def __init__(self, text):
        self.text = text

    def run(self, argv, *, stdin=None, timeout_s=None):
        return RunResult(tuple(argv), 0, None, self.text, "")


@pytest.fixture
def paths(tmp_path):
    made = pathutils.Paths(str(tmp_path / "n1"), "n1")
    pubkeys.update(
        made.data(crypto.PUBLIC_KEYS),
        "add",
        {VICTIM: [keys.generate("ed25519").public]},
    )
    return made


def read_back(paths, text, kind="ed25519"):
    state = types.SimpleNamespace(ssh_key_type=kind)
    node_add._read_back_key(paths, state, Shell(text), "n9")
    return pubkeys.read(paths.data(crypto.PUBLIC_KEYS))


def test_the_one_key_is_recorded_without_its_comment(paths):
    public = keys.generate("ed25519", comment="root@n1 from='*'").public
    recorded = read_back(paths, public)
    assert recorded["n9"] == [f"ssh-ed25519 {keys.body(public)} root@n9"]


@pytest.mark.parametrize("separator", ["\n", "\r", "\n\n", "\x0b", "\x85", "\u2028"])
def test_a_second_line_never_becomes_the_key_of_another_node(paths, separator):
    before = pubkeys.read(paths.data(crypto.PUBLIC_KEYS))
    own, evil = (keys.generate("ed25519").public.strip() for _ in range(2))
    with pytest.raises(errors.OpPrereqError, match="exactly one key"):
        read_back(paths, f"{own}{separator}{VICTIM} {evil}\n")
    assert pubkeys.read(paths.data(crypto.PUBLIC_KEYS)) == before


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ssh-ed25519",
        "ssh-ed25519 AAAA",
        "ssh-ed25519 !!!!",
        'command="x" ' + keys.generate("ed25519").public,
        keys.generate("ecdsa").public,
        "ssh-ed25519 " + keys.body(keys.generate("ecdsa").public),
        keys.generate("ed25519").public.strip() + " " + "x" * 10000,
    ],
    ids=["empty", "no-body", "short", "no-base64", "options", "type", "other", "long"],
)
def test_other_texts_are_no_key(paths, text):
    with pytest.raises(errors.OpPrereqError, match="SSH public key"):
        read_back(paths, text)


def test_no_file_of_keys_takes_two_lines_as_one(tmp_path):
    evil = "ssh-rsa AAAA x\nssh-rsa BBBB y"
    with pytest.raises(errors.OpPrereqError, match="one line"):
        pubkeys.update(str(tmp_path / "pub"), "add", {VICTIM: [evil]})
    with pytest.raises(errors.OpPrereqError, match="one line"):
        authorized_keys.add(str(tmp_path / ".ssh" / "authorized_keys"), [evil])
