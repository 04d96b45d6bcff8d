"""Variants of configurations: strict updates, and files."""

import copy
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlpyt.utils.launching.variant import VariantLevel, _cross_variants, load_variant, make_variants, save_variant, update_config

DEFAULT = dict(algo=dict(learning_rate=1e-3, optim=dict(eps=1.0)), env=dict(game="pong"))


def test_only_the_values_given_are_changed_at_any_depth():
    before = copy.deepcopy(DEFAULT)
    new = update_config(DEFAULT, dict(algo=dict(optim=dict(eps=2.0)), env=dict(game="qbert")))
    assert new == dict(algo=dict(learning_rate=1e-3, optim=dict(eps=2.0)), env=dict(game="qbert"))
    assert DEFAULT == before


def test_the_result_shares_nothing_with_its_origins():
    changes = dict(env=dict(game=["pong"]))
    new = update_config(DEFAULT, changes)
    new["env"]["game"].append("qbert")
    new["algo"]["optim"]["eps"] = 3.0
    assert changes == dict(env=dict(game=["pong"])) and DEFAULT["algo"]["optim"]["eps"] == 1.0


@pytest.mark.parametrize(
    "changes, named, nearest",
    [
        (dict(algo=dict(learning_rat=1)), "algo.learning_rat", "learning_rate"),
        (dict(alog={}), "alog", "algo"),
        (dict(algo=dict(optim=dict(epsi=1))), "algo.optim.epsi", "eps"),
    ],
)
def test_an_unknown_key_is_answered_with_the_nearest(changes, named, nearest):
    with pytest.raises(KeyError, match=f"no '{named}'. Did you mean '{nearest}'"):
        update_config(DEFAULT, changes)


@pytest.mark.parametrize("changes", [dict(algo=3), dict(env=dict(game=dict(name="pong")))])
def test_a_value_for_a_dictionary_or_a_dictionary_for_a_value_is_refused(changes):
    with pytest.raises(TypeError, match="single value"):
        update_config(DEFAULT, changes)


def test_a_saved_variant_is_loaded_as_it_was(tmp_path):
    save_variant(DEFAULT, tmp_path / "new")
    assert (tmp_path / "new" / "variant_config.json").exists()
    assert load_variant(tmp_path / "new") == DEFAULT


def test_what_cannot_be_saved_leaves_the_last_one(tmp_path):
    save_variant(dict(a=1), tmp_path)
    with pytest.raises(TypeError):
        save_variant(dict(a=1, b=object()), tmp_path)
    assert load_variant(tmp_path) == dict(a=1)


def test_a_dictionary_may_take_the_place_of_none():
    assert update_config(dict(optim_kwargs=None), dict(optim_kwargs=dict(eps=1))) == dict(optim_kwargs=dict(eps=1))


def test_numbers_of_numpy_are_saved_as_numbers(tmp_path):
    save_variant(dict(a=np.int64(3), b=np.float32(0.5), c=[np.bool_(True)]), tmp_path)
    assert load_variant(tmp_path) == dict(a=3, b=0.5, c=[True])


def test_what_cannot_be_saved_is_named(tmp_path):
    with pytest.raises(TypeError, match="not <object .*, of type object"):
        save_variant(dict(algo=dict(a=object())), tmp_path / "new")
    assert not (tmp_path / "new").exists()


# --- Levels ------------------------------------------------------------------------------------------------------------
def test_settings_of_a_level_change_together_and_levels_are_crossed_in_order():
    optimization = VariantLevel(
        keys=[("algo", "learning_rate"), ("sampler", "batch_B")], values=[(1e-3, 16), (3e-3, 32)], dir_names=["slow", "fast"]
    )
    game = VariantLevel(keys=[("env", "game")], values=list(zip(["pong", "qbert", "seaquest"])), dir_names=["pong", "qbert", "seaquest"])
    variants, log_dirs = make_variants(optimization, game)
    assert log_dirs == ["slow/pong", "slow/qbert", "slow/seaquest", "fast/pong", "fast/qbert", "fast/seaquest"]
    assert variants[1] == dict(algo=dict(learning_rate=1e-3), sampler=dict(batch_B=16), env=dict(game="qbert"))
    assert variants[5] == dict(algo=dict(learning_rate=3e-3), sampler=dict(batch_B=32), env=dict(game="seaquest"))
    assert make_variants() == ([{}], [""])


levels = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=3)  # (keys, combinations) of each level


@given(levels)
def test_all_combinations_appear_once_and_change_the_configuration(sizes):
    """Oracle: a product of the levels, applied key by key."""
    all_levels = [
        VariantLevel(
            keys=[(f"section{k}", f"setting{i}") for k in range(n_keys)],
            values=[tuple(f"value{i}_{c}_{k}" for k in range(n_keys)) for c in range(n_combinations)],
            dir_names=[f"{i}_{c}" for c in range(n_combinations)],
        )
        for i, (n_keys, n_combinations) in enumerate(sizes)
    ]
    variants, log_dirs = make_variants(*all_levels)
    default = {f"section{k}": {f"setting{i}": None for i in range(3)} for k in range(3)}
    expected = []
    for chosen in itertools.product(*(range(n_combinations) for _, n_combinations in sizes)):
        config = copy.deepcopy(default)
        for level, c in zip(all_levels, chosen):
            for (section, setting), value in zip(level.keys, level.values[c]):
                config[section][setting] = value
        expected.append((config, "/".join(f"{i}_{c}" for i, c in enumerate(chosen))))
    assert [(update_config(default, variant), log_dir) for variant, log_dir in zip(variants, log_dirs)] == expected


def test_values_may_be_an_array_or_an_iterator():
    assert make_variants(VariantLevel([("a",), ("b",)], np.array([[1, 2]]), iter(["x"]))) == ([dict(a=1, b=2)], ["x"])
    assert make_variants(VariantLevel([("a",)], zip([1, 2]), ["x", "y"])) == ([dict(a=1), dict(a=2)], ["x", "y"])


def test_levels_are_named_tuples_with_the_documented_fields():
    keys, values, dir_names = VariantLevel([("a",)], [(1,)], ["one"])
    assert (keys, values, dir_names) == ([("a",)], [(1,)], ["one"]) and VariantLevel._fields == ("keys", "values", "dir_names")
    assert _cross_variants([dict(b=2)], ["two"], VariantLevel(keys, values, dir_names)) == ([dict(b=2, a=1)], ["two/one"])


def test_variants_share_nothing():
    value = dict(x=1)
    levels = VariantLevel([("a", "b")], [(value,), (value,)], ["0", "1"]), VariantLevel([("c",)], [(1,), (2,)], ["2", "3"])
    variants, _ = make_variants(*levels)
    variants[0]["a"]["b"]["x"] = 2
    assert value == dict(x=1) and [variant["a"]["b"]["x"] for variant in variants[1:]] == [1, 1, 1]


@pytest.mark.parametrize(
    "keys, values, dir_names, message",
    [
        (["ab"], [(1,)], ["x"], "'ab' must be a tuple"),
        ([()], [(1,)], ["x"], "must be a tuple of the keys"),
        ([("game",)], ["pong"], ["x"], "'pong' in values must be a tuple.*list.zip"),
        ([("game",)], ["p"], ["x"], "'p' in values must be a tuple"),
        ([("lr",)], [1e-3], ["x"], "must be a tuple"),
        ([("lr",), ("B",)], [(1, 2), (3,)], ["x", "y"], "one value for each of the 2 keys"),
        ([("lr",)], [], [], "no values"),
        ([("lr",)], [(1,), (2,)], ["x"], "2 combinations .* 1 dir_names"),
        ([("lr",)], [(1,), (2,)], ["x", "./x"], "same directory, 'x'"),
        ([("a",), ("a", "b")], [(1, 2)], ["x"], "leads into 1"),
    ],
)
def test_levels_that_do_not_fit_together_are_refused(keys, values, dir_names, message):
    with pytest.raises(ValueError, match=message):
        make_variants(VariantLevel(keys, values, dir_names))
