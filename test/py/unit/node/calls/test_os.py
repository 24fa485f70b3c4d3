"""OS definitions: what is found valid, and what their scripts get to see."""

import concurrent.futures
import contextlib
import errno
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import tracemalloc

import pytest

from fakes import nodes
from ganeti.base import errors, pathutils
from ganeti.node import storage
from ganeti.node.calls import os_definitions

DUMP = """#!/bin/sh
echo "cwd $(pwd)"
env | sort
echo "args $*"
exit ${OSP_FAIL:-0}
"""


@pytest.fixture
def node(tmp_path):
    return nodes.make_node(tmp_path)


@pytest.fixture
def directory(node):
    return make_os(node)


def make_os(node, name="tiny"):
    path = f"{node.paths.os_search_path[0]}/{name}"
    os.makedirs(path)
    for script in ("create", "export", "import", "rename", "verify"):
        with open(f"{path}/{script}", "w") as out:
            out.write(DUMP)
        os.chmod(f"{path}/{script}", 0o755)
    for file, text in (
        ("ganeti_api_version", "15\n20\n99\n"),
        ("variants.list", "# all\ndefault\n\nsmall\n"),
        ("parameters.list", "motd text at login\nfail exit code\nsecret-key hidden\n"),
    ):
        with open(f"{path}/{file}", "w") as out:
            out.write(text)
    return path


def directory_instead(name):
    """Return a change of a definition: a directory in place of a file."""

    def change(path):
        os.unlink(f"{path}/{name}")
        os.mkdir(f"{path}/{name}")

    return change


def written(name, data):
    """Return a change of a definition: another content of a file."""
    return lambda path: pathlib.Path(path, name).write_bytes(data)


def test_valid_definition(node, directory):
    parameters = [["motd", "text at login"], ["fail", "exit code"]]
    parameters.append(["secret-key", "hidden"])
    assert nodes.call(node, "os_diagnose") == [
        ["tiny", directory, True, "", ["default", "small"], parameters, [15, 20], True]
    ]


@pytest.mark.parametrize(
    ("break_it", "text"),
    [
        (lambda path: os.unlink(f"{path}/ganeti_api_version"), "ganeti_api_version"),
        (lambda path: os.unlink(f"{path}/create"), "create or create_untrusted"),
        (lambda path: os.unlink(f"{path}/verify"), "script verify"),
        (lambda path: os.unlink(f"{path}/parameters.list"), "parameters.list"),
        (lambda path: os.chmod(f"{path}/rename", 0o644), "rename: not executable"),
        (directory_instead("verify"), "script verify: wanted a regular file"),
        (directory_instead("variants.list"), "variants.list: wanted a regular file"),
        (written("ganeti_api_version", b"20\nnew\n"), "wanted one number per line"),
        (written("variants.list", b"\xff\n"), "variants.list: cannot be read"),
    ],
)
def test_broken_definitions_say_why(node, directory, break_it, text):
    break_it(directory)
    [row] = nodes.call(node, "os_diagnose")
    assert (row[0], row[2]) == ("tiny", False)
    assert text in row[3]
    with pytest.raises(errors.OpExecError, match="OS tiny"):
        nodes.call(node, "instance_os_add", nodes.instance(), False, 0)


def test_unknown_api_versions(node, directory):
    with open(f"{directory}/ganeti_api_version", "w") as out:
        out.write("99\n")
    assert "found [99]" in nodes.call(node, "os_diagnose")[0][3]


def test_untrusted_definitions_are_marked_and_not_run(node, directory):
    os.rename(f"{directory}/create", f"{directory}/create_untrusted")
    assert nodes.call(node, "os_diagnose")[0][-1] is False
    with pytest.raises(errors.OpExecError, match="found create_untrusted"):
        nodes.call(node, "instance_os_add", nodes.instance(), False, 0)
    both = ["parameters", "install"]
    assert validate(node, "tiny+small", {"motd": "x"}) is True
    assert validate(node, "tiny+small", {"motd": "x"}, checks=both) is False
    with pytest.raises(errors.OpExecError, match="unknown parameters other"):
        validate(node, "tiny+small", {"other": "x"}, checks=both)
    # With both scripts the trusted one wins.
    shutil.copy(f"{directory}/create_untrusted", f"{directory}/create")
    assert validate(node, "tiny+small", {"motd": "x"}, checks=both) is True
    assert nodes.call(node, "os_diagnose")[0][-1] is True


def read_log(node, action):
    [name] = [
        name
        for name in os.listdir(f"{node.paths.log_dir}/os")
        if name.startswith(action)
    ]
    with open(f"{node.paths.log_dir}/os/{name}") as src:
        return name, src.read().splitlines()


def test_create_sees_the_documented_environment_and_nothing_else(
    node, directory, monkeypatch
):
    monkeypatch.setenv("LEAK", "1")
    nic = {"mac": "aa:00:00:00:00:01", "uuid": "nic-uuid", "ip": "192.0.2.5"}
    nic["nicparams"] = {"mode": "bridged", "link": "br0", "vlan": ""}
    nic["netinfo"] = {"name": "net1", "uuid": "u", "network": "192.0.2.0/24"}
    record = nodes.instance(
        disks=1,
        nics=[nic],
        hvparams={"disk_type": "paravirtual", "acpi": True},
        osparams={"motd": "hi"},
        osparams_private={"secret-key": "s3cret"},
    )
    nodes.make_disks(node, record)
    nodes.call(node, "instance_os_add", record, True, 2)
    name, lines = read_log(node, "reinstall")
    assert name.startswith("reinstall-tiny+default-web1-")
    env = dict(line.split("=", 1) for line in lines if "=" in line)
    assert lines[0] == f"cwd {directory}"
    expected = {
        "OS_API_VERSION": "20",
        "OS_NAME": "tiny",
        "OS_VARIANT": "default",
        "DEBUG_LEVEL": "2",
        "OSP_MOTD": "hi",
        "OSP_SECRET_KEY": "s3cret",
        "INSTANCE_NAME": "web1",
        "INSTANCE_HYPERVISOR": record["hypervisor"],
        "INSTANCE_REINSTALL": "1",
        "INSTANCE_HV_acpi": "True",
        "INSTANCE_BE_maxmem": "128",
        "DISK_COUNT": "1",
        "DISK_0_PATH": node.paths.at(record["disks_info"][0]["logical_id"][1]),
        "DISK_0_SIZE": "4",
        "DISK_0_ACCESS": "rw",
        "DISK_0_BACKEND_TYPE": "file:loop",
        "DISK_0_FRONTEND_TYPE": "paravirtual",
        "NIC_COUNT": "1",
        "NIC_0_BRIDGE": "br0",
        "NIC_0_IP": "192.0.2.5",
        "NIC_0_NETWORK_SUBNET": "192.0.2.0/24",
    }
    assert expected.items() <= env.items()
    assert "LEAK" not in env
    # Variables without a value are not set at all.
    assert not {"DISK_0_NAME", "DISK_0_URI", "NIC_0_NAME"} & env.keys()


#: Takes the lock of an instance as a script that outlives its node daemon does.
OUTLIVES = """
import fcntl, os, sys
os.makedirs(os.path.dirname(sys.argv[1]), exist_ok=True)
lock = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(lock, fcntl.LOCK_EX)
print("ready", flush=True)
sys.stdin.read()
"""


def acts(node, record):
    """Return what writes to the disks of a stopped instance."""
    return [
        lambda: nodes.call(node, "instance_os_add", record, True, 0),
        lambda: nodes.call(node, "instance_run_rename", record, "web0", 0),
        lambda: nodes.call(node, "helper_start", record, False, []),
    ]


def test_a_second_script_does_not_run_beside_the_first(node, directory):
    """A repeated reinstallation, whose first master daemon has ended."""
    pipe = f"{directory}/pipe"
    os.mkfifo(pipe)
    # Only the first one waits.
    script = f"#!/bin/sh\nmkdir {directory}/begun || exit 0\nread x < {pipe}\n"
    pathlib.Path(directory, "create").write_text(script)
    record = nodes.instance(disks=1)
    nodes.make_disks(node, record)
    os.makedirs(f"{node.paths.data_dir}/helper-disks")
    pathlib.Path(node.paths.data_dir, "helper-disks", "web1.raw").touch()
    first, *_others = acts(node, record)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(first)
        with open(pipe, "w") as release:  # it runs
            for act in acts(node, record):
                with pytest.raises(errors.OpExecError, match=r"script of its .* still"):
                    act()
            other = nodes.instance("web2", uuid="u2")
            nodes.call(node, "instance_run_rename", other, "web0", 0)
            release.write("x\n")
        running.result()


def test_a_script_that_outlives_its_daemon_is_not_doubled(node, directory):
    record = nodes.instance()
    lock = f"{node.paths.run_dir}/os-scripts/{record['uuid']}"
    with subprocess.Popen(
        [sys.executable, "-c", OUTLIVES, lock],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout.readline() == "ready\n"
        with pytest.raises(errors.OpExecError, match=f"which fuser {lock} names"):
            nodes.call(node, "instance_os_add", record, True, 0)
    nodes.call(node, "instance_os_add", record, True, 0)
    assert os.listdir(os.path.dirname(lock)) == []


def test_a_lock_on_a_full_disk_is_named(node, directory, monkeypatch):
    real = os.open

    def full(path, flags, *args, **more):
        if "/os-scripts/" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path, flags, *args, **more)

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(errors.OpExecError, match=r"web1: no script .*: No space left"):
        nodes.call(node, "instance_os_add", nodes.instance(), True, 0)


def test_processes_that_a_script_leaves_do_not_count(node, directory):
    script = pathlib.Path(directory, "create")
    script.write_text(
        "#!/bin/sh\n(read x < /dev/zero) > /dev/null 2>&1 &\n"
        f"echo $! > {directory}/left\n"
    )
    nodes.call(node, "instance_os_add", nodes.instance(), True, 0)
    left = int(pathlib.Path(directory, "left").read_text())
    try:
        nodes.call(node, "instance_run_rename", nodes.instance(), "web0", 0)
    finally:
        os.kill(left, signal.SIGKILL)


def test_failure_shows_the_end_of_the_log(node, directory):
    record = nodes.instance(osparams={"fail": "7"})
    with pytest.raises(errors.OpExecError, match=r"code 7, last lines .*args"):
        nodes.call(node, "instance_os_add", record, False, 0)


@pytest.mark.parametrize("output", ["", "\n  \n"])
def test_a_failure_without_output_says_so(node, directory, output):
    script = pathlib.Path(directory, "create")
    script.write_text(f"#!/bin/sh\nprintf '{output}'\nexit 7\n")
    with pytest.raises(errors.OpExecError) as caught:
        nodes.call(node, "instance_os_add", nodes.instance(), False, 0)
    name, _lines = read_log(node, "add")
    log = f"{node.paths.log_dir}/os/{name}"
    assert str(caught.value).endswith(
        f"OS create script exited with code 7, it wrote nothing to {log}"
    )


def test_of_long_lines_the_error_shows_both_ends(node, directory):
    script = pathlib.Path(directory, "create")
    noise = "dd if=/dev/zero bs=100k count=1 2>/dev/null"
    script.write_text(f"#!/bin/sh\nprintf begin; {noise}; echo end\nexit 7\n")
    with pytest.raises(errors.OpExecError) as caught:
        nodes.call(node, "instance_os_add", nodes.instance(), False, 0)
    text = str(caught.value)
    assert text.endswith("??? ... " + 197 * "?" + "end")
    assert len(text) < 1000


def test_a_failed_verification_without_output_says_so(node, directory):
    pathlib.Path(directory, "verify").write_text("#!/bin/sh\nexit 4\n")
    with pytest.raises(errors.OpExecError, match=r"code 4: it wrote nothing$"):
        validate(node, "tiny+small", {"motd": "x"})


def test_a_verification_that_writes_without_end_takes_no_memory_of_the_node(
    node, directory
):
    script = (
        "#!/bin/sh\nhead -c 20000000 /dev/zero | tr '\\0' a\necho\necho no\nexit 4\n"
    )
    pathlib.Path(directory, "verify").write_text(script)
    tracemalloc.start()
    try:
        with pytest.raises(errors.OpExecError, match=r"code 4: .* no$"):
            validate(node, "tiny+small", {"motd": "x"})
        _now, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2_000_000


def test_rename_passes_the_old_name(node, directory):
    nodes.call(node, "instance_run_rename", nodes.instance("web2"), "web1", 0)
    assert "OLD_INSTANCE_NAME=web1" in read_log(node, "rename")[1]


def validate(node, name, params, *, required=True, force=False, checks=("parameters",)):
    args = (required, name, list(checks), params, force)
    return nodes.call(node, "os_validate", *args)


@pytest.fixture
def image_tool(tmp_path, monkeypatch):
    """Replace the program that copies images by one that shows what it gets."""
    path = tmp_path / "tools/os-image"
    path.parent.mkdir()
    path.write_text(DUMP)
    path.chmod(0o755)
    monkeypatch.setattr(pathutils.Paths, "tools_dir", str(path.parent))
    return path


IMAGE = {"os-image": "/srv/ganeti/images/a.img"}


def test_an_image_is_copied_without_an_os(node, image_tool):
    record = nodes.instance(disks=1, os="", osparams={**IMAGE, "sha256": "1"})
    nodes.make_disks(node, record)
    nodes.call(node, "instance_os_add", record, False, 0)
    _name, lines = read_log(node, "add-image")
    assert "args create" in lines
    assert "OSP_OS_IMAGE=/srv/ganeti/images/a.img" in lines
    assert "OSP_SHA256=1" in lines
    assert any(line.startswith("DISK_0_PATH=") for line in lines)
    record["osparams"] = {}
    with pytest.raises(errors.OpExecError, match="OS : not found"):
        nodes.call(node, "instance_os_add", record, False, 0)


def test_an_image_that_cannot_be_copied_fails_the_installation(
    node, directory, image_tool
):
    image_tool.write_text("#!/bin/sh\necho no such image\nexit 1\n")
    for os_name in ("", "tiny+small"):
        record = nodes.instance(os=os_name, osparams=IMAGE)
        with pytest.raises(errors.OpExecError, match="no such image"):
            nodes.call(node, "instance_os_add", record, False, 0)
        both = ["parameters", "install"]
        with pytest.raises(errors.OpExecError, match=r"parameter os-image.*no such"):
            validate(node, os_name, IMAGE, checks=both)
        assert validate(node, os_name, IMAGE) is True
    assert not any(
        name.startswith("add-tiny") for name in os.listdir(f"{node.paths.log_dir}/os")
    )


def test_the_script_of_an_os_runs_after_the_image(node, directory, image_tool):
    record = nodes.instance(osparams={**IMAGE, "motd": "hi"})
    nodes.call(node, "instance_os_add", record, True, 0)
    _name, lines = read_log(node, "reinstall-image")
    assert "OSP_OS_IMAGE=/srv/ganeti/images/a.img" in lines
    assert "OSP_MOTD=hi" not in lines
    assert "OSP_MOTD=hi" in read_log(node, "reinstall-tiny")[1]


def test_an_os_that_declares_os_image_copies_it_itself(node, directory, image_tool):
    with open(f"{directory}/parameters.list", "a") as out:
        out.write("os-image its own\n")
    nodes.call(node, "instance_os_add", nodes.instance(osparams=IMAGE), False, 0)
    (name,) = os.listdir(f"{node.paths.log_dir}/os")
    assert name.startswith("add-tiny")


def test_an_image_goes_with_no_os_of_helper_machines(node, directory, image_tool):
    os.rename(f"{directory}/create", f"{directory}/create_untrusted")
    both = ["parameters", "install"]
    with pytest.raises(errors.OpExecError, match="which runs in a helper machine"):
        validate(node, "tiny+small", IMAGE, checks=both)
    with pytest.raises(errors.OpExecError, match="os-image: unknown parameters url"):
        validate(node, "", {**IMAGE, "url": "x"}, checks=both)


def test_the_os_that_writes_an_image_goes_with_no_other(node, image_tool):
    make_os(node, "image")
    both = {**IMAGE, "motd": "x"}
    with pytest.raises(errors.OpExecError, match="one image would be written over"):
        validate(node, "image+small", both, checks=["parameters", "install"])
    record = nodes.instance(os="image+small", osparams=both)
    with pytest.raises(errors.OpExecError, match="one image would be written over"):
        nodes.call(node, "instance_os_add", record, False, 0)
    assert not os.path.exists(f"{node.paths.log_dir}/os")


def test_validation(node, directory):
    assert validate(node, "tiny+small", {"motd": "x"}) is True
    assert validate(node, "other", {}, required=False) is False
    assert validate(node, "tiny+strange", {}, force=True) is True
    assert validate(node, "tiny+small", {}, checks=["parameters", "install"]) is True
    for name, params, text in (
        ("other", {}, "not found"),
        ("tiny", {}, "must include a variant"),
        ("tiny+strange", {}, "found strange"),
        ("tiny+small", {"nonsense": 1}, "unknown parameters nonsense"),
        ("tiny+small", {"fail": 3}, "code 3"),
    ):
        with pytest.raises(errors.OpExecError, match=text):
            validate(node, name, params)


def test_transfer_scripts(node, directory):
    import msgspec

    from ganeti.model.objects.filled import InstanceX
    from ganeti.node.calls import os_scripts

    given = nodes.instance(disks=2)
    for disk in given["disks_info"]:
        disk["dev_type"] = "sharedfile"
    record = msgspec.convert(given, InstanceX)
    os.makedirs(node.paths.at(f"{nodes.STORAGE_DIR}/web1"))
    for disk in record.disks_info:
        storage.device(node.paths, disk, node.process).create(1)
    with contextlib.ExitStack() as stack:
        actual = os_scripts.transfer_command(
            node, record, "export", (record.disks_info[1], 1), stack
        )
        content = {name: os.fstat(fd).st_ino for name, fd in actual.fds.items()}
    assert actual.argv == (f"{directory}/export",)
    assert actual.env["EXPORT_INDEX"] == "1"
    assert actual.env["EXPORT_DEVICE"] == actual.env["DISK_1_PATH"]
    assert json.dumps(actual.env)
    # A snapshot is read in place of the disk, whose path the script knows nevertheless.
    with contextlib.ExitStack() as stack:
        other = os_scripts.transfer_command(
            node, record, "export", (record.disks_info[0], 1), stack
        ).env
    assert other["EXPORT_DEVICE"] == other["DISK_0_PATH"] != other["DISK_1_PATH"]
    inode = os.stat(actual.env["DISK_1_PATH"]).st_ino
    assert content["EXPORT_DEVICE"] == content["DISK_1_PATH"] == inode
    assert content["EXPORT_DISK_PATH"] == inode != content["DISK_0_PATH"]


@pytest.mark.parametrize("name", ["", "+v", ".tiny", "..", "sub/tiny", "sub/../tiny"])
def test_a_name_is_never_a_path(node, directory, name):
    root = os.path.dirname(directory)
    for place in (f"{root}/.tiny", f"{root}/sub/tiny"):
        shutil.copytree(directory, place)
    assert os_definitions.find(node.paths, "tiny").path == str(directory)
    with pytest.raises(errors.OpExecError, match="not found in"):
        os_definitions.find(node.paths, name)


def exported(node, instance, **override):
    path = nodes.call(node, "os_export", instance, override)
    assert os.stat(path).st_mode & 0o777 == 0o600
    with tarfile.open(path) as archive:
        return path, {
            member.name: (archive.extractfile(member).read(), member.mode)
            for member in archive
        }


def test_an_archive_has_the_definition_and_the_environment(node, directory):
    os.unlink(f"{directory}/create")
    shutil.copy(f"{directory}/import", f"{directory}/create_untrusted")
    os.mkdir(f"{directory}/cache")
    secret = {"secret-key": "a 'quoted'\nvalue"}
    instance = nodes.instance("web1", os="tiny+small", osparams_private=secret)
    path, members = exported(
        node, instance, INSTANCE_NAME="web2", MORE="$HOME", DISK_COUNT=None
    )
    assert members["os/create_untrusted"] == (DUMP.encode(), 0o755)
    assert members["os/variants.list"] == (b"# all\ndefault\n\nsmall\n", 0o644)
    assert "os/cache" not in members
    script = members["environment"][0].decode() + "\nexport OSP_SECRET_KEY MORE\nenv"
    text = subprocess.run(
        ["/bin/sh", "-c", script], capture_output=True, text=True, check=True
    ).stdout
    assert "OSP_SECRET_KEY=a 'quoted'\nvalue\n" in text
    assert "MORE=$HOME\n" in text
    assert "INSTANCE_NAME=web2\n" in members["environment"][0].decode()
    assert "OS_VARIANT=small\n" in members["environment"][0].decode()
    # Variables for programs of the node are left out, and those that the caller removes.
    names = {
        line.partition("=")[0]
        for line in members["environment"][0].decode().splitlines()
    }
    assert not names & {"GANETI_TOOLS_DIR", "GANETI_ROOTDIR", "DISK_COUNT"}
    assert "NIC_COUNT" in names
    # The next one replaces it.
    assert exported(node, instance)[0] == path
    assert os.listdir(os.path.dirname(path)) == ["web1.tar"]


@pytest.mark.parametrize(
    ("changes", "override", "text"),
    [
        ({"os": "nothing"}, {}, "nothing"),
        ({}, {"A=B; rm": "x"}, "is not the name of a variable"),
        ({"osparams": {"a;reboot;b": "x"}}, {}, "'OSP_A;REBOOT;B' is not the name of"),
        ({}, {"A": "x\0"}, "'A' is not the name of a variable with a text"),
    ],
)
def test_wrong_archives_are_refused(node, directory, changes, override, text):
    instance = nodes.instance("web1", **{"os": "tiny+small"} | changes)
    with pytest.raises(errors.OpExecError, match=text):
        nodes.call(node, "os_export", instance, override)


def test_a_definition_without_end_does_not_fill_the_memory(node, directory):
    with open(f"{directory}/large", "wb") as out:
        out.truncate(1 << 40)
    instance = nodes.instance("web1", os="tiny+small")
    with pytest.raises(errors.OpExecError, match="wanted a definition of at most 64"):
        nodes.call(node, "os_export", instance, {})
    assert os.listdir(f"{node.paths.run_dir}/os-export") == []


def test_a_script_gets_the_file_that_was_opened_and_no_other(node, directory):
    """On shared storage another node can swap it while the script begins."""
    given = nodes.instance(disks=1)
    disk = given["disks_info"][0] | {"dev_type": "sharedfile"}
    given["disks_info"] = [disk]
    path = node.paths.at(disk["logical_id"][1])
    os.makedirs(os.path.dirname(path))
    nodes.call(node, "blockdev_create", disk, 1, "web1", True, "", False)
    pathlib.Path(directory, "create").write_text(
        f"#!/bin/sh\nmv {path} {path}.kept && ln -s {path}.victim {path}\n"
        'cd / && exec 3<&- && echo installed > "$DISK_0_PATH"\n'
    )
    nodes.call(node, "instance_os_add", given, False, 0)
    with open(f"{path}.kept") as src:
        assert src.read() == "installed\n"
    assert not os.path.exists(f"{path}.victim")
    text = "is a symbolic link; below"
    with pytest.raises(errors.FileStoragePathError, match=text):
        nodes.call(node, "instance_os_add", given, False, 0)
