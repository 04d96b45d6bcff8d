"""Nested tuples and dictionaries of arrays."""

import threading
from collections import namedtuple
from types import MappingProxyType

import numpy as np
import pytest

from rlpyt.utils.collections import namedarraytuple
from rlpyt.utils.structures import as_dictionaries, copied, leaves, leaves_of, map_structure, named_leaves, stack, to_structure

Pair = namedtuple("Pair", ["a", "b"])
Arrays = namedarraytuple("Arrays", ["x", "y"])


def test_functions_are_applied_at_every_place_of_tuples_and_dictionaries_of_all_kinds():
    structure = Pair(Arrays(np.ones(2), None), {"c": (1, 2)})
    doubled = map_structure(lambda x, y: x + y, structure, structure)
    assert type(doubled) is Pair and type(doubled.a) is Arrays and doubled.a.x.tolist() == [2, 2]
    assert doubled.a.y is None and doubled.b == {"c": (2, 4)}


def test_leaves_have_the_paths_that_lead_to_them_and_none_is_no_leaf():
    structure = Pair(Arrays(1, None), (2, Pair(3, None)))
    assert named_leaves(structure, "info") == [("info.a.x", 1), ("info.b.0", 2), ("info.b.1.a", 3)]
    assert leaves_of(structure) == [1, 2, 3]
    assert list(leaves({"a": {"b": (1, 2)}, "c": None})) == [("a.b", (1, 2)), ("c", None)], "In a tree, a tuple is a leaf."


def test_structures_become_trees_and_trees_become_structures():
    assert as_dictionaries(Pair((1, 2), None)) == {"a": {"item_0": 1, "item_1": 2}}
    structure = to_structure({"a.b": 1, "c": {"class": 2}}, "info")
    assert structure._fields == ("a_b", "c") and structure.c._fields == ("class_",)


def test_what_cannot_be_stacked_is_named():
    assert stack([{"a": 1}, {"a": 2}])["a"].tolist() == [1, 2]
    with pytest.raises(ValueError, match=r"value\['a'\]: expected shape \(\) at every step, got \(2,\)"):
        stack([{"a": 1}, {"a": [1, 2]}])
    with pytest.raises(ValueError, match=r"expected the keys \['a'\] at every step, got \['b'\]"):
        stack([{"a": 1}, {"b": 1}])


def test_copies_keep_what_their_owner_changes_in_place_and_let_be_what_cannot_change_or_be_copied():
    lock, text, array, objects, pair = threading.Lock(), "x" * 99, np.zeros(2), np.array([["x"], None], object), Pair([1, [2]], None)
    kept = copied({"array": array, "map": MappingProxyType({"a": array}), "objects": objects, "pair": pair, "lock": lock, "text": text})
    array[:], objects[0][0] = 1, "y"
    pair.a[1].append(3)
    assert kept["array"].tolist() == [0, 0] == kept["map"]["a"].tolist() and kept["objects"].tolist() == [["x"], None]
    assert kept["pair"] == Pair([1, [2]], None) and kept["lock"] is lock and kept["text"] is text
