"""Docstrings are written to be read where they stand; this makes reStructuredText of their conventions.

- Lines ``name: what it is`` for parameters, in a paragraph of their own, are a list of arguments.
- What is indented after an empty line is code, or a picture.
- Outside backticks no character is markup: shapes are written ``[*lead,n]``, absolute values ``|x|``, returns ``return_``.
"""

from __future__ import annotations

import inspect
import re

CODE = re.compile(r"(``.+?``|`.+?`)")
MARKUP = re.compile(r"(?<!^)\*|\*(?=\S)|\||(?<=\w)_(?!\w)")
LISTED = re.compile(r"(\w+)(, \w+)*: ")


def process(app, what, name, obj, options, lines):
    """Change the lines of a docstring in place; for Sphinx's event autodoc-process-docstring, before napoleon sees them."""
    lines[:] = escaped(with_literal_blocks(with_argument_lists(lines, parameters(obj))))


def parameters(obj):
    """Names of the parameters of a function or class."""
    try:
        return set(inspect.signature(obj).parameters)
    except (TypeError, ValueError):
        return set()


def with_argument_lists(lines, names):
    """Put "Args:" before paragraphs that list parameters, and indent them."""
    listing = False
    for i, line in enumerate(lines):
        starts = bool((match := LISTED.match(line)) and match[1] in names)
        if starts and not listing and (i == 0 or not lines[i - 1].strip()):
            listing = True
            yield "Args:"
        listing = listing and bool(line.strip())
        yield ("    " if starts else "        ") + line if listing else line


def with_literal_blocks(lines):
    """Put "::" before paragraphs that are indented after an empty line."""
    above = ""  # The last line that is not empty.
    is_after_gap, block = False, None
    for line in lines:
        if not line.strip():
            is_after_gap = True
            yield line
            continue
        if block is not None and indent(line) < block:
            block = None
        if block is None and is_after_gap and indent(line) > indent(above):
            block = indent(line)
            if not above.endswith("::") and not above.lstrip().startswith(("- ", "* ")):
                yield " " * indent(above) + "::"
                yield ""
        above, is_after_gap = line, False
        yield line


def escaped(lines):
    """Put a backslash before characters that would be markup, in the lines outside literal blocks."""
    block, above = None, ""
    for line in lines:
        if line.strip():
            if block is not None and indent(line) <= block:
                block = None
            if block is None and above.endswith("::"):
                block = indent(above)
            above = line
        if block is None:
            line = "".join(part if i % 2 else MARKUP.sub(r"\\\g<0>", part) for i, part in enumerate(CODE.split(line)))
        yield line


def indent(line):
    """Number of spaces before a line."""
    return len(line) - len(line.lstrip())
