"""Algorithms, agents and samplers together."""

import numpy as np
import pytest
import torch
from tiers import full, processes

from rlpyt.agents.qpg.ddpg_agent import DdpgAgent
from rlpyt.agents.qpg.sac_agent import SacAgent
from rlpyt.agents.qpg.sac_v_agent import SacAgent as SacVAgent
from rlpyt.agents.qpg.td3_agent import Td3Agent
from rlpyt.algos.qpg.ddpg import DDPG
from rlpyt.algos.qpg.sac import SAC
from rlpyt.algos.qpg.sac_v import SAC_V
from rlpyt.algos.qpg.td3 import TD3
from rlpyt.algos.replay import SamplesToBuffer
from rlpyt.envs.gym import make as gym_make
from rlpyt.replays.non_sequence.frame import NStepFrameBuffer
from rlpyt.replays.non_sequence.prioritized import PrioritizedReplay
from rlpyt.replays.non_sequence.time_limit import NStepTimeLimitBuffer
from rlpyt.runners.minibatch_rl import MinibatchRl, MinibatchRlEval
from rlpyt.samplers.parallel.cpu.collectors import CpuWaitResetCollector
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.parallel.gpu.alternating_sampler import AlternatingSampler
from rlpyt.samplers.parallel.gpu.sampler import GpuSampler
from rlpyt.samplers.serial.sampler import SerialSampler

PAIRS = {"ddpg": (DDPG, DdpgAgent), "td3": (TD3, Td3Agent), "sac": (SAC, SacAgent), "sac_v": (SAC_V, SacVAgent)}
SAMPLERS = {
    "serial": (SerialSampler, {}),
    "cpu": (CpuSampler, {}),
    "cpu, waiting with resets": (CpuSampler, dict(CollectorCls=CpuWaitResetCollector)),
    "gpu": (GpuSampler, {}),
    "alternating": (AlternatingSampler, {}),
}


class WithPriorities(SAC):
    """A user's class, which learns from what it has drawn least."""

    prioritized_replay = True

    def update(self, samples):
        opt_info, _ = super().update(samples)
        assert samples.is_weights.shape == (16,)
        return opt_info, torch.linspace(1, 2, 16)


@pytest.mark.parametrize("bootstrap_timelimit", [True, False])
def test_a_subclass_may_replay_by_priorities(bootstrap_timelimit):
    algo = WithPriorities(
        min_steps_learn=16, replay_size=200, batch_size=16, replay_ratio=16, bootstrap_timelimit=bootstrap_timelimit
    )  # fmt: skip
    sampler = SerialSampler(gym_make, dict(id="Pendulum-v1"), batch_T=8, batch_B=2)
    MinibatchRl(algo=algo, agent=SacAgent(action_squash=2.0), sampler=sampler, n_steps=64, log_interval_steps=64, seed=0).train()
    assert isinstance(algo.replay_buffer, PrioritizedReplay)
    assert isinstance(algo.replay_buffer, NStepTimeLimitBuffer) == bootstrap_timelimit
    frames = SamplesToBuffer(np.zeros((4, 36, 36), np.uint8), np.zeros(1), np.float32(0), np.bool_(False), np.bool_(False), np.bool_(True))
    for async_ in (False, True):
        ReplayCls = algo.default_replay_buffer_cls(frames, async_)
        assert issubclass(ReplayCls, PrioritizedReplay) and issubclass(ReplayCls, NStepFrameBuffer) and ReplayCls.async_ == async_


@processes
@pytest.mark.parametrize(
    "name, sampler",
    [
        ("sac", "gpu"),
        pytest.param("ddpg", "serial", marks=full),
        pytest.param("sac_v", "serial", marks=full),
        pytest.param("td3", "cpu", marks=full),
        pytest.param("sac", "cpu, waiting with resets", marks=full),
        pytest.param("td3", "alternating", marks=full),
    ],
)
def test_every_kind_of_sampler_serves(name, sampler):
    AlgoCls, AgentCls = PAIRS[name]
    SamplerCls, settings = SAMPLERS[sampler]
    n_threads = torch.get_num_threads()
    evaluates = sampler == "serial"
    agent = AgentCls(model_kwargs=dict(hidden_sizes=[8]), q_model_kwargs=dict(hidden_sizes=[8]))
    algo = AlgoCls(min_steps_learn=64, replay_size=1000, batch_size=32, replay_ratio=4)
    kwargs = dict(
        algo=algo,
        agent=agent,
        sampler=SamplerCls(
            EnvCls=gym_make,
            env_kwargs=dict(id="Pendulum-v1"),
            batch_T=8,
            batch_B=4,
            eval_n_envs=2 if evaluates else 0,
            eval_max_steps=100 if evaluates else None,
            **settings,
        ),
        n_steps=45 * 32,
        log_interval_steps=500,
        affinity=dict(workers_cpus=[0, 1], set_affinity=False, master_torch_threads=1),
        seed=0,
    )
    try:
        (MinibatchRlEval if evaluates else MinibatchRl)(**kwargs).train()
    finally:
        torch.set_num_threads(n_threads)
    assert algo.update_counter == 4 * (45 - 2) and agent.min_itr_learn == algo.min_itr_learn == 2
