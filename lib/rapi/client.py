"""Public name of the remote API's client, which programs of others import."""

from ganeti.protocols.rapi.api import *  # noqa: F403
from ganeti.protocols.rapi.names import *  # noqa: F403
