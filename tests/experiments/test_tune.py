"""Searches of configurations: what is refused, and that a promoted trial is a run that was never interrupted."""

import csv
import json
import shutil

import gymnasium
import pytest
import torch
from tiers import full, processes

from rlpyt.cli.launched import train as train_script
from rlpyt.experiments import train, tune
from rlpyt.experiments.trust import check_experiment
from rlpyt.runners.snapshots import load_snapshot
from rlpyt.utils.launching.affinity import encode_affinity, prepend_run_slot
from rlpyt.utils.launching.search import Search

ONE_SLOT = encode_affinity(n_cpu_core=1, set_affinity=False)
ASYNC = encode_affinity(n_cpu_core=2, cpu_per_run=2, async_sample=True, set_affinity=False)
RANGE = "algo.learning_rate=log_uniform(1e-4, 1e-2)"
SCRIPT = train_script.__file__
SMALL = {
    "ppo": ("runner.n_steps=2048", "runner.log_interval_steps=256", "algo.epochs=2", "sampler.eval_n_envs=2", "sampler.eval_max_steps=200"),
    "dqn": (
        "runner.n_steps=512",
        "runner.log_interval_steps=64",
        "algo.min_steps_learn=96",
        "algo.replay_size=400",
        "sampler.eval_n_envs=0",
    ),
}


@pytest.fixture
def launched(monkeypatch):
    """The arguments of the search that would be launched, instead of a search."""
    given = {}
    monkeypatch.setattr(tune, "run_search", lambda **kwargs: given.update(kwargs))
    return given


def search(key, *settings, **kwargs):
    return tune.search_configuration(SCRIPT, "cartpole", key, settings, **{"affinity_code": ONE_SLOT, **kwargs})


@pytest.mark.parametrize(
    "settings, message",
    [
        (
            ["algo.learning_rat=uniform(0, 1)"],
            "There is no setting of PPO (section algo) named 'learning_rat'. Did you mean 'learning_rate'",
        ),
        (["alg.learning_rate=uniform(0, 1)"], "There is no section 'alg'. Did you mean 'algo'"),
        (["algo.learning_rate=unifrom(0, 1)"], "There is no range 'unifrom'. Did you mean 'uniform'"),
        (["learning_rate=uniform(0, 1)"], "must be of the form section.name=value"),
        (["algo.learning_rate"], "must be of the form section.name=value"),
        (["algo.learning_rate=1e-3"], "The search space has no range"),
        (["algo.learning_rate=log_uniform"], "log_uniform needs its bounds, such as algo.learning_rate=log_uniform(1e-4,1e-2)."),
        ([RANGE, "algo.epochs=integer"], "integer needs its bounds, such as algo.epochs=integer(1,20)."),
        ([RANGE, "algo.epochs=choice"], "choice needs its values, such as algo.epochs=choice(32,64)."),
        (["algo.discount=uniform(0.9, 1.1)"], "discount=1.1 is not possible"),  # One end of it.
        (["algo.epochs=choice(4, zero)"], "epochs='zero' is not possible"),
        ([RANGE, "algo.epoch=4"], "Did you mean 'epochs'"),
        ([RANGE, "runner.log_interval_steps=9e4"], "comes before the first row of the log, at 90,000"),
        ([RANGE, "algo.learning_rate=1e-3"], "algo.learning_rate is given 2 times, and has a range: give it once."),
        ([RANGE, "algo.learning_rate=uniform(0, 1)"], "algo.learning_rate is given 2 times"),
        (["runner.n_steps=choice(50000, 400000)"], "runner.n_steps cannot have a range"),
        (
            ["runner.stop_return=choice(100, 200)"],
            "stop_return cannot have a range: a trial that stops sooner would get a lower score",
        ),
        ([RANGE, "runner.stop_return = uniform(100, 200)"], "runner.stop_return cannot have a range"),
        (["runner.resume_from=choice(a, b)"], "runner.resume_from cannot be set: rlpyt resume DIR continues a run"),
        ([RANGE, "runner.resume_from=a"], "runner.resume_from cannot be set"),
        ([RANGE, "runner.log_interval_steps=9e6"], "make the interval shorter, with runner.log_interval_steps="),
        (["algo.epochs=uniform(4, 20)"], "must be a whole number"),
        (["algo.epochs=uniform(4, 20)"], "For whole numbers, write integer(4, 20)."),
        (["algo.epochs=log_uniform(4, 20)", RANGE], "For whole numbers, write integer(4, 20)."),
        (["env.id=choice('CartPole-v1', 'CartPol-v1')"], "The environment cannot be made with id='CartPol-v1'"),
        (["env.idd=choice(1, 2)"], "The environment cannot be made with"),
        (["model.hidden_sizes=choice([64], [0.5])"], "The model cannot be made with hidden_sizes=[0.5]"),
        ([RANGE, "env.id=CartPol-v1"], "The environment cannot be made with id='CartPol-v1'"),
    ],
)
def test_wrong_settings_are_refused_before_anything_starts(launched, settings, message):
    with pytest.raises(ValueError) as error:
        search("ppo", *settings, min_steps=1e4)
    assert message in str(error.value) and not launched


def test_a_value_that_is_possible_with_some_values_of_the_others_is_accepted(launched):
    search("catdqn", "algo.V_min=uniform(-10, 0)", "algo.V_max=uniform(-5, 10)")
    assert launched
    with pytest.raises(ValueError, match=r"V_max=-20\.0 is not possible; it must be above V_min=-10"):
        search("catdqn", "algo.V_min=uniform(-10, 0)", "algo.V_max=uniform(-20, 10)")


def test_a_setting_may_be_a_word_that_is_the_name_of_a_range(launched, monkeypatch):
    monkeypatch.setitem(gymnasium.registry, "uniform", gymnasium.spec("CartPole-v1"))
    search("ppo", RANGE, "env.id=uniform")
    assert "env.id=uniform" in launched["common_args"]
    hint = tune._bounds_missing(["algo.draws=uniform", "algo.epochs='integer'", "algo.name=uniformly"])
    assert hint == "uniform needs its bounds, such as algo.draws=uniform(0.9,0.999)."


def test_an_entry_of_a_dictionary_may_have_a_range(launched):
    search("ppo", "algo.optim_kwargs.eps=log_uniform(1e-8,1e-4)", "algo.optim_kwargs.amsgrad=True")
    assert str(launched["space"]["algo"]["optim_kwargs"]["eps"]) == "log_uniform(1e-08, 0.0001)"
    assert "algo.optim_kwargs.amsgrad=True" in launched["common_args"]
    with pytest.raises(ValueError, match="optim_kwargs has 'epp', "):
        search("ppo", "algo.optim_kwargs.epp=log_uniform(1e-8,1e-4)")


def test_a_search_gets_rungs_up_to_n_steps_and_the_other_settings(launched):
    search("ppo", RANGE, "algo.epochs=4", "env.id=CartPole-v0", n_trials=7, sampler="serial")
    assert launched["max_steps"] == 100_000 and launched["min_steps"] == 11_112 and launched["n_trials"] == 7
    constants = ["algo.epochs=4", "env.id=CartPole-v0"]
    assert launched["common_args"] == ["cartpole:ppo", "--sampler", "serial", "--set", "runner.save_replay=True", *constants]
    assert launched["train_command"] == ["rlpyt", "train", "cartpole", "ppo", "--sampler", "serial", "--set", *constants]


def test_the_first_rung_comes_after_learning_has_begun(launched):
    settings = ["runner.n_steps=27000", "runner.log_interval_steps=500", "algo.min_steps_learn=integer(100, 2500)"]
    search("dqn", *settings)
    assert launched["min_steps"] == 3000  # and not 1000
    with pytest.raises(ValueError, match="at 1,000 environment steps, comes before learning begins, at 2,500"):
        search("dqn", *settings, min_steps=1000)


@pytest.mark.parametrize("B", ["sampler.batch_B=8", "sampler.batch_B=choice(8, 4)"])
def test_the_first_rung_is_not_before_the_end_of_the_longest_iteration(launched, B):
    """Otherwise a trial with long iterations would have more steps than others when they are compared."""
    settings = ["runner.n_steps=12000", "runner.log_interval_steps=500", "sampler.batch_T=choice(256, 16)", B]
    search("ppo", *settings)
    assert launched["min_steps"] == 4000  # and not 445, nor 1,334
    launched.clear()
    with pytest.raises(
        ValueError, match="at 1,334 environment steps, is shorter than the longest iteration of a trial, of 2,048 "
    ) as error:
        search("ppo", *settings, min_steps=1000)
    assert "make min_steps at least 2048, or the ranges of sampler.batch_T and sampler.batch_B end earlier" in str(error.value)
    with pytest.raises(ValueError, match="make runner.n_steps at least 2048"):
        search("ppo", *settings[1:], "runner.n_steps=1500")
    assert not launched
    search("ppo", RANGE, *settings[:2], "sampler.batch_T=256", "sampler.batch_B=8", min_steps=1000)
    assert launched["min_steps"] == 1334  # All trials have the same number of steps.
    launched.clear()
    search("ppo", RANGE, *settings[:2], "sampler.batch_T=256", "sampler.batch_B=8")
    assert launched["min_steps"] == 1334


def test_an_iteration_of_several_processes_has_the_environments_of_all(launched, monkeypatch):
    monkeypatch.setattr(tune, "affinity_from_code", lambda code: [dict(set_affinity=False)] * 2)
    with pytest.raises(ValueError, match="of a trial, of 512 "):
        search(
            "ppo",
            "runner.n_steps=900",
            "runner.log_interval_steps=100",
            "sampler.batch_T=choice(8, 32)",
            "sampler.batch_B=8",
            min_steps=300,
        )


def test_a_run_that_ends_before_learning_begins_is_refused_with_what_helps(launched):
    with pytest.raises(ValueError, match="make runner.n_steps larger, or algo.min_steps_learn smaller"):
        search("dqn", RANGE, "runner.n_steps=1000", "runner.log_interval_steps=500", "algo.min_steps_learn=2000")


@pytest.mark.parametrize("given, saves", [([], True), (["runner.save_replay=False"], False), (["runner.save_replay=True"], True)])
def test_runs_of_a_search_save_their_replay_unless_told_otherwise(launched, given, saves):
    search("dqn", RANGE, *given)
    args = launched["common_args"]
    config, _ = train.configuration("cartpole", "dqn", settings=args[args.index("--set") + 1 :])
    assert config["runner"]["save_replay"] is saves
    assert launched["train_command"][4:] == ["--set", *given]  # The run with the best settings need not be resumed.


@pytest.mark.parametrize(
    "setting, affinity_code, message",
    [
        ("runner.affinity=choice(auto, x)", None, "runner.affinity='auto' must be a dictionary"),
        ("affinity.master_torch_threads=choice(1, 2)", ASYNC, "affinity.master_torch_threads cannot be set"),
    ],
)
def test_ranges_of_the_affinity_are_checked_before_anything_starts(launched, setting, affinity_code, message):
    with pytest.raises(ValueError, match=message):
        search("dqn", setting, affinity_code=affinity_code)
    assert not launched


def test_whether_runs_save_their_replay_may_have_a_range(launched):
    search("dqn", "runner.save_replay=choice(true, false)")
    assert not any("save_replay" in arg for arg in launched["common_args"]) and "save_replay" in launched["space"]["runner"]
    assert launched["common_args"][-1] != "--set"  # Runs would refuse it without a value.


def rows(run_dir):
    """The table without what is measured in seconds."""
    with open(run_dir / "progress.csv") as file:
        return [
            {name: value for name, value in row.items() if "Time" not in name and "PerSecond" not in name} for row in csv.DictReader(file)
        ]


@full
@processes
@pytest.mark.parametrize("key", SMALL)
def test_a_promoted_trial_is_the_uninterrupted_run(key, tmp_path, capsys):
    limits = dict(n_trials=2, runs_per_trial=1, eta=2, min_steps=dict(ppo=512, dqn=128)[key])
    found = search(key, RANGE, *SMALL[key], log_dir=tmp_path / "exp", proposals="random", **limits)
    best, whole = found.best, tmp_path / "whole"
    assert best.rung == 2 and len(found.history.rungs) == 3
    shutil.copytree(found.trial_dir(best), whole, ignore=lambda directory, names: [name for name in names if name.startswith("run_")])
    settings = ["runner.save_replay=True", *SMALL[key]]
    train.build_and_train_in_slot(prepend_run_slot(0, ONE_SLOT), str(whole), 0, f"cartpole:{key}", settings=settings)
    promoted = found.trial_dir(best) / "run_0"
    assert (promoted / "progress.2.csv").exists()  # It was resumed twice.
    assert rows(promoted) == rows(whole / "run_0")
    assert {path.name for path in promoted.glob("replay*")} == {path.name for path in (whole / "run_0").glob("replay*")}
    (_, a), (_, b) = (load_snapshot(run_dir) for run_dir in (promoted, whole / "run_0"))
    for part in ("agent_state_dict", "optimizer_state_dict"):
        torch.testing.assert_close(a[part], b[part], rtol=0, atol=0, equal_nan=True)
    # The command with the best settings is one that trains.
    command = json.loads((tmp_path / "exp" / "best.json").read_text())["command"].split()
    assert command[:4] == ["rlpyt", "train", "cartpole", key] and f"algo.learning_rate={best.values[0]!r}" in command
    config, _ = train.configuration("cartpole", key, settings=command[command.index("--set") + 1 :])
    assert config["algo"]["learning_rate"] == best.values[0]


def test_the_search_of_somebody_else_is_not_resumed_without_trust(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved = dict(
        affinity_code=ONE_SLOT, space=dict(ranges=[[["algo", "learning_rate"], "uniform(0, 1)"]], constants={}), n_trials=1, rungs=[9]
    )
    saved.update(eta=3, runs_per_trial=1, seed=0, proposals="random", set_egl_device=False, cwd="/", train_command=[])
    for script, args, is_fine in (
        (SCRIPT, ["cartpole:ppo", "--set", "algo.epochs=4"], True),
        (SCRIPT, ["cartpole:ppo"], True),
        (SCRIPT, ["cartpole:ppo", "--sampler", "os.system"], False),
        (SCRIPT, ["cartpole:ppo", "--smoke", "--set", "env.id=CartPole-v1"], True),
        (SCRIPT, ["cartpole:ppo", "--sampler", "serial", "--sampler", "os.system", "--set"], False),
        (SCRIPT, ["cartpole:ppo", "--sampler=os.system", "--set"], False),
        (SCRIPT, ["cartpole:ppo", "--set", "algo.epochs=4", "--samp", "os.system"], False),
        (SCRIPT, ["cartpole:ppo", "--set", "env.id=evil:CartPole-v1"], False),
        (SCRIPT, ["cartpole:ppo", "--set", "env.id='evil:CartPole-v1'"], False),
        (SCRIPT, ["cartpole:ppo", "--set", "env.kwargs={'id': ('evil:CartPole-v1',)}"], False),
        ("/usr/bin/evil.py", ["cartpole:ppo"], False),
    ):
        (tmp_path / "search.json").write_text(json.dumps(dict(saved, script=str(script), common_args=args)))
        assert Search(tmp_path).trials == []
        if is_fine:
            check_experiment(tmp_path)
        else:
            with pytest.raises(ValueError, match="--trust"):
                check_experiment(tmp_path)
