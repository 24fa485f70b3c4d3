"""Changes of the users file's text, and a view of it; see `rights.users`.

Comments, empty lines and the lines of other users stay as they are. Nothing here reads
files or clocks.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from ganeti.daemons.rapi.rights import users

#: Names that a line can start with and that basic authentication can send.
_NAME: Final = re.compile(r"[A-Za-z0-9_.+-][A-Za-z0-9_.+@-]{0,127}")
#: Separates tokens and dates in a line's second field.
_FIELDS: Final = re.compile(r"\s+")


class Entry(NamedTuple):
    """A user, token or role of the file.

    Attributes:
        name: first field.
        kind: ``clear``, ``ha1``, ``scrypt``, ``token``, ``role`` or ``broken``.
        expires: of tokens, seconds since 1970; None for never.
        options: third field, as it stands in the file.
        state: ``valid``, ``expired`` or ``disabled``.
    """

    name: str
    kind: str
    expires: int | None
    options: str
    state: str


def check_name(name: str) -> None:
    """Refuse names that a line or a client cannot have.

    Raises:
        ValueError: with the wanted form.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"user {name!r}: wanted a name of at most 128 letters, digits and any of"
            " _ . + @ -, and no @ at its beginning"
        )


def entries(text: str, now: float) -> list[Entry]:
    """Return what each name stands for, in the order of the file.

    Args:
        text: of the file.
        now: seconds since 1970, for the state of tokens.
    """
    content = users.parse(text)
    last: dict[str, Entry] = {}
    for line in text.split("\n"):
        fields = _fields(line)
        if fields is None:
            continue
        name, password, options = fields
        last.pop(name, None)
        last[name] = _entry(name, password, options, now)
    broken = {name for name in last if not _is_known(name, content)}
    return [
        entry._replace(state="disabled") if entry.name in broken else entry
        for entry in last.values()
    ]


def _is_known(name: str, content: users.Users) -> bool:
    """Return whether the file's line of this name counts; roles always do here."""
    if name.startswith(users.ROLE_MARK):
        return not any(f"role {name!r} is disabled" in p for p in content.problems)
    tokens = {user.name for user in content.by_digest.values()}
    return name in content.by_name or name in tokens


def _entry(name: str, password: str, options: str, now: float) -> Entry:
    if name.startswith(users.ROLE_MARK):
        return Entry(name, "role", None, options, "valid")
    try:
        secret = users.parse_secret(password)
    except ValueError:
        return Entry(name, "broken", None, options, "disabled")
    is_over = secret.expires is not None and secret.expires <= now
    state = "expired" if is_over else "valid"
    return Entry(name, secret.scheme, secret.expires, options, state)


def with_user(text: str, name: str, secret: str, options: str) -> str:
    """Return the text with a user's line, in the place of the last earlier one.

    Args:
        text: of the file.
        name: of the user.
        secret: stored form of the password or token.
        options: rights, as they stand in the file; perhaps empty.

    Raises:
        ValueError: the name or the options are malformed; a role is not defined.
    """
    check_name(name)
    options = options.strip()
    if "\n" in options or "\r" in options:
        raise ValueError("rights: wanted one line")
    new = " ".join(filter(None, (name, secret, options)))
    lines = text.split("\n")
    places = [n for n, line in enumerate(lines) if _name_of(line) == name]
    if places:
        lines[places[-1]] = new
        kept = [line for n, line in enumerate(lines) if n not in places[:-1]]
        changed = "\n".join(kept)
    else:
        start = text if not text or text.endswith("\n") else f"{text}\n"
        changed = f"{start}{new}\n"
    for problem in users.parse(changed).problems:
        if f"user {name!r} is disabled: " in problem:
            raise ValueError(f"user {name!r}: {problem.split(' is disabled: ', 1)[1]}")
    return changed


def without(text: str, names: Iterable[str]) -> str:
    """Return the text without the lines of these users."""
    gone = set(names)
    kept = [line for line in text.split("\n") if _name_of(line) not in gone]
    return "\n".join(kept)


def _name_of(line: str) -> str | None:
    """Return the first field of a line that names a user or role."""
    stripped = line.strip()
    if not stripped or stripped.startswith("#"):
        return None
    return _FIELDS.split(stripped, maxsplit=1)[0]


def _fields(line: str) -> tuple[str, str, str] | None:
    """Return name, password and options of a line that counts."""
    stripped = line.strip()
    if stripped.startswith("#"):
        return None
    parts = [*stripped.split(None, 2), ""]
    return (parts[0], parts[1], parts[2]) if len(parts) > 2 else None
