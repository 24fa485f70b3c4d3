"""Public name of the user-id pool, which programs of others import."""

from ganeti.protocols.uidpool import *  # noqa: F403
