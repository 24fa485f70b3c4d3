"""Public name of the remote API's client, which programs of others import."""

from ganeti.protocols.rapi import *  # noqa: F403
