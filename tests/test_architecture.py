"""Packages import only what stands below them, a class gets its behaviour from one base, few places ask what objects have, and no module
imports private names of another.
"""

import ast
import inspect
import pkgutil
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import Generic, Protocol

import pytest

import rlpyt

ROOT = Path(__file__).parents[1] / "rlpyt"
ORDER = [  # From the top.
    "__main__",
    "cli",
    "experiment",
    "experiments",
    "runners",
    "algos",
    "samplers",
    "replays",
    "agents",
    "episodes",
    "envs",
    "models",
    "distributions",
    "spaces",
    "types",
    "returns",
    "utils",
]
LEVEL = {package: level for level, package in enumerate(reversed(ORDER))}


def is_type_checking(test):
    return getattr(test, "id", getattr(test, "attr", None)) == "TYPE_CHECKING"


def is_module(name):
    path = ROOT.parent.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or path.is_dir()


def imports(node, package):
    """The modules of rlpyt that a piece of source imports when it runs, also inside functions; `package` is its own."""
    if isinstance(node, ast.If) and is_type_checking(node.test):
        children = node.orelse
    else:
        children = ast.iter_child_nodes(node)
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name.startswith("rlpyt."))
    elif isinstance(node, ast.ImportFrom):
        base = ".".join([*package[: len(package) - node.level + 1], *filter(None, [node.module])]) if node.level else node.module
        if base == "rlpyt":
            yield from (f"rlpyt.{alias.name}" for alias in node.names if alias.name in LEVEL)
        elif base.startswith("rlpyt."):
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names if is_module(f"{base}.{alias.name}"))
    for child in children:
        yield from imports(child, package)


@cache
def all_imports():
    """Pairs of modules of rlpyt of which the first imports the second, without the leading ``rlpyt.``."""
    pairs = []
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        package, name = parts[:-1], ".".join(parts[1:]).removesuffix(".__init__")
        if len(parts) > 2 or name == "__main__" or name in LEVEL:
            for imported in imports(ast.parse(path.read_text()), package):
                pairs.append((name, imported.removeprefix("rlpyt.")))
    return pairs


def stands_above(module, other):
    return LEVEL[module.split(".")[0]] > LEVEL[other.split(".")[0]]


def circles(imported_by):
    """The groups of modules that import each other, directly or by way of others; `imported_by` maps a module to those it imports."""
    reached = {}
    for start in imported_by:
        found, new = set(), {start}
        while new:
            new = set().union(*(imported_by.get(module, ()) for module in new)) - found
            found |= new
        reached[start] = found
    in_one = {start: found for start, found in reached.items() if start in found}
    return {frozenset(other for other in found if start in in_one.get(other, ())) for start, found in in_one.items()}


def test_no_modules_import_each_other():
    imported_by = {}
    for module, imported in all_imports():
        if imported != module:  # A package that imports modules from itself.
            imported_by.setdefault(module, set()).add(imported)
    assert not circles(imported_by)


def test_circles_are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}}) == {frozenset("abc")}
    assert not circles({"a": {"b", "c"}, "b": {"c"}})


def test_packages_import_only_what_stands_below_them():
    upwards = sorted((name, imported) for name, imported in all_imports() if stands_above(imported, name))
    assert not upwards, f"These modules import what stands above them: {upwards}"


@pytest.mark.parametrize(
    "source, found",
    [
        ("from rlpyt.utils.buffer import a", ["rlpyt.utils.buffer"]),
        ("def f():\n    import rlpyt.utils.seed, os", ["rlpyt.utils.seed"]),
        ("from rlpyt import utils", ["rlpyt.utils"]),
        ("from rlpyt.utils import seed, a", ["rlpyt.utils", "rlpyt.utils.seed"]),
        ("from . import a\nfrom ..b import c", ["rlpyt.agents.pg", "rlpyt.agents.b"]),
        ("if TYPE_CHECKING:\n    import rlpyt.algos\nelse:\n    import rlpyt.utils", ["rlpyt.utils"]),
    ],
)
def test_imports_are_found_wherever_they_are(source, found):
    assert list(imports(ast.parse(source), ("rlpyt", "agents", "pg"))) == found


# ------------------------------------------------------------------------------------------------------------------
# Several bases
# ------------------------------------------------------------------------------------------------------------------
MOST_WITH_SEVERAL_BASES = 34  # Only to become smaller: documented names ask for these, and a new class takes parts instead.


def defines_behaviour(cls):
    """Whether a class, or one that it derives from, defines a function or property."""
    values = [value for base in cls.__mro__ if base not in (object, Protocol, Generic) for value in vars(base).values()]
    return any(inspect.isroutine(value) or isinstance(value, (property, cached_property)) for value in values)


def classes_of_rlpyt():
    """All classes that the modules of rlpyt define."""
    for module in pkgutil.walk_packages(rlpyt.__path__, "rlpyt."):
        if not module.name.endswith("__main__"):
            yield from (cls for cls in vars(import_module(module.name)).values() if getattr(cls, "__module__", None) == module.name)


def test_few_classes_have_several_bases_that_define_behaviour():
    classes = {cls for cls in classes_of_rlpyt() if isinstance(cls, type)}
    several = sorted(f"{cls.__module__}.{cls.__name__}" for cls in classes if sum(map(defines_behaviour, cls.__bases__)) > 1)
    assert len(several) <= MOST_WITH_SEVERAL_BASES, f"{len(several)} classes have several bases that define behaviour: {several}"


def test_a_base_that_only_names_parts_defines_no_behaviour():
    class Names:
        part = dict

    class Inherits(Names):
        recurrent = True

    class Defines(Inherits):
        @property
        def width(self):
            return 1

    assert [defines_behaviour(cls) for cls in (Names, Inherits, Defines, type("Derived", (Defines,), {}))] == [False, False, True, True]


MOST_QUESTIONS = 90  # This number is only to become smaller.


def questions(source):
    """The lines of a piece of source that ask an object whether it has an attribute: by hasattr, or by getattr with a default."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    return [call.lineno for call in calls if (call.func.id, len(call.args)) in (("hasattr", 2), ("getattr", 3))]


def test_few_places_ask_whether_an_object_has_an_attribute():
    found = [f"{path.relative_to(ROOT)}:{line}" for path in sorted(ROOT.rglob("*.py")) for line in questions(path.read_text())]
    assert len(found) <= MOST_QUESTIONS, (
        "Give attributes of our classes a default in the class. Declare optional attributes of other objects in a subclass of "
        f"rlpyt.utils.completed.Completed. Read optional fields by rlpyt.utils.collections.field_of. Asked are: {found}"
    )


def test_questions_are_found_in_expressions_and_definitions():
    assert questions("hasattr(a, 'b')\ndef f():\n    return [getattr(a, 'b', None), getattr(a, 'b'), a.getattr(1, 2, 3)]") == [1, 3]


def private_names(source):
    """The private names that a piece of source imports from other modules of rlpyt."""
    froms = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    names = [alias.name for node in froms if node.level or (node.module or "").startswith("rlpyt") for alias in node.names]
    return [name for name in names if name.startswith("_") and not name.startswith("__")]


def test_no_module_imports_the_private_names_of_another():
    found = {str(path.relative_to(ROOT)): names for path in sorted(ROOT.rglob("*.py")) if (names := private_names(path.read_text()))}
    assert not found, f"What two modules use is public, or belongs into one of them: {found}"


def test_private_names_are_found_wherever_they_are_imported():
    assert private_names("from rlpyt.a import _b, c\ndef f():\n    from .d import _e\n    from os import _exit") == ["_b", "_e"]
