"""Train Stable-Baselines3 on the tasks of docs/learning.md, with the settings and the steps of our configurations.

    PYTHON tests/benchmarks/sb3_runs.py cartpole:ppo --seeds 0 1 2 3 4 --out sb3_runs
    rlpyt results --add sb3_runs

PYTHON is that of an environment with Stable-Baselines3; rlpyt need not be installed there. Each run is a directory with the progress.csv
and params.json that `rlpyt results` and `rlpyt plot` read. As in ours, the policy plays 20 episodes in environments of evaluation after
each interval of the log. It acts as it does in ours, by samples in PPO and by the mean in the others. Runs that are complete are skipped.
"""

import argparse
import copy
import csv
import json
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import stable_baselines3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.utils import set_random_seed

N_EPISODES = 20
PENDULUM = dict(learning_rate=1e-3, buffer_size=50_000, batch_size=128, learning_starts=1000, policy_kwargs=dict(net_arch=[64, 64]))
NOISE = NormalActionNoise(np.zeros(1), np.full(1, 0.1))  # Of actions from -1 to 1: ours is 0.2, of a torque from -2 to 2.
TARGET_NOISE = dict(target_policy_noise=0.1, target_noise_clip=0.25)  # Likewise.

# Configuration: class, environment, number of environments, steps, steps until the next row of the log, settings.
TASKS = {
    "cartpole:ppo": (
        "PPO",
        "CartPole-v1",
        8,
        102_144,  # As ours, which end with an interval.
        4_864,
        dict(
            n_steps=32,
            batch_size=256,
            n_epochs=20,
            gamma=0.98,
            gae_lambda=0.8,
            learning_rate=lambda left: left * 1e-3,
            clip_range=lambda left: left * 0.2,
            ent_coef=0.0,
            vf_coef=0.5,
            max_grad_norm=0.5,
            policy_kwargs=dict(net_arch=[64, 64]),
        ),
    ),
    "pendulum:sac": ("SAC", "Pendulum-v1", 1, 20_000, 1_000, PENDULUM),
    "pendulum:td3": ("TD3", "Pendulum-v1", 1, 20_000, 1_000, dict(PENDULUM, action_noise=NOISE, **TARGET_NOISE)),
    "pendulum:ddpg": ("DDPG", "Pendulum-v1", 1, 20_000, 1_000, dict(PENDULUM, action_noise=NOISE)),
}
PLANNED = {"cartpole:ppo": 100_000}  # environment steps that our configuration asks for, if others than those taken


class Log(BaseCallback):
    """Writes progress.csv: a row before training, and one after each interval."""

    def __init__(self, path, env_id, algorithm, interval, seed):
        super().__init__()
        self.interval, self.deterministic = interval, algorithm != "PPO"
        self.file = open(path, "w", newline="")
        self.writer = csv.writer(self.file)
        self.writer.writerow(["CumSteps", "ReturnAverage"])  # Times compare in tests/benchmarks/bench_*.py, where both run in turn.
        self.env = make_vec_env(env_id, N_EPISODES // 2, seed=seed + 10_000)

    def _on_training_start(self):
        self.write()

    def _on_step(self):
        if self.num_timesteps % self.interval == 0 and not isinstance(self.model, stable_baselines3.PPO):
            self.write()
        return True

    def _on_rollout_start(self):  # The policy of PPO changes between batches.
        if self.num_timesteps and self.num_timesteps % self.interval == 0 and isinstance(self.model, stable_baselines3.PPO):
            self.write()

    def _on_training_end(self):
        if self.num_timesteps != self.last:
            self.write()
        self.file.close()

    def write(self):
        self.last = self.num_timesteps
        score, _ = evaluate_policy(self.model, self.env, N_EPISODES, deterministic=self.deterministic)
        self.writer.writerow([self.num_timesteps, score])
        self.file.flush()


def train(task, seed, run_dir):
    """Train one run, and write its directory."""
    algorithm, env_id, n_envs, n_steps, interval, settings = TASKS[task]
    packages = {name: metadata.version(name) for name in ("stable_baselines3", "torch", "numpy", "gymnasium")}
    planned, python = PLANNED.get(task, n_steps), sys.version.split()[0]
    record = dict(seed=seed, n_steps=planned, python=python, packages=packages)  # As rlpyt writes it.
    params = dict(
        name=f"sb3_{task.replace(':', '_')}",
        run_ID=seed,
        configuration=task,
        library="Stable-Baselines3",
        algorithm=algorithm,
        env=dict(id=env_id),
        command=f"python tests/benchmarks/sb3_runs.py {task}",
        rlpyt=record,
    )
    run_dir.mkdir(parents=True, exist_ok=True)
    (run_dir / "params.json").write_text(json.dumps(params, indent=2) + "\n")
    set_random_seed(seed)
    env = make_vec_env(env_id, n_envs, seed=seed)
    model = getattr(stable_baselines3, algorithm)("MlpPolicy", env, seed=seed, device="cpu", **copy.deepcopy(settings))
    model.learn(n_steps, callback=Log(run_dir / "progress.csv", env_id, algorithm, interval, seed))
    (run_dir / "complete").touch()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="+", choices=list(TASKS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(5)))
    parser.add_argument("--out", type=Path, default=Path("sb3_runs"))
    args = parser.parse_args()
    for seed in args.seeds:
        for task in args.tasks:
            run_dir = args.out / task.replace(":", "_") / f"run_{seed}"
            if not (run_dir / "complete").exists():
                train(task, seed, run_dir)
                print(run_dir, flush=True)
