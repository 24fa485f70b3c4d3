"""OP_CLUSTER_VERIFY, OP_CLUSTER_VERIFY_CONFIG and OP_CLUSTER_VERIFY_DISKS."""

import os.path
from collections.abc import Iterator
from typing import Any

from ganeti import store
from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.base.tls import authority, x509
from ganeti.decisions.jobs import filters
from ganeti.decisions.repair import node_death
from ganeti.decisions.verify import Report, cluster
from ganeti.master import config
from ganeti.master.locking import Level
from ganeti.model import opcodes
from ganeti.model.objects import lookup
from ganeti.operations.base import ALL, LogicalUnit, SubmitJobs
from ganeti.operations.cluster.verify_request import Output
from ganeti.operations.network import pools
from ganeti.operations.parameters import typed_params
from ganeti.store import choice, etcd


class ClusterVerifyConfig(LogicalUnit[opcodes.ClusterVerifyConfig]):
    """Unit that returns true if no error was found."""

    READS_ONLY = True

    def expand_names(self) -> None:
        """Acquire all locks, shared."""
        for level in Level:
            if level is not Level.CLUSTER:
                self.locks.names[level] = ALL
                self.locks.shared.add(level)

    def execute(self) -> bool:
        """Run the checks as steps."""
        snapshot = self.ctx.snapshot
        report = Report(self.op.ignore_errors, simulate=self.op.debug_simulate_errors)
        output = Output(self.ctx.log, report, error_codes=self.op.error_codes)
        output.step("Verifying cluster config")
        report.errors("ECLUSTERCFG", None, config.verify(snapshot))
        cluster.own_store(report, snapshot, _store_problem(self.ctx.paths.store_db))
        cluster.rules(report, snapshot, filters.problems(snapshot.filters.values()))
        for text in pools.unreserved_hosts(snapshot):
            report.error("ECLUSTERCFG", None, text, warn_only=True)
        output.step("Verifying cluster certificate files")
        cluster.certificates(report, certificates(self.ctx.paths))
        server_pem = self.ctx.paths.server_pem
        cluster.unfinished_renewal(report, server_pem, _count(server_pem))
        cluster.shared_certificate(report, server_pem, is_shared=_is_shared(server_pem))
        cluster.shared_host_keys(report, snapshot)
        output.step("Verifying hypervisor parameters")
        cluster.hypervisor_parameters(
            report, cluster.hypervisor_sources(snapshot), _syntax_problem
        )
        output.step("Verifying all nodes belong to an existing group")
        cluster.dangling(report, snapshot)
        for text in cluster.detached(snapshot):
            output.notice(text)
        for death in self.ctx.config.node_deaths.state().deaths:
            output.notice(node_death.notice(death))
        servers = choice.read(self.ctx.paths)
        if servers is not None:
            output.step("Verifying the servers of the store in etcd")
            cluster.store_servers(
                report, [(each.host, each.problem) for each in etcd.members(servers)]
            )
        output.flush()
        return report.is_clean


def certificates(paths: Paths) -> Iterator[cluster.Certificate]:
    """Yield the certificates of the cluster that this node, the master, has."""
    optional = (
        paths.client_pem,
        paths.data("rapi.pem"),
        paths.data("spice.pem"),
        paths.data("spice-ca.pem"),
    )
    for path in (paths.server_pem, *optional):
        if path in optional and not os.path.exists(path):
            continue
        try:
            left = x509.seconds_left(x509.load_certificate(path))
        except errors.X509CertError as err:
            yield cluster.Certificate(path, None, str(err.args[-1]))
        else:
            yield cluster.Certificate(path, left)


def _store_problem(path: str) -> str | None:
    """Return what is wrong with the file of the store, None for nothing."""
    try:
        store.check_pages(path)
    except errors.GenericError as err:
        return str(err)
    return None


def _is_shared(path: str) -> bool:
    """Return whether a readable file has a certificate that servers present."""
    try:
        return not authority.is_one(x509.load_certificate(path))
    except errors.X509CertError:
        return False


def _count(path: str) -> int:
    """Return the number of certificates in a file, 0 if it cannot be read."""
    try:
        return len(x509.load_certificates(path))
    except errors.X509CertError:
        return 0


def _syntax_problem(name: str, values: Any) -> str | None:
    try:
        typed_params.check_hypervisor_syntax(name, values)
    except errors.OpPrereqError as err:
        return str(err.args[0])
    return None


class ClusterVerifyDisks(LogicalUnit[opcodes.ClusterVerifyDisks]):
    """Unit that submits one job per group."""

    READS_ONLY = True

    def check_prereq(self) -> None:
        """Look the groups up."""
        self.groups = lookup.group_names(self.ctx.snapshot, self.op.group_name)

    def execute(self) -> SubmitJobs:
        """Return one job per group."""
        return SubmitJobs(
            [
                [opcodes.GroupVerifyDisks(group_name=name, is_strict=self.op.is_strict)]
                for name in self.groups
            ]
        )


class ClusterVerify(LogicalUnit[opcodes.ClusterVerify]):
    """Unit that submits the verification jobs, first that of the configuration."""

    READS_ONLY = True

    def check_prereq(self) -> None:
        """Look the groups up."""
        self.groups = lookup.group_names(self.ctx.snapshot, self.op.group_name)

    def execute(self) -> SubmitJobs:
        """Return the jobs; jobs of groups wait for the configuration's job."""
        jobs: list[list[opcodes.Opcode]] = []
        if not self.op.group_name:
            jobs.append(
                [
                    opcodes.ClusterVerifyConfig(
                        verbose=self.op.verbose,
                        error_codes=self.op.error_codes,
                        debug_simulate_errors=self.op.debug_simulate_errors,
                        ignore_errors=self.op.ignore_errors,
                    )
                ]
            )
        jobs.extend(
            [self._group(name, distance)]
            for distance, name in enumerate(self.groups, start=1)
        )
        return SubmitJobs(jobs)

    def _group(self, name: str, distance: int) -> opcodes.Opcode:
        return opcodes.ClusterVerifyGroup(
            group_name=name,
            verbose=self.op.verbose,
            error_codes=self.op.error_codes,
            debug_simulate_errors=self.op.debug_simulate_errors,
            ignore_errors=self.op.ignore_errors,
            skip_checks=self.op.skip_checks,
            verify_clutter=self.op.verify_clutter,
            depends=None if self.op.group_name else [(-distance, [])],
        )
