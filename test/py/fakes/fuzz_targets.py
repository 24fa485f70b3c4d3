"""All targets of `fakes.fuzz`, and regular expressions as users could do harm with them."""

import contextlib
import re
import warnings

from fakes import fuzz, fuzz_inputs, hostile_values
from ganeti.base import errors
from ganeti.base.text import patterns
from ganeti.decisions.jobs import filters
from ganeti.model import objects, qlang

_CHARS = (*"abz01.-_", *"AZ", "é")
_ATOMS = (
    *(".", "[a-z]", "[^a]", "[]a]", "[a-z0-9.-]", r"\d", r"\w", r"\s", r"\b", "^", "$"),
    *(r"\Z", r"\A", r"\.", r"\pL", "[[:alpha:]]", "a{,2}", "[{,2}]", "(?i)", "(?s)"),
    *(r"\1", "(?=a)", "(?!a)", "(?<!a)b", "(?P=x)", r"\x41", r"\Q", "", "(?i:a)"),
)
_REPEATS = (
    "*",
    "+",
    "?",
    "*?",
    "++",
    "{2}",
    "{,3}",
    "{1,}",
    "{0,40}",
    "{999}",
    "{1001}",
)
_JUNK = (*"()[]{}|*+?\\^$.,!<=:PZ/#\"'", "\0", "\n", "\x1b", "\ud800", "\U0010ffff")
_LETTERS = "abz01.-Az"


def expression(chance, depth=3):
    """Return a random expression; many are none, or larger than the bounds."""
    parts = []
    for _part in range(chance.randint(1, 4)):
        kind = chance.random()
        if kind < 0.35 and depth:
            inner = expression(chance, depth - 1)
            parts.append(
                chance.choice(("(%s)", "(?:%s)", "(%s|a)", "(?P<x>%s)")) % inner
            )
        elif kind < 0.6:
            parts.append(chance.choice(_ATOMS))
        else:
            parts.append("".join(chance.choices(_CHARS, k=chance.randint(1, 3))))
        if chance.random() < 0.4:
            parts.append(chance.choice(_REPEATS))
        if chance.random() < 0.15:
            parts.append("|")
    return "".join(parts)


def _changed(chance, text):
    kind = chance.random()
    if kind < 0.15:
        place = chance.randint(0, len(text))
        return text[:place] + chance.choice(_JUNK) + text[place:]
    if kind < 0.17:
        return text * chance.randint(1, 200)
    if kind < 0.18:
        return chance.choice(_JUNK) * chance.randint(1, patterns.MAX_LENGTH + 1)
    return text


class Expressions:
    """Users send expressions to everything that takes one."""

    name = "regular expressions"

    def step(self, chance):
        text = _changed(chance, expression(chance))
        subject = "".join(chance.choices(_LETTERS, k=chance.randint(0, 6)))
        self._parse(text)
        rule = objects.FilterRule(
            uuid="f",
            watermark=0,
            priority=0,
            predicates=(["opcode", ["=~", "name", text]],),
            action="PAUSE",
            reason_trail=(),
        )
        facts = filters.JobFacts(1, [{"name": subject}], [])
        is_held = filters.Rules([rule]).decide(facts).action == "PAUSE"
        pattern, refusal = _compiled(text)
        if pattern is None:
            assert refusal.isprintable(), refusal
            assert len(refusal) < 400, refusal
            assert filters.problem(rule) is not None
            assert not is_held
            return
        assert len(text) <= patterns.MAX_LENGTH
        assert pattern.size <= patterns.MAX_SIZE
        assert filters.problem(rule) is None
        assert is_held is pattern.search(subject)
        if (python := _python(text)) is not None:
            assert pattern.search(subject) is (python.search(subject) is not None)
            assert pattern.fullmatch(subject) is (python.fullmatch(subject) is not None)
        if chance.random() < 0.01:
            pattern.search(subject * (patterns.MAX_TEXT // 6))

    @staticmethod
    def _parse(text):
        """Read the expression as a part of a filter."""
        with contextlib.suppress(errors.QueryFilterParseError):
            assert qlang.parse(f"name =~ /{text}/")

    def close(self):
        pass


def _compiled(text):
    """Return the expression, or None and the text of its refusal."""
    try:
        return patterns.compile_(text), ""
    except errors.ParseError as err:
        return None, str(err)


def _python(text):
    """Return Python's expression; None if it is none, or may take its time."""
    # It tries every way, and each alternative can double them: ``(\\A|){999}``.
    if sum(map(text.count, "*+?{")) > 2 or text.count("|") > 8:
        return None
    if "|" in text and re.search(r"[0-9]{2}\}", text):
        return None
    if r"\Q" in text or "[:" in text:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return re.compile(text, re.ASCII)
    except (re.error, Warning, OverflowError):
        return None


#: A message of the last ones costs most.
TARGETS = (
    (fuzz_inputs.Bodies, 22),
    (hostile_values.Values, 20),
    (fuzz_inputs.Datagrams, 15),
    (fuzz_inputs.NodeFiles, 15),
    (fuzz.Answers, 12),
    (fuzz.StoreWire, 5.8),
    (fuzz.Luxi, 5),
    (Expressions, 4),
    (fuzz.Noded, 1),
    (fuzz.StoreFiles, 0.2),
)
