"""OP_CLUSTER_REDIST_CONF: send the configuration and shared files to all nodes."""

from ganeti.base import errors
from ganeti.master import config
from ganeti.master.locking import Level
from ganeti.model import opcodes
from ganeti.operations import ancillary_files
from ganeti.operations.base import ALL, LogicalUnit


class ClusterRedistConf(LogicalUnit[opcodes.ClusterRedistConf]):
    """Unit that updates the cluster record, which sends configuration and ssconf."""

    def expand_names(self) -> None:
        """Lock groups and nodes."""
        for level in (Level.NODEGROUP, Level.NODE):
            self.locks.names[level] = ALL
            self.locks.shared.add(level)

    def check_prereq(self) -> None:
        """Refuse a list of the administrator that has mistakes."""
        sets = ancillary_files.file_sets(self.ctx.snapshot, self.ctx.paths)
        if sets.problems:
            raise errors.OpPrereqError("; ".join(sets.problems), "wrong_input")

    def execute(self) -> None:
        """Send all files, also to nodes that should have them already."""
        with self.ctx.config.edit(self.ctx.owner) as edit:
            edit.update_cluster()
        ancillary_files.redistribute(self.ctx)
        self._write_ssconf()

    def _write_ssconf(self) -> None:
        snapshot = self.ctx.snapshot
        online = sorted(n.uuid for n in snapshot.nodes.values() if not n.offline)
        values = config.ssconf_values(snapshot)
        for answer in ancillary_files.write_ssconf(self.ctx, online, values).values():
            if answer.failed and not answer.offline:
                self.ctx.log.warn(answer.describe("ssconf files were not written"))
