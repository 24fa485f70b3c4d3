"""Changes of the lines of ``/etc/hosts``.

Lines that Ganeti adds end with a comment. All other lines are the administrator's: they
stay, except that a host loses its name in a line with another address of the same
family, because a resolver takes the first line with a name.
"""

from typing import Final

from ganeti.base.net import ip

#: Comment at the end of lines that Ganeti added.
MARK: Final = "# added by Ganeti"


def with_host(lines: list[str], name: str, address: str) -> list[str]:
    """Return the lines with a host that has this address.

    Args:
        lines: of a hosts file, without newlines.
        name: full name of the host.
        address: IPv4 or IPv6 address.
    """
    kept: list[str] = []
    for line in lines:
        kept += _without_name(line, name) if _differs(line, address) else [line]
    wanted = ip.parse(address)
    if not any(_address(line) == wanted and name in _words(line) for line in kept):
        kept.append(f"{address}\t{name} {_short(name)} {MARK}")
    return kept


def without_host(lines: list[str], name: str) -> list[str]:
    """Return the lines without a host in those that `with_host` added."""
    kept: list[str] = []
    for line in lines:
        kept += _without_name(line, name) if line.rstrip().endswith(MARK) else [line]
    return kept


def _words(line: str) -> list[str]:
    """Return address and names of a line, nothing for a comment."""
    return line.partition("#")[0].split()


def _address(
    line: str,
) -> ip.Address | None:
    words = _words(line)
    try:
        return ip.parse(words[0]) if words else None
    except ValueError:
        return None


def _differs(line: str, address: str) -> bool:
    """Return whether a line has another address of the same family."""
    listed, wanted = _address(line), ip.parse(address)
    if listed is None or listed.version != wanted.version:
        return False
    return listed != wanted


def _without_name(line: str, name: str) -> list[str]:
    """Return the line without a host, nothing if it has no other names."""
    address, *names = _words(line) or [""]
    if name not in names:
        return [line]
    left = [word for word in names if word not in (name, _short(name))]
    if not left:
        return []
    _text, hash_sign, comment = line.partition("#")
    tail = f" {hash_sign}{comment}" if hash_sign else ""
    return [f"{address}\t{' '.join(left)}{tail}"]


def _short(name: str) -> str:
    return name.partition(".")[0]
