"""OP_CLUSTER_VERIFY_GROUP: check the nodes and instances of one group."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants.protocols import hooks, nodeverify
from ganeti.base.constants.protocols import oob as constants
from ganeti.base.net import netutils
from ganeti.decisions.verify import (
    Report,
    files,
    guest_files,
    instances,
    node_answer,
    nodes,
    storage,
)
from ganeti.master import hooksmaster, iallocator
from ganeti.master.locking import Level
from ganeti.model import objects, opcodes
from ganeti.model.objects import params
from ganeti.operations import ancillary_files
from ganeti.operations.base import Context, LogicalUnit
from ganeti.operations.cluster import verify_request
from ganeti.operations.cluster.verify_request import Output
from ganeti.operations.group.locks import GroupLocks
from ganeti.operations.instance import checks
from ganeti.operations.node import oob
from ganeti.protocols.rpc import calls
from ganeti.store import choice

Answers = Mapping[str, Mapping[str, Any]]
#: Seconds for the answer of an out-of-band helper; a dead controller gives none.
_POWER_STATUS_S: Final = 10


class ClusterVerifyGroup(GroupLocks, LogicalUnit[opcodes.ClusterVerifyGroup]):
    """Unit that returns true if no error was found; failing post hooks are errors."""

    READS_ONLY = True
    HOOKS_PATH = "cluster-verify"
    HOOKS_TYPE = hooks.HTYPE_CLUSTER

    # Hooks
    def hooks_env(self) -> Mapping[str, Any]:
        """Return the tags of the cluster and of the group's nodes."""
        snapshot = self.ctx.snapshot
        env = {"CLUSTER_TAGS": " ".join(sorted(snapshot.cluster.tags))}
        for uuid in snapshot.nodes_in_group(self.group):
            node = snapshot.nodes[uuid]
            env[f"NODE_TAGS_{node.name}"] = " ".join(sorted(node.tags))
        return env

    def hooks_nodes(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return no nodes for the pre phase, the group's nodes for the post phase."""
        return (), sorted(self.ctx.snapshot.nodes_in_group(self.group))

    def after_hooks(
        self,
        results: Sequence[hooksmaster.ScriptResult],
        silent: Mapping[str, str],
        result: Any,
    ) -> Any:
        """Count failing scripts and silent nodes as errors of verification."""
        if not self.ctx.snapshot.nodes_in_group(self.group):
            return result
        self.output.step("Hooks Results")
        for name, reason in silent.items():
            self.report.error(
                "ENODEHOOKS",
                name,
                f"communication failure in hooks execution: {reason}",
            )
        for item in results:
            if item.status != hooks.HKR_FAIL:
                continue
            self.report.error(
                "ENODEHOOKS",
                item.node,
                f"script {item.script} failed, output:",
            )
            self.output.flush()
            for line in item.output.splitlines():
                self.ctx.log.message(f"      {line}")
        self.output.flush()
        return result and self.report.is_clean

    # Execution
    def execute(self) -> bool:
        """Ask the nodes, then run the checks as steps."""
        snapshot = self.ctx.snapshot
        self.report = Report(
            self.op.ignore_errors, simulate=self.op.debug_simulate_errors
        )
        self.output = Output(self.ctx.log, self.report, error_codes=self.op.error_codes)
        name = snapshot.nodegroups[self.group].name
        self.output.step(f"Verifying group '{name}'")
        members = sorted(
            (
                snapshot.nodes[uuid]
                for uuid in snapshot.nodes_in_group(self.group)
                & self.ctx.locks.owned(Level.NODE)
            ),
            key=lambda node: node.name,
        )
        if not members:
            self.output.step("Empty node group, skipping verification")
            return True
        inside = self._instances(snapshot, members)
        _GroupChecks(self, snapshot, members, inside).run()
        self.output.flush()
        return self.report.is_clean

    def _instances(
        self, snapshot: objects.Snapshot, members: Sequence[objects.Node]
    ) -> list[objects.Instance]:
        uuids = {
            uuid for node in members for uuid in snapshot.primary_instances(node.uuid)
        }
        primary = [snapshot.instances[uuid] for uuid in uuids]
        locked = self.locked_instances(item.name for item in primary)
        return sorted(
            (item for item in primary if not item.forthcoming and item.name in locked),
            key=lambda item: item.name,
        )


class _GroupChecks:
    """The checks of one group, as steps: nodes are asked, and their answers judged.

    Args:
        unit: has the request, the report and the output.
        snapshot: the configuration that the answers are compared with.
        members: the nodes of the group.
        inside: the instances with a primary node in the group.
    """

    def __init__(
        self,
        unit: ClusterVerifyGroup,
        snapshot: objects.Snapshot,
        members: Sequence[objects.Node],
        inside: Sequence[objects.Instance],
    ) -> None:
        self.ctx, self.op, self.group = unit.ctx, unit.op, unit.group
        self.report, self.output = unit.report, unit.output
        self._snapshot, self._members, self._inside = snapshot, members, inside
        self._online = [
            node for node in members if not params.is_silent(snapshot, node)
        ]
        self._answers: dict[str, Mapping[str, Any]] = {}

    def run(self) -> None:
        """Ask the nodes, then run the checks as steps."""
        snapshot, inside, output = self._snapshot, self._inside, self.output
        count = len(self._online)
        output.step(f"Gathering data ({count} nodes)")
        output.step(f"Gathering information about nodes ({count} nodes)")
        expected = self._ask()
        answers = self._answers
        output.step(f"Gathering disk information ({count} nodes)")
        disks = verify_request.ask_disks(self.ctx, snapshot, inside, answers)
        output.step("Verifying configuration file consistency")
        self._judge_files()
        output.step("Verifying node status")
        self._judge_nodes(expected)
        self._judge_power()
        observed = instances.Observations(
            _reported(answers, nodeverify.NV_INSTANCELIST, frozenset),
            disks,
            _reported(answers, nodeverify.NV_VGLIST, frozenset),
        )
        output.step("Verifying instance status")
        self._judge_instances(observed)
        left = _reported(answers, nodeverify.NV_GUEST_FILES, _sorted_kinds)
        guest_files.judge(self.report, snapshot, inside, left)
        output.step("Verifying orphan volumes")
        instances.orphans(self.report, snapshot, observed)
        paths = _reported(answers, nodeverify.NV_DISK_FILES)
        storage.judge_disk_files(self.report, snapshot, paths)
        storage.judge_exports(
            self.report, snapshot, _reported(answers, nodeverify.NV_EXPORTS)
        )
        if "nplusone_mem" not in self.op.skip_checks:
            output.step("Verifying N+1 Memory redundancy")
            instances.n_plus_one(self.report, snapshot, _free_memory(answers))
            self._judge_evacuations()
        if "hvparam_assessment" not in self.op.skip_checks:
            output.step("Assessing cluster hypervisor parameters")
            _assess(self.ctx, self._snapshot.cluster)
        self._notes()
        for line in nodes.daemon_users(self._online, answers, verbose=self.op.verbose):
            output.notice(line)

    def _ask(self) -> nodes.Expected:
        """Ask the nodes; keep what they answer."""
        snapshot, cluster = self._snapshot, self._snapshot.cluster
        asked = verify_request.checks(
            snapshot,
            self.group,
            self.ctx.paths,
            instances=self._inside,
            clutter=self.op.verify_clutter,
        )
        hvparams = {
            name: params.hvparams_for(cluster, name, "", {})
            for name in cluster.enabled_hypervisors
        }
        started = self.ctx.clock.time()
        results = self.ctx.rpc.call_nodes(
            [node.uuid for node in self._online],
            calls.node_verify(asked, cluster.cluster_name, hvparams),
        )
        ended = self.ctx.clock.time()
        for node in self._online:
            answer = results[node.uuid]
            self.report.error_if(
                answer.failed,
                "ENODERPC",
                node.name,
                f"while contacting node: {answer.fail_msg}",
            )
            if answer.failed:
                continue
            self._answers[node.uuid], wrong = node_answer.clean(answer.payload)
            self.report.error_if(
                wrong,
                "ENODERPC",
                node.name,
                f"node returned invalid data for {', '.join(wrong)}",
            )
        return nodes.Expected(started, ended, cluster.master_ip)

    def _judge_evacuations(self) -> None:
        """Warn of nodes whose instances on shared storage have no other place."""
        snapshot = self._snapshot
        names = instances.on_shared_storage(snapshot, self._inside)
        if not names:
            return
        try:
            names = iallocator.not_evacuable(
                self.ctx.rpc, snapshot, self.group, names, self.ctx.cluster_cache
            )
        except errors.OpPrereqError as err:
            self.output.notice(f"N+1 on shared storage is not known: {err.args[0]}")
            return
        instances.not_evacuable(self.report, names)

    def _judge_files(self) -> None:
        snapshot, paths = self._snapshot, self.ctx.paths
        sets = ancillary_files.file_sets(snapshot, paths)
        if snapshot.nodes[snapshot.cluster.master_node].group == self.group:
            for problem in sets.problems:
                self.report.error("ECLUSTERFILECHECK", None, problem)
        every = {
            uuid: answer.get(nodeverify.NV_FILELIST)
            for uuid, answer in self._answers.items()
        }
        own = frozenset(verify_request.files(paths))
        sums = {
            uuid: checksums
            and {path: text for path, text in checksums.items() if path not in own}
            for uuid, checksums in every.items()
        }
        master = snapshot.cluster.master_node
        if master not in sums:
            sums[master] = self._master_files()
        files.compare(
            self.report,
            snapshot,
            sums,
            vm_only=[paths.virtualize(path) for path in sets.vm_nodes],
            candidates_only=[paths.virtualize(path) for path in sets.candidates],
            optional=[paths.virtualize(path) for path in sets.optional],
        )
        required = [
            path
            for path in (*sets.all_nodes, *sets.candidates)
            if path not in sets.optional
        ]
        files.missing_everywhere(
            self.report,
            [paths.virtualize(path) for path in (*required, paths.server_pem)],
            {uuid: digests for uuid, digests in sums.items() if digests is not None},
        )
        verify_request.judge(self.ctx, self.report, every)
        self._judge_copies()

    def _master_files(self) -> Any:
        """Return the files of a master in another group, as reference."""
        snapshot = self._snapshot
        self.output.step("Gathering information about the master node")
        asked = {
            nodeverify.NV_FILELIST: verify_request.shared_files(
                snapshot, self.ctx.paths
            )
        }
        answer = self.ctx.rpc.call_node(
            snapshot.cluster.master_node,
            calls.node_verify(asked, snapshot.cluster.cluster_name, {}),
        )
        good, _wrong = node_answer.clean(answer.payload)
        return good.get(nodeverify.NV_FILELIST)

    def _judge_copies(self) -> None:
        """Judge copies of the store, and in the master's group their majority."""
        snapshot = self._snapshot
        master = snapshot.nodes[snapshot.cluster.master_node]
        # In etcd the servers have the copies that count.
        counts = master.group == self.group and not choice.is_etcd(self.ctx.paths)
        candidates = {
            node.uuid for node in snapshot.nodes.values() if node.master_candidate
        }
        others = candidates - {master.uuid}
        inside = self._answers.keys() & others
        results = self.ctx.rpc.call_nodes(
            sorted(others if counts else inside), calls.store_status()
        )
        revisions = {
            uuid: revision if isinstance(revision, int) else None
            for uuid, answer in results.items()
            for revision in ((answer.payload or {}).get("revision"),)
        }
        files.replicas(
            self.report,
            snapshot,
            {uuid: revisions[uuid] for uuid in inside},
            snapshot.revision,
        )
        if counts:
            newest = sum(
                revision is not None and revision >= snapshot.revision
                for revision in revisions.values()
            )
            files.majority(self.report, snapshot, 1 + newest, len(candidates))

    def _judge_nodes(self, expected: nodes.Expected) -> None:
        snapshot, members = self._snapshot, self._members
        answers, cluster = self._answers, self._snapshot.cluster
        noted = self.ctx.config.disk_notes.all_disks()
        for node in members:
            if params.is_silent(snapshot, node):
                if self.op.verbose:
                    self.output.step(f"Skipping offline node {node.name}")
                continue
            if self.op.verbose:
                role = _role(node, is_master=node.uuid == cluster.master_node)
                self.output.step(f"Verifying node {node.name} ({role})")
            answer = answers.get(node.uuid)
            if answer is None or not nodes.judge(self.report, node, answer, expected):
                continue
            nodes.volume_groups(self.report, node, answer, cluster.volume_group_name)
            nodes.compression(self.report, node, answer, cluster.compression_tools)
            storage.judge_volumes(
                *(self.report, snapshot, node, answer),
                noted=[item.disk for item in noted if node.uuid in item.nodes],
            )
        storage.judge_generations(self.report, members, answers)
        self._judge_address()
        nodes.digests(self.report, snapshot, answers)
        hosts = {
            node.uuid: node.name
            for node in members
            if node.vm_capable and node.uuid in answers
        }
        nodes.operating_systems(self.report, hosts, answers)

    def _judge_power(self) -> None:
        """Compare the recorded power state of nodes with the real one."""
        snapshot = self._snapshot
        able = [n.uuid for n in self._members if params.oob_program(snapshot, n)]
        if not able:
            return
        command = constants.OOB_POWER_STATUS
        actual = oob.run_helpers(self.ctx, able, command, _POWER_STATUS_S)
        for uuid, (payload, problem) in actual.items():
            powered = (
                None if problem else payload.get(constants.OOB_POWER_STATUS_POWERED)
            )
            node = snapshot.nodes[uuid]
            nodes.power(self.report, node, powered=powered, problem=problem)

    def _judge_address(self) -> None:
        cluster = self._snapshot.cluster
        asked = [
            uuid
            for uuid in self._answers
            if uuid != cluster.master_node or not cluster.use_external_mip_script
        ]
        if netutils.is_loopback(cluster.master_ip) or not asked:
            return
        owned = self.ctx.rpc.call_nodes(
            asked, calls.node_has_ip_address(cluster.master_ip)
        )
        payloads = {uuid: owned[uuid].payload for uuid in asked}
        if payloads.pop(cluster.master_node, None) is False:
            nodes.missing_address(self.report, self._snapshot)
        strays = [uuid for uuid, has_it in payloads.items() if has_it is True]
        nodes.stray_address(self.report, self._snapshot, strays)

    def _judge_instances(self, observed: instances.Observations) -> None:
        for instance in self._inside:
            if self.op.verbose:
                self.output.step(f"Verifying instance {instance.name}")
            instances.judge(
                self.report,
                self._snapshot,
                instance,
                observed,
                _policy_problems(self._snapshot, self.group, instance),
            )

    def _notes(self) -> None:
        self.output.step("Other Notes")
        for count, what in _counts(self._snapshot, self._members, self._inside):
            self.output.note(count, what)


#: hypervisor -> parameter -> (bad value, advice)
_ADVICE: Mapping[str, Mapping[str, tuple[Any, str]]] = {
    "kvm": {
        "disk_cache": (
            "writeback",
            "a crash of the node loses writes that guests believe safe",
        ),
        "cpu_type": ("host", "guests may not migrate between different processors"),
    },
}


def _assess(ctx: Context, cluster: objects.Cluster) -> None:
    """Report cluster-wide hypervisor parameters with known disadvantages."""
    for name in cluster.enabled_hypervisors:
        filled = params.hvparams_for(cluster, name, "", {})
        for parameter, (poor, advice) in _ADVICE.get(name, {}).items():
            if filled.get(parameter) == poor:
                ctx.log.message(
                    f"  - NOTICE: hypervisor {name}: parameter {parameter} is"
                    f" {poor!r}; {advice}"
                )


def _counts(
    snapshot: objects.Snapshot,
    members: Sequence[objects.Node],
    inside: Sequence[objects.Instance],
) -> Sequence[tuple[int, str]]:
    """Return numbers of nodes and instances, and what is special about them."""
    backend = {item.uuid: params.fill_beparams(snapshot, item) for item in inside}
    return (
        (
            sum(1 for item in inside if not snapshot.secondary_nodes(item)),
            "non-redundant instance(s)",
        ),
        (
            sum(1 for item in backend.values() if not item["auto_balance"]),
            "non-auto-balanced instance(s)",
        ),
        (
            sum(1 for item in inside if item.admin_state == "offline"),
            "offline instance(s)",
        ),
        (sum(1 for node in members if node.offline), "offline node(s)"),
        (sum(1 for node in members if node.drained), "drained node(s)"),
    )


def _policy_problems(
    snapshot: objects.Snapshot, group: str, instance: objects.Instance
) -> list[str]:
    known = [snapshot.disks[u] for u in instance.disks if u in snapshot.disks]
    return checks.policy_problems(
        snapshot,
        group,
        backend=params.fill_beparams(snapshot, instance),
        nic_count=len(instance.nics),
        disk_sizes=[disk.size for disk in known],
        template=snapshot.disk_template(instance)
        if len(known) == len(instance.disks)
        else "diskless",
    )


def _reported(
    answers: Answers, part: str, convert: Callable[[Any], Any] = lambda value: value
) -> dict[str, Any]:
    """Return a part of the answers, by node uuid, where the answer has it."""
    return {
        uuid: convert(answer[part])
        for uuid, answer in answers.items()
        if part in answer
    }


def _sorted_kinds(files_of: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    return {name: sorted(kinds) for name, kinds in files_of.items()}


def _free_memory(answers: Answers) -> dict[str, int]:
    return {
        uuid: int(free)
        for uuid, answer in answers.items()
        if isinstance(
            free := answer.get(nodeverify.NV_HVINFO, {}).get("memory_free"), int
        )
    }


def _role(node: objects.Node, *, is_master: bool) -> str:
    if is_master:
        return "master"
    if node.master_candidate:
        return "master candidate"
    return "drained" if node.drained else "regular"
