"""Verification as pure functions: a snapshot and node reports in, findings out.

`report` collects findings and formats them; `node_answer` checks the form of node
answers; `cluster` checks the configuration, `nodes` the answer of one node, `files`
shared files across nodes, `guest_files` those of firmware, `storage` volumes, DRBD's
minors, files of disks and exports, `instances` where instances run, their disks, and
the memory for the loss of a node. Calls to nodes do not belong
here, see ``cluster.verification.verify_group``.
"""

from ganeti.decisions.verify.report import Finding, Report

__all__ = ["Finding", "Report"]
