"""Writing the configuration: serial rules, pools, reservations, checks, config.data.

`Config` wraps a store. Reading does not need this package: see `ganeti.model.objects`.
"""

from ganeti.master.config import higher_numbers, topology
from ganeti.master.config.address_pool import AddressPool
from ganeti.master.config.checks import verify
from ganeti.master.config.config import HEADER_KEY, Config, Header
from ganeti.master.config.config_data import UPGRADABLE, export_config, import_config
from ganeti.master.config.disk_notes import DiskNote, MadeDisk
from ganeti.master.config.edit import Edit, initial_changes
from ganeti.master.config.higher_numbers import HigherNumbers
from ganeti.master.config.ssconf import SsconfTracker, ssconf_values

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
    "export_config",
    "higher_numbers",
    "import_config",
    "initial_changes",
    "ssconf_values",
    "topology",
    "verify",
]
