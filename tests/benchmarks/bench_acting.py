"""Acting: microseconds of processor time in which an agent with a small network chooses actions on the CPU, from a tape and without.

    python tests/benchmarks/bench_acting.py [--rounds 9] [--only sac]

Agents of configurations, with random observations. In turn, `step` repeats the model's operations from a tape (`rlpyt.models.tape`), and
calls the model. Prints the least median of a round for each, and the median of the ratios of rounds with their range. "cold" empties the
caches between calls, as environments and training do.
"""

from __future__ import annotations

import argparse
import statistics
import time

import rlpyt  # noqa: F401  (before torch, whose threads would spin otherwise)

# isort: split
import numpy as np
import torch

from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.pg.mlp import MlpFfAgent, MlpLstmAgent
from rlpyt.agents.pg.mujoco import MujocoFfAgent
from rlpyt.agents.qpg.sac_agent import SacAgent
from rlpyt.agents.qpg.td3_agent import Td3Agent
from rlpyt.envs.base import EnvSpaces
from rlpyt.models import tape
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.int_box import IntBox

NORMALIZED = dict(model_kwargs=dict(normalize_observation=True, mu_nonlinearity=None))
# Agent, its settings, size of observations, action space, number of environments.
CASES = {
    "ppo, HalfCheetah, 2 x 64, B=1": (MujocoFfAgent, NORMALIZED, 17, FloatBox(-1, 1, (6,)), 1),
    "ppo, CartPole, 64 and 64, B=8": (MlpFfAgent, dict(model_kwargs=dict(hidden_sizes=[64, 64])), 4, IntBox(0, 2), 8),
    "ppo, LSTM of 64, B=8": (MlpLstmAgent, dict(model_kwargs=dict(hidden_sizes=[64], lstm_size=64)), 4, IntBox(0, 2), 8),
    "dqn, CartPole, 64 and 64, B=4": (MlpDqnAgent, dict(model_kwargs=dict(hidden_sizes=[64, 64])), 4, IntBox(0, 2), 4),
    "sac, HalfCheetah, 256 and 256, B=1": (SacAgent, {}, 17, FloatBox(-1, 1, (6,)), 1),
    "td3, HalfCheetah, 400 and 300, B=1": (Td3Agent, {}, 17, FloatBox(-1, 1, (6,)), 1),
}
CALLS = 300


def microseconds(agent, inputs, flush):
    """Return the median processor time of some calls of `step`."""
    times = []
    for _ in range(CALLS):
        flush()
        start = time.thread_time_ns()
        agent.step(*inputs)
        times.append((time.thread_time_ns() - start) / 1e3)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", nargs="+", default=[""], help="cases whose names contain one of these texts")
    args = parser.parse_args()
    torch.set_num_threads(1)
    waste = np.zeros(2**22)  # 32 MB
    flushes = {"": lambda: None, "cold": lambda: waste.__iadd__(1)}
    for name, (AgentCls, settings, size, action, B) in CASES.items():
        if not any(text in name for text in args.only):
            continue
        agent = AgentCls(**settings)
        agent.initialize(EnvSpaces(FloatBox(-1, 1, (size,)), action), global_B=B, env_ranks=list(range(B)))
        agent.sample_mode(1)
        prev_action = torch.as_tensor(np.stack([action.sample() for _ in range(B)]))
        inputs = torch.randn(B, size), prev_action, torch.zeros(B)
        for temperature, flush in flushes.items():
            found = {10**9: [], 0: []}  # by the number of calls before the model is recorded
            for _ in range(args.rounds):
                for tape.CALLS_BEFORE, times in found.items():
                    agent._tapes = tape.Tapes()
                    for _ in range(5):
                        agent.step(*inputs)
                    times.append(microseconds(agent, inputs, flush))
            plain, taped = found.values()
            ratios = [p / t for p, t in zip(plain, taped)]
            print(
                f"{name:36} {temperature:5} {min(plain):6.0f} {min(taped):6.0f} us, "
                f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) times as fast",
                flush=True,
            )


if __name__ == "__main__":
    main()
