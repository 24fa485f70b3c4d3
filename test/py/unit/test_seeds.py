"""Seeds rotate from commit to commit, and stay for repeats of one."""

import subprocess

from fakes import seeds


def git(tree, *words):
    identity = ("-c", "user.name=n", "-c", "user.email=n@example.com")
    subprocess.run(["git", "-C", tree, *identity, *words], check=True)


def test_each_commit_has_a_seed_of_its_own(tmp_path):
    git(tmp_path, "init", "-q")
    collected = []
    for text in ("one", "two"):
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", text)
        collected.append(seeds.of_tree(tmp_path))
        assert seeds.of_tree(tmp_path) == collected[-1]
    assert collected[0] != collected[1]
    assert all(0 <= seed < 16**7 for seed in collected)


def test_an_archive_without_commits_has_the_seed_of_the_day(tmp_path):
    assert seeds.of_tree(tmp_path / "absent") // 1000 > 700_000


def test_a_variable_of_the_environment_decides(monkeypatch, capsys):
    monkeypatch.setenv("SOME_SEED", "4711")
    assert seeds.given("SOME_SEED") == 4711
    assert capsys.readouterr().out == "SOME_SEED=4711\n"
