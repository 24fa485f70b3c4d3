"""Contents that parameters may have, and values that give control of nodes.

Both are attributes of the parameter's row, or of the field of an opcode. The checks of
requests and of nodes, the right ``root`` of the remote API, the import of exports and
the documents all read them there.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple


class Form(NamedTuple):
    """Texts that a parameter can have.

    Attributes:
        wanted: text for messages.
        pattern: regular expression that matches the whole text, or each part of it.
        separator: what separates parts, empty for a single one.
    """

    wanted: str
    pattern: str
    separator: str = ""


class Root(NamedTuple):
    """Values that give whoever sets them control of nodes.

    Attributes:
        which: text about the values, for documents.
        applies: whether a value is one of them.
    """

    which: str
    applies: Callable[[Any], bool]


#: Value that removes an override.
_DEFAULT: Final = "default"
#: Values that reset a parameter; they are no files and no programs.
_UNSET: Final[tuple[Any, ...]] = (None, "", _DEFAULT, [], {})
#: Allocators for everybody: the one that ships, and the default of the cluster.
_ALLOCATORS: Final = ("hail", ".", None)
#: Whoever is root in a guest of this hypervisor is root of its node.
_UNSEPARATED: Final = "chroot"


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("/")


def _has_comma(value: Any) -> bool:
    return isinstance(value, str) and "," in value


def _is_off(value: Any) -> bool:
    return value != _DEFAULT and str(value).lower() not in ("true", "1")


def _is_unseparated(value: Any) -> bool:
    return _UNSEPARATED in (value if isinstance(value, list | tuple) else (value,))


#: Files, programs and devices of a node, and arguments of programs there.
ANY: Final = Root("any value", lambda value: value not in _UNSET)
#: The empty value of a list of what a guest may not do permits all of it.
EVEN_EMPTY: Final = Root("any value, also an empty one", lambda v: v != _DEFAULT)
PATH: Final = Root("a path", _is_path)
LIST: Final = Root("a list with commas", _has_comma)
OFF: Final = Root("false", _is_off)
ALLOCATOR: Final = Root("all but hail and .", lambda v: v not in _ALLOCATORS)
UNSEPARATED: Final = Root(_UNSEPARATED, _is_unseparated)

#: Texts without a closed form: one argument, or checked by a parser of their own.
LINE: Final = Form("a text in one line", r"[^\x00-\x1f\x7f]*")
ABSOLUTE: Final = Form("an absolute path", r"/[^\x00-\x1f\x7f]*")
IMAGE: Final = Form("an absolute path or a URL", r"(/|https?:|ftp:)[^\x00-\x1f\x7f]*")
HOST: Final = Form("a host name or an address", r"[A-Za-z0-9_.][A-Za-z0-9_.:-]{0,254}")
NAME: Final = Form(
    "a name of letters, digits and . _ + -", r"[A-Za-z0-9_.+][A-Za-z0-9_.+-]{0,63}"
)
USER: Final = Form("the name of a user", r"[a-z_][a-z0-9_-]{0,31}\$?")
KEYMAP: Final = Form("a layout such as de or en-us", r"[a-z]{2,5}(-[a-z]{2})?")
MODEL: Final = Form("a model and its features", r"[A-Za-z0-9_.,+=:-]{1,256}")
CIPHERS: Final = Form("ciphers of OpenSSL", r"[A-Za-z0-9_:+!@=., -]{1,256}")
SOUND: Final = Form(
    "sound cards of ac97, adlib, cs4231a, es1370, gus, hda, sb16",
    r" *(ac97|adlib|cs4231a|es1370|gus|hda|sb16) *",
    ",",
)
XEN_SOUND: Final = Form(
    "sound cards of ac97, es1370, hda, sb16, or all",
    r" *(ac97|all|es1370|hda|sb16) *",
    ",",
)
CAPABILITIES: Final = Form(
    "migration capabilities such as postcopy-ram", r"[a-z][a-z0-9-]{0,39}|", ":"
)
USB: Final = Form("USB devices such as host:1234:5678", r" *[A-Za-z0-9_.:=-]* *", ",")
PCI: Final = Form(
    "PCI devices such as 0000:03:00.0",
    r" *(([0-9A-Fa-f]{4}:)?[0-9A-Fa-f]{2}:[0-1][0-9A-Fa-f]\.[0-7])? *",
    ",",
)
PREFIX: Final = Form("2 to 4 small letters such as xvd", r"[a-z]{2,4}")
BOOT_LETTERS: Final = Form("letters of a, c, d and n", r"[acdn]{1,4}")
SCRIPT: Final = Form("a path of letters, digits and . _ + / -", r"/[A-Za-z0-9_.+/-]+")
DEVICES: Final = Form(
    "devices such as c 1:3 rw", r" *([abc] (\*|[0-9]+):(\*|[0-9]+) r?w?m?)? *", ","
)
DROPPED: Final = Form("capabilities such as sys_time", r" *([a-z][a-z_]*)? *", ",")
CONTROLLERS: Final = Form("controllers such as io", r" *([a-z][a-z_0-9]*)? *", ",")
SETTINGS: Final = Form(
    "settings such as lxc.signal.halt=SIGUSR1",
    r" *(lxc\.[a-z0-9_.]+ *= *[^ \x00-\x1f\x7f][^\x00-\x1f\x7f]*)? *",
    ",",
)
INSIDE: Final = Form(
    "an absolute path without . and ..", r"(/(?!\.{1,2}(/|$))[^/\x00-\x1f\x7f]+)+"
)
