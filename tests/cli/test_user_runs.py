"""Runs of scripts that users write: with an environment, a model, an agent and a TrajInfo class of the script."""

import json
import shutil
import sys
import textwrap
from pathlib import Path

import preloaded
import pytest
import torch
from tiers import full

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys

import numpy as np
import torch

import beside_the_script
from rlpyt.agents.pg.categorical import CategoricalPgAgent
from rlpyt.algos.pg.ppo import PPO
from rlpyt.envs.base import Env, EnvInfo, EnvStep
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.samplers.collections import TrajInfo
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.int_box import IntBox
from rlpyt.utils.logging.context import logger_context


class Line(Env):
    \"\"\"A walk on a line.\"\"\"

    def __init__(self, length):
        self._observation_space = FloatBox(-length, length, (1,))
        self._action_space = IntBox(0, 2)
        self.length, self._horizon = length, 5

    @property
    def horizon(self):
        return self._horizon

    def reset(self):
        self.x, self.t = np.zeros(1, np.float32), 0
        return self.x

    def step(self, action):
        self.x, self.t = self.x + np.float32(2 * action - 1), self.t + 1
        return EnvStep(self.x, float(self.x[0]), self.t == 5, EnvInfo())

    def get_state(self):
        return dict(x=self.x, t=self.t)

    def set_state(self, state):
        self.x, self.t = state["x"], state["t"]

    def render(self):
        return np.full((40, 40, 3), 100 + 10 * self.t, np.uint8)


class Model(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.pi, self.v = torch.nn.Linear(1, size), torch.nn.Linear(1, 1)

    def forward(self, observation, prev_action, prev_reward):
        return self.pi(observation).softmax(-1), self.v(observation).squeeze(-1)


class Agent(CategoricalPgAgent):
    def __init__(self, size, **kwargs):
        super().__init__(ModelCls=Model, model_kwargs=dict(size=size), **kwargs)


class LastX(TrajInfo):
    def step(self, observation, action, reward, done, agent_info, env_info):
        super().step(observation, action, reward, done, agent_info, env_info)
        self.LastX = float(observation[0])


def build(n_steps):
    sampler = CpuSampler(Line, dict(length=beside_the_script.LENGTH), batch_T=8, batch_B=2, TrajInfoCls=LastX)
    affinity = dict(workers_cpus=[0], set_affinity=False)
    algo = PPO(linear_lr_schedule=False)
    return MinibatchRl(algo=algo, agent=Agent(2), sampler=sampler, n_steps=n_steps, log_interval_steps=16, affinity=affinity, seed=4)


if __name__ == "__main__":
    with logger_context(sys.argv[1], 0, "line"):
        build(int(sys.argv[2])).train()
"""


def run_script(directory, log_dir, n_steps):
    return preloaded.run("line.py", log_dir, n_steps, cwd=directory, timeout=120, OMP_NUM_THREADS="1", PYTHONPATH=str(ROOT))


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A user's directory with a script, what the script needs, and its run in runs/run_0."""
    directory = tmp_path_factory.mktemp("project")
    (directory / "line.py").write_text(textwrap.dedent(SCRIPT))
    (directory / "beside_the_script.py").write_text("LENGTH = 9\n")
    out = run_script(directory, directory / "runs", 32)
    assert out.returncode == 0 and "cannot hold" not in out.stdout, out.stdout + out.stderr
    return directory


@pytest.fixture
def in_project(project, monkeypatch):
    """Leaves the table of modules, and the path where they are found, as they were."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(project)
    yield project
    for name in ("line", "beside_the_script"):
        sys.modules.pop(name, None)


@full
@pytest.mark.processes
def test_they_are_evaluated_and_filmed_with_no_further_argument(in_project, tmp_path, rlpyt):
    code, out, err = rlpyt("eval", "runs/run_0", "--episodes", "3")
    assert (code, err) == (0, "") and "3 episodes" in out and "\nLastX" in out
    code, out, err = rlpyt("video", "runs/run_0", "--out", tmp_path / "a.gif")
    assert (code, err) == (0, "") and (tmp_path / "a.gif").stat().st_size > 0


@pytest.mark.processes
def test_they_are_resumed_as_if_they_had_never_stopped(in_project, tmp_path, rlpyt):
    shutil.copytree("runs", tmp_path / "runs")
    code, out, err = rlpyt("resume", tmp_path / "runs" / "run_0", "--n_steps", "64")
    assert code == 0 and "Training complete" in out, err
    assert run_script(in_project, tmp_path / "whole", 64).returncode == 0
    ours, theirs = (torch.load(tmp_path / name / "run_0" / "params.pkl", weights_only=True) for name in ("runs", "whole"))
    torch.testing.assert_close(dict(ours["agent_state_dict"]), dict(theirs["agent_state_dict"]), rtol=0, atol=0)
    record = json.loads((tmp_path / "runs" / "run_0" / "params.json").read_text())["rlpyt"]
    assert record["script"]["file"].endswith("line.py") and record["n_steps"] == 64 and len(record["resumed"]) == 1
    assert record["agent"] == json.loads((tmp_path / "whole" / "run_0" / "params.json").read_text())["rlpyt"]["agent"]


@pytest.mark.processes
def test_what_they_are_made_of_is_shown_without_importing_it(in_project, rlpyt):
    code, out, err = rlpyt("info", "runs/run_0")
    assert (code, err) == (0, "") and "line" not in sys.modules
    facts = {line.split()[0]: line.split(maxsplit=1)[1] for line in out.splitlines() if line.strip()}
    assert facts["sampler.env_kwargs.length"] == "9" and facts["algo.linear_lr_schedule"] == "False" and facts["seed"] == "4"
    assert facts["agent.class"] == "Agent" and facts["algo.discount"] == "(0.99)" and facts["script"].endswith("line.py")


@pytest.mark.processes
def test_elsewhere_they_need_to_be_trusted(in_project, tmp_path, monkeypatch, rlpyt):
    run_dir = in_project / "runs" / "run_0"
    monkeypatch.chdir(tmp_path)
    code, _, err = rlpyt("eval", run_dir)
    assert code == 2 and f"Agent of {in_project / 'line.py'}" in err and "--trust" in err and "line" not in sys.modules
    assert rlpyt("eval", run_dir, "--trust", "--episodes", "1")[0] == 0
