"""When the master acknowledges changes, see ``ganeti.decisions.quorum``."""

from typing import Final

#: A majority of the master candidates has them; otherwise the master refuses changes.
COMMIT_POLICY_MAJORITY: Final = "majority"
#: The candidates that answer have them; clients are warned if they are no majority.
COMMIT_POLICY_AVAILABILITY: Final = "availability"
COMMIT_POLICIES: Final = (COMMIT_POLICY_MAJORITY, COMMIT_POLICY_AVAILABILITY)
