"""OP_CLUSTER_VERIFY_GROUP: check the nodes and instances of one group."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants.protocols import hooks, nodeverify
from ganeti.base.constants.protocols import oob as constants
from ganeti.base.net import netutils
from ganeti.decisions.verify import (
    Report,
    disk_files,
    exports,
    files,
    guest_files,
    instances,
    n_plus_one,
    node_answer,
    nodes,
    volumes,
)
from ganeti.master import hooksmaster, iallocator
from ganeti.master.locking import Level
from ganeti.model import objects, opcodes
from ganeti.model.objects import params
from ganeti.operations import ancillary_files
from ganeti.operations.base import LogicalUnit
from ganeti.operations.cluster.verification import verify_request, verify_ssconf
from ganeti.operations.cluster.verification.verify_output import Output
from ganeti.operations.group.locks import GroupLocks
from ganeti.operations.instance import checks as instance_checks
from ganeti.operations.node import oob
from ganeti.protocols.rpc import encode
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
            self.report.error_if(
                True,
                "ENODEHOOKS",
                name,
                f"communication failure in hooks execution: {reason}",
            )
        for item in results:
            if item.status != hooks.HKR_FAIL:
                continue
            self.report.error_if(
                True,
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
        self._judge_all(snapshot, members)
        self.output.flush()
        return self.report.is_clean

    def _judge_all(
        self, snapshot: objects.Snapshot, members: Sequence[objects.Node]
    ) -> None:
        online = [node for node in members if not params.is_silent(snapshot, node)]
        inside = self._instances(snapshot, members)
        self.output.step(f"Gathering data ({len(online)} nodes)")
        self.output.step(f"Gathering information about nodes ({len(online)} nodes)")
        answers, expected = self._ask(snapshot, online, inside)
        self.output.step(f"Gathering disk information ({len(online)} nodes)")
        disks = self._ask_disks(snapshot, inside, answers)
        self.output.step("Verifying configuration file consistency")
        self._judge_files(snapshot, online, answers)
        self.output.step("Verifying node status")
        self._judge_nodes(snapshot, members, answers, expected)
        self._judge_power(snapshot, members)
        observed = instances.Observations(
            _running(answers),
            disks,
            frozenset(node.uuid for node in online if node.uuid not in answers),
            _volume_groups(answers),
        )
        self.output.step("Verifying instance status")
        self._judge_instances(snapshot, inside, observed)
        guest_files.judge(self.report, snapshot, inside, _guest_files(answers))
        self.output.step("Verifying orphan volumes")
        instances.orphans(self.report, snapshot, observed)
        disk_files.judge(self.report, snapshot, _disk_files(answers))
        exports.judge(self.report, snapshot, _exports(answers))
        if "nplusone_mem" not in self.op.skip_checks:
            self.output.step("Verifying N+1 Memory redundancy")
            n_plus_one.n_plus_one(self.report, snapshot, _free_memory(answers))
            self._judge_evacuations(snapshot, inside)
        if "hvparam_assessment" not in self.op.skip_checks:
            self.output.step("Assessing cluster hypervisor parameters")
            self._assess(snapshot)
        self._notes(snapshot, members, inside)
        for line in nodes.daemon_users(online, answers, verbose=self.op.verbose):
            self.output.notice(line)

    def _judge_evacuations(
        self, snapshot: objects.Snapshot, inside: Sequence[objects.Instance]
    ) -> None:
        """Warn of nodes whose instances on shared storage have no other place."""
        names = n_plus_one.on_shared_storage(snapshot, inside)
        if not names:
            return
        try:
            names = iallocator.not_evacuable(
                self.ctx.rpc, snapshot, self.group, names, self.ctx.cluster_cache
            )
        except errors.OpPrereqError as err:
            self.output.notice(f"N+1 on shared storage is not known: {err.args[0]}")
            return
        n_plus_one.not_evacuable(self.report, names)

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

    # Node calls
    def _ask(
        self,
        snapshot: objects.Snapshot,
        online: Sequence[objects.Node],
        inside: Sequence[objects.Instance],
    ) -> tuple[dict[str, Mapping[str, Any]], nodes.Expected]:
        asked = verify_request.checks(
            snapshot,
            self.group,
            self.ctx.paths,
            instances=inside,
            clutter=self.op.verify_clutter,
        )
        cluster = snapshot.cluster
        hvparams = {
            name: params.hvparams_for(cluster, name, "", {})
            for name in cluster.enabled_hypervisors
        }
        started = self.ctx.clock.time()
        results = self.ctx.rpc.call(
            "node_verify",
            [node.uuid for node in online],
            (asked, cluster.cluster_name, hvparams),
        )
        ended = self.ctx.clock.time()
        answers: dict[str, Mapping[str, Any]] = {}
        for node in online:
            answer = results[node.uuid]
            self.report.error_if(
                answer.failed,
                "ENODERPC",
                node.name,
                f"while contacting node: {answer.fail_msg}",
            )
            if answer.failed:
                continue
            answers[node.uuid], wrong = node_answer.clean(answer.payload)
            self.report.error_if(
                wrong,
                "ENODERPC",
                node.name,
                f"node returned invalid data for {', '.join(wrong)}",
            )
        return answers, nodes.Expected(started, ended, cluster.master_ip)

    def _ask_disks(
        self,
        snapshot: objects.Snapshot,
        inside: Sequence[objects.Instance],
        answers: Answers,
    ) -> dict[str, dict[str, Sequence[Any]]]:
        """Return instance uuid -> node uuid -> (ok, status or text) per disk."""
        by_node: dict[str, list[objects.Instance]] = {}
        for instance in inside:
            if instance.disks and all(u in snapshot.disks for u in instance.disks):
                for uuid in snapshot.instance_nodes(instance):
                    if uuid in answers:
                        by_node.setdefault(uuid, []).append(instance)
        if not by_node:
            return {}
        replies = self.ctx.rpc.call(
            "blockdev_getmirrorstatus_multi",
            sorted(by_node),
            lambda uuid: (_encode_disks(snapshot, by_node[uuid]),),
        )
        disks: dict[str, dict[str, Sequence[Any]]] = {}
        for uuid, owners in by_node.items():
            answer = replies[uuid]
            total = sum(len(instance.disks) for instance in owners)
            rows = node_answer.disk_rows(answer.payload, total, answer.fail_msg)
            for instance in owners:
                count = len(instance.disks)
                disks.setdefault(instance.uuid, {})[uuid] = rows[:count]
                rows = rows[count:]
        return disks

    # Checks
    def _judge_files(
        self,
        snapshot: objects.Snapshot,
        online: Sequence[objects.Node],
        answers: Answers,
    ) -> None:
        paths = self.ctx.paths
        sets = ancillary_files.file_sets(snapshot, paths)
        if snapshot.nodes[snapshot.cluster.master_node].group == self.group:
            for problem in sets.problems:
                self.report.error_if(True, "ECLUSTERFILECHECK", None, problem)
        every = {
            uuid: answer.get(nodeverify.NV_FILELIST) for uuid, answer in answers.items()
        }
        own = frozenset(verify_ssconf.files(paths))
        sums = {
            uuid: checksums
            and {path: text for path, text in checksums.items() if path not in own}
            for uuid, checksums in every.items()
        }
        master = snapshot.cluster.master_node
        if master not in sums:
            sums[master] = self._master_files(snapshot)
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
        verify_ssconf.judge(self.ctx, self.report, every)
        self._judge_copies(snapshot, online, answers)

    def _master_files(self, snapshot: objects.Snapshot) -> Any:
        """Return the files of a master in another group, as reference."""
        self.output.step("Gathering information about the master node")
        asked = {
            nodeverify.NV_FILELIST: verify_request.shared_files(
                snapshot, self.ctx.paths
            )
        }
        answer = self.ctx.rpc.call_one(
            "node_verify",
            snapshot.cluster.master_node,
            asked,
            snapshot.cluster.cluster_name,
            {},
        )
        good, _wrong = node_answer.clean(answer.payload)
        return good.get(nodeverify.NV_FILELIST)

    def _judge_copies(
        self,
        snapshot: objects.Snapshot,
        online: Sequence[objects.Node],
        answers: Answers,
    ) -> None:
        """Judge copies of the store, and in the master's group their majority."""
        master = snapshot.nodes[snapshot.cluster.master_node]
        # In etcd the servers have the copies that count.
        counts = master.group == self.group and not choice.is_etcd(self.ctx.paths)
        candidates = {
            node.uuid for node in snapshot.nodes.values() if node.master_candidate
        }
        others = candidates - {master.uuid}
        inside = {node.uuid for node in online if node.uuid in answers} & others
        results = self.ctx.rpc.call(
            "store_status", sorted(others if counts else inside)
        )
        revisions = {
            uuid: answer.payload["revision"] if answer.payload else None
            for uuid, answer in results.items()
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

    def _judge_nodes(
        self,
        snapshot: objects.Snapshot,
        members: Sequence[objects.Node],
        answers: Answers,
        expected: nodes.Expected,
    ) -> None:
        master = snapshot.cluster.master_node
        noted = self.ctx.config.disk_notes.all_disks()
        for node in members:
            if params.is_silent(snapshot, node):
                if self.op.verbose:
                    self.output.step(f"Skipping offline node {node.name}")
                continue
            if self.op.verbose:
                role = _role(node, is_master=node.uuid == master)
                self.output.step(f"Verifying node {node.name} ({role})")
            if node.uuid not in answers:
                continue
            if nodes.judge(self.report, node, answers[node.uuid], expected):
                nodes.volume_groups(
                    self.report,
                    node,
                    answers[node.uuid],
                    snapshot.cluster.volume_group_name,
                )
                nodes.compression(
                    self.report,
                    node,
                    answers[node.uuid],
                    snapshot.cluster.compression_tools,
                )
                volumes.judge(
                    *(self.report, snapshot, node, answers[node.uuid]),
                    noted=[item.disk for item in noted if node.uuid in item.nodes],
                )
        volumes.judge_generations(self.report, members, answers)
        self._judge_address(snapshot, answers)
        nodes.digests(self.report, snapshot, answers)
        hosts = {
            node.uuid: node.name
            for node in members
            if node.vm_capable and node.uuid in answers
        }
        nodes.operating_systems(self.report, hosts, answers)

    def _judge_power(
        self, snapshot: objects.Snapshot, members: Sequence[objects.Node]
    ) -> None:
        """Compare the recorded power state of nodes with the real one."""
        able = [n.uuid for n in members if params.oob_program(snapshot, n)]
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

    def _judge_address(self, snapshot: objects.Snapshot, answers: Answers) -> None:
        cluster = snapshot.cluster
        asked = [
            uuid
            for uuid in answers
            if uuid != cluster.master_node or not cluster.use_external_mip_script
        ]
        if netutils.is_loopback(cluster.master_ip) or not asked:
            return
        owned = self.ctx.rpc.call("node_has_ip_address", asked, (cluster.master_ip,))
        payloads = {uuid: owned[uuid].payload for uuid in asked}
        if payloads.pop(cluster.master_node, None) is False:
            nodes.missing_address(self.report, snapshot)
        strays = [uuid for uuid, has_it in payloads.items() if has_it is True]
        nodes.stray_address(self.report, snapshot, strays)

    def _judge_instances(
        self,
        snapshot: objects.Snapshot,
        inside: Sequence[objects.Instance],
        observed: instances.Observations,
    ) -> None:
        for instance in inside:
            if self.op.verbose:
                self.output.step(f"Verifying instance {instance.name}")
            instances.judge(
                self.report,
                snapshot,
                instance,
                observed,
                self._policy_problems(snapshot, instance),
            )

    def _policy_problems(
        self, snapshot: objects.Snapshot, instance: objects.Instance
    ) -> list[str]:
        known = [snapshot.disks[u] for u in instance.disks if u in snapshot.disks]
        return instance_checks.policy_problems(
            snapshot,
            self.group,
            backend=params.fill_beparams(snapshot, instance),
            nic_count=len(instance.nics),
            disk_sizes=[disk.size for disk in known],
            template=snapshot.disk_template(instance)
            if len(known) == len(instance.disks)
            else "diskless",
        )

    def _assess(self, snapshot: objects.Snapshot) -> None:
        """Report cluster-wide hypervisor parameters with known disadvantages."""
        for name in snapshot.cluster.enabled_hypervisors:
            filled = params.hvparams_for(snapshot.cluster, name, "", {})
            for parameter, (poor, advice) in _ADVICE.get(name, {}).items():
                if filled.get(parameter) == poor:
                    self.ctx.log.message(
                        f"  - NOTICE: hypervisor {name}: parameter {parameter} is"
                        f" {poor!r}; {advice}"
                    )

    def _notes(
        self,
        snapshot: objects.Snapshot,
        members: Sequence[objects.Node],
        inside: Sequence[objects.Instance],
    ) -> None:
        self.output.step("Other Notes")
        backend = {item.uuid: params.fill_beparams(snapshot, item) for item in inside}
        rows = (
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
        for count, what in rows:
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


def _encode_disks(
    snapshot: objects.Snapshot, owners: Sequence[objects.Instance]
) -> list[Any]:
    return [
        encode.disk(snapshot, disk, instance)
        for instance in owners
        for disk in snapshot.instance_disks(instance)
    ]


def _disk_files(answers: Answers) -> dict[str, Mapping[str, int]]:
    return {
        uuid: answer[nodeverify.NV_DISK_FILES]
        for uuid, answer in answers.items()
        if nodeverify.NV_DISK_FILES in answer
    }


def _exports(answers: Answers) -> dict[str, Mapping[str, str]]:
    return {
        uuid: answer[nodeverify.NV_EXPORTS]
        for uuid, answer in answers.items()
        if nodeverify.NV_EXPORTS in answer
    }


def _guest_files(answers: Answers) -> dict[str, Mapping[str, Sequence[str]]]:
    return {
        uuid: {
            name: sorted(kinds)
            for name, kinds in answer[nodeverify.NV_GUEST_FILES].items()
        }
        for uuid, answer in answers.items()
        if nodeverify.NV_GUEST_FILES in answer
    }


def _running(answers: Answers) -> dict[str, frozenset[str]]:
    return {
        uuid: frozenset(answer[nodeverify.NV_INSTANCELIST])
        for uuid, answer in answers.items()
        if nodeverify.NV_INSTANCELIST in answer
    }


def _volume_groups(answers: Answers) -> dict[str, frozenset[str]]:
    return {
        uuid: frozenset(answer[nodeverify.NV_VGLIST])
        for uuid, answer in answers.items()
        if nodeverify.NV_VGLIST in answer
    }


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
