"""Exceptions that cannot be printed, encoded, pickled or noted, and very long ones: what an environment raised is what one sees.

Its class, what it says as far as it can, and in which environment and step it was.
"""

import re

import pytest
from agents_for_tests import RecordingAgent
from collecting import kinds, make_sampler
from envs import AWKWARD, AwkwardEnv
from tiers import full, processes, ray, thinned

from rlpyt.samplers.workers import WorkerError, describe_failure, failure_report, failure_text
from rlpyt.utils.logging.context import logger_context
from rlpyt.utils.text import LONGEST_TRACEBACK

awkward = pytest.mark.parametrize("what", AWKWARD)
OTHERS = ["GPU, 2 workers", "alternating, 2 workers", "no overlap, 2 workers"]


def raised(what):
    try:
        raise AWKWARD[what][0]()
    except Exception as error:
        describe_failure(error, "This was in environment 3.")
        return error


@awkward
def test_a_report_names_class_text_and_place(what):
    report = failure_report(raised(what))
    text = failure_text(report, "sampler worker 0", 17, "collecting batch 2")
    _, name, message = AWKWARD[what]
    assert report["summary"].startswith(f"{name}: ") and message in text and "This was in environment 3." in text
    assert "test_awkward_errors.py" in text and len(text) < 2 * LONGEST_TRACEBACK
    text.encode()  # Whoever writes it, it can be written.


def told(text, what):
    """Check what a user sees."""
    _, name, message = AWKWARD[what]
    assert name in text and message in text.encode(errors="backslashreplace").decode()
    assert re.search(r"environment \d", text) and re.search(r"in step \d+ of|, step \d+ of", text), text[:2000]


def sample(kind, what):
    sampler = make_sampler(kind, EnvCls=AwkwardEnv, env=dict(what=what), decorrelation=0, eval_n_envs=0, B=4)
    affinity = dict(workers_cpus=[0, 1], set_affinity=False, alternating=sampler.alternating)
    try:
        sampler.initialize(RecordingAgent(), affinity=affinity, seed=0)
        for itr in range(3):
            sampler.obtain_samples(itr)
    finally:
        sampler.shutdown()


@awkward
def test_the_log_of_a_run_in_one_process_tells(what, tmp_path, capsys):
    with pytest.raises(Exception) as info:
        with logger_context(str(tmp_path), 0, "test"):
            sample("serial", what)
    assert type(info.value).__name__ == AWKWARD[what][1], "it is the original one"
    told((tmp_path / "run_0" / "debug.log").read_text(encoding="utf-8"), what)


@processes
@pytest.mark.timeout(60)
@pytest.mark.parametrize("what", thinned(AWKWARD, quick=["surrogate", "no text"]))
def test_workers_tell(what, tmp_path, nothing_is_left_behind):
    with pytest.raises(WorkerError) as info:
        with logger_context(str(tmp_path), 0, "test"):
            sample("CPU, 2 workers", what)
    told(str(info.value), what)
    told((tmp_path / "run_0" / "debug.log").read_text(encoding="utf-8"), what)


@full
@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", kinds(OTHERS))
@pytest.mark.parametrize("what", ["surrogate", "no text"])
def test_workers_of_all_kinds_tell(kind, what, nothing_is_left_behind):
    with pytest.raises(WorkerError) as info:
        sample(kind, what)
    told(str(info.value), what)


@full
@processes
@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["serial", "CPU", "GPU"])
def test_asynchronous_runs_tell(kind, tmp_path, nothing_is_left_behind):
    from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
    from rlpyt.algos.dqn.dqn import DQN
    from rlpyt.runners.async_rl import AsyncRl

    sampler = make_sampler(f"async {kind}", EnvCls=AwkwardEnv, env={}, decorrelation=0, eval_n_envs=0, B=4)
    affinity = dict(optimizer=[dict(torch_threads=1, set_affinity=False)], sampler=dict(workers_cpus=[0, 1], set_affinity=False))
    algo = DQN(min_steps_learn=100, replay_size=2000, batch_size=16)
    runner = AsyncRl(algo, MlpDqnAgent(), sampler, n_steps=10_000, log_interval_steps=1000, affinity=affinity, seed=0)
    with pytest.raises(WorkerError) as info:
        with logger_context(str(tmp_path), 0, "test"):
            runner.train()
    told(str(info.value), "surrogate")
    told((tmp_path / "run_0" / "debug.log").read_text(encoding="utf-8"), "surrogate")


@full
@processes
@pytest.mark.timeout(60)
@pytest.mark.parametrize("what", ["surrogate", "no text"])
def test_episodic_samplers_tell(what, nothing_is_left_behind):
    from policies_for_tests import RandomPolicy

    from rlpyt.samplers.episodic import LocalSampler, MultiprocessingSampler

    for SamplerCls, error in ((LocalSampler, Exception), (MultiprocessingSampler, WorkerError)):
        sampler = SamplerCls(RandomPolicy(), lambda: AwkwardEnv(what), max_episode_length=100, n_workers=1)
        with pytest.raises(error) as info:
            sampler.obtain_samples(0, 200, None)
        report = failure_report(info.value)
        told("\n".join([report["summary"], *report["notes"], report["traceback"]]), what)
        sampler.shutdown_worker()


@ray
@full
@processes
@pytest.mark.timeout(120)
def test_workers_on_ray_tell(ray_address, what="surrogate"):
    from rlpyt.samplers.ray.batch_sampler import RayBatchSampler

    sampler = RayBatchSampler(AwkwardEnv, dict(what=what), batch_T=6, batch_B=4, n_actors=2, address=ray_address, max_decorrelation_steps=0)
    try:
        with pytest.raises(WorkerError) as info:
            sampler.initialize(RecordingAgent(), seed=3)
            for itr in range(3):
                sampler.obtain_samples(itr)
    finally:
        sampler.shutdown()
    told(str(info.value), what)
