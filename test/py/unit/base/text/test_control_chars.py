"""One definition of control characters, and what each place does with them."""

import sys
import unicodedata

import pytest

from ganeti.base.text import control_chars

EVERY = [chr(code) for code in range(sys.maxunicode + 1)]
CONTROL = [char for char in EVERY if control_chars.is_control(char)]


def test_all_of_category_cc_and_all_separators_are_control_characters():
    wanted = [c for c in EVERY if unicodedata.category(c) in {"Cc", "Zl", "Zp"}]
    assert set(wanted) <= set(CONTROL)


def test_all_explicit_bidirectional_controls_are_control_characters():
    # The marks are strong characters of their direction that are not shown.
    embeddings = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    wanted = {c for c in EVERY if unicodedata.bidirectional(c) in embeddings}
    assert wanted | {"\u061c", "\u200e", "\u200f"} <= set(CONTROL)


def test_nothing_printable_is_a_control_character():
    assert not [char for char in CONTROL if char.isprintable()]


def test_a_terminal_gets_no_control_character_and_no_line_end():
    shown = control_chars.escape("".join(CONTROL))
    assert shown.isprintable()
    assert not any(map(control_chars.is_control, shown))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ä €", "plain ä €"),
        ("a\nb\tc\rd", r"a\nb\tc\rd"),
        ("\x1b[2J\x9b2J\x7f", r"\x1b[2J\x9b2J\x7f"),
        ("a\u202eb\u2028c", r"a\u202eb\u2028c"),
        ("a\u00a0\ue000", r"a\xa0\ue000"),
    ],
)
def test_escapes(text, shown):
    assert control_chars.escape(text) == shown


def test_logs_keep_tabs_and_line_ends_only():
    assert control_chars.replace("a\tb\nc\rd\x1b[2J\x9be\u202ef\u2029g") == (
        "a\tb\nc?d?[2J?e?f?g"
    )
    kept = [char for char in CONTROL if control_chars.replace(char) == char]
    assert kept == ["\t", "\n"]


def test_files_may_have_line_feeds_only():
    assert control_chars.find("name|1\nother|2\n") is None
    refused = [char for char in CONTROL if control_chars.find(f"a{char}b")]
    assert refused == [char for char in CONTROL if char != "\n"]
    match = control_chars.find("ab\u2066c\x1b")
    assert match is not None
    assert (match.start(), match[0]) == (2, "\u2066")
