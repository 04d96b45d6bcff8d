import multiprocessing
import pickle
import subprocess
import sys
from collections import namedtuple

import numpy as np
import pytest
import torch
from tiers import full, processes, start_methods

from rlpyt.utils.collections import (
    AttrDict,
    NamedArrayTuple,
    NamedArrayTupleSchema,
    NamedArrayTupleSchema_like,
    NamedTuple,
    NamedTupleSchema,
    dynamic_namedtuple,
    is_namedarraytuple,
    is_namedarraytuple_class,
    is_namedtuple,
    is_namedtuple_class,
    namedarraytuple,
    namedarraytuple_like,
)

Points = namedarraytuple("Points", ["x", "y"])
PlainPoints = namedtuple("PlainPoints", ["x", "y"])


class PointsWithMethod(namedarraytuple("PointsWithMethod", "x y")):
    __slots__ = ()

    def total(self):
        return self.x.sum() + self.y.sum()


def make(kind):
    cls = Points if kind == "nat" else NamedArrayTupleSchema("Points", ["x", "y"])
    return cls(np.array([0, 1]), np.array([10, 11])), cls


@pytest.fixture(params=["nat", "schema"])
def points(request):
    return make(request.param)


def test_reading_indexes_every_field_and_keeps_the_type(points):
    p, _ = points
    assert type(p[0]) is type(p)
    assert p[0].x == 0 and p[0].y == 10
    np.testing.assert_array_equal(p[1:].y, [11])


def test_none_stays_none_in_reads(points):
    p, cls = points
    q = cls(p.x, None)
    assert q[0].x == 0 and q[0].y is None


def test_a_value_with_the_same_fields_is_written_field_by_field(points):
    p, cls = points
    p[1] = cls(3, 30)
    np.testing.assert_array_equal(p.x, [0, 3])
    np.testing.assert_array_equal(p.y, [10, 30])
    p[0] = PlainPoints(5, 6)  # Another type with the same fields.
    assert p[0].x == 5 and p[0].y == 6


def test_any_other_value_is_written_into_every_field(points):
    p, cls = points
    p[1] = 2
    assert p.x[1] == 2 and p.y[1] == 2
    q = cls(np.zeros((2, 3)), np.zeros((2, 3)))
    q[0] = (1, 2, 3)  # A plain tuple is a value like another.
    np.testing.assert_array_equal(q.y[0], [1, 2, 3])


def test_fields_that_are_none_on_both_sides_are_skipped_in_writes(points):
    p, cls = points
    q = cls(p.x, None)
    q[0] = cls(7, None)
    q[1] = 8
    np.testing.assert_array_equal(q.x, [7, 8])


def test_a_missing_destination_or_value_is_an_error_that_names_the_field(points):
    p, cls = points
    with pytest.raises(TypeError, match="'y' of Points"):
        cls(p.x, None)[0] = cls(1, 2)
    with pytest.raises(TypeError, match="'y' of Points"):
        p[0] = cls(1, None)
    floats = cls(np.ones(3), np.ones(3))  # An array of floats would take None for NaN.
    with pytest.raises(TypeError, match="'y' of Points"):
        floats[0] = cls(2, None)
    np.testing.assert_array_equal(floats.y, 1)
    objects = cls(np.ones(3), np.array(["a", "b", "c"], object))
    objects[1] = cls(2, None)
    assert objects.y.tolist() == ["a", None, "c"]


def test_index_errors_name_class_and_field(points):
    p, cls = points
    with pytest.raises(IndexError, match="'x' of Points"):
        p[5]
    with pytest.raises(IndexError, match="'y' of Points"):
        cls(np.zeros(9), np.zeros(2))[5] = 0


def test_writing_reaches_nested_structures_and_tensors(points):
    _, cls = points
    p = cls(torch.zeros(4), cls(np.zeros((4, 2)), None))
    p[2:] = cls(torch.ones(2), cls(3, None))
    assert p.x.tolist() == [0, 0, 1, 1]
    np.testing.assert_array_equal(p.y.x[:, 0], [0, 0, 3, 3])


def test_in_get_items_len_and_unpacking(points):
    p, _ = points
    assert "x" in p and "z" not in p and 0 not in p
    assert p.get(1) is p.y and p.get(slice(0, 1)) == (p.x,)
    assert [name for name, _ in p.items()] == ["x", "y"]
    x, y = p
    assert x is p.x and y is p.y and len(p) == 2 and bool(p)


@pytest.mark.parametrize("name", ["get", "items"])
def test_names_of_methods_are_rejected_as_fields(name):
    with pytest.raises(ValueError, match=name):
        namedarraytuple("Bad", ["x", name])
    with pytest.raises(ValueError, match=name):
        NamedArrayTupleSchema("Bad", ["x", name])


def test_types_with_no_or_many_fields_work():
    assert namedarraytuple("Empty", [])()[3] == ()
    many = namedarraytuple("Many", [f"f{i}" for i in range(40)])(*np.arange(80).reshape(40, 2))
    many[0] = 0
    assert many[0].f39 == 0 and many[1].f39 == 79


def test_trailing_defaults_and_both_classes():
    nat, nt = namedarraytuple("D", "a,b", return_namedtuple_cls=True, classname_suffix=True, defaults=(None,))
    assert nat(1).b is None and nat.__name__ == "D_nat" and nt.__name__ == "D_nt" and issubclass(nat, nt)


def test_predicates():
    p, q = Points(1, 2), PlainPoints(1, 2)
    assert is_namedarraytuple(p) and not is_namedtuple(p) and is_namedarraytuple_class(Points) and not is_namedtuple_class(Points)
    assert is_namedtuple(q) and not is_namedarraytuple(q) and is_namedtuple_class(PlainPoints)
    assert is_namedarraytuple_class(PointsWithMethod)
    assert not is_namedtuple((1, 2)) and not is_namedarraytuple([1]) and not is_namedtuple_class(tuple)


def test_namedarraytuple_like():
    assert namedarraytuple_like(Points) is Points and namedarraytuple_like(Points(1, 2)) is Points
    cls = namedarraytuple_like(PlainPoints(1, 2))
    assert cls is namedarraytuple_like(PlainPoints) and cls._fields == ("x", "y") and is_namedarraytuple_class(cls)
    schema = NamedTupleSchema("S", "a b")
    assert namedarraytuple_like(schema) == NamedArrayTupleSchema("S", ["a", "b"]) == NamedArrayTupleSchema_like(schema(1, 2))
    with pytest.raises(TypeError, match="Expected a namedtuple"):
        namedarraytuple_like([1, 2])


def make_local(kind):
    if kind == "namedarraytuple":
        return namedarraytuple("Local", ["a", "b"])(np.arange(3), None)
    if kind == "dynamic_namedtuple":
        return dynamic_namedtuple("Local", ["a", "b"])(np.arange(3), None)
    return NamedArrayTupleSchema("Local", ["a", "b"])(np.arange(3), None)


@pytest.mark.parametrize("kind", ["namedarraytuple", "dynamic_namedtuple", "schema"])
def test_types_made_at_run_time_pickle(kind):
    local = make_local(kind)
    copy = pickle.loads(pickle.dumps(local))
    assert copy._fields == ("a", "b") and copy.b is None
    np.testing.assert_array_equal(copy.a, [0, 1, 2])
    assert is_namedarraytuple(copy) == is_namedarraytuple(local)


@pytest.mark.parametrize("default", [[], {"a": 1}, np.zeros(2), 0, False, 0.0, float("nan")], ids=repr)
def test_types_made_at_run_time_keep_their_defaults_whatever_these_are(default):
    local = namedarraytuple("Local", ["a", "b"], defaults=(default,))(1)
    copy, again = (pickle.loads(pickle.dumps(local)) for _ in range(2))
    assert repr(copy) == repr(local) and type(copy) is type(again)
    assert repr(type(copy)(2).b) == repr(default)


def test_module_level_types_pickle_by_reference():
    assert pickle.loads(pickle.dumps(Points)) is Points
    assert type(pickle.loads(pickle.dumps(Points(1, 2)))) is Points
    assert pickle.loads(pickle.dumps(PointsWithMethod(np.ones(2), np.ones(2)))).total() == 4


def test_dynamic_namedtuples_of_one_recipe_are_one_type():
    assert dynamic_namedtuple("info", ["a"]) is dynamic_namedtuple("info", ("a",))
    assert dynamic_namedtuple("info", ["a"]) is not dynamic_namedtuple("info", ["b"])
    assert pickle.loads(pickle.dumps(dynamic_namedtuple("info", ["a"]))) is dynamic_namedtuple("info", ["a"])


def send_back(pipe, structure):
    pipe.send((type(structure).__name__, structure._fields, structure[0].a))


@pytest.mark.parametrize("method", start_methods("fork", "spawn", "forkserver"))
def test_structures_reach_other_processes(method):
    context = multiprocessing.get_context(method)
    mine, theirs = context.Pipe()
    process = context.Process(target=send_back, args=(theirs, make_local("namedarraytuple")))
    process.start()
    assert mine.poll(60) and mine.recv() == ("Local", ("a", "b"), 0)
    process.join(60)


@full
@processes
def test_types_of_the_main_script_reach_spawned_processes(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import multiprocessing, numpy as np\n"
        "from rlpyt.utils.collections import namedarraytuple\n"
        "Top = namedarraytuple('Top', ['a'])\n"
        "def child(x, y):\n    print(x[1].a, y[1].b, type(x) is Top, flush=True)\n"
        "if __name__ == '__main__':\n"
        "    Inner = namedarraytuple('Inner', ['b'])\n"
        "    p = multiprocessing.get_context('spawn').Process(target=child, args=(Top(np.arange(2)), Inner(np.arange(2))))\n"
        "    p.start(); p.join(); assert p.exitcode == 0\n"
    )
    out = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert out.returncode == 0, out.stderr
    assert out.stdout.split() == ["1", "1", "True"]


def test_schemas_act_like_namedtuple_types():
    schema = NamedTupleSchema("S", "a, b")
    s = schema(1, b=2)
    assert s == (1, 2) and s.a == 1 and s._asdict() == {"a": 1, "b": 2} and s._replace(a=5) == (5, 2)
    assert isinstance(s, NamedTuple) and isinstance(NamedArrayTupleSchema("S", "a")(1), NamedArrayTuple)
    assert pickle.loads(pickle.dumps(schema)) == schema and pickle.loads(pickle.dumps(s)).b == 2
    assert repr(s) == "S(a=1, b=2)" and hasattr(s, "a") and not hasattr(s, "c")


def test_schemas_refuse_bad_calls_and_changes():
    schema = NamedTupleSchema("S", "a b")
    for args, kwargs in [((1,), {}), ((1, 2, 3), {}), ((1, 2), {"b": 3}), ((1, 2), {"c": 3})]:
        with pytest.raises(TypeError):
            schema(*args, **kwargs)
    with pytest.raises(ValueError):
        schema(1, 2)._replace(c=3)
    with pytest.raises(AttributeError):
        schema.other = 1
    with pytest.raises(AttributeError, match="_replace"):
        schema(1, 2).a = 3


@pytest.mark.parametrize("fields", ["a, b c", "_a", "index", "count", "a a", "1a", ["a-b"]])
def test_schemas_refuse_bad_field_names(fields):
    with pytest.raises(ValueError):
        NamedTupleSchema("S", fields)


def test_attrdict_keys_are_attributes_and_copies_are_deep_along_attrdicts():
    array = np.zeros(2)
    d = AttrDict(a=1, inner=AttrDict(array=array), plain={"x": 1})
    d.b = 2
    assert d["b"] == 2 and d.a == 1
    copy = d.copy()
    copy.inner.new = 1
    assert "new" not in d.inner and copy.inner.array is array and copy.plain is d.plain
    assert type(pickle.loads(pickle.dumps(d))) is AttrDict and pickle.loads(pickle.dumps(d)).inner.array.shape == (2,)
