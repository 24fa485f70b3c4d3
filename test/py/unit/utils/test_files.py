import os
import stat

import pytest
from ganeti.utils import files


def test_a_written_file_has_its_content_and_mode(tmp_path):
    path = str(tmp_path / "key")
    files.write_file(path, "secret\n", mode=0o440)
    assert files.read_text(path) == "secret\n"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o440
    assert os.listdir(tmp_path) == ["key"]


def test_a_failed_write_leaves_the_old_file_and_no_debris(tmp_path):
    path = str(tmp_path / "key")
    files.write_file(path, "old")
    with pytest.raises(TypeError):
        files.write_file(path, 3)
    with pytest.raises(FileNotFoundError):
        files.write_file(str(tmp_path / "none" / "key"), "x")
    assert files.read_text(path) == "old"
    assert os.listdir(tmp_path) == ["key"]


def test_a_backup_keeps_the_old_content_and_mode(tmp_path):
    path = str(tmp_path / "key")
    assert files.backup(path) is None
    files.write_file(path, "old", mode=0o400)
    files.write_file(path, "new", mode=0o400, keep_backup=True)
    (copy,) = [name for name in os.listdir(tmp_path) if ".backup-" in name]
    assert files.read_text(str(tmp_path / copy)) == "old"
    assert stat.S_IMODE(os.stat(tmp_path / copy).st_mode) == 0o400
    assert files.read_text(path) == "new"
