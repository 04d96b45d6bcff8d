"""PPO and A2C with small networks: environment steps per second, and the time of an update, against bare torch and Stable-Baselines3.

    python tests/benchmarks/bench_mlp.py --sb3_python sb3/bin/python [--rounds 7] [--tasks halfcheetah_ppo cartpole_ppo cartpole_a2c]

with the environment of which `tables.py` says how to make it. Our configurations are `mujoco_ppo ppo_1M_normalized` on HalfCheetah (one
environment), `cartpole ppo` and `cartpole a2c` (8 environments), without evaluation. Stable-Baselines3 has the same networks (two of 64 and
64 units), batch dimensions, epochs and minibatches. All have one process and one thread.

Each measurement is a process of its own, in turn. After a warm-up it measures whole iterations, and within them the time of training,
divided by the number of minibatches. "Bare" is what nobody does without: environments stepped one after the other, with actions of the
network, and the updates on one minibatch again and again. It records nothing, and normalizes nothing. `--processor_time` counts the time
that the process had a processor, for machines that do other things, too. `--busy 1` measures beside one process that computes.
"""

from __future__ import annotations

import argparse
import importlib
import math
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path[:0] = [str(Path(__file__).parent)]


class Task(NamedTuple):
    """A configuration, and how many iterations to measure."""

    module: str
    key: str
    env_id: str
    iterations: int
    warmup: int


CONFIGS = "rlpyt.experiments.configs"
TASKS = dict(
    halfcheetah_ppo=Task(f"{CONFIGS}.mujoco.pg.mujoco_ppo", "ppo_1M_normalized", "HalfCheetah-v5", iterations=5, warmup=1),
    cartpole_ppo=Task(f"{CONFIGS}.classic.cartpole", "ppo", "CartPole-v1", iterations=100, warmup=10),
    cartpole_a2c=Task(f"{CONFIGS}.classic.cartpole", "a2c", "CartPole-v1", iterations=1000, warmup=50),
)
clock = time.perf_counter


def settings(task: str) -> dict[str, Any]:
    """Return the settings of a configuration that the other contenders need; they have no rlpyt, but its file is there."""
    sys.path.append(str(Path(__file__).resolve().parents[2]))
    module, key = importlib.import_module(TASKS[task].module), TASKS[task].key
    algo, sampler = module.configs[key]["algo"], module.configs[key]["sampler"]
    n = sampler["batch_T"] * sampler["batch_B"]
    minibatches, epochs = algo.get("minibatches", 1), algo.get("epochs", 1)
    return dict(T=sampler["batch_T"], B=sampler["batch_B"], size=n // minibatches, epochs=epochs, updates=minibatches * epochs, algo=algo)


class Stopwatch:
    """Calls a function and adds up its time, of the last `n` calls."""

    def __init__(self, func: Any) -> None:
        self.func, self.times = func, []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        start = clock()
        result = self.func(*args, **kwargs)
        self.times.append(clock() - start)
        return result

    def last(self, n: int) -> float:
        return sum(self.times[-n:])


# --- rlpyt ------------------------------------------------------------------------------------------------------------
def ours(task: str) -> tuple[float, float]:
    """Return environment steps per second, and seconds per update."""
    from rlpyt.experiments.build import build
    from rlpyt.experiments.configs import variant
    from rlpyt.runners.minibatch_rl import MinibatchRl

    module, key, env_id, n, warmup = TASKS[task]
    configs, s, times = importlib.import_module(module), settings(task), []

    class TimedRunner(MinibatchRl):
        def run_iteration(self, itr):
            super().run_iteration(itr)
            times.append(clock())

    n_steps = (n + warmup) * s["T"] * s["B"]
    config = variant(configs.configs[key], env=dict(id=env_id))
    config["sampler"] = {name: value for name, value in config["sampler"].items() if not name.startswith("eval_")}
    config["runner"] = dict(n_steps=n_steps, log_interval_steps=n_steps)
    runner = build(config, {**configs.classes, **configs.classes_by_key[key]}, dict(master_torch_threads=1), 0, TimedRunner)
    train = runner.algo.optimize_agent = Stopwatch(runner.algo.optimize_agent)
    runner.train()
    return n * s["T"] * s["B"] / (times[-1] - times[-1 - n]), train.last(n) / n / s["updates"]


# --- Bare torch -------------------------------------------------------------------------------------------------------
def bare(task: str) -> tuple[float, float]:
    """Return environment steps per second, and seconds per update."""
    import gymnasium
    import torch

    torch.manual_seed(0)
    s = settings(task)
    envs = [gymnasium.make(TASKS[task].env_id) for _ in range(s["B"])]
    n_in, space = envs[0].observation_space.shape[0], envs[0].action_space
    act, update = bare_network(n_in, getattr(space, "n", None), s["size"], s["algo"], sum(getattr(space, "shape", ())))
    observations = [env.reset(seed=0)[0] for env in envs]

    def sample():
        for _ in range(s["T"]):
            inputs = torch.stack([torch.as_tensor(observation, dtype=torch.float32) for observation in observations])
            for i, (env, action) in enumerate(zip(envs, act(inputs).numpy())):
                observations[i], _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    observations[i] = env.reset()[0]

    n = max(TASKS[task].iterations, 2000 // s["updates"])
    timers = Stopwatch(sample), Stopwatch(lambda: [update() for _ in range(s["updates"])])
    for _ in range(n + TASKS[task].warmup):
        for timer in timers:
            timer()
    sampling, training = (timer.last(n) / n for timer in timers)
    return s["T"] * s["B"] / (sampling + training), training / s["updates"]


def bare_network(n_in: int, n_actions: int | None, size: int, algo: dict[str, Any], n_components: int):
    """Return functions that choose actions, and do an update on `size` steps."""
    import torch
    from torch.nn import Linear, Sequential, Tanh

    policy, values = (Sequential(Linear(n_in, 64), Tanh(), Linear(64, 64), Tanh(), Linear(64, n)) for n in (n_actions or n_components, 1))
    log_std = torch.zeros(n_components, requires_grad=n_actions is None)
    parameters = [*policy.parameters(), *values.parameters(), *([log_std] if n_actions is None else [])]
    optimizer = torch.optim.Adam(parameters, lr=1e-4, fused=True)
    x, return_, advantage, old_value = torch.randn(size, n_in), torch.randn(size), torch.randn(size), torch.randn(size)
    entropy_coeff, epsilon, clips_value = algo["entropy_loss_coeff"], algo.get("ratio_clip"), algo.get("clip_value_loss")

    def act(inputs):
        with torch.no_grad():
            out = policy(inputs)
            values(inputs)
            return torch.multinomial(out.softmax(-1), 1)[:, 0] if n_actions else out + log_std.exp() * torch.randn_like(out)

    def log_likelihood_and_entropy():
        out = policy(x)
        if n_actions:
            log_pi = out.log_softmax(-1)
            return log_pi.gather(1, action[:, None])[:, 0], -(log_pi.exp() * log_pi).sum(-1).mean() if entropy_coeff else None
        z = (action - out) * torch.exp(-log_std)
        return (-0.5 * z.square() - log_std - 0.5 * math.log(2 * math.pi)).sum(-1), log_std.sum()

    action = act(x)
    old_log_likelihood = log_likelihood_and_entropy()[0].detach()

    def update():
        log_likelihood, entropy = log_likelihood_and_entropy()
        if epsilon is None:
            loss = -(log_likelihood * advantage).mean()
        else:
            ratio = (log_likelihood - old_log_likelihood).exp()
            loss = -torch.minimum(ratio * advantage, ratio.clamp(1 - epsilon, 1 + epsilon) * advantage).mean()
        value = values(x)[:, 0]
        error = (value - return_).square()
        if clips_value:
            error = torch.maximum(error, (old_value + (value - old_value).clamp(-epsilon, epsilon) - return_).square())
        loss = loss + 0.25 * error.mean()
        if entropy_coeff:
            loss = loss - entropy_coeff * entropy
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 0.5, foreach=True)
        optimizer.step()

    return act, update


# --- Stable-Baselines3 ------------------------------------------------------------------------------------------------
def theirs(task: str) -> tuple[float, float]:
    """Return environment steps per second, and seconds per update, of Stable-Baselines3."""
    from stable_baselines3 import A2C, PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    s, times = settings(task), []
    algo, n = s["algo"], TASKS[task].iterations

    class Timer(BaseCallback):
        def _on_step(self):
            return True

        def _on_rollout_start(self):
            times.append(clock())

    envs = make_vec_env(TASKS[task].env_id, s["B"], seed=0)
    if algo.get("normalize_reward"):
        envs = VecNormalize(envs, gamma=algo["discount"])
    same = dict(
        n_steps=s["T"],
        learning_rate=lambda remaining: remaining * algo["learning_rate"],
        gamma=algo.get("discount", 0.99),
        gae_lambda=algo["gae_lambda"],
        ent_coef=algo["entropy_loss_coeff"],
        vf_coef=algo.get("value_loss_coeff", 0.5) / 2,
        max_grad_norm=algo.get("clip_grad_norm", 1.0),
        policy_kwargs=dict(net_arch=[64, 64]),
        seed=0,
        device="cpu",
    )
    if "epochs" in algo:
        clips = dict(clip_range=algo["ratio_clip"], clip_range_vf=algo["ratio_clip"] if algo.get("clip_value_loss") else None)
        model = PPO("MlpPolicy", envs, batch_size=s["size"], n_epochs=s["epochs"], **clips, **same)
    else:
        model = A2C("MlpPolicy", envs, use_rms_prop=False, **same)
    train = model.train = Stopwatch(model.train)
    model.learn((n + TASKS[task].warmup + 1) * s["B"] * s["T"], callback=Timer())
    return n * s["B"] * s["T"] / (times[-1] - times[-1 - n]), train.last(n) / n / s["updates"]


# ----------------------------------------------------------------------------------------------------------------------
def main(args: argparse.Namespace) -> None:
    from common import median, ratio, ratios, rounds, tell

    def run(python: str, *what: str) -> tuple[float, float]:
        command = [python, __file__, *(["--processor_time"] if args.processor_time else []), "--measure", *what]
        out = subprocess.run(command, capture_output=True, text=True)
        if out.returncode:
            raise RuntimeError(out.stderr)
        steps, seconds = map(float, out.stdout.split()[-2:])
        return steps, 1e3 * seconds

    def spread(values: list[float], digits: int) -> str:
        return f"{median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"

    pythons = dict(ours=sys.executable, bare=sys.executable) | (dict(sb3=args.sb3_python) if args.sb3_python else {})
    for task in args.tasks:
        contenders = {who: partial(run, python, who, task) for who, python in pythons.items()}
        both: dict[str, Any] = rounds(contenders, args.rounds)
        steps, ms = ({who: [values[i] for values in measured] for who, measured in both.items()} for i in (0, 1))
        for who in pythons:
            speed = f"rlpyt {ratio(steps['ours'], steps[who]):.2f} times as fast"
            print(f"{task}: {who} {spread(steps[who], 0)} steps/s, {speed}", flush=True)
            speed = f"rlpyt {ratio(ms[who], ms['ours']):.2f} times as fast"
            print(f"{task}: {who} {spread(ms[who], 3)} ms per update, {speed}", flush=True)
        others = [who for who in pythons if who != "ours"]
        figures = {f"to_{who}": ratios(steps["ours"], steps[who]) for who in others}
        tell(task, steps=steps["ours"], **figures, **{f"{who}_steps": steps[who] for who in others})
        figures = {f"to_{who}": ratios(ms[who], ms["ours"]) for who in others}
        tell(f"{task}: update", ms=ms["ours"], **figures, **{f"{who}_ms": ms[who] for who in others})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sb3_python", help="Python with Stable-Baselines3; default: without", default=None)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--processor_time", action="store_true", help="instead of the time that passes")
    parser.add_argument("--busy", type=int, default=0, help="other processes that compute meanwhile")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.processor_time:
        clock = time.process_time
    if args.measure:
        import torch

        torch.set_num_threads(1)
        who, task = args.measure
        print(*dict(ours=ours, bare=bare, sb3=theirs)[who](task))
    else:
        from common import busy

        with busy(args.busy):
            main(args)
