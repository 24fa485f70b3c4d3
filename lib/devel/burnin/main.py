"""Main function of ``burnin``."""

import sys
from collections.abc import Sequence

from ganeti.base import errors
from ganeti.base.constants import exitcodes
from ganeti.commands.cli.context import ClientEffects, CommandContext, real_effects
from ganeti.commands.cli.model import Command, Program
from ganeti.commands.cli.output import error_text
from ganeti.devel.burnin import probes, rounds, settings

_COMMAND = Command(settings.NAME, "try the operations of a cluster")
_PROGRAM = Program(settings.NAME, "Burn-in of a cluster", (_COMMAND,))


def main(
    argv: Sequence[str] | None = None, *, effects: ClientEffects | None = None
) -> int:
    """Run the tool; return the exit code."""
    parser = settings.build_parser()
    options = parser.parse_args(argv)
    wanted = settings.parse(parser, options)
    effects = real_effects() if effects is None else effects
    ctx = CommandContext(_PROGRAM, _COMMAND, settings.NAME, effects=effects)
    ctx.opts.reason, ctx.opts.debug = options.reason, options.debug
    burn_in = rounds.BurnIn(
        ctx,
        wanted,
        ask_guest=probes.ask_guest,
        ask_confd=lambda master, primaries: probes.ask_confd(
            probes.client_of(ctx.paths), master, primaries
        ),
        is_verbose=options.verbose,
    )
    try:
        burn_in.run()
    except KeyboardInterrupt:
        ctx.err(f"{settings.NAME}: ended by the user; a job that runs goes on")
        return exitcodes.EXIT_FAILURE
    except (rounds.BurnInError, probes.ProbeError, OSError) as err:
        ctx.err(f"{settings.NAME}: {err}")
        return exitcodes.EXIT_FAILURE
    except errors.GenericError as err:
        ctx.err(f"{settings.NAME}: {error_text.describe(err)[0]}")
        return exitcodes.EXIT_FAILURE
    ctx.out("- All steps passed")
    return exitcodes.EXIT_SUCCESS


if __name__ == "__main__":
    sys.exit(main())
