"""Only the run itself says that it has come to its end: not sys.exit() in an environment or a hook, and not without its last snapshot."""

import errno
import os
import sys

import pytest
import torch
from envs import CountingEnv
from tiers import full, processes, thinned

from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.algos.pg.a2c import A2C
from rlpyt.experiment import SnapshotConfig
from rlpyt.runners.async_rl import AsyncRl
from rlpyt.runners.minibatch_rl import MinibatchRl, MinibatchRlEval
from rlpyt.runners.sync_rl import SyncRl
from rlpyt.runners.trainer import Trainer
from rlpyt.samplers.async_.serial_sampler import AsyncSerialSampler
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.interrupt import Interrupt
from rlpyt.utils.launching.status import run_status, says_complete
from rlpyt.utils.logging import snapshot
from rlpyt.utils.logging.context import logger_context

pytestmark = pytest.mark.timeout(120)
ONE = dict(master_torch_threads=1, workers_cpus=[0], set_affinity=False)


class ExitingEnv(CountingEnv):
    """Calls sys.exit() in its n-th call of one of its methods."""

    def __init__(self, where=None, n=1, code=0):
        self.where, self.n, self.code, self.n_calls = where, n, code, {}
        super().__init__()
        self._may_exit("__init__")

    def _may_exit(self, where):
        self.n_calls[where] = self.n_calls.get(where, 0) + 1
        if where == self.where and self.n_calls[where] == self.n:
            sys.exit(self.code)

    def step(self, action):
        self._may_exit("step")
        return super().step(action)

    def reset(self):
        self._may_exit("reset")
        return super().reset()

    def close(self):
        self._may_exit("close")


def build(RunnerCls=MinibatchRl, env=None, SamplerCls=SerialSampler, n_steps=100, algo=None, agent=None, affinity=ONE, **settings):
    sampler_settings = {name: settings.pop(name) for name in list(settings) if name.startswith(("eval_", "max_"))}
    sampler_settings = {**dict(max_decorrelation_steps=0), **sampler_settings}
    sampler = SamplerCls(ExitingEnv if env else CountingEnv, env or {}, batch_T=5, batch_B=2, **sampler_settings)
    return RunnerCls(
        algo=algo or A2C(),
        agent=agent or MlpFfAgent(),
        sampler=sampler,
        n_steps=n_steps,
        seed=0,
        log_interval_steps=20,
        affinity=affinity,
        **settings,
    )


def train(runner, tmp_path, **settings):
    with logger_context(str(tmp_path), 0, "test", **settings):
        runner.train()


def log(tmp_path):
    return (tmp_path / "run_0" / "debug.log").read_text()


# --- sys.exit() -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "env, sampler, where",
    [
        (dict(where="step", n=8), {}, "in environment 0, step 2 of batch 1"),
        (dict(where="step", n=8, code=3), {}, "in environment 0, step 2 of batch 1"),
        (dict(where="step", n=8, code="some words"), {}, "in environment 0, step 2 of batch 1"),
        (dict(where="step", n=3), dict(max_decorrelation_steps=1000), "in environment 0, in step 2 of decorrelation"),
        (dict(where="reset", n=2), {}, "in environment 0, in reset, after step 4 of batch 0"),
        (dict(where="__init__", n=1), {}, "when environment 0 was made"),
        (dict(where="close", n=1), {}, "when an environment was closed"),
    ],
    ids=str,
)
def test_an_environment_that_calls_exit_fails_the_run_by_name_and_step(env, sampler, where, tmp_path):
    with pytest.raises(RuntimeError, match=r"called sys.exit\(") as info:
        train(build(env=env, **sampler), tmp_path)
    assert repr(env.get("code", 0)) in str(info.value)
    assert where in str(info.value)
    assert where in log(tmp_path) and "SystemExit" in log(tmp_path), "with the place in the environment"
    assert run_status(tmp_path / "run_0").state == "failed" and not says_complete(tmp_path / "run_0")


def test_so_does_one_in_an_evaluation(tmp_path):
    env = dict(where="step", n=30)
    runner = build(MinibatchRlEval, dict(), eval_n_envs=1, eval_max_steps=40)
    runner.sampler.eval_EnvCls, runner.sampler.eval_env_kwargs = ExitingEnv, env
    with pytest.raises(RuntimeError, match=r"An environment called sys.exit\(0\).*of the evaluation at iteration 0"):
        train(runner, tmp_path)


@processes
def test_in_a_worker_it_is_the_same_error(tmp_path, nothing_is_left_behind):
    with pytest.raises(RuntimeError, match=r"An environment called sys.exit\(0\)\. This was in environment 0, step 2 of batch 1"):
        train(build(env=dict(where="step", n=8), SamplerCls=CpuSampler), tmp_path)


def leave(runner, row):
    sys.exit()


def test_a_hook_that_calls_exit_fails_the_run_and_is_named(tmp_path):
    with pytest.raises(RuntimeError, match=r"sys.exit\(\) was called before the end of the run"):
        train(build(hooks=[leave]), tmp_path)
    assert "the hook leave raised SystemExit" in log(tmp_path) and run_status(tmp_path / "run_0").state == "failed"
    assert (tmp_path / "run_0" / "params.pkl").exists(), "the snapshot of the row"


@processes
@full
def test_in_every_rank_and_beside_sampling(tmp_path, nothing_is_left_behind):
    with pytest.raises(RuntimeError, match="sys.exit"):
        train(build(SyncRl, affinity=[ONE, ONE], hooks=[leave]), tmp_path / "sync")
    with pytest.raises(RuntimeError, match=r"An environment called sys.exit\(0\)"):
        train(build(SyncRl, dict(where="step", n=8), affinity=[ONE, ONE]), tmp_path / "ranks")
    for env, hooks in ((None, [leave]), (dict(where="step", n=8), [])):
        runner = async_run(env=env, n_steps=10**6, hooks=hooks)
        with pytest.raises(RuntimeError, match="sys.exit"):
            train(runner, tmp_path / f"async {bool(env)}")


@pytest.mark.parametrize("code", [130, 143])
def test_the_codes_of_signals_end_a_run_as_signals_do(code):
    """An outer context must not take the end of an inner one for a failure."""
    with pytest.raises(SystemExit), Interrupt(lambda: None):
        with Interrupt(lambda: None):
            sys.exit(code)
    for other in (None, 0, 1, "130"):
        with pytest.raises(RuntimeError), Interrupt(lambda: None):
            sys.exit(other)


def test_a_log_that_is_left_by_exit_does_not_say_that_it_is_complete(tmp_path):
    for run_ID, code in enumerate([None, 0, 3, "words", 130]):
        with pytest.raises(SystemExit), logger_context(str(tmp_path), run_ID, "test"):
            sys.exit(code)
        assert not says_complete(tmp_path / f"run_{run_ID}")
        assert run_status(tmp_path / f"run_{run_ID}").state == ("failed" if code in (3, "words") else "interrupted")
    with logger_context(str(tmp_path), 9, "test"):
        pass
    assert says_complete(tmp_path / "run_9") and run_status(tmp_path / "run_9").state == "finished"


# --- The last snapshot ------------------------------------------------------------------------------------------------
class Disk:
    """Refuses snapshots as long as it is full."""

    def __init__(self, monkeypatch):
        self.is_full, self.n_refused, self._write = (lambda path: False), 0, snapshot.write
        monkeypatch.setattr(snapshot, "write", self.write)

    def write(self, path, data):
        if self.is_full(path):
            self.n_refused += 1
            raise OSError(errno.ENOSPC, "No space left on device")
        self._write(path, data)


@pytest.fixture
def disk(monkeypatch):
    return Disk(monkeypatch)


def replaying(RunnerCls=MinibatchRl, **settings):
    algo = DQN(min_steps_learn=20, replay_size=1000, batch_size=8, replay_ratio=1)
    return build(RunnerCls, algo=algo, agent=MlpDqnAgent(), **settings)


def async_run(**settings):
    affinity = dict(optimizer=[dict(torch_threads=1, set_affinity=False)], sampler=dict(workers_cpus=[0], set_affinity=False))
    return replaying(AsyncRl, SamplerCls=AsyncSerialSampler, affinity=affinity, **settings)


def fill_after(steps, disk):
    def fill(runner, row):
        if row["Diagnostics/CumSteps"] >= steps:
            disk.is_full = lambda path: True

    return fill


MISSING = r"The last snapshot could not be saved, not even .*params.pkl: \[Errno 28\] No space left on device"


@pytest.mark.parametrize("since", thinned([0, 100], quick=[100]))
@pytest.mark.parametrize("make", [build, lambda **settings: replaying(save_replay=True, **settings)], ids=["without replay", "with replay"])
def test_a_run_whose_last_snapshot_cannot_be_saved_has_failed(make, since, disk, tmp_path):
    with pytest.raises(RuntimeError, match=MISSING):
        train(make(hooks=[fill_after(since, disk)]), tmp_path)
    assert run_status(tmp_path / "run_0").state == "failed" and "Training complete." not in log(tmp_path)
    assert (tmp_path / "run_0" / "params.pkl").exists() == (since > 20)


def test_it_is_tried_once_more_at_the_end(disk, tmp_path):
    def fill(runner, row):
        disk.is_full = lambda path: disk.n_refused < 1 if row["Diagnostics/CumSteps"] == 100 else False

    train(build(hooks=[fill]), tmp_path)
    assert disk.n_refused == 1 and torch.load(tmp_path / "run_0" / "params.pkl", weights_only=True)["cum_steps"] == 100
    assert says_complete(tmp_path / "run_0") and "saving snapshot once more" in log(tmp_path)


def test_a_snapshot_that_could_not_be_saved_in_between_is_no_failure(disk, tmp_path):
    def fill(runner, row):
        disk.is_full = lambda path: row["Diagnostics/CumSteps"] < 100

    train(build(hooks=[fill]), tmp_path)
    assert disk.n_refused == 4 and says_complete(tmp_path / "run_0") and "saving snapshot once more" not in log(tmp_path)


@pytest.mark.parametrize("mode", ["none", "gap"])
def test_where_none_was_due_none_is_missing(mode, disk, tmp_path):
    disk.is_full = lambda path: disk.n_refused < (mode == "gap")
    train(build(), tmp_path, snapshot_mode=mode, snapshot_gap=4)
    assert says_complete(tmp_path / "run_0")


def test_a_run_that_was_told_to_end_ends_as_such(disk, tmp_path):
    def end(runner, row):
        disk.is_full = lambda path: True
        os.kill(os.getpid(), 15)

    with pytest.raises(SystemExit) as info:
        train(build(hooks=[end]), tmp_path)
    assert info.value.code == 143 and "saving snapshot once more" in log(tmp_path)


@processes
@full
def test_so_it_is_with_several_ranks_and_beside_sampling(disk, tmp_path, nothing_is_left_behind):
    hooks = [fill_after(100, disk)]
    with pytest.raises(RuntimeError, match="The last snapshot could not be saved"):
        train(build(SyncRl, affinity=[ONE, ONE], hooks=hooks), tmp_path / "sync")
    assert run_status(tmp_path / "sync" / "run_0").state == "failed"
    disk.is_full = lambda path: False
    with pytest.raises(RuntimeError, match=MISSING):
        train(async_run(hooks=hooks), tmp_path / "async")
    assert run_status(tmp_path / "async" / "run_0").state == "failed"


class Counter:
    """An algorithm with a loop of its own."""

    n = 0

    def train(self, trainer):
        for _ in trainer.step_epochs():
            self.n += 1

    def state_dict(self):
        return dict(n=self.n)

    def load_state_dict(self, state):
        self.n = state["n"]


@pytest.mark.parametrize("n_refused, is_missing", [(1, False), (2, True)])
def test_so_it_is_with_a_trainer(n_refused, is_missing, disk, tmp_path):
    trainer = Trainer(SnapshotConfig(str(tmp_path)))
    trainer.setup(Counter(), None)
    disk.is_full = lambda path: disk.n_refused < n_refused
    if is_missing:
        with pytest.raises(RuntimeError, match=MISSING):
            trainer.train(n_epochs=1)
    else:
        trainer.train(n_epochs=1)
        assert torch.load(tmp_path / "params.pkl", weights_only=True)["epoch"] == 0


def test_the_second_try_of_a_trainer_is_a_snapshot_of_its_last_epoch(disk, tmp_path):
    algo, trainer = Counter(), Trainer(SnapshotConfig(str(tmp_path), "gap", 5))
    trainer.setup(algo)
    disk.is_full = lambda path: path.endswith("itr_5.pkl")
    trainer.train(n_epochs=8)
    assert disk.n_refused == 1 and {file.name for file in tmp_path.glob("*.pkl")} == {"itr_0.pkl", "itr_7.pkl"}
    assert trainer.restore(tmp_path).start_epoch == algo.n == 8


def test_a_trainer_whose_algorithm_calls_exit_has_failed(tmp_path):
    class Leaving(Counter):
        def train(self, trainer):
            sys.exit()

    trainer = Trainer(SnapshotConfig(str(tmp_path)))
    trainer.setup(Leaving(), None)
    with pytest.raises(RuntimeError, match="sys.exit"):
        trainer.train(n_epochs=1)
