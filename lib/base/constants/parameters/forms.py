"""The row of a parameter, with the form of its values and those that control nodes.

These are attributes of the parameter's row, or of the field of an opcode. The checks of
requests and of nodes, the right ``root`` of the remote API, the import of exports and
the documents all read them there.
"""

from collections.abc import Callable, Mapping
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

#: Files, programs and devices of a node, and arguments of programs there.
ANY: Final = Root("any value", lambda value: value not in _UNSET)
#: The empty value of a list of what a guest may not do permits all of it.
EVEN_EMPTY: Final = Root("any value, also an empty one", lambda v: v != _DEFAULT)
PATH: Final = Root("a path", lambda v: isinstance(v, str) and v.startswith("/"))
LIST: Final = Root("a list with commas", lambda v: isinstance(v, str) and "," in v)
OFF: Final = Root(
    "false", lambda v: v != _DEFAULT and str(v).lower() not in ("true", "1")
)
ALLOCATOR: Final = Root("all but hail and .", lambda v: v not in _ALLOCATORS)
UNSEPARATED: Final = Root(
    _UNSEPARATED,
    lambda v: _UNSEPARATED in (v if isinstance(v, list | tuple) else (v,)),
)

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


NOW: Final = "takes effect at once"
START: Final = (
    "takes effect at the next start of the instance by Ganeti; not hot-pluggable"
)
HOT: Final = "hot-pluggable: changes a running KVM instance at once"
MIGRATION: Final = "takes effect at the next migration; not hot-pluggable"
NEW_DISKS: Final = "used for new disks only; present disks keep their form"
ADDED: Final = "given when the disk is added, which is hot-pluggable; cannot be changed"
ACTIVATION: Final = "takes effect at the next activation of the disk"
NEW_NODES: Final = "used when a node is added or its own value changes"


class Param(NamedTuple):
    """One parameter: everything that pages, checks and exports say of it.

    Attributes:
        type: type word, such as ``size``.
        default: built-in default.
        meaning: a clause, for manual pages and help.
        required: may not be empty.
        allowed: values, or a text about them; None means any value of the type.
        cluster_only: cannot be set on an instance.
        form: of any text, which a list of values makes needless.
        root: values that need the right to control nodes.
        effect: when a change takes effect, as a clause; empty for that of its kind.
        added: Ganeti does not have it: an export leaves it out.
    """

    type: str
    default: Any
    meaning: str
    required: bool = False
    allowed: Any = None
    cluster_only: bool = False
    form: Form | None = None
    root: Root | None = None
    effect: str = ""
    added: bool = False


def node_file(default: str, meaning: str, **more: Any) -> Param:
    """Return the row of a file of the nodes, whose choice gives control of them.

    Args:
        default: its path; empty for none.
        meaning: a clause.
        more: further attributes of the row.
    """
    return Param(
        "string",
        default,
        meaning,
        allowed="absolute normalised path of an existing file",
        form=ABSOLUTE,
        root=ANY,
        **more,
    )


def is_added(table: Mapping[str, Param], name: str) -> bool:
    """Return whether a parameter is in the table, and Ganeti does not have it."""
    return name in table and table[name].added
