"""The users file: documented lines, further schemes, and broken lines."""

import hashlib

import pytest

from ganeti.daemons.rapi import users

TEXT = """\
# comment line 2
jack {HA1}ce9ed419740789a9a91375eda3722642 write
ann  secret  read, write
bob {CLEARTEXT}se{cret
eve {clearText}x odd,read
alone

\tpat\tpw\twrite
"""


def is_password(content, name, password):
    user = content.by_name.get(name)
    return users.is_password(user, name, password, costs=content.costs)


@pytest.mark.parametrize(
    ("name", "password", "words"),
    [
        ("jack", "example", {"write"}),
        ("ann", "secret", {"read", "write"}),
        ("bob", "se{cret", set()),
        ("eve", "x", {"odd", "read"}),
        ("pat", "pw", {"write"}),
    ],
)
def test_documented_lines(name, password, words):
    content = users.parse(TEXT)
    assert not content.problems
    assert content.by_name[name].rights.words == words
    assert is_password(content, name, password)
    for wrong in ("", password + "x", password[:-1], "{CLEARTEXT}x", password.upper()):
        assert not is_password(content, name, wrong)


def test_other_lines_are_no_users():
    assert set(users.parse(TEXT).by_name) == {"jack", "ann", "bob", "eve", "pat"}
    assert users.parse("") == users.Users()


def test_the_case_of_hexadecimal_digits_does_not_matter():
    text = "jack {Ha1}CE9ED419740789A9A91375EDA3722642 write"
    assert is_password(users.parse(text), "jack", "example")


@pytest.mark.parametrize(
    "password",
    [
        "{HA1}ce9e",
        "{HA1}" + "g" * 32,
        "{MD5}abc",
        "{SCRYPT}14$8$1$00$00",
        "{SCRYPT}30$8$1$" + "0" * 32 + "$" + "0" * 64,
        "{SCRYPT}14$0$1$" + "0" * 32 + "$" + "0" * 64,
        "{TOKEN}abc",
        "{TOKEN}" + "0" * 64 + "@soon",
        "{ROLE}",
    ],
)
def test_a_broken_line_disables_its_user_alone(password):
    text = f"ann secret write\nbad {password} write\nbob secret2 read\n"
    content = users.parse(text)
    assert set(content.by_name) == {"ann", "bob"}
    assert not content.by_digest
    assert len(content.problems) == 1
    assert "line 2: user 'bad' is disabled" in content.problems[0]
    assert password not in content.problems[0]


@pytest.mark.parametrize("option", ["write:web", "dance:/2/tags", "@missing", "@bad"])
def test_broken_options_disable_their_user(option):
    text = f"@bad {{ROLE}} nothing:/2\nann secret read,{option}\nbob secret\n"
    content = users.parse(text)
    assert set(content.by_name) == {"bob"}
    assert "secret" not in "".join(content.problems)


def test_the_last_line_of_a_name_counts_also_if_it_is_broken():
    content = users.parse("ann one read\nann two write\n")
    assert is_password(content, "ann", "two")
    assert not is_password(content, "ann", "one")
    assert "line 2" in content.problems[0]
    assert not users.parse("ann one read\nann {HA1}x write\n").by_name


def test_scrypt_hashes_and_tokens_are_read_as_they_are_written():
    line = f"ann {users.format_scrypt('pass word', bytes(16))} write"
    content = users.parse(line)
    assert content.costs == {(1 << 14, 8, 1)}
    assert is_password(content, "ann", "pass word")
    assert not is_password(content, "ann", "pass")
    assert not is_password(content, "other", "pass word")
    text = (
        f"ci {users.format_token('t' * 40)} read\ncd {users.format_token('u' * 40, 99)}"
    )
    content = users.parse(text)
    assert not content.by_name
    digest = hashlib.sha256(b"t" * 40).hexdigest()
    assert content.by_digest[digest].name == "ci"
    assert content.by_digest[users.token_digest("u" * 40)].secret.expires == 99


def test_roles_join_rights_and_are_no_users():
    text = """\
@web {ROLE} write:/2/instances/web*,odd
@ops {role} read
ann secret @web,@ops
@late {ROLE} write
bob secret @late
@pw secret write
eve secret @pw
"""
    content = users.parse(text)
    assert set(content.by_name) == {"ann", "bob"}
    rights = content.by_name["ann"].rights
    assert rights.words == {"odd", "read"}
    assert [rule.pattern for rule in rights.rules] == ["/2/instances/web*"]
    assert not is_password(content, "@web", "{ROLE}")
    assert len(content.problems) == 2


def test_an_unknown_user_costs_the_same_work(monkeypatch):
    calls = []
    monkeypatch.setattr(
        users, "_scrypt", lambda *args: calls.append(args[2]) or bytes(args[3])
    )
    content = users.parse(
        f"ann {{SCRYPT}}14$8$1${'0' * 32}${'1' * 64}\nbob clear\njack {{HA1}}{'0' * 32}\n"
        f"slow {{SCRYPT}}15$8$1${'0' * 32}${'1' * 64}"
    )
    for name in ("ann", "slow", "bob", "jack", "stranger"):
        calls.clear()
        assert not is_password(content, name, "wrong")
        assert sorted(calls) == [(1 << 14, 8, 1), (1 << 15, 8, 1)], name


def test_no_password_is_shown():
    content = users.parse("ann topsecret read")
    assert "topsecret" not in repr(content)
