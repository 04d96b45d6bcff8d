"""A2C, PPO and DQN on Pong, sampling and training, against Stable-Baselines3 and bare torch with the same network and settings.

    python -m venv sb3 && sb3/bin/pip install -c constraints.txt torch stable-baselines3 ale-py opencv-python-headless
    python tests/benchmarks/bench_end_to_end.py --sb3_python sb3/bin/python [--rounds 7] [--tasks a2c ppo ppo_bf16 dqn]

Each measurement is a process of its own, in turn; a process first warms up, then reports environment steps per second over some 10 s.
Network: 32x8s4, 64x4s2, 64x3s1, fully connected 512; 84x84 observations; float32, but for ppo_bf16; frame skip 4. Stable-Baselines3 runs
its environments as is faster for it here: all in one process or each in one of its own, whichever counts more steps.

"Bare" is what nobody does without: environments stepped with random actions in as many processes as there are processors, then the
network's forward passes for as many actions, and the gradient updates, channels last, with fused Adam, on one batch again and again.
Nothing is recorded. `--busy 1` measures all of them beside one process that computes.
"""

from __future__ import annotations

import argparse
import copy
import subprocess
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent)]

SETTINGS = dict(  # dimensions of batches and minibatches, updates per batch; how many batches to run
    a2c=dict(B=16, T=5, size=80, updates=1, iterations=150, warmup=20),
    ppo=dict(B=8, T=128, size=256, updates=16, iterations=4, warmup=1),
    dqn=dict(B=8, T=4, size=32, updates=8, iterations=60, warmup=10),
)
SETTINGS["ppo_bf16"] = SETTINGS["ppo"]
DQN_START = 2000  # Environment steps before the first update.
NETWORK = dict(channels=[32, 64, 64], kernel_sizes=[8, 4, 3], strides=[4, 2, 1], paddings=[0, 0, 0])
FRAME_SHAPE = (84, 84)


# --- rlpyt ------------------------------------------------------------------------------------------------------------
def parts(task: str):
    """Return algorithm and agent."""
    from rlpyt.agents.dqn.atari.atari_dqn_agent import AtariDqnAgent
    from rlpyt.agents.pg.atari import AtariFfAgent
    from rlpyt.algos.dqn.dqn import DQN
    from rlpyt.algos.pg.a2c import A2C
    from rlpyt.algos.pg.ppo import PPO

    if task == "dqn":
        algo = DQN(learning_rate=1e-4, batch_size=32, replay_ratio=8, replay_size=20_000, min_steps_learn=DQN_START)
        return algo, AtariDqnAgent(model_kwargs=NETWORK)
    if task == "a2c":
        return A2C(learning_rate=7e-4, clip_grad_norm=0.5), AtariFfAgent(model_kwargs=NETWORK)
    algo = PPO(learning_rate=2.5e-4, gae_lambda=0.95, clip_grad_norm=0.5, normalize_advantage=True, value_loss_coeff=0.5)
    return algo.accelerate(bf16=task == "ppo_bf16"), AtariFfAgent(model_kwargs=NETWORK)


def ours(task: str) -> float:
    """Return environment steps per second."""
    from rlpyt.envs.atari.atari_env import AtariEnv, AtariTrajInfo
    from rlpyt.runners.minibatch_rl import MinibatchRl
    from rlpyt.samplers.parallel.cpu.sampler import CpuSampler

    s = SETTINGS[task]
    algo, agent = parts(task)
    times = []

    class TimedRunner(MinibatchRl):
        def store_diagnostics(self, itr, traj_infos, opt_info):
            super().store_diagnostics(itr, traj_infos, opt_info)
            times.append(time.perf_counter())

    sampler = CpuSampler(
        EnvCls=AtariEnv,
        env_kwargs=dict(game="pong", frame_shape=FRAME_SHAPE),
        TrajInfoCls=AtariTrajInfo,
        batch_T=s["T"],
        batch_B=s["B"],
        max_decorrelation_steps=0,
    )
    before = DQN_START if task == "dqn" else 0
    n_steps = before + (s["iterations"] + s["warmup"]) * s["B"] * s["T"]
    TimedRunner(algo=algo, agent=agent, sampler=sampler, n_steps=n_steps, log_interval_steps=n_steps, seed=0).train()
    return s["iterations"] * s["B"] * s["T"] / (times[-1] - times[-1 - s["iterations"]])


# --- Bare torch -------------------------------------------------------------------------------------------------------
def bare(task: str) -> float:
    """Return environment steps per second."""
    import torch

    s = SETTINGS[task]
    act, update = bare_network(task, s["B"], s["size"])
    env_steps = bare_env_steps_per_second()
    with torch.no_grad():
        t_act = timed(act, 30)
    t_update = timed(update, 20)
    n = s["T"] * s["B"]
    return n / (n / env_steps + s["T"] * t_act + s["updates"] * t_update)


def bare_network(task: str, n_act: int, n_train: int):
    """Return functions that choose actions for `n_act` observations, and do an update on `n_train`."""
    import torch
    import torch.nn.functional as F

    torch.manual_seed(0)
    convolutions = []
    for n_in, n_out, kernel, stride in zip([4, *NETWORK["channels"]], NETWORK["channels"], NETWORK["kernel_sizes"], NETWORK["strides"]):
        convolutions += [torch.nn.Conv2d(n_in, n_out, kernel, stride), torch.nn.ReLU()]
    n_outputs = 6 if task == "dqn" else 7
    head = torch.nn.Flatten(), torch.nn.Linear(64 * 49, 512), torch.nn.ReLU(), torch.nn.Linear(512, n_outputs)
    net = torch.nn.Sequential(*convolutions, *head).to(memory_format=torch.channels_last)
    target = copy.deepcopy(net).requires_grad_(False)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4, fused=True)

    def images(n):
        return torch.randint(0, 256, (n, 4, *FRAME_SHAPE), dtype=torch.uint8)

    def floats(x):
        return x.to(memory_format=torch.channels_last).float().mul_(1 / 255)

    to_act, to_train, next_images = images(n_act), images(n_train), images(n_train)
    action, advantage, ret = torch.randint(6, (n_train, 1)), torch.randn(n_train), torch.randn(n_train)

    def act():
        out = net(floats(to_act))
        return out.argmax(-1) if task == "dqn" else torch.multinomial(out[:, :6].softmax(-1), 1)

    def loss():
        out = net(floats(to_train))
        if task == "dqn":
            with torch.no_grad():
                y = ret + 0.99 * target(floats(next_images)).max(-1).values
            return F.smooth_l1_loss(out.gather(1, action)[:, 0], y)
        log_pi = out[:, :6].log_softmax(-1)
        entropy = -(log_pi.exp() * log_pi).sum(-1).mean()
        log_likelihood = log_pi.gather(1, action)[:, 0]
        if task == "a2c":
            pi_loss = -(log_likelihood * advantage).mean()
        else:
            likelihood_ratio = (log_likelihood - log_likelihood.detach()).exp()
            pi_loss = -torch.minimum(likelihood_ratio * advantage, likelihood_ratio.clamp(0.9, 1.1) * advantage).mean()
        return pi_loss + 0.5 * (out[:, 6] - ret).square().mean() - 0.01 * entropy

    def update():
        optimizer.zero_grad(set_to_none=True)
        if task == "ppo_bf16":
            with torch.autocast("cpu", torch.bfloat16):
                value = loss()
        else:
            value = loss()
        value.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5, foreach=True)
        optimizer.step()

    return act, update


def bare_env_steps_per_second() -> float:
    """Return the steps per second of an environment in each of as many processes as there are processors, together."""
    import os

    import numpy as np
    from common import BareLoops

    from rlpyt.envs.atari.atari_env import AtariEnv

    def make_loop(i):
        env = AtariEnv(game="pong", frame_shape=FRAME_SHAPE)
        observation = env.reset()
        actions = np.random.default_rng(i).integers(0, env.action_space.n, 1000)

        def loop(n_steps):
            for t in range(n_steps):
                _, done, _ = env.step_into(actions[t % 1000], observation)
                if done:
                    env.reset()

        return loop

    return BareLoops(make_loop, len(os.sched_getaffinity(0))).steps_per_second(4000)


def timed(func, n: int) -> float:
    """Return the seconds of a call."""
    for _ in range(5):
        func()
    start = time.perf_counter()
    for _ in range(n):
        func()
    return (time.perf_counter() - start) / n


# --- Stable-Baselines3 ------------------------------------------------------------------------------------------------
def theirs(task: str, in_processes: bool) -> float:
    """Return environment steps per second of Stable-Baselines3."""
    import ale_py
    import gymnasium
    from stable_baselines3 import A2C, DQN, PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack

    s = SETTINGS[task]
    times = []

    class Timer(BaseCallback):
        def _on_step(self):
            return True

        def _on_rollout_start(self):
            times.append(time.perf_counter())

    gymnasium.register_envs(ale_py)
    VecEnvCls, vec_env_kwargs = (SubprocVecEnv, dict(start_method="fork")) if in_processes else (DummyVecEnv, None)
    envs = make_atari_env("PongNoFrameskip-v4", n_envs=s["B"], seed=0, vec_env_cls=VecEnvCls, vec_env_kwargs=vec_env_kwargs)
    envs = VecFrameStack(envs, n_stack=4)
    before = 0
    if task == "dqn":
        before = DQN_START
        settings = dict(batch_size=s["size"], train_freq=s["T"], gradient_steps=s["updates"], target_update_interval=10_000)
        model = DQN("CnnPolicy", envs, 1e-4, buffer_size=20_000, learning_starts=before, optimize_memory_usage=False, **settings)
    elif task == "a2c":
        model = A2C("CnnPolicy", envs, n_steps=s["T"], learning_rate=7e-4, ent_coef=0.01, vf_coef=0.5, use_rms_prop=False)
    else:
        model = PPO("CnnPolicy", envs, 2.5e-4, n_steps=s["T"], batch_size=s["size"], n_epochs=4, clip_range=0.1, ent_coef=0.01)
    model.learn(before + (s["iterations"] + s["warmup"] + 1) * s["B"] * s["T"], callback=Timer())
    envs.close()
    return s["iterations"] * s["B"] * s["T"] / (times[-1] - times[-1 - s["iterations"]])


# ----------------------------------------------------------------------------------------------------------------------
def main(sb3_python: str | None, n_rounds: int, tasks: list[str]) -> None:
    from common import median, ratio, ratios, rounds, tell

    def run(python: str, *args: str):
        out = subprocess.run([python, __file__, "--measure", *args], capture_output=True, text=True)
        if out.returncode:
            raise RuntimeError(out.stderr)
        return float(out.stdout.split()[-1])

    for task in tasks:
        contenders = {
            "rlpyt": lambda task=task: run(sys.executable, "ours", task, "-"),
            "bare": lambda task=task: run(sys.executable, "bare", task, "-"),
        }
        if sb3_python:
            each = {way: run(sb3_python, "sb3", task, way) for way in ("one", "many")}
            way = max(each, key=each.get)
            print(f"{task}: Stable-Baselines3 with environments in one process {each['one']:.0f}, in many {each['many']:.0f} steps/s")
            contenders["Stable-Baselines3"] = lambda task=task, way=way: run(sb3_python, "sb3", task, way)
        results = rounds(contenders, n_rounds)
        for name, values in results.items():
            speed = ratio(results["rlpyt"], values)
            print(f"{task}: {name} {median(values):.0f} steps/s; rlpyt {speed:.2f} times as fast", flush=True)
        ours, others = results["rlpyt"], {"bare": "bare", "sb3": "Stable-Baselines3"}
        figures = {f"to_{key}": ratios(ours, results[name]) for key, name in others.items() if name in results}
        tell(task, steps=ours, **figures, **{f"{key}_steps": results[name] for key, name in others.items() if name in results})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sb3_python", help="Python with Stable-Baselines3; default: without", default=None)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tasks", nargs="+", default=["a2c", "ppo", "ppo_bf16", "dqn"], choices=list(SETTINGS))
    parser.add_argument("--busy", type=int, default=0, help="other processes that compute meanwhile")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        who, task, way = args.measure
        print(dict(ours=ours, bare=bare, sb3=lambda task: theirs(task, way == "many"))[who](task))
    else:
        from common import busy

        with busy(args.busy):
            main(args.sb3_python, args.rounds, args.tasks)
