"""The administrator's list of files that all nodes share."""

import pytest

from ganeti.base.filesystem import shared_files
from ganeti.base.pathutils import Paths


@pytest.fixture
def paths(tmp_path):
    made = Paths(root=str(tmp_path / "n1"), hostname="n1")
    (tmp_path / "n1/etc/ganeti").mkdir(parents=True)
    return made


def write(paths, text):
    with open(shared_files.list_path(paths), "w") as out:
        out.write(text)


def test_without_a_list_nothing_more_is_shared(paths):
    assert shared_files.read(paths) == shared_files.SharedFiles()


def test_the_list_names_files_once_and_in_order(paths):
    write(paths, "/opt/b\n# comment\n\n  /opt/a  \n/opt/b\n")
    assert shared_files.read(paths).paths == (paths.at("/opt/b"), paths.at("/opt/a"))


def test_a_mistake_leaves_out_its_line_and_is_named(paths):
    write(paths, "/opt/a\nopt/b\n/var/lib/ganeti/server.pem\n/etc/hosts\n")
    actual = shared_files.read(paths)
    assert actual.paths == (paths.at("/opt/a"),)
    first, second, third = actual.problems
    assert first.startswith("shared-files line 2: opt/b: wanted an absolute path")
    assert "line 3: /var/lib/ganeti/server.pem: files of this directory" in second
    assert "line 4: /etc/hosts: this file is kept by the cluster" in third


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("/opt/x\n" + "# fill\n" * 20_000, "cannot be read"),
        ("".join(f"/opt/{n}\n" for n in range(201)), "line 201: /opt/200: wanted at"),
        ("/etc/ganeti/shared-files\n", "always shared"),
        ("/opt/x\x1b[2J/../y\n", "absolute path"),
    ],
)
def test_lists_are_bounded(paths, text, why):
    write(paths, text)
    (problem,) = shared_files.read(paths).problems
    assert why in problem
    assert "\x1b" not in problem


def test_what_cannot_be_shared_is_explained(tmp_path):
    large = tmp_path / "large"
    with large.open("wb") as out:
        out.truncate((1 << 20) + 1)
    assert "at most 1048576 bytes" in shared_files.unreadable(str(large))
    assert shared_files.unreadable(str(tmp_path)) == "not a regular file"
    assert "No such file" in shared_files.unreadable(str(tmp_path / "none"))
    (tmp_path / "good").touch()
    assert shared_files.unreadable(str(tmp_path / "good")) == ""


BOTH = "files of this directory belong to one node alone"
GRANTS = "this grants rights on one node; its administrator writes it there"


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/opt/a", ""),
        ("/var/lib/ganeti2/x", ""),
        ("/etc/hosts", "this file is kept by the cluster itself"),
        ("/procedures", ""),
        *((f"{top}/x", BOTH) for top in ("/proc", "/sys", "/dev", "/var/log/ganeti")),
        *((top, BOTH) for top in ("/proc", "/sys", "/dev", "/var/lib/ganeti")),
        *(
            (f"/etc/ganeti/{name}", GRANTS)
            for name in (
                "file-storage-paths",
                "restricted-commands/x",
                "node-repair-commands/x",
                "node-diagnose-commands",
            )
        ),
        ("/root/.ssh/authorized_keys", GRANTS),
        ("/root/.sshd", ""),
        ("opt/a", "wanted an absolute path without '.', '..' or doubled slashes"),
        ("/opt//a", "wanted an absolute path"),
        ("/opt/./a", "wanted an absolute path"),
        ("/opt/a/", "wanted an absolute path"),
    ],
)
def test_what_belongs_to_one_node_or_grants_rights_there_is_not_shared(
    paths, path, why
):
    refused = shared_files.refusal(path, paths)
    assert why in refused
    assert bool(refused) == bool(why)


def test_password_files_of_vnc_are_accepted_in_their_directory(paths):
    directory = paths.conf_dir
    assert shared_files.is_password_file(f"{directory}/vnc-web1", paths)
    for wrong in (f"{directory}/web1", f"{directory}/x/vnc-web1", "/vnc-web1"):
        assert not shared_files.is_password_file(wrong, paths)


def test_the_list_has_up_to_200_files_of_a_mebibyte(paths, tmp_path):
    write(paths, "".join(f"/opt/{n}\n" for n in range(200)))
    actual = shared_files.read(paths)
    assert (len(actual.paths), actual.problems) == (200, ())
    large = tmp_path / "large"
    with large.open("wb") as out:
        out.truncate(1 << 20)
    assert shared_files.unreadable(str(large)) == ""
    write(paths, "#" * (64 * 1024))
    assert shared_files.read(paths) == shared_files.SharedFiles()
    write(paths, "#" * (64 * 1024 + 1))
    (problem,) = shared_files.read(paths).problems
    assert problem.startswith("shared-files cannot be read: ")
