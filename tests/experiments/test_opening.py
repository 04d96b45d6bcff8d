"""Opening runs: the agent that acts, and what is imported for it."""

import json
import os
import re
import shutil
import sys
import textwrap
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from tiers import thinned

import rlpyt
from rlpyt.agents.base import AgentStep
from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.pg.mlp import MlpFfAgent, MlpGaussianFfAgent, MlpLstmAgent
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.algos.pg.a2c import A2C
from rlpyt.envs.adapters import original
from rlpyt.envs.gym import GymEnvWrapper
from rlpyt.envs.gym import make as gym_make
from rlpyt.experiments.build import build
from rlpyt.experiments.configs import classes_of, config_modules, load
from rlpyt.experiments.opening import OpenedRun, TrainedPolicy
from rlpyt.experiments.trust import Names, names_in
from rlpyt.runners.checkpoint import settings_of
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.runners.trainer import Trainer
from rlpyt.samplers.episodic import LocalSampler, VecWorker
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.logging.context import logger_context
from rlpyt.utils.recipes import Recorded, Script, describe_call, make_call

NOWHERE = Script("/nowhere/script.py")


def train(log_dir, agent=None, algo=None, snapshot_mode="last", env=dict(id="CartPole-v1"), EnvCls=gym_make, n_steps=16):  # noqa: B006
    """Return the directory of a tiny run."""
    runner = MinibatchRl(
        algo=A2C() if algo is None else algo,
        agent=MlpFfAgent() if agent is None else agent,
        sampler=SerialSampler(EnvCls=EnvCls, env_kwargs=env, batch_T=4, batch_B=2, max_decorrelation_steps=0),
        n_steps=n_steps,
        log_interval_steps=n_steps // 2,
        seed=1,
    )
    with logger_context(str(log_dir), 0, "run", snapshot_mode=snapshot_mode) as run_dir:
        runner.train()
    return Path(run_dir)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """A run; do not write there."""
    return train(tmp_path_factory.mktemp("run"), snapshot_mode="best", n_steps=256)


@pytest.fixture
def copied(run_dir, tmp_path):
    """The same run, to write to."""
    return Path(shutil.copytree(run_dir, tmp_path / "copied" / "run_0"))


def change(run_dir, change_record):
    """Let a function change the record of a run."""
    params = json.loads((run_dir / "params.json").read_text())
    change_record(params["rlpyt"])
    (run_dir / "params.json").write_text(json.dumps(params))


def assert_same(state, other):
    torch.testing.assert_close(dict(state), dict(other), rtol=0, atol=0)


# --- The agent that acts ----------------------------------------------------------------------------------------------
def test_a_loaded_agent_has_the_parameters_of_the_snapshot_and_acts(run_dir):
    agent = rlpyt.load_agent(run_dir)
    assert_same(agent.state_dict(), torch.load(run_dir / "params.pkl", weights_only=True)["agent_state_dict"])
    step = agent.step(torch.zeros(4), torch.tensor(0), torch.tensor(0.0))
    assert int(step.action) in (0, 1) and agent._mode == "eval"


def test_the_best_snapshot_or_any_other_may_be_taken(run_dir, tmp_path):
    best, last = (rlpyt.load_agent(run_dir, snapshot=which, device=where) for which, where in (("best", None), ("last", "cpu")))
    file = rlpyt.load_agent(run_dir, snapshot=run_dir / "best.pkl")
    assert_same(best.state_dict(), file.state_dict())
    assert_same(best.state_dict(), torch.load(run_dir / "best.pkl", weights_only=True)["agent_state_dict"])
    assert_same(last.state_dict(), torch.load(run_dir / "params.pkl", weights_only=True)["agent_state_dict"])
    named = rlpyt.load_agent(run_dir, snapshot="best.pkl")
    assert_same(best.state_dict(), named.state_dict())
    with pytest.raises(FileNotFoundError, match="There is no snapshot"):
        rlpyt.load_agent(run_dir, snapshot="bets")
    (tmp_path / "run_1").mkdir()
    with pytest.raises(FileNotFoundError, match="There is no snapshot"):
        rlpyt.load_agent(tmp_path / "run_1")


@pytest.mark.parametrize(
    "agent, algo", [(MlpFfAgent, A2C), (MlpLstmAgent, A2C), (MlpDqnAgent, lambda: DQN(min_steps_learn=8, batch_size=4))]
)
def test_a_loaded_policy_plays_in_a_plain_loop_of_gymnasium(tmp_path, agent, algo, capsys):
    run_dir = train(tmp_path, agent(), algo())
    capsys.readouterr()
    policy, env = rlpyt.load_policy(run_dir), gymnasium.make("CartPole-v1")
    assert "epsilon" not in capsys.readouterr().out, "it does not explore"
    (observation, info), done = env.reset(seed=0), False
    while not done:
        action = policy(observation)
        assert env.action_space.contains(action)
        observation, reward, terminated, truncated, info = env.step(action)
        done = terminated or truncated
    policy.reset()


def test_a_loaded_policy_remembers_until_it_is_reset(tmp_path):
    torch.manual_seed(0)
    policy = rlpyt.load_policy(train(tmp_path, MlpLstmAgent()))
    agent, observation = policy._policy.agent, np.ones(4, np.float32)
    assert agent.prev_rnn_state is None
    policy(observation, reward=1.0)
    assert agent.prev_rnn_state is not None
    policy.reset()
    assert agent.prev_rnn_state is None


class OwnWrapper(GymEnvWrapper):
    """Has the spaces of rlpyt, as environments of rlpyt do."""


def make_rlpyt(id):
    return OwnWrapper(gymnasium.make(id))


@pytest.mark.parametrize("EnvCls", [gym_make, make_rlpyt])
def test_a_policy_takes_one_observation_and_says_what_is_none(EnvCls):
    env = EnvCls("CartPole-v1")
    agent = MlpFfAgent()
    agent.initialize(env.spaces)
    policy = TrainedPolicy(agent, original(env))
    assert policy([0.0, 0.0, 0.0, 0.0]) in (0, 1) and policy(np.zeros(4, np.float32)) in (0, 1)
    for shape in ((3,), (2, 4), (1, 4), ()):
        with pytest.raises(ValueError, match=rf"^observation: expected shape \(4,\), got {re.escape(str(shape))}\.$"):
            policy(np.zeros(shape, np.float32))
    with pytest.raises(ValueError, match=r"give the observation alone: observation, info = env.reset\(\)\.$"):
        policy((np.zeros(4, np.float32), {}))


class Still(Recorded):
    """A policy without parameters."""

    def __init__(self):
        pass

    def reset(self, do_resets=None):
        pass

    def get_action(self, observation):
        return 0, {}

    def get_actions(self, observations):
        return np.zeros(len(observations), int), {}

    def get_param_values(self):
        return {}

    def set_param_values(self, params):
        pass


class OnlySamples(Recorded):
    """An algorithm with its own loop, which learns nothing."""

    def __init__(self, sampler, policy):
        self._sampler, self.policy = sampler, policy

    def train(self, trainer):
        for _ in trainer.step_epochs():
            trainer.obtain_episodes(trainer.step_itr)

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def make_pole():
    return gymnasium.make("CartPole-v1")


@pytest.mark.parametrize("envs", [make_pole, [make_pole], [[make_pole, make_pole]]], ids=["one", "list", "nested"])
def test_a_policy_is_loaded_whatever_lists_of_environments_its_sampler_was_given(envs, tmp_path):
    policy, trainer = Still(), Trainer(tmp_path, verbose=0)
    args = dict(worker_class=VecWorker, worker_args=dict(n_envs=2), n_workers=1)
    trainer.setup(OnlySamples(LocalSampler(policy, envs, max_episode_length=5, **args), policy))
    trainer.train(1, 5)
    assert rlpyt.load_policy(tmp_path)(np.zeros(4, np.float32)) == 0


def test_a_policy_counts_the_observations_of_a_discrete_space_as_in_training():
    seen, agent = [], MlpFfAgent()
    env = gymnasium.make("CartPole-v1")
    env.observation_space = gymnasium.spaces.Discrete(3, start=5)
    agent.step = lambda observation, *_: (
        seen.append(observation.tolist()) or AgentStep(action=torch.zeros(1, dtype=torch.int64), agent_info=())
    )
    agent.initialize(gym_make("CartPole-v1").spaces)
    policy = TrainedPolicy(agent, env)
    policy(7)
    assert seen == [[2]]
    with pytest.raises(ValueError, match="observation: expected an integer from 5 to 7, got 8"):
        policy(8)


class Shifted(gymnasium.Env):
    """Knows the actions 5 and 6, and tells what it got."""

    observation_space = gymnasium.spaces.Dict(a=gymnasium.spaces.Box(-1, 1, (2,), np.float64), b=gymnasium.spaces.Discrete(3))
    action_space = gymnasium.spaces.Discrete(2, start=5)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return dict(a=np.zeros(2), b=1), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return dict(a=np.zeros(2), b=1), 0.0, False, True, {}


def test_a_policy_speaks_the_language_of_the_gymnasium_environment(tmp_path):
    policy, env = rlpyt.load_policy(train(tmp_path, EnvCls=Shifted, env={})), Shifted()
    observation, info = env.reset()
    assert {int(policy(observation)) for _ in range(50)} == {5, 6}
    with pytest.raises(ValueError, match="give the observation alone"):
        policy((observation, info))
    with pytest.raises(ValueError, match=r"observation\['a'\]: expected shape \(2,\), got \(3,\)"):
        policy(dict(a=np.zeros(3), b=1))


@pytest.mark.parametrize("clip", [True, False])
def test_a_policy_gives_actions_within_their_bounds_unless_the_agent_says_otherwise(clip):
    env = gym_make("Pendulum-v1")
    agent = MlpGaussianFfAgent(model_kwargs=dict(init_log_std=2.0), clip_actions=clip)
    agent.initialize(env.spaces)
    policy = TrainedPolicy(agent, original(env))
    actions = [policy(env.observation_space.sample()) for _ in range(30)]
    assert all(action.shape == (1,) and action.dtype == np.float32 for action in actions)
    assert all(map(env.env.action_space.contains, actions)) == clip


# --- A run is made again as it was ------------------------------------------------------------------------------------
CONFIGS = [(name, key) for name in config_modules() for key in getattr(load(name), "configs", {})]


@pytest.mark.parametrize("name, key", thinned(CONFIGS, quick=CONFIGS[::4]))
def test_every_configuration_is_made_again_as_it_was(name, key):
    """Through JSON, by the same check of names as a run of a stranger."""
    module = load(name)
    affinity = dict(workers_cpus=[0], cuda_idx=None, set_affinity=False)
    try:
        runner = build(module.configs[key], classes_of(module, key), affinity, seed=3)
    except (ImportError, ValueError) as error:
        pytest.skip(f"This configuration is not for this machine: {error}")
    parts = dict(runner=runner, algo=runner.algo, agent=runner.agent, sampler=runner.sampler)
    record = {name: describe_call(part, NOWHERE, parts, where=name) for name, part in parts.items()}
    assert not any(unknown for _, unknown in record.values())
    record = json.loads(json.dumps({name: call for name, (call, _) in record.items()}))
    names = Names(record, Path("/nowhere/params.json"))
    made = {name: make_call(record[name], names.find) for name in ("algo", "agent", "sampler")}
    again = make_call(record["runner"], names.find, made)
    assert settings_of(again) == settings_of(runner) and type(again) is type(runner)
    assert (again.seed, again.n_steps, again.log_interval_steps) == (3, runner.n_steps, runner.log_interval_steps)
    assert again.affinity == runner.affinity and again.sampler.eval_env_kwargs == runner.sampler.eval_env_kwargs


# --- Trust ------------------------------------------------------------------------------------------------------------
MARK = "import os, pathlib; pathlib.Path(__file__ + '.was_run').touch()\n"


def made_by(name, **arguments):
    return {"$make": {"class": {"$name": name}, "arguments": arguments}}


EVIL = [
    {"$name": "os:system"},
    {"$name": "subprocess:Popen"},
    {"$name": "builtins:exec"},
    {"$name": "torch:load"},
    {"$name": "torch.hub:load"},
    {"$name": "torch.nn.modules.module:torch.load"},
    {"$name": "torch.nn.functional:torch.os.system"},
    {"$name": "numpy:memmap"},
    {"$name": "numpy:load"},
    {"$name": "rlpyt.experiments.opening:load_function"},
    {"$name": "rlpyt.experiments.envs:gymnasium.logger.warnings.sys"},
    {"$name": "rlpyt.samplers.base:entry"},
    {"$name": "rlpyt.utils.launching.sweep:subprocess.run"},
    {"$name": "rlpyt.samplers.workers:os.system"},
    {"$name": "gymnasium.envs.registration:importlib.import_module"},
    {"$name": "gymnasium.wrappers:RecordVideo"},
    {"$name": "rlpyt.runners.trainer:Snapshotter"},
    {"id": "evil_module:Foo-v0"},
    {"unknown": {"deep": [{"$name": "evil_module:Foo"}]}},
    {"command": {"$name": "evil_module:Foo"}},
    {"$dict": [[{"$name": "evil_module:Foo"}, 1]]},
    made_by("evil_module:Foo"),
    made_by("gymnasium.envs.registration:EnvSpec", id="X-v0", entry_point="os:system"),
    made_by("gymnasium.envs.registration:make", id="evil_module:Foo-v0"),
    made_by("torch.nn.modules.module:torch._C.PyTorchFileWriter"),
    {"$partial": {"function": {"$name": "evil_module:Foo"}, "arguments": {}, "positional": []}},
    {"$make": {"class": {"$_getattribute__": "find"}, "arguments": {}}},
    {"$script": "Foo"},
    {"$script": "os.system"},
]
PLACES = {
    "environment": lambda record, value: record["sampler"]["arguments"].update(EnvCls=value),
    "settings of environments": lambda record, value: record["sampler"]["arguments"].update(env_kwargs=value),
    "an argument that does not exist": lambda record, value: record["agent"]["arguments"].update(no_such_argument=value),
    "models": lambda record, value: record["agent"]["arguments"].update(model_kwargs=value),
    "by position": lambda record, value: record["algo"].update(positional=[value]),
    "environment of a trainer": lambda record, value: record.update(env={"class": value, "arguments": {}}),
}


@pytest.fixture
def evil(tmp_path, monkeypatch):
    """A module that can be imported, of somebody else; the current directory is another."""
    file = tmp_path / "elsewhere" / "evil_module.py"
    file.parent.mkdir()
    file.write_text(MARK + "class Foo: pass\n")
    monkeypatch.syspath_prepend(str(file.parent))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    yield file
    assert not list(file.parent.glob("*.was_run")) and "evil_module" not in sys.modules


@pytest.mark.parametrize("place", thinned(PLACES, quick=["environment"]))
def test_code_that_a_run_names_is_not_imported(copied, evil, place):
    for value in EVIL:

        def do(record, value=value):
            PLACES[place](record, value)
            record["script"] = dict(file=str(evil), module=None)

        shutil.copy(copied / "params.json", copied / "kept.json")
        change(copied, do)
        with pytest.raises(ValueError, match="names what opening this run would import and call: .*If you trust the run, say so: --trust"):
            rlpyt.load_agent(copied)
        shutil.move(copied / "kept.json", copied / "params.json")


def test_names_are_looked_at_again_when_they_are_found(copied, evil):
    names = Names({}, copied / "params.json")
    for tag, name in {each for value in EVIL for each in names_in(value)} - {("$name", "gymnasium.envs.registration:make")}:
        with pytest.raises((ValueError, FileNotFoundError)):
            names.find(tag, name)


def test_a_run_does_not_join_the_cluster_of_a_stranger(copied):
    for settings in (dict(address="10.0.0.1:6379"), dict(init_kwargs=dict(runtime_env=dict(pip=["x"])))):
        with pytest.raises(ValueError, match="of Ray|Ray cluster"):
            Names(dict(sampler=dict(arguments=settings)), copied / "params.json")
    Names(dict(sampler=dict(arguments=dict(address="auto", init_kwargs=dict(object_store_memory=1)))), copied / "params.json")


def test_all_that_is_not_trusted_is_listed_at_once(copied):
    def do(record):
        record["agent"]["arguments"].update(a={"$name": "os:system"}, b={"$name": "shutil:rmtree"})

    change(copied, do)
    with pytest.raises(ValueError, match="os:system, shutil:rmtree"):
        OpenedRun(copied)


def test_what_a_file_of_the_user_imports_is_not_what_it_defines(copied, tmp_path, monkeypatch, fresh):
    by_a_module_of(copied, tmp_path / "project", "my_envs_os")
    monkeypatch.chdir(tmp_path / "project")
    for name in ("my_envs_os:os.system", "my_envs_os:pathlib", "my_envs_os:make"):
        change(copied, lambda record, name=name: record["sampler"]["arguments"].update(EnvCls={"$name": name}))
        with pytest.raises(ValueError, match=f"{name} is not defined there"):
            rlpyt.load_agent(copied)
    (tmp_path / "project" / "my_script_os.py").write_text("import os\n")

    def do(record):
        record["sampler"]["arguments"].update(EnvCls={"$script": "os.system"}, env_kwargs=dict(command="touch was_run"))
        record["script"] = dict(file=str(tmp_path / "project" / "my_script_os.py"), module=None)

    change(copied, do)
    with pytest.raises(ValueError, match="os.system of .*my_script_os.py is not defined there"):
        rlpyt.load_agent(copied)


ENV = """
from rlpyt.envs.gym import make

def my_env():
    return make(id="CartPole-v1")
"""


def by_a_module_of(run_dir, directory, name):
    """Write a module, and let the run's environments be made by it."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.py").write_text(MARK + ENV)
    (directory / "script.py").touch()

    def do(record):
        record["sampler"]["arguments"].update(EnvCls={"$name": f"{name}:my_env"}, env_kwargs={})
        record["script"] = dict(file=str(directory / "script.py"), module=None)

    change(run_dir, do)


@pytest.fixture
def fresh(monkeypatch):
    """Leaves the table of modules, and the path where they are found, as they were."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("my_"):
            del sys.modules[name]


def test_modules_beside_a_script_below_the_current_directory_are_the_users(copied, tmp_path, monkeypatch, fresh):
    by_a_module_of(copied, tmp_path / "project" / "deep", "my_envs_a")
    monkeypatch.chdir(tmp_path / "project")
    assert type(rlpyt.load_agent(copied)) is MlpFfAgent
    assert type(rlpyt.load_agent("../copied/run_0")) is MlpFfAgent
    monkeypatch.chdir(tmp_path / "copied")
    with pytest.raises(ValueError, match="my_envs_a:my_env"):
        rlpyt.load_agent(copied)
    assert type(rlpyt.load_agent(copied, trust=True)) is MlpFfAgent


@pytest.mark.parametrize(
    "place", ["copied/run_0", "copied", "copied/run_1", "venv/lib/python3.12/site-packages", "venv/deep", "usr/lib/python3.11"]
)
def test_modules_that_came_with_the_run_or_were_installed_are_not(copied, tmp_path, monkeypatch, fresh, place):
    by_a_module_of(copied, tmp_path / place, "my_envs_b")
    (tmp_path / "venv").mkdir(exist_ok=True)
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="my_envs_b:my_env"):
        rlpyt.load_agent(copied)
    name = ".".join([*Path(place).parts, "my_envs_b"])
    change(copied, lambda record: record["sampler"]["arguments"].update(EnvCls={"$name": f"{name}:my_env"}))
    with pytest.raises(ValueError, match="my_envs_b:my_env"):
        rlpyt.load_agent(copied)
    assert not list((tmp_path / place).glob("*.was_run"))


def test_a_link_does_not_make_files_that_came_with_the_run_the_users(copied, tmp_path, monkeypatch, fresh):
    by_a_module_of(copied, copied, "my_envs_c")
    (tmp_path / "other").mkdir()
    shutil.move(copied / "params.json", tmp_path / "other" / "params.json")
    (copied / "params.json").symlink_to(tmp_path / "other" / "params.json")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="my_envs_c:my_env"):
        rlpyt.load_agent(copied)
    assert str(copied) not in sys.path


def test_from_the_root_of_the_file_system_nothing_is_the_users(copied, tmp_path, monkeypatch, fresh):
    by_a_module_of(copied, tmp_path / "project", "my_envs_d")
    monkeypatch.chdir("/")
    with pytest.raises(ValueError, match="my_envs_d:my_env"):
        rlpyt.load_agent(copied)


def test_a_script_that_was_moved_together_with_its_run_is_found(copied, tmp_path, monkeypatch, fresh):
    def do(record):
        record["sampler"]["arguments"].update(EnvCls={"$script": "my_env"}, env_kwargs={})
        record["script"] = dict(file="/nowhere/my_script_d.py", relative="../../project/my_script_d.py", module=None)

    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "my_script_d.py").write_text(ENV)
    change(copied, do)
    monkeypatch.chdir(tmp_path)
    assert type(rlpyt.load_agent(copied)) is MlpFfAgent


def test_scripts_of_the_same_name_are_executed_once_each(tmp_path, fresh):
    from rlpyt.experiments.trust import import_file

    modules = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "my_main.py").write_text(f"import pathlib\nwhich = {name!r}\npathlib.Path(__file__ + str(id(which))).touch()\n")
        modules += [import_file(tmp_path / name / "my_main.py") for _ in range(2)]
        assert len(list((tmp_path / name).glob("my_main.py?*"))) == 1
    assert [module.which for module in modules] == ["one", "one", "two", "two"]


def test_a_script_without_a_main_guard_does_not_train_when_it_is_looked_at(copied, tmp_path, monkeypatch, fresh):
    script = tmp_path / "my_script_a.py"
    script.write_text(ENV + "from rlpyt.utils.logging.context import logger_context\nwith logger_context('x', 0, 'x'):\n    pass\n")

    def do(record):
        record["sampler"]["arguments"].update(EnvCls={"$script": "my_env"}, env_kwargs={})
        record["script"] = dict(file=str(script), module=None)

    change(copied, do)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="my_script_a.py starts a run. Put the code that trains below `if __name__ == '__main__':`"):
        rlpyt.load_agent(copied)
    assert "my_script_a" not in sys.modules
    script.unlink()
    with pytest.raises(FileNotFoundError, match="my_script_a.py, is not there any more"):
        rlpyt.load_agent(copied)


@pytest.mark.parametrize("body", ["with logger_context('x', 0, 'x'):\n        runner.train()", "runner.train()"])
def test_a_function_that_trains_is_stopped_before_it_does(run_dir, tmp_path, monkeypatch, fresh, body):
    script = """
    from rlpyt.agents.pg.mlp import MlpFfAgent
    from rlpyt.algos.pg.a2c import A2C
    from rlpyt.envs.gym import make
    from rlpyt.runners.minibatch_rl import MinibatchRl
    from rlpyt.samplers.serial.sampler import SerialSampler
    from rlpyt.utils.logging.context import logger_context

    def build_and_train():
        sampler = SerialSampler(make, dict(id="CartPole-v1"), batch_T=4, batch_B=2)
        runner = MinibatchRl(algo=A2C(), agent=MlpFfAgent(), sampler=sampler, n_steps=1e9)
        BODY
        return runner
    """
    (tmp_path / "my_script_b.py").write_text(textwrap.dedent(script).replace("    BODY", f"    {body}"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="build_and_train starts a run. Give a function that returns the runner"):
        OpenedRun(run_dir, script="my_script_b.py:build_and_train")
    assert sorted({*os.listdir(tmp_path)} - {"__pycache__"}) == ["my_script_b.py"]


@pytest.mark.parametrize(
    "do, message",
    [
        (lambda record: record.clear(), "The agent of .* cannot be made again"),
        (lambda record: record["agent"].update(arguments=[]), "its agent does not say what to call, or with which arguments"),
        (lambda record: record.update(script="x"), "its script is 'x'"),
        (lambda record: record.update(sampler=None), "its sampler does not say what to call"),
        (lambda record: record["agent"]["arguments"].update(hidden=3), "MlpFfAgent has no setting 'hidden'"),
        (lambda record: record["agent"].update({"class": {"$unknown": "a lambda"}}), "it was a lambda. Say how to build it: --script"),
        (lambda record: record["agent"].update({"class": {"$name": "rlpyt.agents.pg.mlp:Gone"}}), "There is no Gone in .*mlp"),
    ],
)
def test_a_damaged_record_is_refused_in_a_sentence(copied, do, message):
    change(copied, do)
    with pytest.raises(ValueError, match=message):
        OpenedRun(copied).agent  # noqa: B018


@pytest.mark.parametrize("saved", [99, "2"])
def test_a_record_of_a_later_format_is_refused_with_both_versions(copied, saved):
    OpenedRun(copied).agent  # noqa: B018
    change(copied, lambda record: record.update(format=saved, packages=dict(rlpyt="9.1")))
    by, own = f"is of format {saved!r}, written by rlpyt 9.1", f"This is rlpyt {re.escape(rlpyt.__version__)}, which reads format 1"
    with pytest.raises(ValueError, match=f"params.json {by}. {own}"):
        OpenedRun(copied)


def test_functions_of_scripts_find_what_lies_beside_them(tmp_path, fresh):
    from rlpyt.experiments.opening import load_function

    (tmp_path / "my_neighbour.py").write_text("answer = 42\n")
    script = tmp_path / "my_script_c.py"
    script.write_text("import my_neighbour\n\ndef make():\n    return my_neighbour.answer, __name__\n")
    function = load_function(f"{script}:make")
    assert function() == (42, "my_script_c") and sys.modules["my_script_c"].make is function
    assert Path(function.__code__.co_filename) == script


def test_params_without_a_record_say_what_to_do(copied):
    (copied / "params.json").write_text(json.dumps(dict(batch_T=3)))
    with pytest.raises(ValueError, match="does not say how the run was made. Say how to build it: --script file.py:function"):
        rlpyt.load_agent(copied)
    (copied / "params.json").unlink()
    with pytest.raises(FileNotFoundError, match="which tells the settings"):
        rlpyt.load_agent(copied)
