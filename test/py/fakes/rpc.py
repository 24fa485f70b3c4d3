"""Nodes that answer what a test says."""

import dataclasses

import msgspec

from ganeti.model.objects import params
from ganeti.operations.mcpu import simulated_nodes
from ganeti.protocols.rpc import PROCEDURES, Result, Runner, wire
from ganeti.protocols.rpc.procedure import OFFLINE_TEXT

#: Answers of a node on which these acts succeed; part of a script.
SUCCESSFUL_ACTS = {
    **dict.fromkeys(
        (
            "accept_instance",
            "blockdev_grow",
            "blockdev_remove",
            "blockdev_shutdown",
            "bridges_exist",
            "file_storage_dir_create",
            "file_storage_dir_remove",
            "file_storage_dir_rename",
            "hotplug_device",
            "hotplug_supported",
            "hypervisor_validate_params",
            "impexp_cleanup",
            "instance_finalize_migration_dst",
            "instance_finalize_migration_src",
            "instance_migratable",
            "instance_migrate",
            "instance_os_add",
            "instance_reboot",
            "instance_run_rename",
            "instance_shutdown",
            "instance_start",
            "node_activate_master_ip",
            "node_change_master_netmask",
            "node_deactivate_master_ip",
            "node_demote_from_mc",
            "node_leave_cluster",
            "resize_disk",
            "storage_execute",
            "storage_modify",
            "test_delay",
            "upload_file",
            "write_ssconf_files",
            "x509_cert_remove",
        )
    ),
    "blockdev_create": [],
    "os_validate": True,
}


def reads(state):
    """Return the part of a script that answers reads from a `NodeState`."""

    def reader(procedure):
        return lambda node, args: simulated_nodes.read(state, procedure, node, args)

    return {name: reader(name) for name in simulated_nodes.READS - set(_USUAL)}


#: Answers that most nodes give: those that are marked offline run nothing.
_USUAL = {"instance_left": {}}


class Unscripted(AssertionError):
    """A test calls a procedure, named by the argument, that its script lacks."""


class FakeRunner(Runner):
    """A runner scripted per procedure.

    ``script[procedure]`` is the payload of every node, or a function of (node uuid,
    args) that returns the payload or a `Result`. A call of a procedure that is not
    scripted fails the test. An answer that the real runner would refuse, because it has not the
    shape of the procedure, fails the test. ``calls`` records (procedure, node uuid,
    args) in order, ``limits`` the time limits that were passed by procedure.
    """

    def __init__(self, snapshot_source, script=None):
        self._snapshot = snapshot_source
        self.script = dict(script or {})
        self.calls = []
        self.limits = {}

    def close(self):
        """End; there is nothing to end."""

    def call(self, procedure, nodes, args=(), *, timeout_s=None):
        self.limits.setdefault(procedure, set()).add(timeout_s)
        return {node: self._ask(procedure, node, args) for node in nodes}

    def _ask(self, procedure, node, args):
        row = PROCEDURES[procedure]
        args = args(node) if callable(args) else args
        args = tuple(wire.resolve(value, node) for value in args)
        snapshot = self._snapshot()
        record = snapshot.nodes.get(node)
        name = record.name if record else node
        is_silent = record is not None and params.is_silent(snapshot, record)
        if is_silent and not row.accept_offline:
            return Result(procedure, name, fail_msg=OFFLINE_TEXT, offline=True)
        self.calls.append((procedure, node, args))
        assert row.private or not any(map(has_private, args)), procedure
        assert row.starts or not any(map(has_seed, args)), procedure
        if procedure not in self.script and procedure not in _USUAL:
            raise Unscripted(procedure)
        answer = self.script.get(procedure, _USUAL.get(procedure))
        if callable(answer):
            answer = answer(node, args)
        if isinstance(answer, Result):
            return dataclasses.replace(answer, call=procedure, node=name)
        check_shape(procedure, answer)
        return Result(procedure, name, answer)

    def called(self, procedure):
        """Return the (node uuid, args) of the calls of one procedure."""
        return [(node, args) for name, node, args in self.calls if name == procedure]


def check_shape(procedure, payload):
    """Fail unless a payload, as JSON, has the shape of its procedure."""
    plain = msgspec.json.decode(msgspec.json.encode(payload))
    answer = PROCEDURES[procedure].read(Result(procedure, "node", plain))
    assert not answer.failed, f"answer of {procedure}: {answer.fail_msg}"


def has_private(value):
    """Return whether an argument has private OS parameters."""
    if isinstance(value, dict):
        own = value.get("osparams_private") or value.get("osparams_secret")
        return bool(own) or any(map(has_private, value.values()))
    return isinstance(value, (list, tuple)) and any(map(has_private, value))


def has_seed(value):
    """Return whether an argument has the files of a cloud-init seed."""
    if isinstance(value, dict):
        return bool(value.get("cloud_init")) or any(map(has_seed, value.values()))
    return isinstance(value, (list, tuple)) and any(map(has_seed, value))


def failure(text="broken", procedure="any", node="node", **more):
    """Return an answer that says no."""
    return Result(procedure, node, fail_msg=text, **more)


#: Answers of a node on which every call fails; a base of scripts of random calls.
FAILING_NODE = {name: failure("no answer") for name in PROCEDURES}
