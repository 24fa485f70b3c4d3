"""OP_INSTANCE_CREATE: create an instance on a requested or allocated node."""

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from ganeti.base.constants import disks as disk_constants
from ganeti.base.constants import ecodes
from ganeti.base.constants.protocols.os import OS_IMAGE_PARAMETER
from ganeti.base.net import hostnames
from ganeti.master import iallocator, locking
from ganeti.model import objects, opcodes
from ganeti.model.objects import lookup, params
from ganeti.operations import allocation
from ganeti.operations.instance import capacity, checks
from ganeti.operations.instance.create import (
    create_request,
    helper_install,
    making,
    reservation,
)
from ganeti.operations.instance.devices import combinations, nic_specs
from ganeti.operations.instance.disks import (
    disk_specs,
    mirror_specs,
    shared_storage,
    volumes,
)
from ganeti.operations.instance.show import hook_env
from ganeti.operations.parameters import cloud_init, typed_params


class InstanceCreate(making.InstanceMaking):
    """Unit that creates an instance, installs its OS and starts it.

    Before the commit of the records only disks exist; they are removed again if a step
    fails. If they cannot be activated after the commit, the whole instance is removed
    again. If an OS script fails, the instance stays, stopped. While the script runs,
    the record has a mark, so a creation that ends in between, with its master daemon,
    its node or by a request, does not look like a stopped instance.
    """

    HOOKS_PATH: ClassVar[str | None] = "instance-add"
    HOOKS_TYPE: ClassVar[str | None] = "INSTANCE"
    #: The mode of the requests that the unit executes.
    MODE: ClassVar[str] = "create"

    address: str | None
    template: str
    left: making.Interrupted

    def check_arguments(self) -> None:
        """Check parameters that do not depend on the cluster."""
        op = self.op
        if op.mode != self.MODE:
            raise self.prereq(
                f"instance {op.instance_name}: mode {op.mode} is not offered by this"
                " release for such a request, only create and import"
            )
        self.check_terms()
        if op.ip_check and not op.name_check:
            raise self.prereq(
                f"instance {op.instance_name}: checking the address needs"
                " the name to be checked too"
            )
        if op.instance_communication:
            raise self.prereq(
                f"instance {op.instance_name}: instance communication is"
                " not offered by this release"
            )
        self.choose_name()
        create_request.check_tags(op.tags, self.name)
        helper_install.check_arguments(op)
        typed_params.check_osparams(
            f"instance {self.name}",
            op.osparams,
            op.osparams_private,
            op.osparams_secret,
        )
        self.check_seed()

    def check_seed(self) -> None:
        """Refuse parameters of the cloud-init seed that cannot be stored or used."""
        op, what = self.op, f"instance {self.name}"
        cloud_init.check(op.osparams, what)
        cloud_init.check(op.osparams_private, what)
        cloud_init.refuse_unstored(op.osparams_secret, what)

    def check_terms(self) -> None:
        """Refuse terms of a reservation, which this request is not."""
        if reservation.has_terms(self.op):
            raise self.prereq(
                f"instance {self.op.instance_name}: expires, owner and"
                " reservation_priority are terms of reservations; use them with"
                " forthcoming"
            )

    def choose_name(self) -> None:
        """Determine the name, and its address if it is to be checked."""
        self.name = hostnames.normalize(self.op.instance_name)
        hostnames.refuse_uuid(self.name, f"instance {self.name}")
        self.address = None
        if self.op.name_check:
            self.name, addresses = create_request.resolve(self.ctx, self.name)
            self.address = addresses[0]

    def expand_names(self) -> None:
        """Look the nodes up and declare the new instance's lock."""
        if self.take_over_installation():
            return
        self.repeated = reservation.find_repeated(self.ctx, self.requested)
        if self.repeated is not None:
            self.locks.names[locking.Level.INSTANCE] = [self.repeated.name]
            self.locks.shared.add(locking.Level.INSTANCE)
            return
        op, snapshot = self.op, self.ctx.snapshot
        self.uuid = self.ctx.config.reserve_uuid(self.ctx.owner)
        self.choose_template()
        if op.iallocator and op.pnode:
            raise self.prereq(
                f"instance {self.name}: give either an allocator or a primary node"
            )
        is_mirrored = self.template in disk_constants.DTS_INT_MIRROR
        if op.snode and not op.pnode and is_mirrored:
            raise self.prereq(
                f"instance {self.name}: a secondary node needs a primary node beside it"
            )
        if op.snode and not is_mirrored:
            self.ctx.log.warn(
                f"template {self.template} has no secondary node; the given one is"
                " ignored"
            )
        self._refuse_existing()
        self.locks.add[locking.Level.INSTANCE] = [self.name]
        if self.ctx.resumption is not None:
            self.restore_plan()
            return
        if op.pnode:
            self.primary = lookup.expand_node(snapshot, op.pnode)
            if is_mirrored:
                self._find_secondary()
            self.lock_nodes()
            return
        self.allocators = allocation.names(
            snapshot,
            op.iallocator,
            f"instance {self.name}",
            iallocator.Allocate.type,
        )
        allocation.lock_all_nodes(
            self.locks, opportunistic=1 if op.opportunistic_locking else 0
        )

    def _find_secondary(self) -> None:
        if not self.op.snode:
            raise self.prereq(
                f"instance {self.name}: disk template {self.template} needs a secondary"
                " node beside the primary one (-n PRIMARY:SECONDARY), or an allocator"
            )
        self.secondary = lookup.expand_node(self.ctx.snapshot, self.op.snode)
        mirror_specs.check_nodes(
            self.ctx.snapshot, self.template, self.nodes, self.name
        )

    @property
    def requested(self) -> opcodes.InstanceCreate:
        """The request as a client sent it."""
        return self.op

    @property
    def nodes(self) -> list[str]:
        """The nodes of the instance, the primary one first."""
        return [self.primary, *([self.secondary] if self.secondary else ())]

    def lock_nodes(self) -> None:
        """Declare the locks of the nodes and of their resources."""
        self.locks.names[locking.Level.NODE] = self.nodes
        self.locks.names[locking.Level.NODE_RES] = self.nodes

    def choose_template(self) -> None:
        """Determine the disk template."""
        snapshot = self.ctx.snapshot
        enabled = snapshot.cluster.enabled_disk_templates
        self.template = self.op.disk_template or enabled[0]
        disk_specs.check_template(snapshot, self.template, self.name)

    def restore_plan(self) -> None:
        """Take over the plan of an interrupted wipe, with the locks that it held."""
        self.left = left = msgspec.convert(self.ctx.resumption, making.Interrupted)
        self.plan = making.CreationPlan(
            objects.from_dict(objects.Instance, left.instance),
            tuple(objects.from_dict(objects.Disk, disk) for disk in left.disks),
        )
        self.is_trusted = left.is_trusted
        self.primary = self.plan.instance.primary_node
        self.secondary = _other_node(self.plan.disks, self.primary)
        self.lock_nodes()
        self.locks.shared.add(locking.Level.NODE)

    def _refuse_existing(self) -> None:
        if self.ctx.snapshot.uuid_of("instances", self.name) is not None:
            raise self.prereq(
                f"instance {self.name}: already exists", ecodes.ECODE_EXISTS
            )

    def check_prereq(self) -> None:
        """Check everything and build the records."""
        if self.repeated is not None:
            self._take_over_repeated(self.repeated)
            return
        self._refuse_existing()
        self.warn_of_short_name("instances", self.name)
        snapshot, op = self.ctx.snapshot, self.op
        checks.hypervisor_enabled(snapshot, self._hypervisor, self.name)
        if not op.pnode:
            self._choose_node()
        node = self.check_nodes()
        self.check_address()
        volumes.check_exclusive(snapshot, self.primary, self.template, self.name)
        specs = disk_specs.parse_all(
            op.disks,
            self.template,
            self.name,
            exclusive=params.has_exclusive_storage(snapshot, self.primary),
        )
        instance = self._record(node)
        directory = disk_specs.directory(
            snapshot, self.template, self.name, op.file_storage_dir
        )
        made = disk_specs.records(
            self.ctx,
            self.template,
            specs,
            nodes=self.nodes,
            owner=self.uuid,
            files=disk_specs.FilePlace(directory, op.file_driver),
        )
        sources = tuple(spec.adopt for spec in specs if spec.adopt)
        if sources:
            made = volumes.adopted(self.ctx, self.primary, made, sources, self.name)
        self.plan = making.CreationPlan(
            instance.replace(disks=tuple(d.uuid for d in made)), made, sources
        )
        self.check_fit(node)

    def check_nodes(self) -> objects.Node:
        """Refuse nodes that cannot take the instance; return the primary one."""
        snapshot = self.ctx.snapshot
        node = checks.node_takes_instances(snapshot, self.primary, self.name)
        self.check_group(node)
        if self.secondary is not None:
            other = checks.node_takes_instances(snapshot, self.secondary, self.name)
            if other.group != node.group:
                self.ctx.log.warn(
                    f"nodes {node.name} and {other.name} are in different groups"
                )
        return node

    def check_group(self, node: objects.Node) -> None:
        """Refuse a node that is not in the requested group."""
        if self.op.group_name is None:
            return
        snapshot = self.ctx.snapshot
        group = lookup.expand_group(snapshot, self.op.group_name)
        if node.group != group:
            raise self.prereq(
                f"instance {self.name}: node {node.name} is not in"
                f" group {snapshot.nodegroups[group].name}"
            )

    def check_address(self) -> None:
        """Refuse an address that a machine has, if it is to be checked."""
        is_checked = self.op.ip_check and self.address
        if is_checked and self.ctx.address_answers(self.address or ""):
            raise self.prereq(
                f"instance {self.name}: its address {self.address} is in use, a"
                " machine answers there",
                ecodes.ECODE_NOTUNIQUE,
            )

    def _take_over_repeated(self, repeated: objects.Instance) -> None:
        """Take over the instance that an earlier request with the same key made."""
        instance = self.ctx.snapshot.instances.get(repeated.uuid)
        if instance is None:
            raise self.prereq(
                f"instance {repeated.name}: was removed while the job waited for locks",
                ecodes.ECODE_NOENT,
            )
        self.ctx.log.info(
            f"a request with the key {self.op.request_key} has already made instance"
            f" {instance.name}"
        )
        if instance.is_unfinished:
            self.ctx.log.warn(
                f"instance {instance.name}: its installation did not finish; reinstall"
                " it, or remove it and repeat the request"
            )
        self.uuid, self.primary = instance.uuid, instance.primary_node
        self.secondary = next(iter(self.ctx.snapshot.secondary_nodes(instance)), None)

    @property
    def _hypervisor(self) -> str:
        return self.op.hypervisor or self.ctx.snapshot.cluster.enabled_hypervisors[0]

    def _choose_node(self) -> None:
        snapshot = self.ctx.snapshot
        restrict_to = None
        if self.op.opportunistic_locking:
            held = self.ctx.locks.owned(locking.Level.NODE)
            restrict_to = sorted(snapshot.nodes[uuid].name for uuid in held)
        request = create_request.allocation_request(
            snapshot, self.op, self.name, self.template, restrict_to
        )
        names = allocation.ask(
            self.ctx,
            self.allocators,
            request,
            f"instance {self.name}",
            is_temporary=restrict_to is not None,
            explain=bool(self.op.dry_run),
        )
        self.primary, *others = (lookup.expand_node(snapshot, name) for name in names)
        self.secondary = others[0] if others else None
        allocation.keep_only(self.ctx, self.nodes)

    def require_os(self) -> None:
        """Refuse a request without an operating system, or an image over content."""
        op = self.op
        given = (op.osparams, op.osparams_private, op.osparams_secret)
        has_image = any(values and values.get(OS_IMAGE_PARAMETER) for values in given)
        if op.os_type is None and not op.no_install and not has_image:
            raise self.prereq(f"instance {self.name}: no operating system given")
        if has_image and not op.no_install and any(d.get("adopt") for d in op.disks):
            raise self.prereq(
                f"instance {self.name}: OS parameter {OS_IMAGE_PARAMETER}: an image"
                " would overwrite the adopted disks; leave it out, or do not install it"
                " (no_install)"
            )

    def _record(self, node: objects.Node) -> objects.Instance:
        snapshot, op = self.ctx.snapshot, self.op
        hypervisor = self._hypervisor
        self.require_os()
        checks.os_not_blacklisted(snapshot, op.os_type, self.name)
        nics = self._nics(node.group)
        now = self.ctx.clock.time()
        instance = objects.Instance(
            uuid=self.uuid,
            serial_no=1,
            ctime=now,
            mtime=now,
            name=self.name,
            primary_node=self.primary,
            os=op.os_type or "",
            hypervisor=hypervisor,
            hvparams=typed_params.merge(
                {}, typed_params.hypervisor(hypervisor, op.hvparams, allow_default=True)
            ),
            beparams=typed_params.merge(
                {}, typed_params.backend(op.beparams, allow_default=True)
            ),
            osparams={k: str(v) for k, v in op.osparams.items()},
            osparams_private=dict(op.osparams_private or {}),
            admin_state="down",
            admin_state_source="admin",
            nics=nics,
            disks_active=False,
            tags=tuple(sorted(set(op.tags))),
            request=reservation.request_of(self.requested),
        )
        if op.conflicts_check:
            nic_specs.take_addresses(self.ctx, instance, group=node.group)
        return self._without_defaults(instance) if op.identify_defaults else instance

    def _nics(self, group: str) -> tuple[objects.Nic, ...]:
        what = f"instance {self.name}: nic"
        nics = tuple(
            nic_specs.build(
                self.ctx,
                spec,
                group=group,
                what=f"{what} {index}",
                auto_ip=self.address,
            )
            for index, spec in enumerate(self.op.nics)
        )
        nic_specs.check_all(nics, self.name)
        return nics

    def _without_defaults(self, instance: objects.Instance) -> objects.Instance:
        snapshot = self.ctx.snapshot
        bare = instance.replace(hvparams={}, beparams={}, osparams={})
        hv = params.fill_hvparams(snapshot, bare)
        be = params.fill_beparams(snapshot, bare)
        os_params = params.fill_osparams(snapshot, bare)
        return instance.replace(
            hvparams={k: v for k, v in instance.hvparams.items() if hv.get(k) != v},
            beparams={k: v for k, v in instance.beparams.items() if be.get(k) != v},
            osparams={
                k: v for k, v in instance.osparams.items() if os_params.get(k) != v
            },
        )

    def check_policy(self, node: objects.Node) -> None:
        """Refuse sizes that the policy of the node's group does not allow."""
        snapshot, instance = self.ctx.snapshot, self.plan.instance
        backend = params.fill_beparams(snapshot, instance)
        typed_params.check_memory_order(backend, f"instance {self.name}")
        if not self.op.ignore_ipolicy:
            problems = checks.policy_problems(
                snapshot,
                node.group,
                backend=backend,
                nic_count=len(instance.nics),
                disk_sizes=[disk.size for disk in self.plan.disks],
                template=self.template,
            )
            checks.require_policy(problems, snapshot, node.group, self.name)

    def check_fit(self, node: objects.Node) -> None:
        """Have the policy, the node and its resources checked."""
        shared_storage.check(
            self.ctx, self.plan.instance, self.plan.disks, self.primary
        )
        snapshot, instance = self.ctx.snapshot, self.plan.instance
        cloud_init.check_instance(snapshot, instance)
        self.check_policy(node)
        filled = params.fill_hvparams(snapshot, instance)
        checks.validate_hypervisor(
            self.ctx, [self.primary], instance.hypervisor, filled
        )
        combinations.check(
            self.ctx, None, instance, [self.primary], len(self.plan.disks)
        )
        if instance.os or self.runs_installer:
            if not (instance.os or self.plan.disks):
                raise self.prereq(
                    f"instance {self.name}: OS parameter {OS_IMAGE_PARAMETER}: an image"
                    " needs a disk, and the instance has none",
                    ecodes.ECODE_INVAL,
                )
            self.is_trusted = checks.validate_os(
                self.ctx,
                [self.primary],
                instance.os,
                self.os_parameters(instance),
                force_variant=self.op.force_variant,
                is_install=self.runs_installer,
            )
        if not self.is_trusted:
            helper_install.check(self.ctx, self.name, instance.os, instance.hypervisor)
        nic_specs.check_bridges(self.ctx, instance.nics, self.primary, self.name)
        self.check_resources()

    def check_resources(self) -> None:
        """Refuse if its memory or its disks do not fit, reservations considered."""
        if self.takes_memory:
            self.require_memory(self.plan.instance)
        self.check_space()

    def check_space(self) -> None:
        """Refuse disks that do not fit beside those that are reserved."""
        if self.plan.adopted:
            return
        volumes.require_space(self.ctx, self.nodes, self.plan.disks, self.name)
        size_mib = sum(disk.size for disk in self.plan.disks)
        capacity.require_space(
            self.ctx, self.primary, self.name, self.template, size_mib
        )

    @property
    def takes_memory(self) -> bool:
        """Whether it needs memory of the node, for its guest or a helper machine."""
        return self._starts or not self.is_trusted

    def hooks_env(self) -> dict[str, Any]:
        """Return the variables of the new instance and of its creation."""
        if self.repeated is not None:
            return {}
        return {"ADD_MODE": self.op.mode} | hook_env.instance_env(
            self.ctx.snapshot,
            self.plan.instance,
            status=self._starts,
            disks=self.plan.disks,
            is_new=True,
        )

    def hooks_nodes(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return the master and the new primary node; none for a repeated request."""
        if self.repeated is not None:
            return [], []
        nodes = list(
            dict.fromkeys([self.ctx.snapshot.cluster.master_node, *self.nodes])
        )
        return nodes, nodes

    def dry_run_result(self) -> list[str]:
        """Return the chosen nodes."""
        return [self.ctx.snapshot.nodes[uuid].name for uuid in self.nodes]


def _other_node(made: Sequence[objects.Disk], primary: str) -> str | None:
    """Return the node of mirrored disks that is not the primary one."""
    nodes = (n for disk in made if mirror_specs.is_mirror(disk) for n in disk.nodes)
    return next((node for node in nodes if node != primary), None)
