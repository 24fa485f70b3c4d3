"""Programs of a node that stop at a chosen call, so that something is done just then."""

_PLACE = "/run/lab-held"
#: A shell pattern is put in for the name and the arguments of the call that stops.
_WRAPPER = """#!/bin/bash
place={place}
case "${{0##*/}} $*" in
{pattern}) is_chosen=1 ;;
esac
stop() {{
  touch $place/reached
  until [ -e $place/go ]; do sleep 0.1; done
}}
[ -z "$is_chosen" ] || [ -n "{after}" ] || stop
(exec -a "$0" $place/program "$@")
code=$?
[ -z "$is_chosen" ] || [ -z "{after}" ] || stop
[ -z "$is_chosen" ] || touch $place/ended
exit $code
"""


class Held:
    """One program of a node, from the first call that fits a pattern until `release`.

    Args:
        machines: the machines.
        node: name of the machine.
        program: name of the file.
        pattern: of the shell, for the name that was called and its arguments.
        after: stop the call when it has done its work, not before.
    """

    def __init__(self, machines, node, program, pattern, *, after=False):
        self._machines = machines
        self._node = node
        words = pattern.replace(" ", "\\ ")
        text = _WRAPPER.format(
            place=_PLACE, pattern=words, after="yes" if after else ""
        )
        self._path = self._shell(f"readlink -f $(command -v {program})").strip()
        self._shell(
            f"rm -rf {_PLACE}; mkdir {_PLACE}; cp {self._path} {_PLACE}/program"
        )
        self._shell(f"cat > {_PLACE}/wrapper; chmod 755 {_PLACE}/wrapper", stdin=text)
        self._shell(f"mount --bind {_PLACE}/wrapper {self._path}")

    def _shell(self, script, **more):
        return self._machines.check("bash", "-c", script, node=self._node, **more)

    def _wait_for(self, name):
        wait = f"until [ -e {_PLACE}/{name} ]; do sleep 0.1; done"
        self._shell(f"timeout 300 bash -c '{wait}'")

    def wait_until_reached(self):
        """Wait until a call has stopped."""
        self._wait_for("reached")

    def release(self):
        """Let the call go on; wait until it has ended. Later ones do not stop."""
        self._shell(f"touch {_PLACE}/go")
        self._wait_for("ended")
        # The call that ends still reads the file.
        self._shell(f"umount -l {self._path}")
