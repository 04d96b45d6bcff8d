"""Programs with runners of their own, as they are written for the original rlpyt."""

import csv
import time
from pathlib import Path

import pytest
import torch
from envs import CountingEnv
from users import MyCollector, MySampler

from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.algos.pg.a2c import A2C
from rlpyt.algos.pg.base import OptInfo
from rlpyt.algos.pg.ppo import PPO
from rlpyt.envs.gym import make
from rlpyt.runners.async_rl import AsyncRl, AsyncRlBase, AsyncRlEval
from rlpyt.runners.minibatch_rl import MinibatchRl, MinibatchRlEval
from rlpyt.samplers.async_.serial_sampler import AsyncSerialSampler
from rlpyt.samplers.parallel.cpu.collectors import CpuResetCollector
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.logging import logger
from rlpyt.utils.logging.context import logger_context
from rlpyt.utils.prog_bar import ProgBarCounter
from rlpyt.utils.seed import set_seed

ENV = dict(EnvCls=CountingEnv, env_kwargs=dict(episode_length=[5, 7], end=["terminated", "timeout"]))


def train(
    log_dir, RunnerCls=MinibatchRl, SamplerCls=SerialSampler, CollectorCls=CpuResetCollector, algo=None, n_steps=80, env=ENV, **settings
):
    """Train for 20 steps per iteration and row; return the runner, the rows of the log, and the directory of the run."""
    evaluates = issubclass(RunnerCls, MinibatchRlEval)
    sampler = SamplerCls(
        **env,
        batch_T=5,
        batch_B=4,
        CollectorCls=CollectorCls,
        max_decorrelation_steps=0,
        **(dict(eval_n_envs=2, eval_max_steps=60) if evaluates else {}),
    )
    affinity = dict(workers_cpus=[0, 1], set_affinity=False, master_torch_threads=1)
    runner = RunnerCls(
        algo=algo or A2C(),
        agent=MlpFfAgent(model_kwargs=dict(hidden_sizes=[8])),
        sampler=sampler,
        n_steps=n_steps,
        seed=0,
        log_interval_steps=20,
        affinity=affinity,
        **settings,
    )
    with logger_context(log_dir, 0, "test", snapshot_mode="last", override_prefix=True) as run_dir:
        runner.train()
    with open(Path(run_dir, "progress.csv")) as file:
        return runner, [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)], Path(run_dir)


def snapshot_in(run_dir):
    return torch.load(run_dir / "params.pkl", weights_only=True)


# ---------------------------------------------------------------------------------------------------------------------
# Collectors and samplers of the user's
# ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "SamplerCls, CollectorCls",
    [
        (SerialSampler, MyCollector),
        (MySampler, MyCollector),
        (MySampler, CpuResetCollector),
        pytest.param(CpuSampler, MyCollector, marks=pytest.mark.processes),
    ],
)
def test_a_run_with_a_users_collector_or_sampler_saves_snapshots_and_is_resumed(tmp_path, SamplerCls, CollectorCls):
    run_dir = train(tmp_path, MinibatchRl, SamplerCls, CollectorCls, n_steps=60)[2]
    assert snapshot_in(run_dir)["cum_steps"] == 60
    text = (run_dir / "debug.log").read_text()
    assert text.count("a resumed run begins new episodes") == 1
    _, rows, _ = train(tmp_path / "resumed", MinibatchRl, SamplerCls, CollectorCls, n_steps=100, resume_from=run_dir)
    assert [row["Diagnostics/CumSteps"] for row in rows] == [20, 40, 60, 80, 100]


# ---------------------------------------------------------------------------------------------------------------------
# Runners
# ---------------------------------------------------------------------------------------------------------------------
class OwnStartup(MinibatchRl):
    """Starts up by itself."""

    def startup(self):
        set_seed(self.seed)
        examples = self.sampler.initialize(
            agent=self.agent,
            affinity=self.affinity,
            seed=self.seed + 1,
            bootstrap_value=getattr(self.algo, "bootstrap_value", False),
            traj_info_kwargs=self.get_traj_info_kwargs(),
            rank=0,
            world_size=1,
        )
        self.itr_batch_size = self.sampler.batch_spec.size
        n_itr = self.get_n_itr()
        self.agent.to_device(self.affinity.get("cuda_idx", None))
        self.algo.initialize(
            agent=self.agent,
            n_itr=n_itr,
            batch_spec=self.sampler.batch_spec,
            mid_batch_reset=self.sampler.mid_batch_reset,
            examples=examples,
            world_size=1,
        )
        self.initialize_logging()
        return n_itr


class OwnLoop(OwnStartup):
    """Has its own training loop, too."""

    def train(self):
        n_itr = self.startup()
        for itr in range(n_itr):
            logger.set_iteration(itr)
            with logger.prefix(f"itr #{itr} "):
                self.agent.sample_mode(itr)
                samples, traj_infos = self.sampler.obtain_samples(itr)
                self.agent.train_mode(itr)
                opt_info = self.algo.optimize_agent(itr, samples)
                self.store_diagnostics(itr, traj_infos, opt_info)
                if (itr + 1) % self.log_interval_itrs == 0:
                    self.log_diagnostics(itr)
        self.shutdown()


class Killed(Exception):
    pass


class KilledOwnStartup(OwnStartup):
    """Ends in its third iteration."""

    def run_iteration(self, itr):
        if itr == 2:
            raise Killed
        super().run_iteration(itr)


def test_a_runner_with_its_own_startup_is_resumed_bit_for_bit(tmp_path):
    def trained(name, RunnerCls=OwnStartup, **settings):
        algo = PPO(minibatches=1, epochs=1)  # Its ratio_clip, which is a setting, changes while it trains.
        return train(tmp_path / name, RunnerCls, algo=algo, env=dict(EnvCls=make, env_kwargs=dict(id="CartPole-v1")), **settings)

    whole, rows, _ = trained("whole")
    with pytest.raises(Killed):
        trained("killed", KilledOwnStartup)
    resumed, resumed_rows, _ = trained("resumed", resume_from=tmp_path / "killed/run_0")
    assert [row["Diagnostics/CumSteps"] for row in resumed_rows] == [row["Diagnostics/CumSteps"] for row in rows] == [20, 40, 60, 80]
    assert [row["lossAverage"] for row in resumed_rows] == [row["lossAverage"] for row in rows]
    state = resumed.agent.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in whole.agent.state_dict().items())


def test_a_runner_with_its_own_startup_and_loop_saves_snapshots(tmp_path):
    _, rows, run_dir = train(tmp_path, OwnLoop)
    assert snapshot_in(run_dir)["cum_steps"] == 80 == rows[-1]["Diagnostics/CumSteps"]


def test_a_runner_reads_and_writes_the_counters_under_their_documented_names(tmp_path):
    seen = []

    class Reading(MinibatchRl):
        def log_diagnostics(self, itr, **kwargs):
            seen.append({name: len(values) for name, values in self._opt_infos.items()})
            seen.append((self._cum_completed_trajs, self._new_completed_trajs, self._cum_eval_time, self._last_update_counter))
            assert 0 <= time.time() - self._last_time <= time.time() - self._start_time < 60
            assert abs(self._cum_time - (time.time() - self._start_time)) < 0.1
            super().log_diagnostics(itr, **kwargs)

    _, rows, _ = train(tmp_path, Reading, n_steps=40)
    assert seen[0] == dict.fromkeys(OptInfo._fields, 1)
    n_trajs = [row["Diagnostics/CumCompletedTrajs"] for row in rows]
    assert seen[1] == (n_trajs[0], n_trajs[0], 0.0, 0) and seen[3] == (n_trajs[1], n_trajs[1] - n_trajs[0], 0.0, 1)


class OwnLogging(MinibatchRlEval):
    """Counts and logs by itself, as the original's runners do."""

    def initialize_logging(self):
        self._opt_infos = {name: [] for name in self.algo.opt_info_fields}
        self._start_time = self._last_time = time.time()
        self._cum_time = 0.0
        self._cum_completed_trajs = 0
        self._last_update_counter = 0
        self._cum_eval_time = 0
        self.pbar = ProgBarCounter(self.log_interval_itrs)

    def store_diagnostics(self, itr, traj_infos, opt_info):
        self._cum_completed_trajs += len(traj_infos)
        for name, values in self._opt_infos.items():
            new = getattr(opt_info, name, [])
            values.extend(new if isinstance(new, list) else [new])
        self.pbar.update((itr + 1) % self.log_interval_itrs)


class OwnRows(OwnLogging):
    """Writes the rows by itself, too."""

    def log_diagnostics(self, itr, eval_traj_infos, eval_time, prefix="Diagnostics/"):
        self.save_itr_snapshot(itr)
        now = time.time()
        self._cum_time = now - self._start_time
        self._cum_eval_time += eval_time
        with logger.tabular_prefix(prefix):
            logger.record_tabular("CumTime (s)", self._cum_time)
            logger.record_tabular("CumEvalTime", self._cum_eval_time)
            logger.record_tabular("UpdatesPerSecond", (self.algo.update_counter - self._last_update_counter) / (now - self._last_time))
            logger.record_tabular("CumCompletedTrajs", self._cum_completed_trajs)
        self._log_infos(eval_traj_infos)
        self._last_time, self._last_update_counter = now, self.algo.update_counter
        logger.dump_tabular(with_prefix=False)


def test_a_runner_that_counts_by_itself_logs_the_same_rows(tmp_path):
    ours, mine = (train(tmp_path / name, RunnerCls)[1] for name, RunnerCls in (("ours", MinibatchRlEval), ("mine", OwnLogging)))
    assert len(ours) == len(mine) == 5
    for a, b in zip(ours, mine):
        assert list(a) == list(b)
        same = [name for name in a if "Time" not in name and "PerSecond" not in name]
        assert {name: a[name] for name in same} == pytest.approx({name: b[name] for name in same}, nan_ok=True)


def test_a_runner_that_writes_its_rows_by_itself_has_times_and_counters(tmp_path):
    _, rows, run_dir = train(tmp_path, OwnRows)
    assert len(rows) == 5 and rows[-1]["Diagnostics/CumCompletedTrajs"] > 8
    assert all(0 <= row["Diagnostics/CumTime (s)"] < 100 and 0 < row["Diagnostics/CumEvalTime"] < 100 for row in rows)
    assert all(0 < row["Diagnostics/UpdatesPerSecond"] < 1e5 for row in rows[1:]) and all(row["lossAverage"] for row in rows[1:])
    assert snapshot_in(run_dir)["itr"] == 3


def test_an_algorithm_is_given_the_samples_and_nothing_else_than_the_iteration(tmp_path):
    class MyPpo(PPO):
        def optimize_agent(self, itr, samples):
            return super().optimize_agent(itr, samples)

    _, rows, _ = train(tmp_path, algo=MyPpo(minibatches=1, epochs=1))
    assert rows[-1]["Diagnostics/CumUpdates"] == 4


def test_the_loggers_variables_are_read_under_their_documented_names():
    with logger.prefix("outer "), logger.prefix("inner "), logger.tabular_prefix("Mine/"):
        logger.set_iteration(7)
        assert logger._prefixes == ["outer ", "inner "] and logger._prefix_str == "outer inner "
        assert logger._tabular_prefixes == ["Mine/"] and logger._tabular_prefix_str == "Mine/" and logger._iteration == 7
    logger.set_iteration(0)
    assert logger._prefixes == []
    with pytest.raises(AttributeError, match="no attribute '_prefixed'"):
        _ = logger._prefixed


class OwnAsyncRl(AsyncRl):
    """Overrides what the original's asynchronous runners have."""

    def initialize_logging(self):
        super().initialize_logging()
        self.seen = []

    def store_diagnostics(self, itr, sampler_itr, traj_infos, opt_info):
        assert opt_info._fields == self.algo.opt_info_fields
        self.seen.append((itr, sampler_itr, len(traj_infos), len(opt_info.loss)))
        super().store_diagnostics(itr, sampler_itr, traj_infos, opt_info)

    def log_diagnostics(self, itr, sampler_itr, throttle_time, prefix="Diagnostics/"):
        logger.record_tabular("ThrottleTime", throttle_time)
        logger.record_tabular("Numbers", 1000 * itr + sampler_itr)
        super().log_diagnostics(itr, sampler_itr, throttle_time, prefix)

    def get_itr_snapshot(self, itr, sampler_itr):
        return dict(super().get_itr_snapshot(itr, sampler_itr), mine=[itr, sampler_itr])

    def save_itr_snapshot(self, itr, sample_itr):
        self.saved = itr, sample_itr
        super().save_itr_snapshot(itr, sample_itr)


class OwnAsyncRlEval(AsyncRlEval):
    def log_diagnostics(self, itr, sampler_itr, throttle_time, prefix="Diagnostics/"):
        logger.record_tabular("Numbers", 1000 * itr + sampler_itr)
        super().log_diagnostics(itr, sampler_itr, throttle_time, prefix)


def train_async(log_dir, RunnerCls):
    sampler = AsyncSerialSampler(make, dict(id="CartPole-v1"), batch_T=5, batch_B=4, eval_n_envs=1, eval_max_steps=100)
    runner = RunnerCls(
        DQN(min_steps_learn=100, replay_size=1000, batch_size=16, replay_ratio=2),
        MlpDqnAgent(model_kwargs=dict(hidden_sizes=[8])),
        sampler,
        400,
        dict(optimizer=[dict(set_affinity=False)], sampler=dict(workers_cpus=[0], set_affinity=False)),
        seed=0,
        log_interval_steps=200,
        max_batches_ahead=1,  # So that there are optimizations before sampling ends.
    )
    with logger_context(log_dir, 0, "test", snapshot_mode="last", override_prefix=True) as run_dir:
        runner.train()
    with open(Path(run_dir, "progress.csv")) as file:
        return runner, list(csv.DictReader(file)), Path(run_dir)


@pytest.mark.processes
@pytest.mark.timeout(120)
def test_the_methods_of_an_asynchronous_runner_are_called_with_the_documented_arguments(tmp_path):
    runner, rows, run_dir = train_async(tmp_path, OwnAsyncRl)
    batches = [seen for seen in runner.seen if not seen[3]]
    optimizations = [seen for seen in runner.seen if seen[3]]
    assert [sampler_itr for _, sampler_itr, _, _ in batches] == list(range(20))
    assert [itr for itr, _, _, _ in optimizations] == list(range(runner.opt_itr)) and len(optimizations) > 1
    assert not any(n_trajs for _, _, n_trajs, _ in optimizations)
    assert sum(n_trajs for _, _, n_trajs, _ in batches) == int(rows[-1]["Diagnostics/CumCompletedTrajs"]) > 1
    assert [int(row["Diagnostics/CumSteps"]) for row in rows] == [200, 400]
    assert [int(row["Numbers"]) for row in rows] == [
        1000 * int(row["Diagnostics/Iteration"]) + int(row["Diagnostics/SamplerIteration"]) for row in rows
    ]
    assert all(float(row["ThrottleTime"]) >= 0 for row in rows)
    last = int(rows[-1]["Diagnostics/Iteration"]), 19
    snapshot = snapshot_in(run_dir)
    assert runner.saved == last == tuple(snapshot["mine"]) == (snapshot["itr"], snapshot["sampler_itr"])


@pytest.mark.processes
@pytest.mark.timeout(120)
def test_the_log_of_an_asynchronous_runner_that_evaluates_is_extended_like_that_of_others(tmp_path):
    _, rows, _ = train_async(tmp_path, OwnAsyncRlEval)
    assert [int(row["Numbers"]) % 1000 for row in rows] == [0, 9, 19]
    assert float(rows[-1]["Diagnostics/TrajsInEval"]) > 0


def test_asynchronous_runners_have_one_base():
    assert issubclass(AsyncRl, AsyncRlBase) and issubclass(AsyncRlEval, AsyncRlBase)
