"""Sphinx settings; the documentation is built with warnings as errors.

Formulas become MathML, which browsers show themselves: neither the build nor a reader
needs a network or TeX. The converter is that of docutils.
"""

import pathlib
import subprocess

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

project = "Ganeti"
_program = pathlib.Path(__file__).parents[1] / "autotools" / "version"
release = subprocess.run(
    [_program], capture_output=True, text=True, check=True
).stdout.strip()
version = release.rpartition(".")[0]
author = "the Ganeti authors"
master_doc = "index"
exclude_patterns = ["news.d/*", "examples/*"]
html_theme = "alabaster"
html_theme_options = {"description": "virtual machines on ordinary servers"}
html_show_sourcelink = False
html_math_renderer = "mathml"


def _inline_math(writer: HTML5Translator, node: nodes.math) -> None:
    writer.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def _block_math(writer: HTML5Translator, node: nodes.math_block) -> None:
    formula = tex2mathml(node.astext(), as_block=True)
    writer.body.append(f'<div class="math">{formula}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Register the renderer of formulas."""
    app.add_html_math_renderer(
        "mathml",
        inline_renderers=(_inline_math, None),
        block_renderers=(_block_math, None),
    )
