"""Train Stable-Baselines3 on the tasks of docs/learning.md, with the settings and the steps of our configurations.

    PYTHON tests/benchmarks/sb3_runs.py cartpole:ppo --seeds 0 1 2 3 4 --out sb3_runs
    PYTHON tests/benchmarks/sb3_runs.py mujoco_ppo:ppo_1M_normalized:Hopper-v5 mujoco:tqc:Hopper-v5 --seeds 0 1 2 --out sb3_runs
    rlpyt results --add sb3_runs

PYTHON is that of an environment with Stable-Baselines3 (with mujoco for the second line, with sb3-contrib for TQC and CrossQ); rlpyt need
not be installed there. Each run is a directory with the progress.csv and params.json that `rlpyt results` and `rlpyt plot` read. Runs that
are complete are skipped.

Scores are those of our configurations. In most, the policy plays 20 episodes in environments of evaluation after each interval of the log;
SAC, TD3, TQC and CrossQ play 10 on MuJoCo. It acts as it does in ours, by samples in PPO and A2C and by the best action or the mean in the
others. On MuJoCo, PPO has no evaluations: its score is the mean return of the last 100 training episodes.

What differs: PPO and A2C of Stable-Baselines3 initialize networks orthogonally (ours do so on MuJoCo alone). Its DQN has no double
Q-learning, and its epsilon begins to fall at once. Its PPO normalizes advantages in each minibatch. Its clipped value loss is that of the
clipped value, and not the larger one of both. Its VecNormalize updates its statistics with every step, and ours with every batch. Its SAC,
TD3, DDPG, TQC and CrossQ draw actions uniformly before they learn, and ours from the initial policy with noise. Policies of its SAC, TQC
and CrossQ learn from critics that have stepped, and ours from those before the step. On Pendulum, the target entropy of its SAC is -1 for
actions from -1 to 1; ours is -1 for torques from -2 to 2, which is less noise. Critics get such actions there, and torques here. The
optimizer of CrossQ's entropy coefficient has Adam's usual betas there, and those of the networks here. The loss of TQC is a mean over
critics there and a sum here, which makes no difference to Adam.
"""

import argparse
import copy
import csv
import importlib
import json
import math
import sys
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import numpy as np
import stable_baselines3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.utils import set_random_seed
from stable_baselines3.common.vec_env import VecNormalize

CONTRIB = ("TQC", "CrossQ")  # Algorithms of sb3-contrib.
HALF = 0.5  # Our loss of values is half their squared error.
PENDULUM = dict(learning_rate=1e-3, buffer_size=50_000, batch_size=128, learning_starts=1000, policy_kwargs=dict(net_arch=[64, 64]))
NOISE = NormalActionNoise(np.zeros(1), np.full(1, 0.1))  # Of actions from -1 to 1: ours is 0.2, of a torque from -2 to 2.
TARGET_NOISE = dict(target_policy_noise=0.1, target_noise_clip=0.25)  # Likewise.
ENTROPY = -1 - math.log(2)  # Likewise: the target of ours is -1, of a torque.
TQC_NETWORKS = dict(net_arch=[64, 64], n_critics=5, n_quantiles=25)
CROSSQ_NETWORKS = dict(net_arch=dict(pi=[64, 64], qf=[256, 256]), optimizer_kwargs=dict(betas=(0.5, 0.999)))
MUJOCO = {"HalfCheetah-v5": 6, "Hopper-v5": 3, "Walker2d-v5": 6}  # components of an action


class Task(NamedTuple):
    """A configuration of ours, in the words of Stable-Baselines3.

    Attributes:
        n_steps: environment steps that are taken: as many as ours, which end with an interval of the log.
        interval: environment steps until the next row of the log.
        planned: environment steps that our configuration asks for; None for `n_steps`.
        normalize: normalize observations and rewards.
        n_episodes: episodes of evaluation; 0 for none: the score is then that of the last 100 training episodes.
    """

    algorithm: str
    env_id: str
    n_envs: int
    n_steps: int
    interval: int
    settings: dict
    planned: int | None = None
    normalize: bool = False
    n_episodes: int = 20


def mujoco_ppo(env_id):
    """The configuration mujoco_ppo:ppo_1M_normalized, for an environment."""
    settings = dict(
        n_steps=2048,
        batch_size=64,
        n_epochs=10,
        gamma=0.99,
        gae_lambda=0.95,
        learning_rate=lambda left: left * 3e-4,
        clip_range=lambda left: left * 0.2,
        clip_range_vf=lambda left: left * 0.2,
        ent_coef=0.0,
        vf_coef=HALF * 0.5,
        max_grad_norm=0.5,
        policy_kwargs=dict(net_arch=[64, 64], optimizer_kwargs=dict(eps=1e-5)),
    )
    return Task("PPO", env_id, 1, 1_003_520, 20_480, settings, planned=1_000_000, normalize=True, n_episodes=0)


def mujoco_off_policy(env_id):
    """Configurations with 100,000 steps, for an environment: two of halfcheetah, two of mujoco (`--set runner.n_steps=100e3`)."""

    def task(algorithm, learning_starts=5_000, **settings):
        return Task(algorithm, env_id, 1, 100_000, 5_000, dict(batch_size=256, learning_starts=learning_starts, **settings), n_episodes=10)

    noise = NormalActionNoise(np.zeros(MUJOCO[env_id]), np.full(MUJOCO[env_id], 0.1))
    tqc = dict(net_arch=dict(pi=[256, 256], qf=[512] * 3), n_critics=5, n_quantiles=25)
    crossq = dict(net_arch=dict(pi=[256, 256], qf=[2048, 2048]), optimizer_kwargs=dict(betas=(0.5, 0.999)))
    return {
        f"halfcheetah:sac_100k:{env_id}": task("SAC"),
        f"halfcheetah:td3_100k:{env_id}": task("TD3", 10_000, action_noise=noise, policy_kwargs=dict(net_arch=[400, 300])),
        f"mujoco:tqc:{env_id}": task("TQC", policy_kwargs=tqc, top_quantiles_to_drop_per_net=2),
        f"mujoco:crossq:{env_id}": task("CrossQ", learning_rate=1e-3, policy_kwargs=crossq, policy_delay=3),
    }


# By configuration, or by configuration and environment.
TASKS = {
    "cartpole:ppo": Task(
        "PPO",
        "CartPole-v1",
        8,
        102_144,
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
            vf_coef=HALF * 0.5,
            max_grad_norm=0.5,
            policy_kwargs=dict(net_arch=[64, 64], optimizer_kwargs=dict(eps=1e-8)),
        ),
        planned=100_000,
    ),
    "cartpole:a2c": Task(
        "A2C",
        "CartPole-v1",
        8,
        204_672,
        4_992,
        dict(
            n_steps=8,
            gamma=0.99,
            gae_lambda=0.95,
            learning_rate=lambda left: left * 2e-3,
            ent_coef=0.001,
            vf_coef=HALF * 0.5,
            max_grad_norm=1.0,
            use_rms_prop=False,
            policy_kwargs=dict(net_arch=[64, 64], optimizer_kwargs=dict(eps=1e-8)),
        ),
        planned=200_000,
    ),
    "cartpole:dqn": Task(
        "DQN",
        "CartPole-v1",
        4,
        104_832,
        4_992,
        dict(
            learning_rate=5e-4,
            buffer_size=50_000,
            batch_size=64,
            learning_starts=1000,
            train_freq=4,  # steps of each environment
            gradient_steps=4,  # 16 replayed steps for each step
            target_update_interval=2000,  # environment steps: 500 updates
            n_steps=5,
            gamma=0.99,
            exploration_fraction=5000 / 104_832,
            exploration_final_eps=0.02,
            max_grad_norm=10,
            policy_kwargs=dict(net_arch=[128, 128], optimizer_kwargs=dict(eps=0.01 / 64)),
        ),
        planned=100_000,
    ),
    "pendulum:sac": Task("SAC", "Pendulum-v1", 1, 20_000, 1_000, PENDULUM),
    "pendulum:td3": Task("TD3", "Pendulum-v1", 1, 20_000, 1_000, dict(PENDULUM, action_noise=NOISE, **TARGET_NOISE)),
    "pendulum:ddpg": Task("DDPG", "Pendulum-v1", 1, 20_000, 1_000, dict(PENDULUM, action_noise=NOISE)),
    "pendulum:tqc": Task(
        "TQC",
        "Pendulum-v1",
        1,
        20_000,
        1_000,
        dict(PENDULUM, target_entropy=ENTROPY, policy_kwargs=TQC_NETWORKS, top_quantiles_to_drop_per_net=2),
    ),
    "pendulum:crossq": Task(
        "CrossQ",
        "Pendulum-v1",
        1,
        20_000,
        1_000,
        dict(PENDULUM, target_entropy=ENTROPY, policy_kwargs=CROSSQ_NETWORKS, policy_delay=3),
    ),
    **{f"mujoco_ppo:ppo_1M_normalized:{env_id}": mujoco_ppo(env_id) for env_id in MUJOCO},
    **{name: task for env_id in MUJOCO for name, task in mujoco_off_policy(env_id).items()},
}


class Log(BaseCallback):
    """Writes progress.csv: a row before training if there is a score, and one after each interval."""

    def __init__(self, path, task, seed):
        super().__init__()
        self.task, self.last = task, None
        self.file = open(path, "w", newline="")
        self.writer = csv.writer(self.file)
        self.writer.writerow(["CumSteps", "ReturnAverage"])  # Times compare in tests/benchmarks/bench_*.py, where both run in turn.
        n_envs = task.n_episodes // 2  # Each run has other seeds.
        self.env = make_vec_env(task.env_id, n_envs, seed=10_000 * (seed + 1)) if n_envs else None

    def _on_training_start(self):
        self.write()

    def _on_step(self):
        if not isinstance(self.model, OnPolicyAlgorithm):
            self.write_if_due()
        return True

    def _on_rollout_start(self):  # The policy of these algorithms changes between batches.
        if self.num_timesteps and isinstance(self.model, OnPolicyAlgorithm):
            self.write_if_due()

    def _on_training_end(self):
        if self.num_timesteps != self.last:
            self.write()
        self.file.close()

    def write_if_due(self):
        if self.num_timesteps % self.task.interval == 0:
            self.write()

    def write(self):
        self.last = self.num_timesteps
        score = self.score()
        if score is not None:
            self.writer.writerow([self.num_timesteps, score])
            self.file.flush()

    def score(self):
        if not self.task.n_episodes:
            returns = [episode["r"] for episode in self.model.ep_info_buffer]  # of up to 100 episodes, not normalized
            return float(np.mean(returns)) if returns else None
        deterministic = not isinstance(self.model, OnPolicyAlgorithm)
        return evaluate_policy(self.model, self.env, self.task.n_episodes, deterministic=deterministic)[0]


def train(name, seed, run_dir, n_steps=None):
    """Train one run, and write its directory."""
    task = TASKS[name]
    packages = {package: metadata.version(package) for package in ("stable_baselines3", "torch", "numpy", "gymnasium")}
    if task.env_id in MUJOCO:
        packages["mujoco"] = metadata.version("mujoco")
    if task.algorithm in CONTRIB:
        packages["sb3_contrib"] = metadata.version("sb3_contrib")
    record = dict(seed=seed, n_steps=task.planned or task.n_steps, python=sys.version.split()[0], packages=packages)  # As rlpyt writes it.
    params = dict(
        name=f"sb3_{name.replace(':', '_')}",
        run_ID=seed,
        configuration=":".join(name.split(":")[:2]),
        library="Stable-Baselines3",
        algorithm=task.algorithm,
        env=dict(id=task.env_id),
        command=f"python tests/benchmarks/sb3_runs.py {name}",
        rlpyt=record,
    )
    run_dir.mkdir(parents=True, exist_ok=True)
    (run_dir / "params.json").write_text(json.dumps(params, indent=2) + "\n")
    set_random_seed(seed)
    env = make_vec_env(task.env_id, task.n_envs, seed=seed)
    if task.normalize:
        env = VecNormalize(env, gamma=task.settings["gamma"])
    library = importlib.import_module("sb3_contrib") if task.algorithm in CONTRIB else stable_baselines3
    model = getattr(library, task.algorithm)("MlpPolicy", env, seed=seed, device="cpu", **copy.deepcopy(task.settings))
    model.learn(n_steps or task.n_steps, callback=Log(run_dir / "progress.csv", task, seed))
    if n_steps is None:
        (run_dir / "complete").touch()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="+", choices=list(TASKS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(5)))
    parser.add_argument("--out", type=Path, default=Path("sb3_runs"))
    parser.add_argument("--n_steps", type=int, help="end earlier, to see whether everything works")
    args = parser.parse_args()
    for seed in args.seeds:
        for task in args.tasks:
            run_dir = args.out / task.replace(":", "_") / f"run_{seed}"
            if not (run_dir / "complete").exists():
                train(task, seed, run_dir, args.n_steps)
                print(run_dir, flush=True)
