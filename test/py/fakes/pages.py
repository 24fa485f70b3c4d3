"""Console blocks of documentation pages, and the outputs that they show."""

import re


def blocks(text):
    """Yield the lines of each console block, without their indentation."""
    for part in text.split(".. code-block:: console\n")[1:]:
        lines = []
        for line in part.splitlines()[1:]:
            if line and not line.startswith("   "):
                break
            lines.append(line[3:].rstrip())
        while lines and not lines[-1]:
            lines.pop()
        yield lines


def pattern_of(expected):
    """Return the regular expression that an output must match as a whole."""
    result = ""
    for line in expected:
        if line == "...":
            result += r"(?:.*\n)*?"
            continue
        body = re.escape(line).replace(r"\.\.\.", ".*")
        result += re.sub(r"(?<=[^\s])(?:\\ )+", r" +", body) + r" *\n"
    return result


def first_difference(expected, output):
    """Return the first expected line that the output cannot reach, for messages."""
    for count in range(1, len(expected) + 1):
        if not re.match(pattern_of(expected[:count]), output):
            return f"line {count} does not come: {expected[count - 1]}"
    return "there is more than the page shows"


def code_block(text, name):
    """Return the Python code of the block with this name."""
    after = text.partition(f"   :name: {name}\n")[2]
    assert after, f"no code block {name}"
    lines = []
    for line in after.splitlines()[1:]:
        if line and not line.startswith("   "):
            break
        lines.append(line[3:])
    return "\n".join(lines)
