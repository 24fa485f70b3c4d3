"""Hypothesis draws the same examples in every run of the same tree.

A run ends with the figures that tests recorded.

Hypothesis mixes constants of loaded modules into its examples. Which modules are loaded depends
on the tests that ran before in this process, unless all of them are.
"""

import importlib
import pkgutil

import pytest

import ganeti
from fakes import selection


def pytest_addoption(parser, pluginmanager):
    selection.add_options(parser)
    if not pluginmanager.has_plugin("cacheprovider"):
        # Unknown settings are refused, and pyproject.toml has this one.
        parser.addini("cache_dir", "not used without the plugin")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    selection.draw_examples(config)


def pytest_collection_modifyitems(config, items):
    selection.leave_out(config, items)


def pytest_collection_finish(session):
    """Load the whole library, if a test draws examples."""
    functions = (getattr(item, "obj", None) for item in session.items)
    if not any(getattr(each, "is_hypothesis_test", False) for each in functions):
        return
    for module in pkgutil.walk_packages(ganeti.__path__, "ganeti."):
        importlib.import_module(module.name)


def pytest_terminal_summary(terminalreporter, config):
    """Print the figures that tests recorded, and which tests were left out."""
    selection.say_what_is_left_out(terminalreporter, config)
    for report in terminalreporter.stats.get("passed", ()):
        for name, value in report.user_properties:
            if name == "figures":
                terminalreporter.write_line(f"{report.nodeid}: {value}")
