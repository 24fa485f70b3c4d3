"""The users file: who may do what, and how a password is verified.

A line is ``NAME PASSWORD [OPTION,OPTION...]`` as in Ganeti. The password is clear text,
``{CLEARTEXT}secret``, or ``{HA1}`` with the MD5 digest of ``name:realm:password``; the
options are ``read`` and ``write``. Not in Ganeti are ``{SCRYPT}`` hashes, ``{TOKEN}``
digests of bearer tokens, roles, and options that apply to some paths only; see
`ganeti.daemons.rapi.access`. Ganeti refuses unknown schemes and ignores unknown
options, so it grants nothing that such a line does not mean.

The last functions change the file's text: comments, empty lines and the lines of other
users stay as they are. Nothing here reads files or clocks.
"""

import dataclasses
import functools
import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ganeti.daemons.rapi.access import Rights, RightsError, parse_rights

REALM: Final = "Ganeti Remote API"
#: Lines with a scheme in braces before the password.
_SCHEME: Final = re.compile(r"\{(\w+)\}(.*)")
_HA1: Final = re.compile(r"[0-9a-f]{32}")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
#: Parameters of scrypt: logarithm of the cost, block size, parallelism, salt and hash.
_SCRYPT: Final = re.compile(
    r"(\d{1,2})\$(\d{1,2})\$(\d{1,2})\$([0-9a-f]{16,128})\$([0-9a-f]{32,128})"
)
#: Largest memory that one verification may use, in bytes.
_SCRYPT_MEMORY: Final = 64 << 20
#: The name of a role starts with this character, and so does an option that grants it.
ROLE_MARK: Final = "@"


@dataclasses.dataclass(frozen=True)
class Secret:
    """The stored form of a password.

    Attributes:
        scheme: ``clear``, ``ha1``, ``scrypt`` or ``token``.
        value: password, digest or parameters.
        expires: of tokens, seconds since 1970; None for never.
    """

    scheme: str
    value: str
    expires: int | None = None

    def __repr__(self) -> str:
        return f"Secret({self.scheme!r})"


@dataclasses.dataclass(frozen=True)
class User:
    """One user, or one token, with its rights.

    Attributes:
        session: id of the session by which a request came; empty in a file.
    """

    name: str
    secret: Secret
    rights: Rights
    session: str = ""


@dataclasses.dataclass(frozen=True)
class Users:
    """The content of a users file.

    Attributes:
        by_name: users with passwords.
        by_digest: users with tokens, by the digest of the token.
        problems: one text per broken line, without its secrets.
    """

    by_name: Mapping[str, User] = dataclasses.field(default_factory=dict)
    by_digest: Mapping[str, User] = dataclasses.field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @functools.cached_property
    def by_any_name(self) -> Mapping[str, User]:
        """All users, those with tokens among them."""
        tokens = {user.name: user for user in self.by_digest.values()}
        return {**self.by_name, **tokens}

    @functools.cached_property
    def costs(self) -> frozenset["Cost"]:
        """The parameters of all scrypt hashes."""
        return frozenset(
            _scrypt_parts(user.secret.value)[0]
            for user in self.by_name.values()
            if user.secret.scheme == "scrypt"
        )


class _BrokenLineError(ValueError):
    """A line that disables its user."""


def parse(text: str) -> Users:
    """Return the users of a file's text.

    A broken line disables the user whose name it starts with, and nobody else. If a
    name occurs more than once, its last line counts.
    """
    lines = list(_lines(text))
    roles, problems = _roles(lines)
    users: dict[str, User] = {}
    for number, name, password, options in lines:
        if name.startswith(ROLE_MARK):
            continue
        if name in users:
            problems.append(f"line {number}: user {name!r} again, this line counts")
        users.pop(name, None)
        try:
            secret = parse_secret(password)
            users[name] = User(name, secret, _rights(options, roles))
        except ValueError as err:
            problems.append(f"line {number}: user {name!r} is disabled: {err}")
    return Users(
        {n: user for n, user in users.items() if user.secret.scheme != "token"},
        {u.secret.value: u for u in users.values() if u.secret.scheme == "token"},
        tuple(problems),
    )


def _lines(text: str) -> list[tuple[int, str, str, str]]:
    """Return number, name, password and options of each line that has them."""
    actual = []
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        fields = [*stripped.split(None, 2), ""]
        if not stripped.startswith("#") and len(fields) > 2:
            actual.append((number, fields[0], fields[1], fields[2]))
    return actual


def _roles(
    lines: list[tuple[int, str, str, str]],
) -> tuple[dict[str, Rights], list[str]]:
    roles: dict[str, Rights] = {}
    problems = []
    for number, name, password, options in lines:
        if not name.startswith(ROLE_MARK):
            continue
        roles.pop(name, None)
        try:
            if password.lower() != "{role}":
                raise _BrokenLineError("wanted {ROLE} instead of a password")
            roles[name] = _rights(options, {})
        except ValueError as err:
            problems.append(f"line {number}: role {name!r} is disabled: {err}")
    return roles, problems


def _rights(options: str, roles: Mapping[str, Rights]) -> Rights:
    """Return the rights that options grant, with those of the named roles."""
    words = [word.strip() for word in options.split(",")]
    rights = parse_rights(w for w in words if w and not w.startswith(ROLE_MARK))
    for word in words:
        if not word.startswith(ROLE_MARK):
            continue
        if word not in roles:
            raise RightsError(f"role {word!r} is not defined, or it is disabled")
        rights = rights.joined(roles[word])
    return rights


def parse_secret(text: str) -> Secret:
    """Return the stored form of a password.

    Raises:
        ValueError: an unknown scheme, or a malformed digest.
    """
    actual = _SCHEME.fullmatch(text)
    if actual is None:
        return Secret("clear", text)
    scheme, value = actual.group(1).lower(), actual.group(2)
    if scheme == "cleartext":
        return Secret("clear", value)
    if scheme == "ha1":
        return Secret("ha1", _matching(_HA1, value.lower(), "32 hexadecimal digits"))
    if scheme == "scrypt":
        _matching(_SCRYPT, value, "LOG2_N$R$P$SALT$HASH, salt and hash in hexadecimal")
        _scrypt_parts(value)
        return Secret("scrypt", value)
    if scheme == "token":
        digest, at, expires = value.partition("@")
        _matching(_DIGEST, digest, "64 hexadecimal digits")
        if at and not re.fullmatch(r"[0-9]{1,12}", expires):
            raise _BrokenLineError("wanted a time in seconds after '@'")
        return Secret("token", digest, int(expires) if at else None)
    raise _BrokenLineError(f"unknown scheme {{{scheme}}}")


def _matching(pattern: re.Pattern[str], value: str, wanted: str) -> str:
    if not pattern.fullmatch(value):
        raise _BrokenLineError(f"wanted {wanted} as a digest")
    return value


class Cost(NamedTuple):
    """Parameters of scrypt."""

    cost: int
    block: int
    parallel: int


def _scrypt_parts(value: str) -> tuple[Cost, bytes, bytes]:
    """Return parameters, salt and hash."""
    log_cost, block, parallel, salt, digest = value.split("$")
    cost = Cost(1 << int(log_cost), int(block), int(parallel))
    memory = 128 * cost.cost * cost.block * cost.parallel
    if cost.cost < 2 or not 0 < memory <= _SCRYPT_MEMORY:
        raise _BrokenLineError(
            f"parameters of scrypt: wanted at most {_SCRYPT_MEMORY >> 20} MiB of memory"
        )
    return cost, bytes.fromhex(salt), bytes.fromhex(digest)


#: Parameters of new hashes: 16 MiB and some tens of milliseconds.
_LOG_COST, _BLOCK, _PARALLEL = 14, 8, 1
#: Salt and size of hashes that only take time.
_NO_SALT, _SIZE = bytes(16), 32


def format_scrypt(password: str, salt: bytes) -> str:
    """Return the stored form of a new password.

    Args:
        password: of the user.
        salt: 16 random bytes.
    """
    start = f"{_LOG_COST}${_BLOCK}${_PARALLEL}${salt.hex()}"
    digest = _scrypt(password, salt, Cost(1 << _LOG_COST, _BLOCK, _PARALLEL), _SIZE)
    return f"{{SCRYPT}}{start}${digest.hex()}"


def format_token(token: str, expires: int | None = None) -> str:
    """Return the stored form of a bearer token.

    Args:
        token: at least 32 random characters.
        expires: seconds since 1970; None for never.
    """
    end = "" if expires is None else f"@{expires}"
    return f"{{TOKEN}}{token_digest(token)}{end}"


def token_digest(token: str) -> str:
    """Return the digest of a bearer token, which is random and so needs no salt."""
    return hashlib.sha256(token.encode()).hexdigest()


def ha1(name: str, password: str) -> str:
    """Return the documented digest of a password."""
    text = f"{name}:{REALM}:{password}"
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def is_password(
    user: User | None, name: str, password: str, *, costs: frozenset[Cost]
) -> bool:
    """Return whether a password is that of a user.

    The time does not depend on whether the user exists, nor on the form in which the
    password is stored.

    Args:
        user: of this name, None if there is none.
        name: that the client sent.
        password: that the client sent.
        costs: parameters of all hashes of the file: each takes its time in any case.
    """
    digest = ha1(name, password)
    secret = user.secret if user is not None else Secret("ha1", "0" * 32)
    if secret.scheme == "clear":
        is_right = _same(password, secret.value)
    else:
        is_right = _same(digest, secret.value)
    cost, salt, wanted = None, b"", b""
    if secret.scheme == "scrypt":
        cost, salt, wanted = _scrypt_parts(secret.value)
        is_right = hmac.compare_digest(
            _scrypt(password, salt, cost, len(wanted)), wanted
        )
    for other in costs - {cost}:
        _scrypt(password, _NO_SALT, other, _SIZE)
    return is_right and user is not None


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())


def _scrypt(password: str, salt: bytes, cost: Cost, length: int) -> bytes:
    return hashlib.scrypt(
        password.encode(),
        salt=salt,
        n=cost.cost,
        r=cost.block,
        p=cost.parallel,
        maxmem=2 * _SCRYPT_MEMORY,
        dklen=length,
    )


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
    content = parse(text)
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


def _is_known(name: str, content: Users) -> bool:
    """Return whether the file's line of this name counts; roles always do here."""
    if name.startswith(ROLE_MARK):
        return not any(f"role {name!r} is disabled" in p for p in content.problems)
    tokens = {user.name for user in content.by_digest.values()}
    return name in content.by_name or name in tokens


def _entry(name: str, password: str, options: str, now: float) -> Entry:
    if name.startswith(ROLE_MARK):
        return Entry(name, "role", None, options, "valid")
    try:
        secret = parse_secret(password)
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
    for problem in parse(changed).problems:
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
