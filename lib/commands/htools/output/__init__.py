"""Output of the placement programs: tables, files and reports."""
