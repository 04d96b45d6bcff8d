"""Settings of the documentation: sphinx-build -W docs docs/_build"""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import docstrings  # noqa: E402

project = "rlpyt"
copyright = author = "the rlpyt authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
default_role = "py:obj"  # `name` in a docstring is a link where that name is documented, and code elsewhere.

html_theme = "furo"
html_title = "rlpyt"

myst_heading_anchors = 3

autodoc_default_options = {"members": True, "undoc-members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # Attributes are listed with their class, not as entries of their own.
maximum_signature_line_length = 110


def setup(app):
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", docstrings.process, priority=100)  # Before napoleon, which has 500.
