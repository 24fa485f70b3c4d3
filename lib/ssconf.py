"""Public name of the ssconf reader, which programs of others import."""

from ganeti.protocols.ssconf import *  # noqa: F403
