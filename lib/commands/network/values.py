"""Values of options that several commands have."""


def listed(text: str | None) -> list[str]:
    """Return the items of a list with commas; empty items are left out."""
    return [item for part in (text or "").split(",") if (item := part.strip())]


def addresses(text: str | None) -> list[str] | None:
    """Return addresses of an option, None if it was not given."""
    return None if text is None else listed(text)
