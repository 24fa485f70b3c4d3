"""Commands load no more than they need before they do something: starts stay fast."""

import json
import os
import subprocess
import sys

#: Prints the modules of HEAVY that each program's commands load, in processes of their own.
PROGRAM = """
import importlib, json, os, pkgutil, sys
import ganeti.commands
import ganeti.commands.cli.app

heavy = sys.argv[1].split(",")
loaded = {}
for package in pkgutil.iter_modules(ganeti.commands.__path__):
    if package.name in ("cli", "htools") or not package.ispkg:
        continue
    table = importlib.import_module(f"ganeti.commands.{package.name}.table")
    assert not set(heavy) & set(sys.modules), (package.name, set(heavy) & set(sys.modules))
    for place in sorted({command.run.split(":")[0] for command in table.PROGRAM.commands}):
        reading, writing = os.pipe()
        if os.fork() == 0:
            importlib.import_module(f"ganeti.{place}")
            found = [name for name in heavy if name in sys.modules]
            os.write(writing, json.dumps(found).encode())
            os._exit(0)
        os.close(writing)
        with open(reading, "rb") as stream:
            loaded[place] = json.loads(stream.read())
print(json.dumps(loaded))
"""

#: Modules of several milliseconds each, most of what a command may take to start.
HEAVY = (
    *("OpenSSL", "asyncio", "bitarray", "cheroot", "logging", "msgspec", "numpy"),
    *("paramiko", "pathlib", "pycurl", "simplejson", "ssl", "urllib.parse"),
)
#: Module of commands -> what its commands cannot do without.
NEEDED = {
    # Records of parameters, policies, incidents and power.
    "commands.cli.ipolicy": ["msgspec"],
    "commands.cluster.automation": ["msgspec"],
    "commands.cluster.power.epo": ["msgspec"],
    "commands.cluster.info": ["msgspec"],
    "commands.cluster.init": ["msgspec"],
    "commands.cluster.modify": ["msgspec"],
    "commands.group.commands": ["msgspec"],
    "commands.node.mirrors": ["msgspec"],
    # Users of the remote API, whose file the daemon's own code reads.
    "commands.rapi_token.tokens": ["msgspec", "urllib.parse"],
}


def test_commands_load_nothing_heavy_before_they_run():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, ",".join(HEAVY)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        check=True,
    )
    loaded = json.loads(done.stdout)
    assert len(loaded) > len(NEEDED)
    assert {place: names for place, names in loaded.items() if names} == NEEDED
