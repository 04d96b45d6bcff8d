"""Variants of configurations: strict updates, and files."""

import copy

import pytest

from rlpyt.utils.launching.variant import load_variant, save_variant, update_config

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
