"""Verification as pure functions: a snapshot and node reports in, findings out.

`report` collects findings and formats them; `answer` checks the form of what nodes
say; `cluster` judges the configuration,
`nodes` what one node answered, `files` shared files across nodes, `instances` what
should run where, `spare` memory for the loss of a node. Asking nodes does not belong
here, see ``cmdlib.cluster.verify_group``.
"""

from ganeti.verify.report import Finding, Report

__all__ = ["Finding", "Report"]
