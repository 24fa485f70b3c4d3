"""Public name of the locks, which programs of others import."""

from ganeti.master.locking import *  # noqa: F403
