"""Changes of the users file's text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.daemons.rapi import users

TEXT = """\
# administrators
jack {HA1}ce9ed419740789a9a91375eda3722642 write

stats  secret   read
web    {ROLE} no role without its mark
@web   {ROLE}   write:/2/instances/web-*
deploy old @web
broken {SCRYPT}nonsense write
"""
DIGEST = users.format_token("t" * 64)


def test_a_new_user_follows_the_others_and_nothing_else_changes():
    changed = users.with_user(TEXT, "new", DIGEST, "read")
    assert changed == f"{TEXT}new {DIGEST} read\n"
    assert users.with_user(TEXT[:-1], "new", DIGEST, "").endswith(
        f"write\nnew {DIGEST}\n"
    )
    assert users.with_user("", "new", DIGEST, "") == f"new {DIGEST}\n"


def test_a_line_is_replaced_in_its_place():
    changed = users.with_user(TEXT, "stats", DIGEST, "@web,read")
    assert changed == TEXT.replace("stats  secret   read", f"stats {DIGEST} @web,read")


def test_earlier_lines_of_the_name_go():
    text = "a old write\nb x read\na newer read\n"
    assert users.with_user(text, "a", DIGEST, "") == f"b x read\na {DIGEST}\n"
    assert users.without(text, ["a"]) == "b x read\n"


def test_removal_keeps_everything_else():
    assert users.without(TEXT, ["stats", "nobody", "#"]) == TEXT.replace(
        "stats  secret   read\n", ""
    )


@pytest.mark.parametrize(
    "name", ["", "a b", "@web", "#x", "a:b", "a\nb", "x" * 129, "é", "a\tb"]
)
def test_names_that_no_line_can_have_are_refused(name):
    with pytest.raises(ValueError, match="wanted a name"):
        users.with_user(TEXT, name, DIGEST, "")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("@none", "role '@none' is not defined"),
        ("fly:/2", "fly"),
        ("read\nroot x write", "wanted one line"),
        ("read\rroot x write", "wanted one line"),
    ],
)
def test_rights_that_would_disable_the_user_are_refused(options, why):
    with pytest.raises(ValueError, match=why):
        users.with_user(TEXT, "new", DIGEST, options)


def test_entries_show_kinds_and_states_without_secrets():
    text = f"{TEXT}short {users.format_token('a', 100)} read\n"
    rows = {entry.name: entry for entry in users.entries(text, 100.0)}
    assert list(rows) == ["jack", "stats", "web", "@web", "deploy", "broken", "short"]
    assert [rows[name].kind for name in ("jack", "stats", "@web")] == [
        *("ha1", "clear", "role")
    ]
    assert rows["broken"][1:] == ("broken", None, "write", "disabled")
    assert rows["web"].state == "disabled"
    assert rows["short"][1:] == ("token", 100, "read", "expired")
    assert "secret" not in repr(rows["stats"])
    later = users.entries(text, 99.0)
    assert later[-1].state == "valid"


def test_a_broken_line_after_a_valid_one_disables_the_user():
    text = "a secret write\na {SCRYPT}x write\n@r {HA1}x read\n"
    rows = {entry.name: entry.state for entry in users.entries(text, 0)}
    assert rows == {"a": "disabled", "@r": "disabled"}


@given(st.text(alphabet="ab#@ \t\n{}:,", max_size=60), st.sampled_from(["a", "new"]))
def test_what_was_written_is_read_again(text, name):
    others = {u: v for u, v in users.parse(text).by_name.items() if u != name}
    changed = users.with_user(text, name, DIGEST, "read")
    content = users.parse(changed)
    assert [user.name for user in content.by_digest.values()] == [name]
    assert {u: v for u, v in content.by_name.items() if u != name} == others
    gone = users.parse(users.without(changed, [name]))
    assert (dict(gone.by_name), dict(gone.by_digest)) == (others, {})
