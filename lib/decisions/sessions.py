"""Sessions of users of the remote API: how long they last, and how many there may be.

A session ends when it was not used for some time, and after a time in any case. Moments
are those of the wall clock in the stored form, since another master must understand
them. A master that runs measures both times by a clock that nobody sets, so a clock
that is set back makes no session longer, and one that is set forward ends them early.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

#: Seconds without a request after which a session ends, and after which it ends in any
#: case: by default, the least, and the most.
IDLE_S: Final = 1800
AGE_S: Final = 12 * 3600
LEAST_IDLE_S: Final = 60
LEAST_AGE_S: Final = 300
MOST_IDLE_S: Final = 86400
MOST_AGE_S: Final = 30 * 86400
#: Sessions of one user, and of all users.
MOST_OF_USER: Final = 50
MOST: Final = 2000
#: Seconds between two writes of when sessions were used.
WRITE_S: Final = 300


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A session as it is stored.

    Attributes:
        id: 16 hexadecimal digits; no secret.
        user: name in the users file.
        digest: SHA-256 of the token, 64 hexadecimal digits.
        seal: keyed digest of the user's line, whose key is the token.
        address: of the client that signed in.
        created: seconds since 1970.
        used: the same of a request, up to `WRITE_S` ago in a store.
        idle_s: seconds without a request after which it ends.
        end: seconds since 1970 when it ends in any case.
    """

    id: str
    user: str
    digest: str
    seal: str
    address: str
    created: float
    used: float
    idle_s: int
    end: float


class SignIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A user who has signed in at the remote API; see `Session`.

    Attributes:
        age_s: seconds after which the session ends in any case.
        user_end: seconds since 1970 when the user's own token ends.
    """

    user: str
    token_digest: str
    token_seal: str
    address: str
    idle_s: int = IDLE_S
    age_s: int = AGE_S
    user_end: float | None = None


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A session as people see it; times are seconds since 1970."""

    id: str
    user: str
    address: str
    created: float
    used: float
    idle_end: float
    end: float


class Live(msgspec.Struct, kw_only=True):
    """A session of a running master.

    Attributes:
        stored: its stored form, with the last `used` that was written.
        used_at: moment of the last request, of the clock that nobody sets.
        end_at: the same of its end.
        is_durable: whether it is stored, so its token counts.
    """

    stored: Session
    used_at: float
    end_at: float
    is_durable: bool = True

    def is_over(self, now: float, moment: float) -> bool:
        """Return whether the session has ended.

        Args:
            now: seconds since 1970.
            moment: of the clock that nobody sets.
        """
        is_idle = moment - self.used_at >= self.stored.idle_s
        return is_idle or moment >= self.end_at or now >= self.stored.end

    def shown(self, now: float, moment: float) -> Shown:
        """Return the session as people see it; see `is_over`."""
        used, end = now - (moment - self.used_at), now + (self.end_at - moment)
        end = min(self.stored.end, end)
        return Shown(
            id=self.stored.id,
            user=self.stored.user,
            address=self.stored.address,
            created=self.stored.created,
            used=used,
            idle_end=min(used + self.stored.idle_s, end),
            end=end,
        )


def check_times(idle_s: int, age_s: int) -> str:
    """Return why sessions cannot have these times, empty if they can."""
    for name, value, least, most in (
        ("idle time", idle_s, LEAST_IDLE_S, MOST_IDLE_S),
        ("age", age_s, LEAST_AGE_S, MOST_AGE_S),
    ):
        if not least <= value <= most:
            return (
                f"{name} of sessions: wanted {least} to {most} seconds, found {value}"
            )
    return ""


def begin(new: SignIn, session_id: str, now: float, moment: float) -> Live:
    """Return the session of a user who signed in, not stored yet."""
    end = now + new.age_s
    if new.user_end is not None:
        end = min(end, new.user_end)
    stored = Session(
        id=session_id,
        user=new.user,
        digest=new.token_digest,
        seal=new.token_seal,
        address=new.address,
        created=now,
        used=now,
        idle_s=new.idle_s,
        end=end,
    )
    end_at = moment + max(0.0, end - now)
    return Live(stored=stored, used_at=moment, end_at=end_at, is_durable=False)


def resume(stored: Session, now: float, moment: float) -> Live:
    """Return a stored session, in which the last write may lack the last requests.

    A clock that was ahead has left moments in the future: they count as the present.
    """
    unused_s = max(0.0, now - stored.used - WRITE_S)
    left_s = min(stored.end - now, stored.end - stored.created)
    return Live(stored=stored, used_at=moment - unused_s, end_at=moment + left_s)


def surplus(lives: Iterable[Live], user: str) -> list[Live]:
    """Return the sessions of a user that make room for a new one.

    These are the ones that were not used for the longest time, so a program that never
    signs out shuts nobody out.
    """
    own = sorted(
        (live for live in lives if live.stored.user == user),
        key=lambda live: live.used_at,
    )
    return own[: max(0, len(own) - MOST_OF_USER + 1)]
