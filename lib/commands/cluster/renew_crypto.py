"""``renew-crypto``: replace certificates, keys and secrets of the whole cluster."""

from typing import TYPE_CHECKING, Any, Final

from ganeti.base import errors
from ganeti.base.constants import exitcodes
from ganeti.base.errors import refusal
from ganeti.commands.cli import local, prompts
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import jobs, plans

if TYPE_CHECKING:
    from ganeti.base.pathutils import Paths
    from ganeti.bootstrap import renew_crypto

_LOST_QUESTION: Final = (
    "All daemons on all nodes are restarted with certificates that the present master"
    " does not get. It has to be off, and is to be added again later. Continue?"
)
_GIVEN_UP_QUESTION: Final = (
    "Changes and jobs that only {names} can have are lost, also acknowledged ones."
    " These nodes are marked offline. "
)
_QUESTION: Final = (
    "This requires all daemons on all nodes to be restarted and may take some time."
    " Continue?"
)
_ONLINE_QUESTION: Final = "All daemons and jobs go on during this. Continue?"
_NEXT: Final = (
    "The nodes that answered have new certificates; run 'gnt-cluster master-failover'"
    " now."
)
_NOTICE: Final = (
    "Updating certificates and keys. The daemons of all nodes are stopped until the"
    " end; after an interruption, run the same command again."
)
#: Options that generate new content and options that supply it exclude each other.
_EITHER: Final = (
    (
        "RAPI certificate",
        ("new_rapi_cert", "--new-rapi-certificate"),
        (("rapi_cert", "--rapi-certificate"),),
    ),
    (
        "cluster domain secret",
        ("new_cluster_domain_secret", "--new-cluster-domain-secret"),
        (("cluster_domain_secret", "--cluster-domain-secret"),),
    ),
    (
        "SPICE certificate",
        ("new_spice_cert", "--new-spice-certificate"),
        (
            ("spice_cert", "--spice-certificate"),
            ("spice_cacert", "--spice-ca-certificate"),
        ),
    ),
)


def run(ctx: CommandContext) -> int:
    """Replace the requested items: first files, then by a job all others."""
    opts = ctx.opts
    if not opts.without_master:
        local.check_is_master(ctx.paths)
    _check(opts)
    contents = _contents(opts, ctx.paths)
    if opts.without_master:
        _check_without_master(ctx, contents)
    restarts = _restarts(ctx)
    has_files = bool(contents) or restarts
    has_job = not opts.without_master and any(
        (
            opts.new_cluster_cert,
            opts.new_node_cert,
            opts.new_ssh_keys,
            opts.new_ssh_host_keys,
        )
    )
    if not has_files and not has_job:
        raise refusal(
            "nothing to renew: name at least one certificate, key or secret; see"
            " gnt-cluster renew-crypto --help"
        )
    if plans.wanted(ctx):
        return plans.show(ctx, [], before=_plan(ctx, contents, restarts, has_job))
    if not opts.force and not prompts.confirm(ctx, _question(opts, has_files)):
        return exitcodes.EXIT_FAILURE
    troubles = _replace_files(ctx, contents, restarts) if has_files else []
    if has_job:
        jobs.run(ctx, jobs.op("OP_CLUSTER_RENEW_CRYPTO", **_parameters(opts, restarts)))
    for line in troubles:
        ctx.err(f"Warning: {line}")
    if troubles:
        ctx.err(
            "These nodes do not have the new files: mark them offline and add them"
            " again with gnt-node add --readd, or run the same command again."
        )
        if not opts.without_master:
            return exitcodes.EXIT_FAILURE
    if opts.without_master:
        ctx.out(_NEXT)
        return exitcodes.EXIT_FAILURE if troubles else exitcodes.EXIT_SUCCESS
    ctx.out("All requested certificates and keys have been replaced.")
    return exitcodes.EXIT_SUCCESS


def _question(opts: Any, has_files: bool) -> str:
    if not opts.without_master:
        return _QUESTION if has_files else _ONLINE_QUESTION
    names = ", ".join(_lost(opts))
    return (_GIVEN_UP_QUESTION.format(names=names) if names else "") + _LOST_QUESTION


def _check_without_master(ctx: CommandContext, contents: dict[str, bytes]) -> None:
    """Refuse what needs a master.

    Raises:
        OpPrereqError: this is the master, or other things are to be replaced.
    """
    opts = ctx.opts
    others = opts.new_node_cert or opts.new_ssh_keys or opts.new_ssh_host_keys
    if local.master_node(ctx.paths) == ctx.paths.hostname:
        text = f"{ctx.paths.hostname} is the master; leave the option out"
    elif not opts.new_cluster_cert or contents or others:
        text = "wanted --new-cluster-certificate, and nothing else to be replaced"
    else:
        return
    raise refusal(f"--without-master: {text}")


def _plan(
    ctx: CommandContext,
    contents: dict[str, bytes],
    restarts: bool,
    has_job: bool,
) -> list[str]:
    from ganeti.bootstrap import renew_crypto

    steps = []
    if contents or restarts:
        options = _options(ctx, contents, restarts)
        steps = renew_crypto.steps(ctx.paths, options)
    if has_job:
        parameters = _parameters(ctx.opts, restarts)
        operation = jobs.op("OP_CLUSTER_RENEW_CRYPTO", **parameters)
        steps.append(plans.job(operation))
    return steps


def _options(
    ctx: CommandContext, contents: dict[str, bytes], restarts: bool
) -> "renew_crypto.RenewOptions":
    from ganeti.bootstrap import renew_crypto

    return renew_crypto.RenewOptions(
        cluster_certificate=restarts,
        contents=contents,
        check_host_keys=bool(ctx.opts.ssh_key_check),
        without_master=bool(ctx.opts.without_master),
        given_up=_lost(ctx.opts),
    )


def _lost(opts: Any) -> tuple[str, ...]:
    """Return the names of the master candidates that are given up."""
    return tuple(filter(None, map(str.strip, (opts.lost_candidates or "").split(","))))


def _restarts(ctx: CommandContext) -> bool:
    """Return whether a new cluster certificate needs a restart of all daemons."""
    from ganeti.bootstrap import renew_crypto

    if ctx.opts.without_master:
        return True  # also when it is repeated, after this node has got its own
    return bool(ctx.opts.new_cluster_cert) and renew_crypto.needs_restart(ctx.paths)


def _parameters(opts: Any, restarts: bool) -> dict[str, Any]:
    return {
        "cluster_certificate": bool(opts.new_cluster_cert) and not restarts,
        "node_certificates": bool(opts.new_cluster_cert or opts.new_node_cert),
        "renew_ssh_keys": bool(opts.new_ssh_keys),
        # Servers of earlier releases do not know it.
        **({"ssh_host_keys": True} if opts.new_ssh_host_keys else {}),
        "ssh_key_type": opts.ssh_key_type,
        "ssh_key_bits": opts.ssh_key_bits,
        "verbose": bool(opts.verbose),
    }


def _check(opts: Any) -> None:
    """Refuse options that contradict each other."""
    for what, (new, new_word), given in _EITHER:
        for dest, word in given:
            if getattr(opts, new) and getattr(opts, dest):
                raise refusal(f"{what}: only one of {new_word} and {word} can be used")
    if opts.lost_candidates is not None and not (opts.without_master and _lost(opts)):
        raise refusal(
            "--lost-candidates: wanted names of nodes, together with --without-master"
        )
    if bool(opts.spice_cert) != bool(opts.spice_cacert):
        raise refusal(
            "SPICE certificate: --spice-certificate and --spice-ca-certificate must be"
            " given together"
        )
    if (opts.ssh_key_type or opts.ssh_key_bits) and not opts.new_ssh_keys:
        raise refusal("--ssh-key-type and --ssh-key-bits need --new-ssh-keys")


def _cluster_name(paths: "Paths") -> str:
    from ganeti.base.tls import x509
    from ganeti.protocols import ssconf

    try:
        return ssconf.SimpleStore(paths).cluster_name()
    except (errors.GenericError, OSError):
        return x509.CLUSTER_NAME


def _contents(opts: Any, paths: "Paths") -> dict[str, bytes]:
    """Return file name in the state directory -> new content."""
    from ganeti.base.tls import x509
    from ganeti.bootstrap import crypto, renew_crypto

    contents: dict[str, bytes] = {}
    if opts.new_rapi_cert:
        contents[crypto.RAPI_PEM] = x509.create_service(_cluster_name(paths)).pem
    elif opts.rapi_cert:
        contents[crypto.RAPI_PEM] = renew_crypto.read_pem(opts.rapi_cert)
    if opts.new_spice_cert:
        pair = x509.create_service(_cluster_name(paths))
        contents[crypto.SPICE_PEM] = pair.pem
        contents[crypto.SPICE_CA_PEM] = pair.certificate_pem
    elif opts.spice_cert:
        contents[crypto.SPICE_PEM] = renew_crypto.read_pem(opts.spice_cert)
        contents[crypto.SPICE_CA_PEM] = renew_crypto.read_pem(
            opts.spice_cacert, with_key=False
        )
    if opts.new_confd_hmac_key:
        contents[crypto.HMAC_KEY] = x509.new_secret().encode()
    if opts.new_cluster_domain_secret:
        contents[crypto.DOMAIN_SECRET_FILE] = x509.new_secret().encode()
    elif opts.cluster_domain_secret:
        contents[crypto.DOMAIN_SECRET_FILE] = renew_crypto.read_secret(
            opts.cluster_domain_secret
        )
    return contents


def _replace_files(
    ctx: CommandContext, contents: dict[str, bytes], restarts: bool
) -> list[str]:
    from ganeti.base import clock, process
    from ganeti.bootstrap import renew_crypto

    ctx.out(_NOTICE)
    return renew_crypto.renew(
        ctx.paths,
        process.SystemRunner(),
        clock.SystemClock(),
        _options(ctx, contents, restarts),
        feedback=ctx.out,
    )
