"""The engine: takes one opcode through locks, checks, hooks and execution."""
