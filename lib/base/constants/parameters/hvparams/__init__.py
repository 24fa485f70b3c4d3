"""Hypervisor parameters: type, built-in default, allowed values and meaning.

`kvm`, `xen` and `containers` have the tables of the hypervisors, `tables` joins them.
"""

from ganeti.base.constants.parameters.hvparams.row import HvParam
from ganeti.base.constants.parameters.hvparams.tables import (
    ADDITIONS,
    HYPERVISOR,
    of_ganeti,
)

__all__ = ["ADDITIONS", "HYPERVISOR", "HvParam", "of_ganeti"]
