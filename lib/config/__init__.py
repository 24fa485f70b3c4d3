"""Writing the configuration: serial rules, pools, reservations, checks, exchange.

`Config` wraps a store. Reading needs nothing of this: see `ganeti.objects`.
"""

from ganeti.config import candidates
from ganeti.config.config import Config
from ganeti.config.edit import Edit
from ganeti.config.initial import initial_changes
from ganeti.config.pool import AddressPool

__all__ = ["AddressPool", "Config", "Edit", "candidates", "initial_changes"]
