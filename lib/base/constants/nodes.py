"""Constants of node roles, evacuation and power states."""

from typing import Final

NR_MASTER: Final = "M"
NR_MCANDIDATE: Final = "C"
NR_REGULAR: Final = "R"
NR_DRAINED: Final = "D"
NR_OFFLINE: Final = "O"
NR_ALL: Final = ("C", "D", "M", "O", "R")
NODE_EVAC_PRI: Final = "primary-only"
NODE_EVAC_SEC: Final = "secondary-only"
NODE_EVAC_ALL: Final = "all"
NODE_EVAC_MODES: Final = ("all", "primary-only", "secondary-only")
INITIAL_NODE_GROUP_NAME: Final = "default"
VALID_ALLOC_POLICIES: Final = ("preferred", "last_resort", "unallocable")
#: Candidate_pool_size.
MASTER_POOL_SIZE_DEFAULT: Final = 10
#: Seconds.
NODE_MAX_CLOCK_SKEW: Final = 150
MASTER_VOTING_RETRIES: Final = 6
#: Seconds.
MASTER_VOTING_RETRY_INTERVALL: Final = 10
