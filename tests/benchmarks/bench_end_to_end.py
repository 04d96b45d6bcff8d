"""A2C and PPO on Pong, sampling and training, against Stable-Baselines3 with the same network, batch dimensions and settings.

    python -m venv sb3 && sb3/bin/pip install -c constraints.txt torch stable-baselines3 ale-py opencv-python-headless
    python tests/benchmarks/bench_end_to_end.py --sb3_python sb3/bin/python [--rounds 7]

Each measurement is a process of its own, in turn; a process first warms up, then reports environment steps per second over some 10 s.
Network: 32x8s4, 64x4s2, 64x3s1, fully connected 512; 84x84 observations; float32; frame skip 4. Stable-Baselines3 runs its environments
as is faster for it here: A2C and PPO are tried in one process and in one process per environment, and the better one counts.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent)]

SETTINGS = dict(  # batch dimensions; what to run in seconds
    a2c=dict(B=16, T=5, iterations=150, warmup=20),
    ppo=dict(B=8, T=128, iterations=4, warmup=1),
)
NETWORK = dict(channels=[32, 64, 64], kernel_sizes=[8, 4, 3], strides=[4, 2, 1], paddings=[0, 0, 0])


def ours(algo_name: str) -> float:
    """Return environment steps per second."""
    from rlpyt.agents.pg.atari import AtariFfAgent
    from rlpyt.algos.pg.a2c import A2C
    from rlpyt.algos.pg.ppo import PPO
    from rlpyt.envs.atari.atari_env import AtariEnv, AtariTrajInfo
    from rlpyt.runners.minibatch_rl import MinibatchRl
    from rlpyt.samplers.parallel.cpu.sampler import CpuSampler

    s = SETTINGS[algo_name]
    if algo_name == "a2c":
        algo = A2C(learning_rate=7e-4, clip_grad_norm=0.5)
    else:
        algo = PPO(learning_rate=2.5e-4, gae_lambda=0.95, clip_grad_norm=0.5, normalize_advantage=True, value_loss_coeff=0.5)
    times = []

    class TimedRunner(MinibatchRl):
        def store_diagnostics(self, itr, traj_infos, opt_info):
            super().store_diagnostics(itr, traj_infos, opt_info)
            times.append(time.perf_counter())

    sampler = CpuSampler(
        EnvCls=AtariEnv,
        env_kwargs=dict(game="pong", frame_shape=(84, 84)),
        TrajInfoCls=AtariTrajInfo,
        batch_T=s["T"],
        batch_B=s["B"],
        max_decorrelation_steps=0,
    )
    n_steps = (s["iterations"] + s["warmup"]) * s["B"] * s["T"]
    TimedRunner(
        algo=algo, agent=AtariFfAgent(model_kwargs=NETWORK), sampler=sampler, n_steps=n_steps, log_interval_steps=n_steps, seed=0
    ).train()
    return s["iterations"] * s["B"] * s["T"] / (times[-1] - times[s["warmup"] - 1])


def theirs(algo_name: str, in_processes: bool) -> float:
    """Return environment steps per second of Stable-Baselines3."""
    from stable_baselines3 import A2C, PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack

    s = SETTINGS[algo_name]
    times = []

    class Timer(BaseCallback):
        def _on_step(self):
            return True

        def _on_rollout_start(self):
            times.append(time.perf_counter())

    import ale_py
    import gymnasium

    gymnasium.register_envs(ale_py)
    VecEnvCls, vec_env_kwargs = (SubprocVecEnv, dict(start_method="fork")) if in_processes else (DummyVecEnv, None)
    envs = make_atari_env("PongNoFrameskip-v4", n_envs=s["B"], seed=0, vec_env_cls=VecEnvCls, vec_env_kwargs=vec_env_kwargs)
    envs = VecFrameStack(envs, n_stack=4)
    if algo_name == "a2c":
        model = A2C("CnnPolicy", envs, n_steps=s["T"], learning_rate=7e-4, ent_coef=0.01, vf_coef=0.5, use_rms_prop=False)
    else:
        batch_size = s["B"] * s["T"] // 4
        model = PPO("CnnPolicy", envs, 2.5e-4, n_steps=s["T"], batch_size=batch_size, n_epochs=4, clip_range=0.1, ent_coef=0.01)
    model.learn((s["iterations"] + s["warmup"] + 1) * s["B"] * s["T"], callback=Timer())
    envs.close()
    return s["iterations"] * s["B"] * s["T"] / (times[s["warmup"] + s["iterations"]] - times[s["warmup"]])


def main(sb3_python: str, n_rounds: int, algos: list[str]) -> None:
    from common import median, ratio, rounds

    def run(python: str, *args: str):
        out = subprocess.run([python, __file__, "--measure", *args], capture_output=True, text=True)
        if out.returncode:
            raise RuntimeError(out.stderr)
        return float(out.stdout.split()[-1])

    for algo in algos:
        each = {way: run(sb3_python, "sb3", algo, way) for way in ("one", "many")}
        way = max(each, key=each.get)
        print(f"{algo}: Stable-Baselines3 with environments in one process {each['one']:.0f}, in many {each['many']:.0f} steps/s")
        results = rounds(
            {
                "ours": lambda algo=algo: run(sys.executable, "ours", algo, "-"),
                "theirs": lambda algo=algo, way=way: run(sb3_python, "sb3", algo, way),
            },
            n_rounds,
        )
        a, b = results["ours"], results["theirs"]
        print(f"{algo}: rlpyt {median(a):.0f}, Stable-Baselines3 {median(b):.0f} steps/s; ratio {ratio(a, b):.2f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sb3_python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--algos", nargs="+", default=["a2c", "ppo"], choices=["a2c", "ppo"])
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        who, algo, way = args.measure
        print(ours(algo) if who == "ours" else theirs(algo, way == "many"))
    else:
        main(args.sb3_python, args.rounds, args.algos)
