"""Writing the configuration: serial rules, pools, reservations, checks, config.data.

`Config` wraps a store. Reading does not need this package: see `ganeti.objects`.
"""

from ganeti.config import accepted_loss, candidate_pool
from ganeti.config.address_pool import AddressPool
from ganeti.config.checks import verify
from ganeti.config.config import HEADER_KEY, Config, Header
from ganeti.config.config_data import UPGRADABLE, export_config, import_config
from ganeti.config.disk_notes import DiskNote, MadeDisk
from ganeti.config.edit import Edit, initial_changes
from ganeti.config.higher_numbers import HigherNumbers
from ganeti.config.ssconf import SsconfTracker, ssconf_values

__all__ = [
    "HEADER_KEY",
    "UPGRADABLE",
    "AddressPool",
    "Config",
    "DiskNote",
    "Edit",
    "Header",
    "HigherNumbers",
    "MadeDisk",
    "SsconfTracker",
    "accepted_loss",
    "candidate_pool",
    "export_config",
    "import_config",
    "initial_changes",
    "ssconf_values",
    "verify",
]
