"""Files and directories of this machine: replaced, locked, watched, checked."""
