"""Values of users reach other programs through one parser and one builder each."""

import ast
import pathlib
import re

import pytest

from ganeti.base.constants import misc
from ganeti.base.text import patterns
from ganeti.master.config import address_pool
from ganeti.operations.parameters import device_params

#: Part of an option that a value completes.
_KEY = re.compile(r"(.*,)?[a-z][a-z0-9_-]*=", re.DOTALL)
LIB = pathlib.Path(__file__).parents[3] / "lib"
PARSER = LIB / "base/net/ip.py"


def imports(text):
    """Yield the modules that a source imports, wherever."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


def test_one_module_parses_addresses():
    users = [p for p in LIB.rglob("*.py") if "ipaddress" in imports(p.read_text())]
    assert users == [PARSER]


@pytest.mark.parametrize(
    "text", ["import ipaddress", "def f():\n    from ipaddress import ip_address"]
)
def test_the_rule_about_addresses_sees(text):
    assert "ipaddress" in imports(text)


BUILDER = LIB / "node/hypervisor/kvm/devices/options.py"
#: The command line of the guest's kernel is one text, with blanks between its parts.
NOT_OF_THE_EMULATOR = {"argv.py": ["root="]}


def joined_options(text):
    """Yield the texts before values that a source puts into an option itself."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.JoinedStr):
            continue
        for before, after in zip(node.values, node.values[1:], strict=False):
            is_value = isinstance(after, ast.FormattedValue)
            text = getattr(before, "value", None)
            if is_value and isinstance(text, str) and _KEY.fullmatch(text):
                yield text


def test_one_module_builds_options_of_the_emulator():
    for path in (LIB / "node/hypervisor/kvm").rglob("*.py"):
        if path != BUILDER:
            actual = list(joined_options(path.read_text()))
            assert actual == NOT_OF_THE_EMULATOR.get(path.name, []), path


@pytest.mark.parametrize(
    "text", ["f'addr={x}'", "f'if=none,file={x}'", "f'{a},tls-port={b}'"]
)
def test_the_rule_about_options_sees(text):
    assert list(joined_options(text))


@pytest.mark.parametrize("text", ["f'--fd={x}'", "f'unix:{x}'", "f'found = {x}'"])
def test_the_rule_about_options_allows(text):
    assert not list(joined_options(text))


@pytest.mark.parametrize(
    "text",
    [
        f"1 to {misc.MAX_TAG_LEN} letters",
        f"{misc.MAX_TAGS_PER_OBJ} tags",
        f"``/{address_pool.SHORTEST_PREFIX}`` to ``/{address_pool.LONGEST_PREFIX}``",
        f"numbers from {device_params.FIRST_VLAN} to {device_params.LAST_VLAN}",
        f"at most {patterns.MAX_LENGTH} characters",
        f"first {patterns.MAX_TEXT} characters",
    ],
)
def test_the_manual_page_has_the_bounds_of_values(text):
    assert text in " ".join((LIB.parent / "man/ganeti.rst").read_text().split())
