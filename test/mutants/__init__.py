"""Break the library in small ways and count how many breaks the tests notice.

``changes`` finds and samples the breaks, ``reach`` knows which tests execute a line,
``trees`` runs tests in copies of the tree, ``__main__`` is the command.
"""
