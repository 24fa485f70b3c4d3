"""Constants of the autorepair tags."""

from typing import Final

AUTO_REPAIR_FIX_STORAGE: Final = "fix-storage"
AUTO_REPAIR_MIGRATE: Final = "migrate"
AUTO_REPAIR_FAILOVER: Final = "failover"
AUTO_REPAIR_REINSTALL: Final = "reinstall"
AUTO_REPAIR_ALL_TYPES: Final = ("failover", "fix-storage", "migrate", "reinstall")
AUTO_REPAIR_SUCCESS: Final = "success"
AUTO_REPAIR_FAILURE: Final = "failure"
AUTO_REPAIR_ENOPERM: Final = "enoperm"
AUTO_REPAIR_ALL_RESULTS: Final = ("enoperm", "failure", "success")
