"""Settings of the documentation: sphinx-build -W docs docs/_build"""

import io
import os
import sys
from contextlib import redirect_stdout, suppress
from functools import partial
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import docstrings  # noqa: E402
import reference  # noqa: E402
from docutils import nodes  # noqa: E402
from sphinx.util.docutils import SphinxDirective  # noqa: E402
from sphinx.util.inspect import stringify_signature  # noqa: E402

project = "rlpyt"
copyright = author = "the rlpyt authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
default_role = "py:obj"  # `name` in a docstring is a link where that name is documented, and code elsewhere.

html_theme = "furo"
html_title = "rlpyt"
html_static_path = ["static"]
html_css_files = ["wide.css"]

myst_heading_anchors = 3

autodoc_default_options = {"members": True, "undoc-members": True, "show-inheritance": True}
autosummary_generate = False  # Tables of links into the same page; no pages of their own.
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # Attributes are listed with their class, not as entries of their own.
maximum_signature_line_length = 110


class CommandHelp(SphinxDirective):
    """A section for each command of `rlpyt`, with what its --help prints."""

    def run(self):
        from rlpyt.cli import COMMANDS, make_parser

        # argparse breaks lines as wide as the terminal; this is what fits into the column of text.
        os.environ.update(COLUMNS="88", NO_COLOR="1")
        sections = []
        for name in COMMANDS:
            with redirect_stdout(io.StringIO()) as out, suppress(SystemExit):
                make_parser().parse_args([name, "--help"])
            sections.append(nodes.section(ids=[name]))
            sections[-1] += nodes.title(text=f"rlpyt {name}")
            sections[-1] += nodes.literal_block(text=out.getvalue(), language="none")
        return sections


def show_constructor(app, what, name, obj, options, signature, return_annotation):
    """Give classes that record their arguments the signature of their constructor: Sphinx finds that of the recorder."""
    from rlpyt.utils.recipes import Recorded

    if what == "class" and isinstance(obj, type) and issubclass(obj, Recorded) and obj is not Recorded:
        return stringify_signature(reference.constructor(obj), unqualified_typehints=True), None
    return None


def share_navigation(made, app, pagename, templatename, context, doctree):
    """Let pages of source code share the tree of all pages, which takes a second to make. Its relative links depend on the depth of a page.

    Args:
        made: HTML of the tree, by depth and options; pages fill it.
    """
    if pagename.startswith("_modules/"):
        make, depth = context["toctree"], app.builder.get_target_uri(pagename).count("/")

        def shared(**options):
            key = (depth, *sorted(options.items()))
            if key not in made:
                made[key] = make(**options)
            return made[key]

        context["toctree"] = shared


def setup(app):
    """Called by Sphinx."""
    app.connect("autodoc-process-signature", show_constructor)
    app.connect("autodoc-skip-member", reference.skip_member)
    app.connect("autodoc-process-bases", reference.name_bases)
    app.connect("autodoc-process-docstring", reference.shorten_record, priority=50)
    app.add_directive("command-help", CommandHelp)
    app.connect("autodoc-process-docstring", docstrings.process, priority=100)  # Before napoleon, which has 500.
    app.connect("html-page-context", partial(share_navigation, {}), priority=400)  # Before the theme, which has 500.
