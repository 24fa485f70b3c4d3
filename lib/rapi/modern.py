"""Public name of the remote API's typed client."""

from ganeti.protocols.rapi.modern import *  # noqa: F403
