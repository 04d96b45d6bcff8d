"""Objects as data, and the same objects made again."""

import copy
import dataclasses
import enum
import functools
import importlib
import json
import pickle
import re
import sys
import types
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
import torch

from rlpyt.utils.recipes import TAGS, Recorded, Script, defaults_of, describe, describe_call, make, make_call, readable, running_script

ELSEWHERE = Script("/nowhere/script.py")
Point = namedtuple("Point", ["x", "y"])


class Color(enum.Enum):
    RED = 1


@dataclasses.dataclass(frozen=True)
class Size:
    height: int
    width: int = 3


class Part(Recorded):
    def __init__(self, a, b=2, *rest, c=3, **others):
        self.a, self.b, self.rest, self.c, self.others = a, b, rest, c, others


class SubclassThatCallsNoBase(Part):
    def __init__(self, size):
        self.size = size


class Forwards(Part):
    def __init__(self, d=4, **kwargs):
        super().__init__(**kwargs)
        self.d = d


class PlainClass:
    def __init__(self, x, y=5):
        self.x, self._y = x, y


class Outer:
    class Inner:
        pass


def find(tag, name):
    """What a trusting reader takes a name for."""
    assert tag == "$name", "nothing of a script was named"
    module, _, qualname = name.partition(":")
    return functools.reduce(getattr, qualname.split("."), importlib.import_module(module))


def through_json(value):
    recipe, unknown = describe(value, ELSEWHERE)
    assert not unknown
    return make(json.loads(json.dumps(recipe)), find)


VALUES = [
    None,
    True,
    3,
    2.5,
    float("inf"),
    "text",
    [1, [2]],
    (1, (2, "a")),
    {1, 2},
    {"a": {"b": (1,)}},
    {1: "a", ("b", 2): None},
    {"$name": "os:system"},  # Of a user, who means just that.
    torch.nn.ReLU,
    Outer.Inner,
    np.float32,
    torch.relu,
    functools.partial,
    Color.RED,
    Point(1, (2,)),
    Size(4),
    Path("/a/b"),
    torch.float16,
    torch.device("cpu"),
    range(1, 9, 2),
    torch.nn.functional.gelu,
]


@pytest.mark.parametrize("value", VALUES, ids=[f"{i} {type(value).__name__}" for i, value in enumerate(VALUES)])
def test_values_come_back_as_they_were(value):
    assert through_json(value) == value and type(through_json(value)) is type(value)


@dataclasses.dataclass(init=False)
class Derived:
    height: int
    area: int

    def __init__(self, height):
        self.height, self.area = height, height**2


def test_a_dataclass_whose_constructor_does_not_take_its_fields_is_unknown():
    recipe, unknown = describe(dict(size=Derived(3)), ELSEWHERE)
    assert recipe["size"].keys() == {"$unknown"} and unknown.keys() == {"size"}


def test_arrays_and_partials_come_back_as_they_were():
    array = np.array([[1, 2]], np.int16)
    np.testing.assert_array_equal(through_json(array), array)
    assert through_json(np.zeros((0, 3))).shape == (0, 3) and through_json(torch.zeros(2, 0)).shape == (2, 0)
    assert through_json(array).dtype == np.int16 and through_json(array.dtype) == array.dtype
    torch.testing.assert_close(through_json(torch.tensor([1.5])), torch.tensor([1.5]))
    assert through_json(np.float32(0.5)) == 0.5
    made = through_json(functools.partial(Size, 7, width=(8,)))
    assert made() == Size(7, (8,)) and isinstance(made, functools.partial)


@pytest.mark.parametrize(
    "part, expected",
    [
        (lambda: Part(1), dict(a=1, b=2, rest=(), c=3, others={})),
        (lambda: Part(1, b=5, c=6, d=7), dict(a=1, b=5, rest=(), c=6, others=dict(d=7))),
        (lambda: Part(1, 2, 3, 4, c=5), dict(a=1, b=2, rest=(3, 4), c=5, others={})),
        (lambda: SubclassThatCallsNoBase((3, 4)), dict(size=(3, 4))),
        (lambda: Forwards(a=[1], d=9, z=8), dict(a=[1], b=2, rest=(), c=3, others=dict(z=8), d=9)),
        (lambda: Part(Part(1)), None),
    ],
)
def test_objects_are_made_again_by_the_same_call(part, expected):
    part = part()
    made = through_json(part)
    assert type(made) is type(part)
    if expected is None:
        assert made.a.a == 1
    else:
        assert {name: value for name, value in vars(made).items() if name != "_made_with"} == expected


def test_arguments_may_be_others_the_next_time():
    call, _ = describe_call(Part(1, b=5), ELSEWHERE)
    assert make_call(call, find, b=6).b == 6 and make_call(call, find, c=7).c == 7


def test_copies_and_pickles_do_without_the_arguments_and_are_described_by_their_attributes():
    class WithoutCallback(Part):
        def __init__(self, a, callback):
            super().__init__(a)

    part = WithoutCallback(1, lambda: 0)
    pickle.loads(pickle.dumps(part.__getstate__()))
    for each in (copy.copy(Part(1)), copy.deepcopy(Part(1)), pickle.loads(pickle.dumps(Part(1)))):
        assert "_made_with" not in vars(each) and through_json(each).a == 1


def test_an_object_that_does_not_remember_is_described_by_its_attributes():
    call, unknown = describe_call(PlainClass(1), ELSEWHERE)
    assert call["arguments"] == dict(x=1) and not unknown


def test_parts_are_named_and_not_described_twice():
    agent = Part(1)
    runner = Part(agent, b=[agent])
    call, _ = describe_call(runner, ELSEWHERE, dict(agent=agent, runner=runner))
    assert call["arguments"] == dict(a={"$part": "agent"}, b=[{"$part": "agent"}])
    made = make_call(call, find, dict(agent="an agent"))
    assert made.a == "an agent" and made.b == ["an agent"]


def test_what_cannot_be_written_is_named_by_its_place(tmp_path):
    class Local:
        pass

    with open(tmp_path / "a", "w") as file:
        value = dict(a=[1, lambda: 0], b=dict(c=Local), d=file, e=np.zeros(2000))
        recipe, unknown = describe(value, ELSEWHERE, where="sampler.env_kwargs")
    assert unknown == {
        "sampler.env_kwargs.a[1]": "a lambda",
        "sampler.env_kwargs.b.c": "test_what_cannot_be_written_is_named_by_its_place.<locals>.Local, which is defined inside a function",
        "sampler.env_kwargs.d": "an object of _io.TextIOWrapper",
        "sampler.env_kwargs.e": "an object of numpy.ndarray",
    }
    json.dumps(recipe)
    with pytest.raises(ValueError, match="cannot be made again: it was a lambda"):
        make(recipe, find)


def test_state_dictionaries_are_left_to_snapshots():
    call, unknown = describe_call(Part(1, initial_model_state_dict=dict(w=object())), ELSEWHERE)
    assert call["arguments"] == dict(a=1) and not unknown


def test_names_of_the_script_are_told_apart():
    script = Script(__file__)
    recipe, _ = describe([Size, Color.RED, torch.nn.ReLU], script)
    assert recipe == [{"$script": "Size"}, {"$script": "Color.RED"}, {"$name": "torch.nn.modules.activation:ReLU"}]
    assert make(recipe, lambda tag, name: (tag, name)) == [
        ("$script", "Size"),
        ("$script", "Color.RED"),
        ("$name", "torch.nn.modules.activation:ReLU"),
    ]


@pytest.mark.parametrize(
    "recipe",
    [
        {"$nothing": 1},
        {"$tuple": [1], "b": 2},
        {"$make": 1},
        {"$make": {"class": {"$name": "os:path"}, "arguments": []}},
        {"$partial": {}},
        {"$tuple": 3},
        {"$dict": [1]},
        {"$array": {"values": [1]}},
        {"$torch": "load"},
        {"$part": "nobody"},
        {"$tensor": []},
        {"$read": [1]},
        {"$call": 1},
        {"$_getattribute__": "find"},
        {"$make": {"class": {"$_getattribute__": "find"}, "arguments": {}}},
        {"$make": {"class": {"$part": "agent"}, "arguments": {}}},
        {"$make": {"class": "os:system", "arguments": {}}},
    ],
)
def test_malformed_recipes_are_value_errors(recipe):
    with pytest.raises(ValueError):
        make(recipe, find)


def test_every_tag_of_the_table_is_read():
    recipe, _ = describe(VALUES, ELSEWHERE)
    assert set(re.findall(r'"(\$[a-z]+)":', json.dumps(recipe))) <= set(TAGS)
    for tag in TAGS:
        with pytest.raises((ValueError, ImportError, AssertionError, AttributeError)) as error:
            make({tag: object()}, find)
        assert "is not a tag" not in str(error.value)


class PositionalOnly(Recorded):
    def __init__(self, a, /, b=2, **others):
        self.a, self.b, self.others = a, b, others


def test_arguments_that_can_only_be_given_by_position_are_given_so_again():
    made = through_json(PositionalOnly(3, b=4, c=5))
    assert (made.a, made.b, made.others) == (3, 4, dict(c=5))


def test_what_is_changed_after_it_was_given_is_recorded_as_it_was_given():
    settings = dict(sizes=[1, 2])
    part = Part(settings)
    settings["sizes"].append(3)
    del part.a["sizes"]
    assert through_json(part).a == dict(sizes=[1, 2])


@pytest.mark.parametrize("value", [np.dtype([("a", "f4")]), np.zeros(2, "f4,i4"), re.RegexFlag.A | re.RegexFlag.I])
def test_what_would_come_back_as_something_else_is_not_written(value):
    assert describe(value, ELSEWHERE)[1]


def test_defaults_are_the_values_that_the_object_has():
    part = Forwards(a=1)
    part.c = 30
    assert defaults_of(part) == dict(d=4, b=2, c=30)


def test_a_readable_recipe_has_no_tags():
    recipe, _ = describe(dict(a=(1, 2), b=torch.nn.ReLU, c=Size(4), d=np.arange(2), e={1: 2}), ELSEWHERE)
    assert readable(recipe) == dict(
        a=[1, 2],
        b="torch.nn.modules.activation.ReLU",
        c=dict({"class": f"{__name__}.Size"}, height=4, width=3),
        d=[0, 1],
        e=[[1, 2]],
    )


def test_the_running_script_is_that_of_the_process(monkeypatch):
    main = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert running_script() == Script(None), "in an interactive session"
    main.__file__ = "a.py"
    assert running_script() == Script(str(Path("a.py").absolute()))
    main.__spec__ = types.SimpleNamespace(name="package.a")
    assert running_script().module == "package.a"
