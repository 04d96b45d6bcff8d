"""Settings of the documentation: sphinx-build -W docs docs/_build"""

import inspect
import io
import os
import sys
from contextlib import redirect_stdout, suppress
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import docstrings  # noqa: E402
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


RECORDS = ("rlpyt.agents.base", "rlpyt.envs.base", "rlpyt.models.lstm", "rlpyt.samplers.collections")  # whose named tuples are shown


def is_record(obj):
    """Whether an object is a type of named tuples without a docstring of its own."""
    return isinstance(obj, type) and issubclass(obj, tuple) and (obj.__doc__ or "").startswith(f"{obj.__name__}(")


def skip_member(app, what, name, obj, skip, options):
    """Leave out fields and methods that every named tuple has, and named tuples that only the module itself fills and reads."""
    is_field = type(obj).__name__ == "_tuplegetter"
    is_method = name in ("get", "items") and getattr(obj, "__qualname__", "").startswith("_NamedArrayTupleMethods")
    is_inner = what == "module" and is_record(obj) and obj.__module__ not in RECORDS
    return True if is_field or is_method or is_inner else None


def shorten_record(app, what, name, obj, options, lines):
    """Leave out the first words of a named tuple's docstring, which repeat its signature."""
    if is_record(obj):
        lines[:] = [line.partition("): ")[2].capitalize() for line in lines[:1]]


def name_bases(app, name, obj, options, bases):
    """Call the base of a named array tuple what it is: the real one has the same name as the class."""
    if any(getattr(base, "__name__", None) == obj.__name__ and issubclass(base, tuple) for base in bases):
        bases[:] = [":doc:`named array tuple </api/namedarraytuple>`"]


class Name:
    """What stands for a default value that is no number or text."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return self.name


def shown_default(default):
    """Return a default value as the reference shows it: classes by their names, and objects that only mark what was not given by dots."""
    if default is inspect.Parameter.empty:
        return default
    return Name("...") if type(default) is object else Name(default.__name__) if callable(default) else default


def constructor(cls):
    """Return the signature of a class, with the arguments that its constructor hands on to those of its bases."""
    parameters, collected = [], (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for base in cls.__mro__:
        if "__init__" in vars(base):
            own = list(inspect.signature(base.__init__).parameters.values())[1:]
            parameters.append([parameter for parameter in own if parameter.kind not in collected])
            if len(parameters[-1]) == len(own):
                break
    by_name = {parameter.name: parameter for own in reversed(parameters) for parameter in own}  # In the order of the bases.
    shown = [
        parameter.replace(
            kind=inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=shown_default(parameter.default),
        )
        for parameter in by_name.values()
    ]
    return inspect.Signature(sorted(shown, key=lambda parameter: parameter.default is not parameter.empty))


def show_constructor(app, what, name, obj, options, signature, return_annotation):
    """Give classes that record their arguments the signature of their constructor: Sphinx finds that of the recorder."""
    from rlpyt.utils.recipes import Recorded

    if what == "class" and isinstance(obj, type) and issubclass(obj, Recorded) and obj is not Recorded:
        return stringify_signature(constructor(obj), unqualified_typehints=True), None
    return None


def setup(app):
    """Called by Sphinx."""
    app.connect("autodoc-process-signature", show_constructor)
    app.connect("autodoc-skip-member", skip_member)
    app.connect("autodoc-process-bases", name_bases)
    app.connect("autodoc-process-docstring", shorten_record, priority=50)
    app.add_directive("command-help", CommandHelp)
    app.connect("autodoc-process-docstring", docstrings.process, priority=100)  # Before napoleon, which has 500.
