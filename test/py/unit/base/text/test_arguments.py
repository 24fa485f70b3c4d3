"""Help of programs with `argparse`."""

import argparse

from ganeti.base.text import arguments


def test_help_begins_with_the_usage_that_scripts_know():
    parser = argparse.ArgumentParser(prog="hinfo", formatter_class=arguments.Formatter)
    parser.add_argument("--luxi", action="store_true")
    assert parser.format_help().startswith("Usage: hinfo [-h] [--luxi]\n")
