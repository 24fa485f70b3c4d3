"""Which modules of the library, and which test modules, import a module."""

import ast


def _names(code):
    """Yield the dotted names that a file imports, also those inside functions."""
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Import(names=names):
                yield from (name.name for name in names)
            case ast.ImportFrom(module=str() as module, names=names, level=0):
                yield module
                yield from (f"{module}.{name.name}" for name in names)


def _path(top, name):
    """Return the file of the module ``ganeti.x.y`` relative to the tree, or None."""
    first, *rest = name.split(".")
    if first != "ganeti" or not rest:
        return None
    base = "/".join(["lib", *rest])
    paths = (f"{base}.py", f"{base}/__init__.py")
    return next((path for path in paths if (top / path).is_file()), None)


class Imports:
    """Importers by path, of the library and of its tests."""

    def __init__(self, top, paths):
        """Read the files of a tree.

        Args:
            top: folder of the tree.
            paths: files of the library and of the tests, relative to it.
        """
        self._importers = {}
        for path in paths:
            file = top / path
            names = _names(file.read_text()) if file.is_file() else ()
            for imported in {_path(top, name) for name in names} - {None, path}:
                self._importers.setdefault(imported, set()).add(path)

    def importers(self, path):
        """Return the files that import a module directly."""
        return self._importers.get(path, set())

    def levels(self, path):
        """Yield sets of files: the module itself, its importers, theirs, and so on."""
        level = reached = {path}
        while level:
            yield level
            following = set().union(*(self._importers.get(one, ()) for one in level))
            level = following - reached
            reached = reached | level
