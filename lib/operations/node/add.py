"""OP_NODE_ADD: add a node to the cluster, or re-add it.

The client has already copied keys and certificates and started the node daemon.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes, versions
from ganeti.base.constants.protocols import hooks, nodeverify
from ganeti.base.net import netutils
from ganeti.base.tls import authority
from ganeti.master.config import topology
from ganeti.model import objects, opcodes
from ganeti.model.objects import lookup, params
from ganeti.operations import ancillary_files, candidate_role
from ganeti.operations.base import Context, LogicalUnit
from ganeti.operations.network import pools
from ganeti.operations.node import checks
from ganeti.operations.parameters import state_params
from ganeti.operations.trust import certificates, host_keys
from ganeti.protocols import rpc
from ganeti.protocols.rpc import calls
from ganeti.protocols.ssh import host_keys as public_keys

#: Seconds for which a re-added node may refuse the master's term. One attempt to lead
#: it back takes a moment, and the next one may follow after 10.
_LEAD_BACK_S: Final = 30.0
_LOOK_S: Final = 0.5


class NodeAdd(LogicalUnit[opcodes.NodeAdd]):
    """Unit that adds a node, or re-adds a known one and resets its roles."""

    EXCLUSIVE = True
    HOOKS_PATH = "node-add"
    HOOKS_TYPE = hooks.HTYPE_NODE

    def check_arguments(self) -> None:
        """Check parameters that do not depend on the cluster."""
        self.ndparams = checks.node_parameters(self.op.ndparams)
        self.hv_state = state_params.new_hv_state({}, self.op.hv_state)
        self.disk_state = state_params.new_disk_state({}, self.op.disk_state)
        self.host_keys = public_keys.checked(self.op.ssh_host_keys or ())
        if self.op.readd and self.op.group:
            raise self.prereq(
                f"node {self.op.node_name}: a re-added node keeps its group, found"
                " group"
                f" {self.op.group}"
            )

    def expand_names(self) -> None:
        """Resolve the name; the big lock covers everything else."""
        try:
            self.name, addresses = self.ctx.lookup_host(self.op.node_name)
        except errors.ResolverError as err:
            raise self.prereq(
                f"node {self.op.node_name}: its address cannot be found:"
                f" {err.args[-1]}",
                ecodes.ECODE_RESOLVER,
            ) from err
        if not self.op.readd:
            netutils.refuse_uuid(self.name, f"node {self.name}")
        is_v6 = self.ctx.snapshot.cluster.primary_ip_family != 2
        fitting = [address for address in addresses if (":" in address) == is_v6]
        if not fitting:
            raise self.prereq(
                f"node {self.name}: no address of the cluster's family, found"
                f" {', '.join(addresses) or 'none'}",
                ecodes.ECODE_ENVIRON,
            )
        self.address = fitting[0]

    # Hooks
    def hooks_env(self) -> Mapping[str, Any]:
        """Return name, addresses and capabilities."""
        return {
            "OP_TARGET": self.name,
            "NODE_NAME": self.name,
            "NODE_PIP": self.node.primary_ip,
            "NODE_SIP": self.node.secondary_ip,
            "MASTER_CAPABLE": self.op.master_capable,
            "VM_CAPABLE": self.op.vm_capable,
        }

    def hooks_nodes(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return all other nodes; for post hooks also the new one."""
        others = sorted(set(self.ctx.snapshot.nodes) - {self.node.uuid})
        return others, [*others, self.node.uuid]

    # Checks
    def check_prereq(self) -> None:
        """Check names, addresses, reachability and version."""
        known = self.ctx.snapshot.uuid_of("nodes", self.name)
        if self.op.readd:
            self.node = self._readded(known)
        else:
            self.node = self._added(known)
            self.warn_of_short_name("nodes", self.name)
        self._check_addresses()
        checks.same_homing(self.ctx.snapshot, self.node)
        if self.op.dry_run:
            # The client asks before it prepares the machine, which cannot answer yet.
            return
        if not self.ctx.tcp_ping(self.node.primary_ip, checks.noded_port(), None):
            raise self.prereq(
                f"node {self.name}: not reachable by TCP at {self.node.primary_ip}",
                ecodes.ECODE_ENVIRON,
            )
        checks.reachable_secondary(self.ctx, self.node)
        self._machine.check_version()

    def _secondary(self, recorded: str | None) -> str:
        address = self.op.secondary_ip or recorded
        if address is None:
            if ":" in self.address:
                raise self.prereq(
                    f"node {self.name}: an IPv4 secondary address must be given with an"
                    " IPv6 primary one"
                )
            return self.address
        if recorded is not None and address != recorded:
            raise self.prereq(
                f"node {self.name}: a re-added node keeps its secondary address"
                f" {recorded}, found {address}"
            )
        checks.ipv4(address, f"node {self.name}: secondary address")
        return address

    def _added(self, known: str | None) -> objects.Node:
        if known is not None:
            raise self.prereq(
                f"node {self.name}: already in the cluster, use --readd",
                ecodes.ECODE_EXISTS,
            )
        secondary = self._secondary(None)
        node = objects.Node(
            name=self.name,
            primary_ip=self.address,
            secondary_ip=secondary,
            master_candidate=False,
            offline=False,
            drained=False,
            group=self._group(),
            master_capable=self.op.master_capable is not False,
            vm_capable=self.op.vm_capable is not False,
            ndparams=params_without_defaults(self.ndparams),
            powered=True,
            uuid=self.ctx.config.reserve_uuid(self.ctx.owner),
            serial_no=1,
            hv_state_static=self.hv_state,
            disk_state_static=self.disk_state,
            ssh_host_keys=self.host_keys,
        )
        return node.replace(master_candidate=self._becomes_candidate(node))

    def _group(self) -> str:
        snapshot = self.ctx.snapshot
        if self.op.group:
            return lookup.expand_group(snapshot, self.op.group)
        if len(snapshot.nodegroups) > 1:
            raise self.prereq(
                f"node {self.name}: the node group must be given, as there is more"
                " than one"
            )
        return next(iter(snapshot.nodegroups))

    def _readded(self, known: str | None) -> objects.Node:
        snapshot = self.ctx.snapshot
        if known is None:
            raise self.prereq(
                f"node {self.name}: not in the cluster, add it without --readd",
                ecodes.ECODE_NOENT,
            )
        if known == snapshot.cluster.master_node:
            raise self.prereq(
                f"node {self.name}: is the master and cannot be re-added",
                ecodes.ECODE_STATE,
            )
        old = snapshot.nodes[known]
        node = old.replace(
            primary_ip=self.address,
            secondary_ip=self._secondary(old.secondary_ip),
            offline=False,
            drained=False,
            powered=True,
            master_candidate=False,
            master_capable=_given(self.op.master_capable, old.master_capable),
            vm_capable=_given(self.op.vm_capable, old.vm_capable),
            ndparams=params_without_defaults({**old.ndparams, **self.ndparams}),
            hv_state_static={**old.hv_state_static, **self.hv_state},
            disk_state_static={**old.disk_state_static, **self.disk_state},
            ssh_host_keys=self.host_keys or old.ssh_host_keys,
        )
        self._check_instances(node)
        return node.replace(master_candidate=self._becomes_candidate(node))

    def _check_instances(self, node: objects.Node) -> None:
        snapshot = self.ctx.snapshot
        held = len(snapshot.primary_instances(node.uuid)) + len(
            snapshot.secondary_instances(node.uuid)
        )
        if not node.vm_capable and held:
            raise self.prereq(
                f"node {node.name}: holds {held} instance(s), so it must stay"
                " vm_capable",
                ecodes.ECODE_STATE,
            )

    def _becomes_candidate(self, node: objects.Node) -> bool:
        if not node.master_capable:
            return False
        state = topology.pool_state(self.ctx.snapshot, ignore=(node.uuid,))
        size = self.ctx.snapshot.cluster.candidate_pool_size
        return state.current < min(size, state.possible + 1)

    def _check_addresses(self) -> None:
        mine = {self.node.primary_ip, self.node.secondary_ip}
        for other in self.ctx.snapshot.nodes.values():
            if other.uuid == self.node.uuid:
                continue
            if clash := mine & {other.primary_ip, other.secondary_ip}:
                raise self.prereq(
                    f"node {self.name}: address {', '.join(sorted(clash))} is used by"
                    f" node {other.name}",
                    ecodes.ECODE_NOTUNIQUE,
                )

    # Execution
    def execute(self) -> None:
        """Prepare the node, record it, then update the other nodes."""
        self._machine.admit()
        if self.op.readd and self._may_touch_ssh:
            candidate_role.remove_ssh_key(
                self.ctx,
                self.node,
                from_authorized=True,
                from_public=not self.node.master_capable,
                readd=True,
            )
        stored = self._store()
        checks.configure_ovs(self.ctx, stored)
        self._distribute_files()
        if not stored.master_candidate and self.op.readd:
            candidate_role.demote(self.ctx, stored.uuid)
        if stored.master_candidate:
            candidate_role.record_certificate(self.ctx, stored)
        else:
            candidate_role.forget_certificate(self.ctx, stored.uuid)
        if self._may_touch_ssh:
            candidate_role.add_ssh_key(
                self.ctx,
                stored,
                to_authorized=stored.master_candidate,
                to_public=stored.master_capable,
                get_public=True,
            )

    @property
    def _machine(self) -> "_NewMachine":
        return _NewMachine(
            self.ctx,
            self.node,
            is_readded=self.op.readd,
            has_host_keys=bool(self.host_keys),
        )

    @property
    def _may_touch_ssh(self) -> bool:
        return self.op.node_setup and self.ctx.snapshot.cluster.modify_ssh_setup

    def _store(self) -> objects.Node:
        with self.ctx.config.edit(self.ctx.owner) as edit:
            pools.reserve_hosts(edit, self.ctx.log, pools.hosts_of(self.node))
            if self.op.readd:
                return edit.update(self.node)
            return topology.add_node(edit, self.node)

    def _distribute_files(self) -> None:
        if self.ctx.snapshot.cluster.modify_etc_hosts:
            ancillary_files.redistribute(self.ctx)
        else:
            ancillary_files.redistribute(self.ctx, [self.node.uuid])
            if public_keys.are_recorded(self.ctx.snapshot):
                host_keys.announce(self.ctx)


class _NewMachine:
    """The machine that is added: it is checked, and gets its certificate.

    Args:
        ctx: dependencies of the opcode.
        node: its future record.
        is_readded: whether the cluster knows it.
        has_host_keys: whether its SSH host keys were given.
    """

    def __init__(
        self,
        ctx: Context,
        node: objects.Node,
        *,
        is_readded: bool,
        has_host_keys: bool,
    ) -> None:
        self.ctx, self.node, self.name = ctx, node, node.name
        self._is_readded, self._has_host_keys = is_readded, has_host_keys
        target = rpc.Target(
            node.uuid,
            node.name,
            node.primary_ip,
            checks.noded_port(),
            # The certificate of a machine that is being added has no UUID yet.
            certified=node.name,
        )
        self._direct = ctx.rpc_at([target])

    def check_version(self) -> None:
        """Refuse a machine with another release."""
        version = self._version().require(
            f"node {self.name}: cannot get its version", ecodes.ECODE_ENVIRON
        )
        if version != versions.PROTOCOL_VERSION:
            raise errors.OpPrereqError(
                f"node {self.name}: has protocol version {version}, wanted"
                f" {versions.PROTOCOL_VERSION}",
                ecodes.ECODE_ENVIRON,
            )

    def _version(self) -> rpc.Answer[int]:
        """Ask for the version; wait while the candidates lead a known node back.

        It may have seen the term of another master while it was away. It knows the
        present candidates since the client has set it up, and each refusal has them
        vouch for this master, see `ganeti.daemons.masterd.duties.refused_terms`.
        """
        clock = self.ctx.clock
        answer = self._direct.call_node(self.node.uuid, calls.version())
        end = clock.monotonic() + _LEAD_BACK_S
        if answer.deposed and self._is_readded:
            self.ctx.log.info(
                f"Node {self.name} has seen another master; waiting until it follows"
                " this one"
            )
        while answer.deposed and self._is_readded and clock.monotonic() < end:
            self.ctx.pause(_LOOK_S)
            answer = self._direct.call_node(self.node.uuid, calls.version())
        return answer

    def admit(self) -> None:
        """Do all that the node can refuse; then nothing has changed but its own files.

        While a candidate has no certificate on record, the master daemon records the
        one that it has, see `ganeti.daemons.masterd.duties.candidate_rights`.
        """
        self._add_host_entry()
        try:
            self._check_with_host_keys()
            if self._is_readded:
                candidate_role.forget_certificate(self.ctx, self.node.uuid)
            self._certify()
        except BaseException:
            if not self._is_readded and self.ctx.snapshot.cluster.modify_etc_hosts:
                self._change_host_entry("remove", None)
            raise

    def _add_host_entry(self) -> None:
        if self.ctx.snapshot.cluster.modify_etc_hosts:
            self._change_host_entry("add", self.node.primary_ip).unwrap(
                "cannot update the hosts file on the master"
            )

    def _change_host_entry(self, action: str, address: str | None) -> rpc.Result:
        master = self.ctx.snapshot.cluster.master_node
        return self.ctx.rpc.call_node(
            master, calls.etc_hosts_modify(action, self.name, address)
        )

    def _check_with_host_keys(self) -> None:
        """Check the node over SSH, whose host keys the master must know before."""
        snapshot = self.ctx.snapshot
        for other in host_keys.with_same_keys(list(snapshot.nodes.values()), self.node):
            self.ctx.log.warn(
                f"node {self.name} has an SSH host key of node {other.name}, so each"
                " can answer for the other",
                hint="run gnt-cluster renew-crypto --new-ssh-host-keys",
            )
        if not self._has_host_keys:
            self._check_node_itself()
            return
        host_keys.write(self.ctx, self.node)
        try:
            self._check_node_itself()
        except BaseException:
            host_keys.write(self.ctx)
            raise

    def _check_node_itself(self) -> None:
        if not checks.is_single_homed(self.node):
            has_address = self._direct.call_node(
                self.node.uuid, calls.node_has_ip_address(self.node.secondary_ip)
            )
            if not has_address.unwrap("cannot check the secondary address"):
                raise errors.OpExecError(
                    f"node {self.name}: does not have its secondary address"
                    f" {self.node.secondary_ip}"
                )
        snapshot = self.ctx.snapshot
        group = snapshot.nodegroups[self.node.group]
        port = {**params.group_ndparams(snapshot, group), **self.node.ndparams}
        master = snapshot.cluster.master_node
        answer = self.ctx.rpc.call_node(
            master,
            calls.node_verify(
                {nodeverify.NV_NODELIST: {self.name: port["ssh_port"]}},
                snapshot.cluster.cluster_name,
                {},
            ),
        ).unwrap("cannot check SSH to the new node")
        problems = answer.get(nodeverify.NV_NODELIST) or {}
        if problems:
            text = "; ".join(f"{name}: {why}" for name, why in sorted(problems.items()))
            raise errors.OpExecError(f"SSH or host name check failed: {text}")

    def _certify(self) -> None:
        """Replace the certificate that the client gave the node for a day.

        From its record on, the node is called by its UUID, which the new one has.

        Raises:
            OpExecError: the node does not take the certificate.
        """
        if not authority.is_used(self.ctx.paths.server_pem):
            return
        _made, failed = certificates.renew(self.ctx, [self.node], runner=self._direct)
        if failed:
            raise errors.OpExecError(
                f"node {self.name}: cannot get its certificate: {failed[self.name]}"
            )


def _given(requested: bool | None, old: bool) -> bool:
    return old if requested is None else requested


def params_without_defaults(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return overrides without those that mean "inherited"."""
    return {name: value for name, value in given.items() if value != "default"}
