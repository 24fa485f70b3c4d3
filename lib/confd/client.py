"""Public name of confd's client, which programs of others import."""

from ganeti.protocols.confd.client import *  # noqa: F403
