"""A machine that joins and sends more than its own key."""

import pytest

from ganeti.base import errors
from ganeti.protocols.ssh import authorized_keys, keys, pubkeys

VICTIM = "00000000-0000-4000-8000-000000000001"


def read_back(text, kind="ed25519"):
    """Return the key that a node shows, as the job that adds it records it."""
    return keys.one_public_key(text, kind, "root@n9")


def test_the_one_key_is_recorded_without_its_comment():
    public = keys.generate("ed25519", comment="root@n1 from='*'").public
    assert read_back(public) == f"ssh-ed25519 {keys.body(public)} root@n9"


@pytest.mark.parametrize("separator", ["\n", "\r", "\n\n", "\x0b", "\x85", "\u2028"])
def test_a_second_line_never_becomes_the_key_of_another_node(separator):
    own, evil = (keys.generate("ed25519").public.strip() for _ in range(2))
    with pytest.raises(errors.OpPrereqError, match="exactly one key"):
        read_back(f"{own}{separator}{VICTIM} {evil}\n")


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
def test_other_texts_are_no_key(text):
    with pytest.raises(errors.OpPrereqError, match="SSH public key"):
        read_back(text)


def test_no_file_of_keys_takes_two_lines_as_one(tmp_path):
    evil = "ssh-rsa AAAA x\nssh-rsa BBBB y"
    with pytest.raises(errors.OpPrereqError, match="one line"):
        pubkeys.update(str(tmp_path / "pub"), "add", {VICTIM: [evil]})
    with pytest.raises(errors.OpPrereqError, match="one line"):
        authorized_keys.add(str(tmp_path / ".ssh" / "authorized_keys"), [evil])
