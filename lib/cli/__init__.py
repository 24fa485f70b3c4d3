"""What all command line programs share: tables of commands, parsing, output, waiting.

One module a topic: `model` (what a command is), `options` (options several commands
have), `parser`, `values`, `usage` (help), `app` (from argv to exit code), `table`,
`tree`, `listing` (queries), `jobs` and `executor` (waiting), `questions`, `failures`
(error texts). What a single command does is in `ganeti.client`. Modules are imported
when a command needs them: start-up time is what users feel first.
"""
