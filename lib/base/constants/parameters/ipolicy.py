"""Keys and limits of instance policies."""

from typing import Final

IPOLICY_ALL_KEYS: Final = (
    "disk-templates",
    "minmax",
    "spindle-ratio",
    "std",
    "vcpu-ratio",
)
#: Plain numeric keys.
IPOLICY_PARAMETERS: Final = ("spindle-ratio", "vcpu-ratio")
IPOLICY_DEFAULTS: Final = {
    "disk-templates": [
        "blockdev",
        "diskless",
        "drbd",
        "ext",
        "file",
        "gluster",
        "plain",
        "rbd",
        "sharedfile",
    ],
    "minmax": [
        {
            "max": {
                "cpu-count": 8,
                "disk-count": 16,
                "disk-size": 1048576,
                "memory-size": 32768,
                "nic-count": 8,
                "spindle-use": 12,
            },
            "min": {
                "cpu-count": 1,
                "disk-count": 1,
                "disk-size": 1024,
                "memory-size": 128,
                "nic-count": 1,
                "spindle-use": 1,
            },
        }
    ],
    "spindle-ratio": 32.0,
    "std": {
        "cpu-count": 1,
        "disk-count": 1,
        "disk-size": 1024,
        "memory-size": 128,
        "nic-count": 1,
        "spindle-use": 1,
    },
    "vcpu-ratio": 4.0,
}
ISPECS_PARAMETERS: Final = (
    "cpu-count",
    "disk-count",
    "disk-size",
    "memory-size",
    "nic-count",
    "spindle-use",
)
ISPECS_PARAMETER_TYPES: Final = {
    "cpu-count": "int",
    "disk-count": "int",
    "disk-size": "int",
    "memory-size": "int",
    "nic-count": "int",
    "spindle-use": "int",
}
ISPECS_MINMAX_KEYS: Final = ("max", "min")
ISPECS_MINMAX_DEFAULTS: Final = {
    "max": {
        "cpu-count": 8,
        "disk-count": 16,
        "disk-size": 1048576,
        "memory-size": 32768,
        "nic-count": 8,
        "spindle-use": 12,
    },
    "min": {
        "cpu-count": 1,
        "disk-count": 1,
        "disk-size": 1024,
        "memory-size": 128,
        "nic-count": 1,
        "spindle-use": 1,
    },
}
#: List of {min, max}; an instance must fit one of them.
ISPECS_MINMAX: Final = "minmax"
#: Cluster level only; refused in requests for groups.
ISPECS_STD: Final = "std"
ISPECS_MIN: Final = "min"
ISPECS_MAX: Final = "max"
IPOLICY_DTS: Final = "disk-templates"
IPOLICY_VCPU_RATIO: Final = "vcpu-ratio"
IPOLICY_SPINDLE_RATIO: Final = "spindle-ratio"
