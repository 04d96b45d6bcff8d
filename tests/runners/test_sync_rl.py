"""Data-parallel training: several ranks, started by the runner or by torchrun."""

import csv
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tiers import full, processes, thinned

from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.agents.qpg.sac_lstm_agent import SacLstmAgent
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.algos.pg.a2c import A2C
from rlpyt.algos.pg.ppo import PPO
from rlpyt.algos.qpg.recurrent import RecurrentSAC
from rlpyt.envs.gym import make
from rlpyt.runners.sync_rl import SyncRl, SyncRlEval
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.samplers.workers import WorkerError
from rlpyt.utils.logging.context import logger_context

pytestmark = [processes, pytest.mark.timeout(120)]
ONE = dict(master_torch_threads=1, workers_cpus=[0], set_affinity=False)


def build(
    RunnerCls=SyncRl,
    SamplerCls=SerialSampler,
    EnvCls=make,
    world_size=2,
    n_steps=640,
    algo=None,
    agent=None,
    env="CartPole-v1",
    log_interval_steps=160,
    **settings,
):
    evaluation = dict(eval_n_envs=1, eval_max_steps=200) if issubclass(RunnerCls, SyncRlEval) else {}
    return RunnerCls(
        algo=algo or A2C(),
        agent=agent or MlpFfAgent(),
        sampler=SamplerCls(EnvCls, dict(id=env), batch_T=8, batch_B=2, **evaluation),
        n_steps=n_steps,
        log_interval_steps=log_interval_steps,
        seed=5,
        affinity=[ONE] * world_size,
        **settings,
    )


def rows(directory):
    with open(directory / "run_0" / "progress.csv") as file:
        return list(csv.DictReader(file))


def test_each_rank_has_random_numbers_of_its_own():
    runner, seeds = build(world_size=3), []
    for runner.rank in range(3):
        seeds.append(runner.process_seed)
    assert seeds[0] == runner.seed and len(set(seeds)) == 3


class TellsItsSeed(SyncRl):
    def startup(self):
        n_itr = super().startup()
        Path(os.environ["SEEDS"], str(self.rank)).write_text(str(self.seed))
        return n_itr


def test_ranks_of_a_run_without_a_seed_have_the_same_one(tmp_path, monkeypatch):
    monkeypatch.setenv("SEEDS", str(tmp_path))
    runner = build(TellsItsSeed, n_steps=32)
    runner.seed = runner.seed_given = None
    runner.train()
    assert [(tmp_path / str(rank)).read_text() for rank in range(2)] == [str(runner.seed)] * 2


@pytest.mark.parametrize("RunnerCls", thinned([SyncRl, SyncRlEval], quick=[SyncRlEval]))
@pytest.mark.parametrize("SamplerCls", thinned([SerialSampler, CpuSampler], quick=[SerialSampler]))
def test_ranks_train_together(RunnerCls, SamplerCls, tmp_path):
    runner = build(RunnerCls, SamplerCls)
    with logger_context(str(tmp_path), 0, "test"):
        runner.train()
    table = rows(tmp_path)
    assert runner.itr_batch_size == 32 and runner.n_itr == 20
    assert [int(row["Diagnostics/CumSteps"]) for row in table][-1] == 640
    assert len(table) == (5 if RunnerCls is SyncRlEval else 4)
    assert not torch.distributed.is_initialized()


class Greedy(MlpFfAgent):
    """Without chance, so that runs can be compared."""

    @torch.no_grad()
    def step(self, *args):
        step = super().step(*args)
        return step._replace(action=step.agent_info.dist_info.prob.argmax(-1))


@pytest.mark.parametrize("settings", thinned([dict(), dict(normalize_reward=True)], quick=[dict(normalize_reward=True)]))
def test_two_ranks_are_one_process_with_twice_the_batch(settings, tmp_path):
    parameters = []
    for world_size, B in ((2, 2), (1, 4)):
        runner = SyncRl(
            algo=A2C(learning_rate=0.01, **settings),
            agent=Greedy(),
            sampler=SerialSampler(make, dict(id="CartPole-v1"), batch_T=8, batch_B=B, max_decorrelation_steps=5),
            n_steps=320,
            log_interval_steps=160,
            seed=5,
            affinity=[ONE] * world_size,
        )
        with logger_context(str(tmp_path / str(world_size)), 0, "test"):
            runner.train()
        parameters.append(torch.cat([p.detach().flatten() for p in runner.agent.parameters()]))
    torch.testing.assert_close(*parameters, rtol=1e-4, atol=1e-5)
    two, one = (rows(tmp_path / name) for name in "21")
    for name in ("CumSteps", "CumCompletedTrajs", "CumUpdates"):
        assert [row[f"Diagnostics/{name}"] for row in two] == [row[f"Diagnostics/{name}"] for row in one]
    assert [float(row["ReturnAverage"]) for row in two] == pytest.approx([float(row["ReturnAverage"]) for row in one])


def test_the_window_has_the_latest_trajectories_of_all_ranks():
    runner = object.__new__(SyncRl)
    runner.diagnostics, runner._traj_infos = SimpleNamespace(count_trajs=lambda n: counted.append(n)), deque(maxlen=6)
    counted = []
    runner._traj_infos.extend(["before", "before", *(f"0.{i}" for i in range(4))])  # Rank 0 adds its own while it samples.
    runner.take_in([[f"0.{i}" for i in range(4)], [f"1.{i}" for i in range(8)], ["2.0"], []])
    assert list(runner._traj_infos) == ["0.2", "1.5", "1.6", "0.3", "1.7", "2.0"] and counted == [9]
    runner.take_in([[], ["1.8"]])
    assert list(runner._traj_infos) == ["1.5", "1.6", "0.3", "1.7", "2.0", "1.8"]


@full
def test_ranks_agree_on_what_the_divergence_decides(tmp_path):
    """If one rank ended its epochs earlier than the other, they would wait for each other's gradients in vain."""
    algo = PPO(target_kl=1e-7, epochs=5, minibatches=1, lr_schedule="adaptive", desired_kl=1.0)
    runner = build(algo=algo, n_steps=320)
    with logger_context(str(tmp_path), 0, "test"):
        runner.train()
    table = rows(tmp_path)
    assert 0 < int(table[-1]["Diagnostics/CumUpdates"]) < 10 * 5
    assert float(table[-1]["learningRateMin"]) > float(table[0]["learningRateMax"])


# The order of two numbers does not matter to their sum, so some errors need three ranks.
RESUMED = [(name, 2) for name in ("a2c", "a2c, scaled rewards", "dqn", "sac_lstm")] + [(name, 3) for name in ("a2c", "ppo", "sac_lstm")]


@pytest.mark.parametrize("name, world_size", thinned(RESUMED, quick=[("a2c, scaled rewards", 2)]))
def test_a_resumed_run_is_the_uninterrupted_one(name, world_size, tmp_path):
    def run(log_dir, world_size=world_size, n_itr=20, **settings):
        algo, agent = A2C(normalize_reward="scaled" in name), MlpFfAgent()  # Each rank has the returns of its environments.
        if name == "ppo":
            algo = PPO(minibatches=2, epochs=2, linear_lr_schedule=False)  # Both runs have the same learning rate all along.
        if name == "dqn":
            algo = DQN(min_steps_learn=64, replay_size=400, batch_size=16, prioritized_replay=True, eps_steps=300)
            agent = MlpDqnAgent()
        if name == "sac_lstm":
            network = dict(lstm_size=6, hidden_sizes=[5], head_size=[5])
            algo = RecurrentSAC(
                batch_T=6, warmup_T=2, batch_B=4, store_rnn_state_interval=2, min_steps_learn=64, replay_size=400, replay_ratio=4
            )
            agent = SacLstmAgent(model_kwargs=network, q_model_kwargs=network, action_squash=2.0)
            settings = dict(settings, env="Pendulum-v1")
        per_itr = 16 * world_size
        runner = build(
            algo=algo,
            agent=agent,
            save_replay=True,
            world_size=world_size,
            n_steps=n_itr * per_itr,
            log_interval_steps=5 * per_itr,
            **settings,
        )
        with logger_context(str(tmp_path / log_dir), 0, "test"):
            runner.train()
        return runner

    whole = run("whole")
    run("parts", n_itr=10)
    resumed = run("parts", resume_from=tmp_path / "parts" / "run_0")
    assert resumed.first_itr == 10
    expected = whole.agent.state_dict(), whole.algo.optim_state_dict()
    torch.testing.assert_close((resumed.agent.state_dict(), resumed.algo.optim_state_dict()), expected, rtol=0, atol=0)
    for ours, theirs in zip(rows(tmp_path / "parts"), rows(tmp_path / "whole"), strict=True):
        same = [key for key in ours if "Time" not in key and "PerSecond" not in key]
        assert [ours[key] for key in same] == [theirs[key] for key in same]
    with pytest.raises(ValueError, match=f"world_size: {world_size} in the snapshot, 1 now"):
        run("parts", resume_from=tmp_path / "parts" / "run_0", world_size=1)


class FailsInRankOne:
    """An environment that raises after some steps, in processes other than the first."""

    def __new__(cls, **kwargs):
        env, n_steps, home = make(**kwargs), [0], HOME
        step = env.step_into

        def step_into(action, observation):
            n_steps[0] += 1
            if os.getpid() != home and n_steps[0] > 60:
                raise ZeroDivisionError("the pole broke")
            return step(action, observation)

        env.step_into = step_into
        return env


HOME = os.getpid()


def test_what_a_rank_raises_is_what_one_sees(nothing_is_left_behind):
    with pytest.raises(WorkerError, match="(?s)rank 1 of 2.*ZeroDivisionError: the pole broke"):
        build(EnvCls=FailsInRankOne).train()


def test_a_killed_rank_ends_the_run(nothing_is_left_behind):
    runner = build(n_steps=10_000_000)

    def kill():
        while runner._pool is None or getattr(runner, "_itr", 0) < 5:
            time.sleep(0.05)
        os.kill(runner._pool.processes[0].pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(WorkerError, match="Rank 1 of 2, pid .*, was killed by SIGKILL"):
        runner.train()
    killer.join()


SCRIPT = """
import sys
sys.path[:0] = [{tests!r}]
from runners.test_sync_rl import build, logger_context
if __name__ == "__main__":
    with logger_context({directory!r}, 0, "test"):
        build(n_steps={n_steps}).train()
"""


def script(tmp_path, n_steps=640):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.format(tests=str(Path(__file__).parents[1]), directory=str(tmp_path), n_steps=n_steps))
    return str(path)


@full
def test_torchrun_starts_the_same_script(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script(tmp_path)]
    out = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert out.returncode == 0, out.stderr
    assert [int(row["Diagnostics/CumSteps"]) for row in rows(tmp_path)] == [160, 320, 480, 640]
    assert out.stdout.count("Training complete") == 1


OPENED = """
def descriptors():
    paths = [os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    return {{(path, os.readlink(path)) for path in paths if os.path.lexists(path)}}

if __name__ == "__main__":
    import gc, os
    before = descriptors()
    build(n_steps=160).train()
    gc.collect()
    print("left:", descriptors() - before)
"""


@full
def test_the_first_run_of_a_process_leaves_no_descriptor_of_its_group(tmp_path):
    """Others would not show it: what torch keeps, it keeps once."""
    path = tmp_path / "script.py"
    path.write_text((SCRIPT.partition("if __name__")[0] + OPENED).format(tests=str(Path(__file__).parents[1])))
    out = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=100)
    assert out.returncode == 0, out.stderr
    assert out.stdout.splitlines()[-1] == "left: set()"


@full
def test_ctrl_c_ends_all_ranks_with_a_snapshot(tmp_path):
    process = subprocess.Popen([sys.executable, script(tmp_path, 10_000_000)], stdout=subprocess.PIPE, text=True, start_new_session=True)
    while "itr #9 " not in process.stdout.readline():
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(30) == 130
    process.stdout.close()
    snapshot = torch.load(tmp_path / "run_0" / "params.pkl", weights_only=True)
    assert snapshot["cum_steps"] == int(rows(tmp_path)[-1]["Diagnostics/CumSteps"])
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


class ToldWhileItOptimizes(A2C):
    """Rank 0 is told to end during the optimization of an iteration; the others with it, unless `rank` alone is."""

    def __init__(self, itr=3, rank=None):
        super().__init__()
        self.told_in, self.told_rank = itr, rank

    def optimize_agent(self, itr, samples):
        if itr == self.told_in and self.rank == (self.told_rank or 0):
            if self.told_rank is None:
                os.kill(os.getpid(), signal.SIGINT)
            else:
                self.interrupt().adopt(signal.SIGINT)
        return super().optimize_agent(itr, samples)


def told_alone(rank, itr, RunnerCls=SyncRl, **settings):
    """A runner of which this rank alone is told to end."""

    class Runner(RunnerCls):
        def startup(self):
            self.algo.interrupt = self._interruptible
            return super().startup()

    return build(RunnerCls=Runner, algo=ToldWhileItOptimizes(itr, rank), **settings)


@pytest.mark.parametrize("only_rank_0, last_itr", [(False, 3), (True, 4)])
def test_ranks_told_while_they_optimize_stop_before_they_sample_unless_one_has_sampled(only_rank_0, last_itr, tmp_path, capsys):
    runner = told_alone(0, 3, n_steps=10**7) if only_rank_0 else build(n_steps=10**7, algo=ToldWhileItOptimizes())
    with logger_context(str(tmp_path), 0, "test", snapshot_mode="last"), pytest.raises(SystemExit) as ended:
        runner.train()
    assert ended.value.code == 130
    out = capsys.readouterr().out
    assert f"Stopped after iteration {last_itr}." in out and "does not answer" not in out
    assert int(rows(tmp_path)[-1]["Diagnostics/CumSteps"]) == 32 * (last_itr + 1)


@full
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("ends", ["by a hook", "by n_steps"])
def test_a_signal_that_comes_to_one_rank_when_all_end_anyway_makes_no_rank_wait_and_no_error(rank, ends, tmp_path, capsys):
    """The row of the log after iteration 4, the last one, is written after the signal. There, all ranks learn of a signal of rank 0."""
    settings = dict(n_steps=10**7, hooks=[lambda runner, row: True]) if ends == "by a hook" else dict(n_steps=160)
    runner = told_alone(rank, 4, **settings)
    with logger_context(str(tmp_path), 0, "test", snapshot_mode="last"):
        with pytest.raises(SystemExit) if rank == 0 else nullcontext():
            runner.train()
    out = capsys.readouterr().out
    assert "does not answer" not in out and ("Training complete" in out) == (rank == 1)
    assert [int(row["Diagnostics/CumSteps"]) for row in rows(tmp_path)] == [160]


def test_ranks_that_have_agreed_to_end_evaluate_no_more(tmp_path):
    """The evaluation would be cut short, and the states of the environments be lost with it."""
    runner = told_alone(1, 3, SyncRlEval, n_steps=10**7)
    evaluate, itrs = runner.sampler.evaluate_agent, []
    runner.sampler.evaluate_agent = lambda itr: itrs.append(itr) or evaluate(itr)
    with logger_context(str(tmp_path), 0, "test", snapshot_mode="last"), pytest.raises(SystemExit):
        runner.train()
    assert itrs == [0] and not runner._sampling_is_lost


@pytest.mark.parametrize("where", ["environment", "after all"])
def test_ctrl_c_while_a_rank_hangs_in_its_start_ends_the_run_and_blames_nobody(where, tmp_path, capsys, nothing_is_left_behind):
    def hang():
        if os.getpid() != HOME:
            (tmp_path / "starting").touch()
            time.sleep(1000)

    class HangsInRankOne:
        def __new__(cls, **kwargs):
            hang()
            return make(**kwargs)

    runner = build(EnvCls=HangsInRankOne if where == "environment" else make)
    meet = runner._meet
    if where == "after all":
        runner._meet = lambda: (hang(), meet())

    def press():
        while not (tmp_path / "starting").exists():
            time.sleep(0.05)
        time.sleep(1)  # Until rank 0 waits for the other one.
        os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    with pytest.raises(SystemExit):
        runner.train()
    presser.join()
    out = capsys.readouterr().out
    assert "the run ends while it starts" in out and "does not answer" not in out


@pytest.mark.parametrize("affinity", [None, [], 3, dict(cuda_idx=0), [dict(cuda=0)]])
def test_affinities_that_are_no_list_are_refused(affinity):
    with pytest.raises(ValueError, match="affinity"):
        SyncRl(algo=None, agent=None, sampler=None, n_steps=10, affinity=affinity)
