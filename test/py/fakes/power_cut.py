"""Which bytes a disk has after a power cut, from the record of `crash_shim.c`.

The model is that of POSIX, not of one file system: what was written since the last fsync
of a file is lost or kept block by block; a new, renamed or removed name is certain when
its directory was synced afterwards. Changes of one directory survive in their order, as
journals keep them.
"""

import dataclasses
import os
import pathlib

#: A disk writes whole sectors.
SECTOR = 512
_NEW_MODE = 0o640


@dataclasses.dataclass
class _File:
    durable: bytearray
    #: (number of the record, offset or None for a truncation, data or size)
    pending: list = dataclasses.field(default_factory=list)

    def sync(self, until):
        for number, *change in self.pending:
            if number < until:
                _change(self.durable, *change)
        self.pending = [change for change in self.pending if change[0] >= until]

    def after_cut(self, chance):
        """Return the contents when each unsynced sector was written or not."""
        data = bytearray(self.durable)
        for _number, offset, value in self.pending:
            if offset is None:
                if chance.random() < 0.5:
                    _change(data, None, value)
                continue
            for start in range(0, len(value), SECTOR):
                if chance.random() < 0.5:
                    _change(data, offset + start, value[start : start + SECTOR])
        return bytes(data)


def _change(data, offset, value):
    size = value if offset is None else offset + len(value)
    if len(data) < size:
        data.extend(bytes(size - len(data)))
    if offset is None:
        del data[size:]
    else:
        data[offset:size] = value


def _records(data):
    """Yield (kind, number, path, bytes) of a record; its end may be torn."""
    place = 0
    while (end := data.find(b"\n", place)) >= 0:
        kind, number, size, path = data[place:end].decode().split(" ", 3)
        place = end + 1 + int(size)
        if place > len(data):
            return
        yield kind, int(number), path, data[end + 1 : place]


class Disk:
    """The files below a directory while a record is replayed."""

    def __init__(self, top, before):
        """Begin with the contents before the record: path -> bytes, all durable."""
        self._top = f"{top}/"
        self._now = {path: _File(bytearray(data)) for path, data in before.items()}
        self._durable = dict(self._now)
        #: directory -> [(number of the record, [(path, file or None)])]
        self._renames = {}
        self._syncs = {}
        self._seen = 0

    def replay(self, data):
        """Take a record; other directories are left out."""
        for kind, number, path, payload in _records(data):
            self._seen += 1
            if not f"{path}/".startswith(self._top):
                continue
            getattr(self, f"_on_{kind}")(path, number, payload)

    def _on_W(self, path, offset, payload):
        if path in self._now:
            self._now[path].pending.append((self._seen, offset, payload))

    def _on_T(self, path, size, _payload):
        if path in self._now:
            self._now[path].pending.append((self._seen, None, size))

    def _on_N(self, path, _number, _payload):
        self._rename(path, [(path, _File(bytearray()))])

    def _on_R(self, path, _number, payload):
        source = payload.decode()
        if source in self._now:
            self._rename(path, [(source, None), (path, self._now[source])])

    def _on_U(self, path, _number, _payload):
        self._rename(path, [(path, None)])

    def _rename(self, path, changes):
        _rename(self._now, changes)
        waiting = self._renames.setdefault(os.path.dirname(path), [])
        waiting.append((self._seen, changes))

    def _on_B(self, _path, number, _payload):
        self._syncs[number] = self._seen

    def _on_E(self, path, number, _payload):
        until = self._syncs.pop(number)
        waiting = self._renames.get(path, ())
        self._settle(path, sum(at < until for at, _changes in waiting))
        if path in self._now:
            self._now[path].sync(until)

    def _settle(self, folder, count):
        """Have the oldest changes of a directory on disk."""
        waiting = self._renames.get(folder, [])
        for _at, changes in waiting[:count]:
            _rename(self._durable, changes)
        del waiting[:count]

    def cut(self, chance):
        """Return path -> contents after the cut, None for one that is not there."""
        names = sorted({*self._now, *self._durable})
        for folder in sorted(self._renames):
            self._settle(folder, chance.randint(0, len(self._renames[folder])))
        names = sorted({*names, *self._durable})
        return {
            name: self._durable[name].after_cut(chance)
            if name in self._durable
            else None
            for name in names
        }


def _rename(names, changes):
    for name, file in changes:
        if file is None:
            names.pop(name, None)
        else:
            names[name] = file


def contents(folder):
    """Return path -> bytes of all plain files below a directory."""
    return {
        str(path): path.read_bytes()
        for path in pathlib.Path(folder).rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def write(files):
    """Make files as they are after a cut."""
    for name, data in files.items():
        path = pathlib.Path(name)
        if data is None or name.endswith("-shm"):
            path.unlink(missing_ok=True)
        elif not path.exists():
            path.touch(_NEW_MODE)
            path.write_bytes(data)
        elif path.read_bytes() != data:
            path.write_bytes(data)
