"""The API reference has every public module once, and makes reStructuredText of docstrings as they are written here."""

import pkgutil
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

import rlpyt

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "docs")]
import docstrings  # noqa: E402
import reference  # noqa: E402

INTERNAL = {  # What other modules are made of; nothing to import in a script.
    "rlpyt.agents.exchange",
    "rlpyt.agents.spaces",
    "rlpyt.algos.cuda_graph",
    "rlpyt.algos.hyperparameters",
    "rlpyt.algos.optimizers",
    "rlpyt.episodes.samples",
    "rlpyt.episodes.segments",
    "rlpyt.models.questions",
    "rlpyt.replays.batches",
    "rlpyt.replays.draws",
    "rlpyt.replays.episode_ends",
    "rlpyt.replays.final_observations",
    "rlpyt.replays.prioritized",
    "rlpyt.replays.ring",
    "rlpyt.replays.storage",
    "rlpyt.runners.calibration",
    "rlpyt.runners.checkpoint",
    "rlpyt.runners.group",
    "rlpyt.runners.screen",
    "rlpyt.runners.states",
    "rlpyt.samplers.traj_infos",
    "rlpyt.samplers.episodic.recorder",
    "rlpyt.samplers.ray.actors",
    "rlpyt.samplers.ready",
    "rlpyt.samplers.rows",
    "rlpyt.samplers.signals",
    "rlpyt.samplers.stepping",
    "rlpyt.samplers.vector",
    "rlpyt.samplers.kernels",
    "rlpyt.samplers.workers",
    "rlpyt.utils.completed",
    "rlpyt.utils.extras",
    "rlpyt.utils.interrupt",
    "rlpyt.utils.kernels",
    "rlpyt.utils.launching.halving",
    "rlpyt.utils.launching.journal",
    "rlpyt.utils.launching.proposals",
    "rlpyt.utils.launching.ray_cluster",
    "rlpyt.utils.launching.resources",
    "rlpyt.utils.launching.search_picture",
    "rlpyt.utils.launching.search_status",
    "rlpyt.utils.launching.sweep",
    "rlpyt.utils.lazy",
    "rlpyt.utils.left_out",
    "rlpyt.utils.logging.store",
    "rlpyt.utils.logging.tabular",
    "rlpyt.utils.logging.writers",
    "rlpyt.utils.names_elsewhere",
    "rlpyt.utils.plain",
    "rlpyt.utils.shared_int",
    "rlpyt.utils.stopwatch",
    "rlpyt.utils.structures",
    "rlpyt.utils.text",
}


def documented_modules():
    pages = [page.read_text() for page in sorted((ROOT / "docs" / "api").glob("*.rst"))]
    return [module for page in pages for module in re.findall(r"automodule:: ([\w.]+)", page)]


def aliases():
    """The modules that only are other paths to what is documented elsewhere, and the first lines of their docstrings."""
    for path in sorted((ROOT / "rlpyt").rglob("*.py")):
        first_line = path.read_text().partition("\n")[0]
        if first_line.startswith('"""Another path to '):
            yield ".".join(path.relative_to(ROOT).with_suffix("").parts), first_line


def public_modules():
    modules = pkgutil.walk_packages(rlpyt.__path__, "rlpyt.")
    names = {module.name for module in modules if not module.ispkg and not module.name.endswith("__main__")}
    return (
        {name for name in names if not name.startswith(("rlpyt.experiments.configs.", "rlpyt.cli."))}
        - INTERNAL
        - {alias for alias, _ in aliases()}
    )


@pytest.mark.parametrize("alias, first_line", list(aliases()))
def test_another_path_leads_to_the_same_names(alias, first_line):
    module, homes = import_module(alias), [import_module(name) for name in re.findall(r"`([\w.]+)`", first_line)]
    names = [name for name, value in vars(module).items() if getattr(value, "__module__", None) in {home.__name__ for home in homes}]
    assert names or hasattr(module, "__getattr__")
    assert all(any(getattr(module, name) is getattr(home, name, None) for home in homes) for name in names)


def test_every_public_module_is_in_the_reference_once():
    documented = documented_modules()
    assert len(documented) == len(set(documented))
    documented = set(documented) - {"rlpyt.experiments.configs"}
    missing, gone = sorted(public_modules() - documented), sorted(documented - public_modules())
    assert not missing, f"Put these on a page of docs/api, or into INTERNAL above: {missing}"
    assert not gone, f"There are no such modules any more: {gone}"


def processed(text, obj=None):
    lines = text.splitlines()
    docstrings.process(None, "function", "name", obj, None, lines)
    return lines


def test_lines_that_name_parameters_become_a_list_of_arguments():
    def function(x, y=None):
        pass

    text = "Do it.\n\nx: the first\n    of two.\ny: `None` for none.\nnot: a parameter.\n\nx: again."
    lists = ["Args:", "    x: the first", "            of two.", "    y: `None` for none.", "        not: a parameter."]
    assert processed(text, function) == ["Do it.", "", *lists, "", "Args:", "    x: again."]


def test_indented_paragraphs_are_literal():
    text = "Write:\n\n    a[*i] = b_\n\n    c\n\nas [*lead].\n\n- item\n\n  of a list"
    expected = ["Write:", "", "::", "", "    a[*i] = b_", "", "    c", "", r"as [\*lead].", "", "- item", "", "  of a list"]
    assert processed(text) == expected


def test_characters_outside_backticks_are_text():
    assert processed("`a_` is ``|b|``, |x|, return_ [*lead], **kwargs.") == [r"`a_` is ``|b|``, \|x\|, return\_ [\*lead], \*\*kwargs."]
    assert processed("* item\n- a * b") == ["* item", r"- a \* b"]


def test_a_class_is_shown_with_the_arguments_that_it_hands_on():
    class Base:
        def __init__(self, size, kind=dict, *, shift=0):
            pass

    class Derived(Base):
        def __init__(self, *args, kind=list, limit, **kwargs):
            super().__init__(*args, kind=kind, **kwargs)

    class Same(Derived):
        pass

    for cls in (Derived, Same):
        assert str(reference.constructor(cls)) == "(size, limit, kind=list, shift=0)"
    assert str(reference.constructor(Base)) == "(size, kind=dict, shift=0)"


def test_members_of_named_tuples_are_left_out():
    from collections import namedtuple

    from rlpyt.utils.collections import namedarraytuple

    Plain, Arrays = namedtuple("Plain", "a b"), namedarraytuple("Arrays", "a b")
    for name in ("a", "b"):
        assert reference.skip_member(None, "class", name, vars(Plain)[name], False, None)
    for name in ("get", "items"):
        assert reference.skip_member(None, "class", name, getattr(Arrays, name), False, None)
    assert reference.skip_member(None, "module", "Plain", Plain, False, None)
    assert reference.skip_member(None, "class", "get", dict.get, False, None) is None
