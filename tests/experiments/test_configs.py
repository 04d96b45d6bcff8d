"""The documented configurations have their documented values, fit the classes they name, and vary without side effects."""

import copy
import importlib
import inspect
import json
import pydoc
from pathlib import Path

import pytest

from rlpyt.agents.qpg import iql_agent
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.algos.dqn.quantile_dqn import QuantileDQN
from rlpyt.algos.offline.iql import IQL
from rlpyt.algos.qpg.ensemble_sac import EnsembleSAC
from rlpyt.experiments import configs as experiment_configs
from rlpyt.experiments import train
from rlpyt.experiments.configs import classes_of, config_modules, load, variant
from rlpyt.models import batch_renorm

REFERENCE = json.loads((Path(__file__).parent / "configs.json").read_text())

# Each way in which ours differ from the documented ones: why, which it concerns, and what it does to a documented one.
DIFFERENCES = [
    (
        "Gymnasium has no Hopper-v3 any more, v5 succeeds it.",
        lambda config, name: config["env"].get("id") == "Hopper-v3",
        lambda config: config["env"].update(id="Hopper-v5"),
    ),
    (
        "The number of evaluation environments is a setting of the sampler, it stood beside the sections.",
        lambda config, name: "eval_n_envs" in config,
        lambda config: config["sampler"].update(eval_n_envs=config.pop("eval_n_envs")),
    ),
    (
        "The size of the replay buffer is written out: the algorithm's default.",
        lambda config, name: name.endswith("atari_dqn_debug"),
        lambda config: config["algo"].update(replay_size=1_000_000),
    ),
    (
        "Replay buffer and collector are classes, which `classes_by_key` names.",
        lambda config, name: name.endswith("atari_dqn_debug"),
        lambda config: (config["algo"].pop("replay_buffer"), config["sampler"].pop("collector")),
    ),
]


def documented(name, key):
    """The documented configuration, with the differences above."""
    config = copy.deepcopy(REFERENCE[name][key])
    for _, concerns, change in DIFFERENCES:
        if concerns(config, name):
            change(config)
    return config


DOCUMENTED = [(name, key) for name in REFERENCE for key in REFERENCE[name]]
ALL = [(name, key) for name in config_modules() for key in load(name).configs]


@pytest.mark.parametrize("name, key", DOCUMENTED)
def test_documented_configurations_have_their_documented_values(name, key):
    assert importlib.import_module(name).configs[key] == documented(name, key)


MANY_UPDATES = dict(replay_ratio=5120, policy_update_interval=20, policy_value="mean", target_entropy=-1)

# Settings of papers, by the configurations that have them: module, key, and values by section.
PUBLISHED = [
    ("mujoco", "redq", dict(agent=dict(n_critics=10), algo=dict(MANY_UPDATES, n_target_critics=2))),
    ("mujoco", "droq", dict(agent=dict(q_model_kwargs=dict(dropout=1e-4, layer_norm=True)), algo=MANY_UPDATES)),
    (
        "mujoco",
        "tqc",
        dict(agent=dict(n_critics=5, n_quantiles=25, q_model_kwargs=dict(hidden_sizes=[512] * 3)), algo=dict(policy_value="mean")),
    ),
    (
        "mujoco",
        "crossq",
        dict(
            agent=dict(
                target_networks=False,
                model_kwargs=dict(hidden_sizes=[256, 256], batch_renorm=True),
                q_model_kwargs=dict(hidden_sizes=[2048, 2048], batch_renorm=True),
            ),
            algo=dict(learning_rate=1e-3, policy_update_interval=3, optim_kwargs=dict(betas=(0.5, 0.999))),
        ),
    ),
    (
        "atari_dqn",
        "rainbow",
        dict(
            agent=dict(eps_init=0, eps_final=0),
            algo=dict(
                learning_rate=6.25e-5,
                double_dqn=True,
                n_step_return=3,
                prioritized_replay=True,
                pri_alpha=0.5,
                min_steps_learn=20_000,
                target_update_interval=2000,
            ),
            model=dict(dueling=True, noisy=True),
            optim=dict(eps=1.5e-4),
        ),
    ),
    ("atari_dqn", "qr_dqn", dict(algo=dict(learning_rate=5e-5))),
    ("atari_dqn", "iqn", dict(algo=dict(learning_rate=5e-5))),
    ("atari_dqn", "m_dqn", dict(algo=dict(munchausen=True, learning_rate=5e-5))),
]


@pytest.mark.parametrize("module, key, published", PUBLISHED)
def test_configurations_of_papers_have_the_values_of_the_papers(module, key, published):
    config = load(module).configs[key]
    assert {section: {name: config[section][name] for name in values} for section, values in published.items()} == published


def test_settings_that_papers_give_are_the_defaults():
    assert (batch_renorm.MOMENTUM, batch_renorm.WARM_UP) == (0.99, 100_000)  # Bhatt et al. 2024
    assert (iql_agent.MIN_LOG_STD, iql_agent.MAX_LOG_STD) == (-5, 2)  # Kostrikov et al. 2022, like the next line
    assert [default_of(IQL, name) for name in ("expectile", "temperature", "max_weight")] == [0.7, 3, 100]
    names = ("munchausen_alpha", "munchausen_temperature", "munchausen_min")
    assert [default_of(DQN, name) for name in names] == [0.9, 0.03, -1]  # Vieillard et al. 2020
    assert default_of(QuantileDQN, "learning_rate") == 5e-5  # Dabney et al. 2018a and 2018b
    assert default_of(EnsembleSAC, "n_dropped_quantiles") == 2  # Kuznetsov et al. 2020, per critic


def default_of(cls, name):
    return inspect.signature(cls).parameters[name].default


@pytest.mark.parametrize("why, concerns, change", DIFFERENCES)
def test_every_difference_concerns_some_configuration(why, concerns, change):
    assert any(concerns(REFERENCE[name][key], name) for name, key in DOCUMENTED)


@pytest.mark.parametrize("name, key", ALL)
def test_configurations_fit_the_constructors_of_the_classes_they_name(name, key):
    module = load(name)
    paths = classes_of(module, key)
    runner = train.build(module.configs[key], paths, affinity={}, seed=0)
    for part, path in paths.items():
        assert pydoc.locate(path) is not None, part
    assert runner.sampler.eval_n_envs == module.configs[key]["sampler"].get("eval_n_envs", 0)


@pytest.mark.parametrize("name", config_modules())
def test_classes_are_named_only_for_keys_that_exist(name):
    module = load(name)
    assert set(getattr(module, "classes_by_key", {})) <= set(module.configs)


def test_a_variant_has_the_settings_of_its_base_and_leaves_it_as_it_is():
    base = dict(algo=dict(a=1, b=2), env=dict(c=3))
    before = copy.deepcopy(base)
    changed = variant(base, algo=dict(b=4), model=dict(d=5))
    assert changed == dict(algo=dict(a=1, b=4), env=dict(c=3), model=dict(d=5))
    changed["env"]["c"] = 6
    assert base == before


def test_a_variant_shares_nothing_with_its_base():
    base = dict(runner=dict(affinity=dict(threads=1)))
    variant(base)["runner"]["affinity"]["threads"] = 2
    assert base == dict(runner=dict(affinity=dict(threads=1)))


def test_a_variant_with_a_misspelt_section_is_refused_with_the_nearest_name():
    with pytest.raises(ValueError, match="no section 'smapler'. Did you mean 'sampler'"):
        variant(dict(algo={}), smapler=dict(batch_T=3))


def containers(value):
    """All dictionaries and lists in a configuration."""
    if isinstance(value, (dict, list)):
        yield value
        for part in value.values() if isinstance(value, dict) else value:
            yield from containers(part)


def test_no_two_configurations_share_a_section_or_what_is_in_one():
    owners = {}
    for name, key in ALL:
        for container in containers(load(name).configs[key]):
            owner = owners.setdefault(id(container), (name, key))
            assert owner == (name, key), f"{owner} and {(name, key)} share {container}"


def test_a_misspelt_module_is_answered_with_the_nearest_name():
    with pytest.raises(ValueError, match="no configuration module 'atari_f_ppo'. Did you mean 'atari_ff_ppo'"):
        load("atari_f_ppo")


def test_names_of_modules_are_unique():
    paths = list(Path(experiment_configs.__file__).parent.rglob("[!_]*.py"))
    assert sorted(path.stem for path in paths) == sorted(config_modules())
