"""Runners tell the replay buffer of environments that were changed between two batches."""

from functools import partial

import numpy as np
import pytest

from rlpyt.agents.qpg.sac_agent import SacAgent
from rlpyt.algos.qpg.sac import SAC
from rlpyt.envs.multitask import TaskOnehotWrapper
from rlpyt.envs.point_env import PointEnv
from rlpyt.experiments.task_sampler import ConstructEnvsSampler
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.samplers.collections import TaskTrajInfo
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.logging.context import logger_context

GOALS = [(1, 1), (-1, 1), (0, -2)]
TASKS = TaskOnehotWrapper.wrap_env_cons_list([partial(PointEnv, goal=goal, max_episode_length=50) for goal in GOALS])


class Curriculum(MinibatchRl):
    """Changes the second column after every fifth batch."""

    def run_iteration(self, itr):
        if itr and itr % 5 == 0:
            self.sampler.update_envs([None, *self.tasks.sample(1)])
        super().run_iteration(itr)


@pytest.mark.timeout(120)
def test_the_last_step_in_an_environment_that_is_changed_ends_its_episode_as_by_a_time_limit(tmp_path):
    sampler = SerialSampler(EnvCls=TASKS[:2], env_kwargs={}, batch_T=4, batch_B=2, max_decorrelation_steps=0, TrajInfoCls=TaskTrajInfo)
    networks = dict(model_kwargs=dict(hidden_sizes=[8]), q_model_kwargs=dict(hidden_sizes=[8]))
    runner = Curriculum(
        algo=SAC(min_steps_learn=152, replay_size=1000, batch_size=8, replay_ratio=1),
        agent=SacAgent(action_squash=0.1, **networks),
        sampler=sampler,
        n_steps=160,
        log_interval_steps=80,
        affinity=dict(master_torch_threads=1),
        seed=0,
    )
    runner.tasks = ConstructEnvsSampler(TASKS, rng=np.random.default_rng(0))
    with logger_context(str(tmp_path), 0, "test", snapshot_mode="none"):
        runner.train()
    stored = runner.algo.replay_buffer.samples
    done, timeout = (np.asarray(x[:80]).astype(bool) for x in (stored.done, stored.timeout))
    np.testing.assert_array_equal(np.flatnonzero(done[:, 1]), [19, 39, 59])  # Before the updates at iterations 5, 10 and 15.
    np.testing.assert_array_equal(timeout[:, 1], done[:, 1])
    np.testing.assert_array_equal(np.flatnonzero(done[:, 0]), [49])
