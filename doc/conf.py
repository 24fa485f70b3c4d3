"""Sphinx settings; the documentation is built with warnings as errors."""

project = "Ganeti"
release = "3.1.1"
version = "3.1"
author = "the Ganeti authors"
master_doc = "index"
exclude_patterns = ["news.d/*", "examples/*"]
html_theme = "alabaster"
html_theme_options = {"description": "virtual machines on ordinary servers"}
html_show_sourcelink = False
