"""The text that ``--version`` prints."""

from ganeti.constants import versions


def vcs_version() -> str:
    """Return the build identifier."""
    return f"(ganeti) version v{versions.RELEASE_VERSION}"


def text(program: str) -> str:
    """Return the version line of a program."""
    return f"{program} (ganeti v{versions.RELEASE_VERSION}) {versions.RELEASE_VERSION}"
