"""What all commands share: options, tables, job waiting, questions, errors."""
