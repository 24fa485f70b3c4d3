"""Shared parts of all command line programs: command tables, parsing, output, waiting.

One module per topic: `model` (rows of the command tables), `options` (shared options),
`parser`, `values`, `usage` (help), `app` (from argv to exit code), `table`,
`info_tree`, `listing` (queries), `jobs` and `executor` (waiting), `prompts`,
`error_text`. Single commands belong to `ganeti.commands`. Modules are imported when a
command needs them, because users notice start-up time first.
"""
