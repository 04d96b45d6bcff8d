"""examples/train.py runs configurations of every family, as a user would run it."""

import json
from pathlib import Path

import preloaded
import pytest
import torch
from tiers import examples, full, processes, thinned

from rlpyt.algos.base import has_bf16
from rlpyt.experiments import train
from rlpyt.experiments.configs import classes_of, load, variant
from rlpyt.runners.async_rl import AsyncRl, AsyncRlEval
from rlpyt.runners.minibatch_rl import MinibatchRl, MinibatchRlEval
from rlpyt.samplers.serial.sampler import SerialSampler

SCRIPT = Path(__file__).parents[2] / "examples" / "train.py"

RUNS = [
    ["cartpole", "ppo", "--sampler", "cpu"],
    ["cartpole", "catdqn"],
    ["cartpole_without_velocities", "ppo_lstm", "--sampler", "alternating"],
    ["cartpole_without_velocities", "r2d1", "--sampler", "gpu"],
    ["pendulum", "td3"],
    ["pendulum", "sac"],
    ["halfcheetah", "ppo_300k"],
    ["atari_ff_ppo", "pong_2M"],
    ["atari_lstm_a2c", "like_ff"],
    ["atari_dqn", "rmsprop", "--sampler", "serial"],
]


def run(*args):
    return preloaded.run(SCRIPT, *args, OMP_NUM_THREADS="1")


@examples
@processes
@pytest.mark.parametrize("args", thinned(RUNS, quick=RUNS[:1]), ids=" ".join)
def test_configurations_run_in_smoke_size_and_leave_a_run_directory(args, tmp_path):
    out = run(*args, "--smoke", "--log_dir", str(tmp_path), "--run_ID", "3")
    assert out.returncode == 0 and "Training complete" in out.stdout, out.stderr
    run_dir = tmp_path / "run_3"
    params = json.loads((run_dir / "params.json").read_text())
    assert params["name"] == f"{args[0]}_{args[1]}" and params["seed"] == 0 and params["runner"]["n_steps"] == 256
    assert params["runner"]["log_interval_steps"] == 128, "also where the configuration leaves it to the runner"
    snapshot = torch.load(run_dir / "params.pkl", weights_only=True)
    assert snapshot["cum_steps"] >= 256 and len((run_dir / "progress.csv").read_text().splitlines()) >= 3


@full
@examples
@processes
def test_settings_are_changed_from_the_command_line(tmp_path):
    changes = ["algo.learning_rate=3e-4", "accelerate.bf16=True", "model.hidden_sizes=[8]", "env.id=Acrobot-v1"]
    out = run("cartpole", "ppo", "--smoke", "--log_dir", str(tmp_path), "--set", *changes)
    assert out.returncode == 0, out.stderr
    params = json.loads((tmp_path / "run_0" / "params.json").read_text())
    assert params["algo"]["learning_rate"] == 3e-4 and params["model"] == dict(hidden_sizes=[8]) and params["env"] == dict(id="Acrobot-v1")
    assert params["accelerate"] == dict(bf16=True) and ("bfloat16" not in out.stdout) == has_bf16(torch.device("cpu"))
    assert params["algo"]["gae_lambda"] == 0.8, "what is not changed stays"


@pytest.mark.parametrize(
    "settings, message",
    [
        (["algo.learning_rate"], "must be of the form"),
        (["learning_rate=1"], r"must be of the form section.name=value, e.g. algo.learning_rate=1e-3\.$"),
        (["double_dqn=true"], r"Did you mean algo.double_dqn=true\?$"),
        (["seed"], r"1e-3\.$"),
        (["seed=1"], r"1e-3\.$"),  # Both sections have one.
        (["alog.learning_rate=1"], "no section 'alog'. Did you mean 'algo'"),
    ],
)
def test_misspelt_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        train.changes(dict(algo=dict(double_dqn=False, seed=1), env=dict(seed=2)), settings)


def test_values_are_read_as_python_writes_them_and_else_as_text():
    sections = train.changes(dict(env={}), ["env.id=Hopper-v5", "env.n=3", "env.on=True", "env.what=None", "env.shape=(84, 84)"])
    assert sections == dict(env=dict(id="Hopper-v5", n=3, on=True, what=None, shape=(84, 84)))


def test_a_name_with_more_dots_is_an_entry_of_a_dictionary():
    settings = ["agent.q.size=[8]", "agent.q.rate.low=0.1", "agent.q.rate.high=1", "agent.n=3", "agent.m={'a': 1}", "agent.m.b=2"]
    q = dict(size=[8], rate=dict(low=0.1, high=1))
    assert train.changes(dict(agent={}), settings) == dict(agent=dict(q=q, n=3, m=dict(a=1, b=2)))
    changed = ["agent.q_model_kwargs.dropout=0.0001", "algo.target_entropy=-1"]
    agent = train.build_runner("mujoco", "droq", None, settings=changed).agent
    assert agent.q_model_kwargs == dict(dropout=0.0001, layer_norm=True, n_critics=2, hidden_sizes=[256, 256])
    with pytest.raises(ValueError, match="q_model_kwargs has 'dropuot', .* Did you mean 'dropout'"):
        train.build_runner("mujoco", "droq", None, settings=["agent.q_model_kwargs.dropuot=0.1"])


@pytest.mark.parametrize("text, value", [("false", False), ("TRUE", True), ("none", None), ("False", False), ("falsely", "falsely")])
def test_true_false_and_none_may_be_written_in_any_case(text, value):
    assert train.changes(dict(algo={}), [f"algo.double_dqn={text}"]) == dict(algo=dict(double_dqn=value))


@pytest.mark.parametrize(
    "name, key, setting, message",
    [
        ("cartpole", "dqn", "algo.learing_rate=1", "no setting of DQN .section algo. named 'learing_rate'. Did you mean 'learning_rate'"),
        ("cartpole", "catdqn", "algo.V_mim=1", "CategoricalDQN.* 'V_min'"),
        ("cartpole", "catdqn", "algo.learing_rate=1", "CategoricalDQN.* 'learning_rate'"),
        ("cartpole", "dqn", "agent.eps_finel=1", "MlpDqnAgent.* 'eps_final'"),
        ("cartpole", "dqn", "model.duelling=1", "MlpDqnModel.* 'dueling'"),
        ("cartpole", "catdqn", "model.duelling=1", "MlpCatDqnModel.* 'dueling'"),
        ("cartpole", "dqn", "optim.esp=1", "Adam.* 'eps'"),
        ("cartpole", "dqn", "accelerate.bf61=1", "accelerate.* 'bf16'"),
        ("cartpole", "dqn", "sampler.batchT=1", "SerialSampler.* 'batch_T'"),
        ("cartpole", "dqn", "runner.nsteps=1", "MinibatchRlEval.* 'n_steps'"),
        ("atari_dqn", "dqn", "env.frame_shap=1", "AtariEnv.* 'frame_shape'"),
        ("atari_dqn", "dqn", "eval_env.horizen=1", "AtariEnv .section eval_env.* 'horizon'"),
    ],
)
def test_settings_that_a_class_does_not_have_are_refused_with_the_nearest_name(name, key, setting, message):
    module = load(name)
    config = {"accelerate": {}, **module.configs[key]}
    config = variant(config, **train.changes(config, [setting]))
    with pytest.raises(ValueError, match=message):
        train.build(config, classes_of(module, key), affinity={}, seed=0)


@pytest.fixture
def built(monkeypatch):
    """Calls `build_and_train`, but trains nothing; returns the runner that it made."""
    runners = []

    def run(*args, **kwargs):
        runners.append(None)
        train.build_and_train("cartpole", *args, **kwargs)
        return runners[-1]

    monkeypatch.setattr(MinibatchRlEval, "train", lambda self: runners.append(self))
    return run


def test_settings_of_the_affinity_win_over_options_and_defaults(built, tmp_path):
    settings = ["affinity.workers_cpus=[3, 4, 5]", "affinity.set_affinity=True"]
    affinity = built("ppo", log_dir=str(tmp_path), n_parallel=1, settings=settings).affinity
    assert affinity == dict(cuda_idx=None, workers_cpus=[3, 4, 5], set_affinity=True, master_torch_threads=1)
    affinity = built("ppo", log_dir=str(tmp_path), n_parallel=1).affinity
    assert affinity == dict(cuda_idx=None, workers_cpus=[0], set_affinity=False, master_torch_threads=1)
    affinity = built("ppo", log_dir=str(tmp_path), affinity=dict(workers_cpus=[7], master_torch_threads=2), settings=settings[1:]).affinity
    assert affinity == dict(workers_cpus=[7], set_affinity=True, master_torch_threads=2)


def test_the_affinity_in_a_variant_wins_over_that_of_the_slot_and_settings_win_over_both(built, tmp_path):
    sections = dict(affinity=dict(master_torch_threads=2, set_affinity=False), runner=dict(affinity=dict(cuda_idx=None)))
    kwargs = dict(log_dir=str(tmp_path), affinity=dict(master_torch_threads=1, set_affinity=True, cuda_idx=7), sections=sections)
    assert built("ppo", **kwargs).affinity == dict(master_torch_threads=2, set_affinity=False, cuda_idx=None)
    affinity = built("ppo", **kwargs, settings=["affinity.master_torch_threads=3"]).affinity
    assert affinity == dict(master_torch_threads=3, set_affinity=False, cuda_idx=None)
    settings = ["runner.affinity={'master_torch_threads': 4}"]  # As without an affinity of a slot.
    assert built("ppo", **kwargs, settings=settings).affinity["master_torch_threads"] == 2
    assert built("ppo", **dict(kwargs, affinity=None), settings=settings).affinity["master_torch_threads"] == 2
    each = [dict(workers_cpus=[0]), dict(workers_cpus=[1])]
    assert train.with_settings(each, {}, [], sections) == [dict(one, **sections["affinity"], cuda_idx=None) for one in each]
    for affinity in ("auto", dict(optimizer=[{}], sampler={})):
        with pytest.raises(ValueError, match="affinity.cuda_idx cannot be set"):
            train.with_settings(affinity, {}, [], sections)
    assert train.with_settings("auto", {}, [], dict(affinity=None, runner=None)) == "auto"
    with pytest.raises(ValueError, match="affinity='auto' must be a dictionary"):
        train.with_settings({}, {}, [], dict(affinity="auto"))


def test_settings_of_the_affinity_are_refused_where_processes_have_different_ones(tmp_path):
    each = [dict(workers_cpus=[0]), dict(workers_cpus=[1])]
    assert train.with_settings(each, dict(affinity={}), ["affinity.cuda_idx=1"]) == [dict(one, cuda_idx=1) for one in each]
    for affinity in ("auto", dict(optimizer=[{}], sampler={})):
        with pytest.raises(ValueError, match="affinity.cuda_idx cannot be set"):
            train.with_settings(affinity, dict(affinity={}), ["affinity.cuda_idx=1"])


def test_a_dictionary_may_set_several_entries_of_the_affinity():
    settings = ["runner.affinity=dict", "runner.affinity={'cuda_idx': 1, 'master_torch_threads': 2}", "affinity.cuda_idx=3"]
    config = dict(affinity={}, runner={})
    assert train.with_settings(dict(cuda_idx=None), config, settings[1:]) == dict(cuda_idx=3, master_torch_threads=2)
    with pytest.raises(ValueError, match="runner.affinity='dict' must be a dictionary"):
        train.with_settings({}, config, settings[:1])


@pytest.mark.parametrize(
    "setting, message",
    [
        ("env.foo=1", "The environment cannot be made with .*foo=1: "),
        ("env.id=", "The environment cannot be made with id='': "),
        ("env.id=None", "The environment cannot be made with id=None: "),
        ("env.id=Nope-v3", "The environment cannot be made with id='Nope-v3': "),
        ("eval_env.foo=1", "The environment for evaluation cannot be made with .*foo=1: "),
        ("runner.seed=5", "runner.seed cannot be set: --seed determines it"),
        ("runner.algo=1", "runner.algo cannot be set: the section algo determines it"),
        ("sampler.EnvCls=foo", "sampler.EnvCls cannot be set: the class env determines it"),
        ("sampler.env_kwargs={}", "sampler.env_kwargs cannot be set: the section env determines it"),
        ("algo.optim_kwargs={}", "algo.optim_kwargs cannot be set: the section optim determines it"),
        ("agent.model_kwargs.hidden_sizes=[9]", "agent.model_kwargs cannot be set: the section model determines it"),
        ("runner.affinity=foo", "runner.affinity='foo' must be a dictionary"),
        ("runner.n_steps=abc", "n_steps='abc' is not possible"),
        ("sampler.batch_B=abc", "batch_B='abc' is not possible"),
        ("model.hidden_sizes=abc", "The model cannot be made with hidden_sizes='abc'.*: "),
        ("model.hidden_sizes=[-1]", "hidden_sizes=.* is not possible; it must be a whole number at least 1, or a list"),
        (f"model.hidden_sizes=[{10**16}]", "The model cannot be made with .*: RuntimeError: "),
        ("model.nonlinearity=foo", "The model cannot be made with .*nonlinearity='foo'.*: "),
        ("optim.eps=abc", "The optimizer cannot be made with eps='abc': "),
        ("optim.betas=abc", "The optimizer cannot be made with .*betas='abc': "),
    ],
)
@pytest.mark.parametrize("smoke", [False, True])
def test_what_cannot_be_set_is_refused_in_a_sentence_and_earlier_files_stay(built, setting, message, smoke, tmp_path):
    (tmp_path / "run_0").mkdir()
    (tmp_path / "run_0" / "progress.csv").write_text("a\n1\n")
    sections = dict(model=dict(hidden_sizes=[8]), optim=dict(eps=1e-5))
    with pytest.raises(ValueError, match=message):
        built("ppo", log_dir=str(tmp_path), settings=[setting], sections=sections, smoke=smoke, n_parallel=1)
    assert [path.name for path in (tmp_path / "run_0").iterdir()] == ["progress.csv"]


def test_parts_are_tried_before_files_are_moved_aside_but_not_for_nothing(built, monkeypatch, tmp_path):
    tried = []
    monkeypatch.setattr(train, "check_parts", lambda runner, config: tried.append(runner))
    built("ppo", log_dir=str(tmp_path))
    assert not tried, "in a new directory, with the settings of the configuration"
    built("ppo", log_dir=str(tmp_path))
    assert len(tried) == 1


def test_every_configuration_has_the_section_eval_env(built, tmp_path):
    sampler = built("ppo", log_dir=str(tmp_path), settings=["env.max_episode_steps=50"]).sampler
    assert sampler.eval_env_kwargs == sampler.env_kwargs == dict(id="CartPole-v1", max_episode_steps=50)
    sampler = built("ppo", log_dir=str(tmp_path), settings=["eval_env.max_episode_steps=50"]).sampler
    assert sampler.env_kwargs == dict(id="CartPole-v1") and sampler.eval_env_kwargs == dict(id="CartPole-v1", max_episode_steps=50)


def test_resuming_is_no_setting(built, tmp_path):
    with pytest.raises(ValueError, match="resume_from cannot be set: rlpyt resume DIR"):
        built("ppo", log_dir=str(tmp_path), settings=[f"runner.resume_from={tmp_path}"])
    assert not list(tmp_path.iterdir())


def test_a_sampler_that_does_not_exist_is_refused_with_the_nearest_name():
    for settings in (dict(sampler="seriel"), dict(sections=dict(classes=dict(sampler="seriel")))):
        with pytest.raises(ValueError, match="no sampler named 'seriel'. Did you mean 'serial'"):
            train.configuration("cartpole", "ppo", **settings)


def test_settings_of_base_classes_are_taken():
    module = load("cartpole")
    config = variant(module.configs["catdqn"], algo=dict(learning_rate=0.5), agent=dict(eps_init=0.5), model=dict(noisy=True))
    runner = train.build(config, classes_of(module, "catdqn"), affinity={}, seed=0)
    assert (runner.algo.learning_rate, runner.agent.eps_init) == (0.5, 0.5)


def test_tiny_runs_limit_the_defaults_of_base_classes_too():
    classes = dict(algo=train.load_class("rlpyt.algos.dqn.cat_dqn.CategoricalDQN"), runner=MinibatchRl, sampler=SerialSampler)
    tiny = train.limited(dict(algo={}, runner=dict(n_steps=1e6), sampler=dict(batch_T=5, batch_B=9)), classes)
    assert tiny["algo"] == dict(batch_size=32, replay_ratio=8, min_steps_learn=128, replay_size=2048)
    assert tiny["runner"] == dict(n_steps=256, log_interval_steps=128)
    assert tiny["sampler"] == dict(batch_T=5, batch_B=4, max_decorrelation_steps=10)


def test_what_cannot_be_imported_is_an_import_error(tmp_path, monkeypatch):
    (tmp_path / "needs_an_extra.py").write_text("import a_package_that_is_not_installed\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match="a_package_that_is_not_installed"):
        train.load_class("needs_an_extra.Env")
    with pytest.raises(ImportError, match="There is no DQM in rlpyt.algos.dqn.dqn"):
        train.load_class("rlpyt.algos.dqn.dqn.DQM")
    assert train.load_class("torch.optim.RMSprop") is torch.optim.RMSprop


@pytest.mark.parametrize(
    "sampler, eval_n_envs, RunnerCls",
    [("serial", 0, MinibatchRl), ("cpu", 1, MinibatchRlEval), ("async_serial", 0, AsyncRl), ("async_gpu", 1, AsyncRlEval)],
)
def test_the_runner_is_the_one_for_the_sampler(sampler, eval_n_envs, RunnerCls):
    module = load("mujoco_ddpg")
    config = variant(module.configs["async_serial"], sampler=dict(eval_n_envs=eval_n_envs))
    assert "async_" in classes_of(module, "async_serial")["sampler"]
    paths = dict(classes_of(module, "async_serial"), sampler=train.SAMPLERS[sampler])
    assert type(train.build(config, paths, affinity={}, seed=0)) is RunnerCls


def test_evaluation_may_be_in_another_environment_but_not_in_another_game(built, tmp_path):
    sampler = built("ppo", log_dir=str(tmp_path), settings=["eval_env.id=CartPole-v0"]).sampler
    assert (sampler.env_kwargs, sampler.eval_env_kwargs) == (dict(id="CartPole-v1"), dict(id="CartPole-v0"))
    both = ["env.game=breakout", "eval_env.game=breakout"]  # As in scripts of the original.
    assert train.configuration("atari_dqn", "dqn", settings=both)[0]["eval_env"]["game"] == "breakout"
    with pytest.raises(ValueError, match="eval_env.game='seaquest' cannot be set: env.game='pong' determines it"):
        train.configuration("atari_dqn", "dqn", settings=["eval_env.game=seaquest"])
    with pytest.raises(ValueError, match="eval_env.game='seaquest' cannot be set: env.game='pong' determines it"):
        train.configuration("atari_dqn", "dqn", sections=dict(eval_env=dict(game="seaquest")))


def test_an_affinity_of_none_leaves_all_to_the_runner(built, tmp_path):
    assert built("ppo", log_dir=str(tmp_path), settings=["runner.affinity=none"]).affinity is not None


def test_evaluation_is_in_the_same_environment_but_for_the_settings_of_eval_env():
    module = load("atari_dqn")
    config = variant(module.configs["dqn"], env=dict(game="breakout", frame_shape=(84, 84)))
    sampler = train.build(config, classes_of(module, "dqn"), affinity={}, seed=0).sampler
    assert sampler.env_kwargs == dict(game="breakout", frame_shape=(84, 84), episodic_lives=True)
    assert sampler.eval_env_kwargs == dict(game="breakout", frame_shape=(84, 84), episodic_lives=False, horizon=27_000)
    assert sampler.EnvCls.__name__ == "AtariEnv" and sampler.TrajInfoCls.__name__ == "AtariTrajInfo"
