"""Habits of the project: one version, one set of static checks, news that build."""

import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from ganeti.base.constants import versions

TOP = pathlib.Path(__file__).parents[3]
FRAGMENTS = sorted((TOP / "doc" / "news.d").glob("*.*.rst"))
MARKER = ".. towncrier release notes start\n"
KINDS = {"feature": "New", "change": "Changed", "fix": "Fixed", "removal": "Removed"}


def output(*command):
    result = subprocess.run(
        command, cwd=TOP, capture_output=True, text=True, check=True
    )
    return result.stdout


def test_configure_alone_states_the_version():
    version = output("autotools/version").strip()
    assert version == versions.RELEASE_VERSION
    listed = output(
        "git", "ls-files", "lib", "man", "doc", "autotools", "daemons"
    ).splitlines()
    pattern = re.compile(rf"(?<![\d.]){re.escape(version)}(?![\d.])")
    paths = [TOP / name for name in listed if not name.startswith("doc/news.d/")]
    stated = [str(path) for path in paths if path.is_file()]
    assert [p for p in stated if pattern.search(pathlib.Path(p).read_text())] == []


def test_commits_and_test_runs_make_the_same_static_checks():
    lint = (TOP / "autotools" / "lint").read_text()
    checks = re.findall(r"^check_(\w+)\(\)", lint, re.MULTILINE)
    default = re.search(r"\|\| set -- (.*)$", lint, re.MULTILINE)[1].split()
    hooks = (TOP / ".pre-commit-config.yaml").read_text()
    run = (TOP / "test" / "run").read_text()
    assert default == checks
    assert re.findall(r"entry: autotools/lint (\w+)$", hooks, re.MULTILINE) == checks
    assert re.findall(r"autotools/lint (\w+)$", run, re.MULTILINE) == checks
    assert hooks.count("entry:") == len(checks)


def test_fragments_of_the_news_are_named_by_topic_and_kind():
    folder = TOP / "doc" / "news.d"
    others = {path.name for path in folder.iterdir()} - {p.name for p in FRAGMENTS}
    assert others - {"README", "template.rst"} == set()
    wrong = [
        path.name
        for path in FRAGMENTS
        if not re.fullmatch(r"[a-z0-9-]+\.(\w+)\.rst", path.name)
        or path.name.split(".")[1] not in KINDS
    ]
    assert wrong == []


@pytest.fixture
def copy(tmp_path):
    """The files that the news are made of, apart from the tree."""
    for name in ("configure.ac", "pyproject.toml", "NEWS"):
        shutil.copy(TOP / name, tmp_path)
    shutil.copytree(TOP / "doc" / "news.d", tmp_path / "doc" / "news.d")
    (tmp_path / "autotools").mkdir()
    for name in ("make-news", "version"):
        shutil.copy(TOP / "autotools" / name, tmp_path / "autotools")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def make_news(copy):
    subprocess.run(
        ["autotools/make-news"],
        cwd=copy,
        env={"PYTHON": sys.executable, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        check=True,
    )


def test_a_release_without_fragments_says_so(copy):
    for path in (copy / "doc" / "news.d").glob("*.*.rst"):
        path.unlink()
    make_news(copy)
    added = (copy / "NEWS").read_text().partition(MARKER)[2]
    assert re.match(r"\s*Ganeti .*\n-+\n\nNo changes that users notice\.\n\n", added)


def test_a_release_moves_all_fragments_into_the_news(copy):
    fragments = copy / "doc" / "news.d"
    for kind in KINDS:
        (fragments / f"sample.{kind}.rst").write_text(f"``gnt-{kind}`` is\nnamed.\n")
    texts = {path.name: path.read_text() for path in fragments.glob("*.*.rst")}
    head, marker, earlier = (copy / "NEWS").read_text().partition(MARKER)
    make_news(copy)
    text = (copy / "NEWS").read_text()
    assert text.startswith(head + marker)
    assert text.endswith(earlier.lstrip())
    added = text.removeprefix(head + marker).removesuffix(earlier.lstrip())
    unwrapped = " ".join(added.split())
    for name, fragment in texts.items():
        assert f"- {' '.join(fragment.split())}" in unwrapped, name
    headings = re.findall(r"^(\w+)\n~+$", added, re.MULTILINE)
    assert headings == list(KINDS.values())
    assert f"Ganeti {versions.RELEASE_VERSION} (" in added
    assert added.endswith("\n\n")
    assert {path.name for path in fragments.iterdir()} == {"README", "template.rst"}
