"""What runners write into params.json: how their parts were made."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tiers import full

import rlpyt
from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.algos.pg.a2c import A2C
from rlpyt.algos.pg.ppo import PPO
from rlpyt.envs.gym import make
from rlpyt.runners.async_rl import AsyncRl
from rlpyt.runners.minibatch_rl import MinibatchRl, MinibatchRlEval
from rlpyt.runners.record import _is_command, write_record
from rlpyt.runners.sync_rl import SyncRl
from rlpyt.runners.trainer import Trainer
from rlpyt.samplers.async_.serial_sampler import AsyncSerialSampler
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.logging.context import logger_context
from rlpyt.utils.logging.runs import read_settings
from rlpyt.utils.recipes import Recorded, Script


def serial(SamplerCls=SerialSampler, **kwargs):
    settings = dict(EnvCls=make, env_kwargs=dict(id="CartPole-v1"), batch_T=4, batch_B=2, max_decorrelation_steps=0)
    return SamplerCls(**{**settings, **kwargs})


def runner(RunnerCls=MinibatchRl, agent=None, algo=None, sampler=None, **kwargs):
    parts = dict(agent=agent or MlpFfAgent(), algo=algo or A2C(), sampler=sampler or serial())
    return RunnerCls(**parts, **{**dict(n_steps=16, log_interval_steps=8), **kwargs})


def trained(directory, runner, log_params=None):
    """Train; return the contents of params.json."""
    with logger_context(str(directory), 0, "a", log_params=log_params):
        runner.train()
    return params_in(directory)


def params_in(directory):
    return json.loads((directory / "run_0" / "params.json").read_text())


def test_params_json_tells_classes_arguments_defaults_and_seed(tmp_path):
    made = runner(algo=PPO(learning_rate=0.25, epochs=1, minibatches=1), agent=MlpFfAgent(model_kwargs=dict(hidden_sizes=(8,))))
    params = trained(tmp_path, made, dict(mine="kept", algo=dict(also="mine")))
    record = params["rlpyt"]
    assert (params["mine"], params["name"], params["run_ID"], params["algo"]) == ("kept", "a", 0, dict(also="mine"))
    assert record["algo"]["class"] == {"$name": "rlpyt.algos.pg.ppo:PPO"}
    assert record["algo"]["arguments"] == dict(learning_rate=0.25, epochs=1, minibatches=1)
    assert record["algo"]["defaults"]["discount"] == 0.99 and "learning_rate" not in record["algo"]["defaults"]
    assert record["agent"]["arguments"] == dict(model_kwargs=dict(hidden_sizes={"$tuple": [8]}))
    assert record["sampler"]["arguments"]["EnvCls"] == {"$name": "rlpyt.envs.gym:make"}
    assert record["seed"] == made.seed and record["n_steps"] == 16 and record["traj_info"] == dict(discount=0.99)
    settings = read_settings(tmp_path / "run_0")
    assert settings["algo.learning_rate"] == 0.25 and settings["algo.discount"] == 0.99 and settings["env.id"] == "CartPole-v1"
    assert settings["model.hidden_sizes"] == [8] and settings["mine"] == "kept" and settings["runner.n_steps"] == 16


def committed(directory, name):
    """Make a directory a git repository with one of its files; return the commit."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(directory)]
    for command in (["init", "-q"], ["add", name], ["commit", "-qm", "a"]):
        subprocess.run([*git, *command], check=True)
    return subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()


@full
def test_params_json_tells_where_the_run_came_from(tmp_path):
    repository = tmp_path / "repository"
    repository.mkdir()
    script = repository / "script.py"
    script.write_text(
        f"import sys\nsys.path[:0] = {[str(Path(__file__).parents[i]) for i in range(2)]!r}\nfrom pathlib import Path\n"
        "from test_record import trained, runner\ntrained(Path('out').absolute(), runner())\n"
    )
    head = committed(repository, "script.py")
    subprocess.run([sys.executable, "script.py", "--x"], cwd=repository, check=True, timeout=120, capture_output=True)
    record = params_in(repository / "out")["rlpyt"]
    assert record["script"] == dict(file=str(script), module=None, relative="../../script.py") and record["githash"] == head
    assert record["command"][-2:] == ["script.py", "--x"] and record["directory"] == str(repository)
    assert set(record["packages"]) >= {"rlpyt", "torch", "numpy"}


@pytest.fixture
def head_of_rlpyt():
    """Commit of the clone that rlpyt is imported from."""
    git = ["git", "-C", str(Path(rlpyt.__file__).parents[1])]
    if subprocess.run([*git, "ls-files", "--error-unmatch", rlpyt.__file__], capture_output=True).returncode != 0:
        pytest.skip("needs a clone of rlpyt")
    return subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize(
    "file, module, is_command",
    [("rlpyt/__main__.py", "rlpyt.__main__", True), (".venv/bin/rlpyt", None, True), ("mine/train.py", "mine.train", False)],
)
def test_a_run_that_another_clone_began_records_the_commit_of_the_code_that_runs(tmp_path, head_of_rlpyt, file, module, is_command):
    other = tmp_path / "other"
    (other / file).parent.mkdir(parents=True)
    (other / file).write_text("")
    (other / "a").write_text("")
    head = committed(other, "a")
    write_record(tmp_path, Script(str(other / file), module), parts={}, is_resumed=False)
    record = json.loads((tmp_path / "params.json").read_text())["rlpyt"]
    assert record["script"]["file"] == str(other / file)
    assert record["githash"].removesuffix("-dirty") == (head_of_rlpyt if is_command else head)


def test_scripts_in_the_package_are_commands_wherever_it_is_installed(tmp_path):
    package = Path(rlpyt.__file__).parent
    assert [_is_command(Script(str(file))) for file in (package / "cli" / "launched" / "train.py", tmp_path / "train.py")] == [True, False]


@full
def test_the_commit_of_a_script_in_no_repository_is_that_of_rlpyt(tmp_path, head_of_rlpyt):
    (tmp_path / "script.py").write_text(
        f"import sys\nsys.path[:0] = {[str(Path(__file__).parents[i]) for i in range(2)]!r}\nfrom test_record import trained, runner\n"
        "from pathlib import Path\ntrained(Path('out').absolute(), runner())\n"
    )
    subprocess.run([sys.executable, "script.py"], cwd=tmp_path, check=True, timeout=120, capture_output=True)
    assert params_in(tmp_path / "out")["rlpyt"]["githash"].removesuffix("-dirty") == head_of_rlpyt


def test_settings_that_training_changes_are_those_that_were_given(tmp_path):
    made = runner(algo=PPO(linear_lr_schedule=True, epochs=1, minibatches=1, learning_rate=0.5))
    record = trained(tmp_path, made)["rlpyt"]
    assert record["algo"]["arguments"]["learning_rate"] == 0.5 and record["algo"]["defaults"]["ratio_clip"] == 0.1


def test_what_cannot_be_held_is_named_in_one_sentence_when_the_run_starts(tmp_path):
    trained(tmp_path, runner(sampler=serial(EnvCls=lambda **kwargs: make(**kwargs))))
    lines = [line for line in (tmp_path / "run_0" / "debug.log").read_text().splitlines() if "cannot hold" in line]
    assert len(lines) == 1 and "params.json cannot hold sampler.EnvCls (a lambda): to open this run" in lines[0]


class Mine(MlpFfAgent):
    def __init__(self, size):
        super().__init__(model_kwargs=dict(hidden_sizes=[size]))


def test_a_class_with_other_arguments_than_its_base_is_recorded_by_its_own(tmp_path):
    assert trained(tmp_path, runner(agent=Mine(7)))["rlpyt"]["agent"]["arguments"] == dict(size=7)


class StartsByItself(MinibatchRl):
    """As runners are that others wrote: what is recorded is not known to it."""

    def startup(self):
        import rlpyt.runners.minibatch_rl as module

        record, module.record_run = module.record_run, lambda runner: None
        try:
            return super().startup()
        finally:
            module.record_run = record


def test_a_runner_with_a_startup_of_its_own_is_recorded_with_the_first_snapshot(tmp_path):
    assert "algo" in trained(tmp_path, runner(StartsByItself))["rlpyt"]


def test_without_a_log_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runner().train()
    assert not list(tmp_path.iterdir())


def test_runners_with_evaluation_are_recorded(tmp_path):
    made = runner(MinibatchRlEval, sampler=serial(eval_n_envs=1, eval_max_steps=10))
    assert trained(tmp_path, made)["rlpyt"]["sampler"]["arguments"]["eval_max_steps"] == 10


@pytest.mark.processes
@pytest.mark.timeout(120)
def test_runners_with_several_processes_are_recorded_once(tmp_path):
    affinity = [dict(master_torch_threads=1)] * 2
    record = trained(tmp_path / "sync", runner(SyncRl, affinity=affinity))["rlpyt"]
    assert record["runner"]["arguments"]["affinity"] == affinity and "resumed" not in record
    algo = DQN(min_steps_learn=8, batch_size=4, replay_size=100)
    made = runner(AsyncRl, agent=MlpDqnAgent(), algo=algo, sampler=serial(AsyncSerialSampler), affinity=affinity[0])
    record = trained(tmp_path / "async", made)["rlpyt"]
    assert record["sampler"]["class"] == {"$name": "rlpyt.samplers.async_.serial_sampler:AsyncSerialSampler"}


class Loop(Recorded):
    """An algorithm with a loop of its own."""

    def __init__(self, size):
        self.size = size

    def train(self, trainer):
        for _ in trainer.step_epochs():
            pass

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def test_trainers_are_recorded_with_their_epochs(tmp_path):
    with logger_context(str(tmp_path), 0, "a"):
        trainer = Trainer()
        trainer.setup(Loop(3))
        trainer.train(n_epochs=2, batch_size=10)
    record = params_in(tmp_path)["rlpyt"]
    assert record["algo"]["arguments"] == dict(size=3) and record["trainer"]["n_epochs"] == 2 and record["n_steps"] == 20
    with logger_context(str(tmp_path / "b"), 0, "b"):
        trainer = Trainer()
        trainer.setup(A2C(), agent=MlpFfAgent(), sampler=serial())
        trainer.train(n_epochs=2)
    record = params_in(tmp_path / "b")["rlpyt"]
    assert record["n_steps"] == 16 and record["trainer"]["batch_size"] == 8 and "agent" in record


@pytest.mark.processes
@pytest.mark.parametrize("RunnerCls, n_ranks", [(MinibatchRl, 1), pytest.param(SyncRl, 2, marks=full)])
def test_each_training_of_a_runner_is_recorded_as_a_new_run(tmp_path, capsys, RunnerCls, n_ranks):
    affinity = dict(set_affinity=False, master_torch_threads=1)
    made = runner(RunnerCls, affinity=[affinity] * n_ranks if RunnerCls is SyncRl else affinity)
    for directory in (tmp_path / "a", tmp_path / "b"):
        record = trained(directory, made)["rlpyt"]
        assert "algo" in record and "resumed" not in record
        assert f"rlpyt resume {directory}/run_0" in capsys.readouterr().out
    with logger_context(str(tmp_path / "c"), 0, "c"):
        made.train()
        first = params_in(tmp_path / "c")["rlpyt"]
        made.n_steps = 24
        made.train()
    second = params_in(tmp_path / "c")["rlpyt"]
    assert (first["n_steps"], second["n_steps"]) == (16, 24) and "resumed" not in second


@pytest.mark.parametrize("has_runner", [True, False])
def test_a_run_with_the_params_json_of_another_is_a_new_one(tmp_path, has_runner):
    def run(run_ID, log_params):
        with logger_context(str(tmp_path), run_ID, "a", log_params=log_params) as run_dir:
            trainer = Trainer()
            trainer.setup(A2C(), agent=MlpFfAgent(), sampler=serial()) if has_runner else trainer.setup(Loop(3))
            trainer.train(n_epochs=1)
        return json.loads((Path(run_dir) / "params.json").read_text())

    first = run(0, dict(mine=1, rlpyt="of no run"))
    second = run(1, first)
    first["rlpyt"]["started"] = "long ago"
    third = run(2, first)
    for params in (second, third):
        assert "resumed" not in params["rlpyt"] and params["rlpyt"]["started"] != "long ago" and params["mine"] == 1
    assert [second["run_ID"], third["run_ID"]] == [1, 2]


def test_a_run_that_a_script_resumes_keeps_its_origin(tmp_path):
    params = trained(tmp_path, runner())
    first = params["rlpyt"]
    here, first["host"] = first["host"], "another machine"
    (tmp_path / "run_0" / "params.json").write_text(json.dumps(params))
    for n_steps in (24, 32):
        record = trained(tmp_path, runner(n_steps=n_steps, resume_from=tmp_path / "run_0"))["rlpyt"]
    assert [each["steps"] for each in record["resumed"]] == [16, 24]
    assert record["host"] == "another machine" and [each["host"] for each in record["resumed"]] == [here, here]
    assert record["n_steps"] == 32 and record["packages"] == first["packages"]
    elsewhere = trained(tmp_path / "other", runner(n_steps=40, resume_from=tmp_path / "run_0"))["rlpyt"]
    assert [each["planned"] for each in record["resumed"]] == [16, 24]
    assert [each["steps"] for each in elsewhere["resumed"]] == [16, 24, 32] and elsewhere["host"] == "another machine"


def test_a_run_resumed_beside_a_damaged_record_trains(tmp_path):
    trained(tmp_path, runner())
    (tmp_path / "run_0" / "params.json").write_text("{")
    record = trained(tmp_path / "other", runner(n_steps=24, resume_from=tmp_path / "run_0"))["rlpyt"]
    assert record["n_steps"] == 24 and "resumed" not in record
