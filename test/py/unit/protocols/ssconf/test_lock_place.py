"""Where lock files are."""

import os
import stat

from ganeti.base import pathutils
from ganeti.protocols import ssconf


def test_only_root_can_reach_lock_files(tmp_path):
    paths = pathutils.Paths(str(tmp_path / "n1"), "n1")
    os.makedirs(paths.data_dir)
    ssconf.write(paths, {"cluster_name": "c"})
    locks = [
        os.path.join(top, name)
        for top, _, names in os.walk(tmp_path)
        for name in names
        if name.endswith(".lock")
    ]
    assert locks == [f"{paths.lock_dir}/ganeti-ssconf.lock"]
    assert stat.S_IMODE(os.stat(paths.lock_dir).st_mode) == 0o700
    assert paths.lock_dir.startswith(f"{paths.run_dir}/")
