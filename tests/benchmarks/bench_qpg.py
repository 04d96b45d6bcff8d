"""SAC and TD3: the time of an update, and environment steps per second end to end, against bare torch and Stable-Baselines3.

    python tests/benchmarks/bench_qpg.py --sb3_python sb3/bin/python
    python tests/benchmarks/bench_qpg.py --critics                    # many critics: one batched product, or many networks

with the environment of which `tables.py` says how to make it.

Networks of 256 and 256 units, batches of 256, HalfCheetah-v5 (17 numbers observed, 6 controlled), one environment, one update per
step, float32. "Bare" is the update written out below, on one random batch again and again, and the same update with environment steps and
nothing else: no replay memory, no log, no previous actions. It is there in two forms, with twin critics as two networks and as one
batched product, of which the faster counts. Contenders run in turn, in processes of their own; ratios are medians over rounds. `--ours`
measures without Stable-Baselines3, and `--busy 1` beside one process that computes.
"""

import argparse
import json
import math
import subprocess
import sys
import time

N_OBSERVATION, N_ACTION, BATCH, HIDDEN = 17, 6, 256, 256
ENV_ID = "HalfCheetah-v5"
LR = 3e-4


# --- Bare torch -------------------------------------------------------------------------------------------------------
class Bare:
    """SAC or TD3 as a few functions of tensors."""

    def __init__(self, algo: str, batched: bool):
        import torch
        import torch.nn.functional as F

        self.torch, self.F, self.algo, self.batched, self.count = torch, F, algo, batched, 0
        n_out = 2 * N_ACTION if algo == "sac" else N_ACTION
        self.pi = self.net(N_OBSERVATION, n_out)
        self.q = self.twins() if batched else self.net(N_OBSERVATION + N_ACTION, 1) + self.net(N_OBSERVATION + N_ACTION, 1)
        self.target_q = [p.detach().clone() for p in self.q]
        self.target_pi = [p.detach().clone() for p in self.pi]
        self.q_optimizer = torch.optim.Adam(self.q, lr=LR, fused=True)
        self.pi_optimizer = torch.optim.Adam(self.pi, lr=LR, fused=True)
        self.log_alpha = torch.zeros((), requires_grad=True)
        self.alpha_optimizer = torch.optim.Adam([self.log_alpha], lr=LR, fused=True)

    def net(self, n_in, n_out):
        modules = [self.torch.nn.Linear(i, o) for i, o in ((n_in, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, n_out))]
        return [p for module in modules for p in module.parameters()]

    def twins(self):
        nets = [self.net(N_OBSERVATION + N_ACTION, 1) for _ in range(2)]
        stacked = [self.torch.stack([a.detach(), b.detach()]) for a, b in zip(*nets)]
        return [self.torch.nn.Parameter(p.mT.contiguous() if p.dim() == 3 else p.unsqueeze(1)) for p in stacked]

    def mlp(self, x, p):
        linear, relu = self.F.linear, self.torch.relu
        return linear(relu(linear(relu(linear(x, p[0], p[1])), p[2], p[3])), p[4], p[5])

    def q_of(self, p, observation, action):
        x = self.torch.cat([observation, action], 1)
        if not self.batched:
            return self.mlp(x, p[:6])[:, 0], self.mlp(x, p[6:])[:, 0]
        baddbmm, relu = self.torch.baddbmm, self.torch.relu
        x = relu(baddbmm(p[1], x.expand(2, *x.shape), p[0]))
        return baddbmm(p[5], relu(baddbmm(p[3], x, p[2])), p[4]).squeeze(-1).unbind()

    def sample(self, observation):
        mean, log_std = self.mlp(observation, self.pi).chunk(2, -1)
        log_std = log_std.clamp(-20, 2)
        noise = self.torch.randn_like(mean)
        x = mean + log_std.exp() * noise
        log_pi = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi) - 2 * (math.log(2) - x - self.F.softplus(-2 * x))
        return self.torch.tanh(x), log_pi.sum(-1)

    def act(self, observation):
        with self.torch.no_grad():
            return self.sample(observation)[0] if self.algo == "sac" else self.torch.tanh(self.mlp(observation, self.pi))

    def update(self, batch):
        return self.update_sac(*batch) if self.algo == "sac" else self.update_td3(*batch)

    def update_sac(self, observation, action, reward, next_observation, not_done):
        torch, alpha = self.torch, self.log_alpha.detach().exp()
        with torch.no_grad():
            next_action, next_log_pi = self.sample(next_observation)
            y = reward + 0.99 * not_done * (torch.minimum(*self.q_of(self.target_q, next_observation, next_action)) - alpha * next_log_pi)
        q1, q2 = self.q_of(self.q, observation, action)
        q_loss = 0.5 * ((q1 - y).square().mean() + (q2 - y).square().mean())
        new_action, log_pi = self.sample(observation)
        pi_loss = (alpha * log_pi - torch.minimum(*self.q_of([p.detach() for p in self.q], observation, new_action))).mean()
        alpha_loss = -self.log_alpha * (log_pi.detach().mean() - N_ACTION)
        optimizers = self.q_optimizer, self.pi_optimizer, self.alpha_optimizer
        for optimizer in optimizers:
            optimizer.zero_grad()
        torch.autograd.backward([q_loss, pi_loss, alpha_loss])
        for optimizer in optimizers:
            optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(self.target_q, [p.data for p in self.q], 0.005)

    def update_td3(self, observation, action, reward, next_observation, not_done):
        torch = self.torch
        with torch.no_grad():
            noise = (0.2 * torch.randn_like(action)).clamp_(-0.5, 0.5)
            next_action = (torch.tanh(self.mlp(next_observation, self.target_pi)) + noise).clamp_(-1, 1)
            y = reward + 0.99 * not_done * torch.minimum(*self.q_of(self.target_q, next_observation, next_action))
        q1, q2 = self.q_of(self.q, observation, action)
        self.q_optimizer.zero_grad()
        (0.5 * ((q1 - y).square().mean() + (q2 - y).square().mean())).backward()
        self.q_optimizer.step()
        self.count += 1
        if self.count % 2 == 0:
            q = self.q_of([p.detach() for p in self.q], observation, torch.tanh(self.mlp(observation, self.pi)))[0]
            self.pi_optimizer.zero_grad()
            (-q.mean()).backward()
            self.pi_optimizer.step()
            with torch.no_grad():
                torch._foreach_lerp_(self.target_q + self.target_pi, [p.data for p in self.q + self.pi], 0.005)


def random_batch():
    import torch

    g = torch.Generator().manual_seed(0)
    normal = lambda *shape: torch.randn(*shape, generator=g)  # noqa: E731
    action = normal(BATCH, N_ACTION).clamp(-1, 1)
    return normal(BATCH, N_OBSERVATION), action, normal(BATCH), normal(BATCH, N_OBSERVATION), torch.ones(BATCH)


def bare_update(algo: str, batched: bool, n: int) -> float:
    """Return seconds per update."""
    bare, batch = Bare(algo, batched), random_batch()
    return timed(lambda: bare.update(batch), n)


def bare_steps(algo: str, batched: bool, n: int) -> float:
    """Return steps per second of acting, stepping the environment, and an update."""
    import gymnasium
    import torch

    bare, batch, env = Bare(algo, batched), random_batch(), gymnasium.make(ENV_ID)
    observation = env.reset(seed=0)[0]

    def step():
        nonlocal observation
        action = bare.act(torch.as_tensor(observation, dtype=torch.float32)[None])[0].numpy()
        observation, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            observation = env.reset()[0]
        bare.update(batch)

    return 1 / timed(step, n)


def timed(func, n: int) -> float:
    for _ in range(n // 5):
        func()
    start = time.perf_counter()
    for _ in range(n):
        func()
    return (time.perf_counter() - start) / n


# --- rlpyt ------------------------------------------------------------------------------------------------------------
def parts(algo: str, min_steps_learn: int):
    from rlpyt.agents.qpg.sac_agent import SacAgent
    from rlpyt.agents.qpg.td3_agent import Td3Agent
    from rlpyt.algos.qpg.sac import SAC
    from rlpyt.algos.qpg.td3 import TD3

    networks = dict(model_kwargs=dict(hidden_sizes=[HIDDEN] * 2), q_model_kwargs=dict(hidden_sizes=[HIDDEN] * 2))
    settings = dict(batch_size=BATCH, replay_ratio=BATCH, replay_size=100_000, min_steps_learn=min_steps_learn)
    if algo == "sac":
        return SAC(learning_rate=LR, **settings), SacAgent(**networks)
    return TD3(mu_learning_rate=LR, q_learning_rate=LR, **settings), Td3Agent(**networks)


def our_update(algo: str, n: int) -> float:
    """Return seconds per update, of a batch that is there."""
    import numpy as np
    import torch

    from rlpyt.agents.base import AgentInputs
    from rlpyt.envs.base import EnvSpaces
    from rlpyt.replays.non_sequence.n_step import SamplesFromReplay
    from rlpyt.runners.calibration import calibrate
    from rlpyt.samplers.collections import BatchSpec
    from rlpyt.spaces.float_box import FloatBox
    from rlpyt.utils.choices import adopt

    algorithm, agent = parts(algo, 0)
    spaces = EnvSpaces(FloatBox(-1, 1, (N_OBSERVATION,)), FloatBox(-1, 1, (N_ACTION,)))
    agent.initialize(spaces)
    agent.to_device(None)
    adopt(calibrate(agent, [BATCH], [], None, dict(master_torch_threads=torch.get_num_threads())))  # As a runner does.
    observation, action = (space.null_value() for space in spaces)
    examples = dict(observation=observation, action=action, reward=np.float32(0), done=np.bool_(False))
    algorithm.initialize(agent, 1, BatchSpec(1, 1), True, examples)
    agent.train_mode(0)
    observation, action, reward, next_observation, not_done = random_batch()
    inputs, targets = AgentInputs(observation, action, reward), AgentInputs(next_observation, action, reward)
    batch = SamplesFromReplay(inputs, action, reward, not_done == 0, not_done == 0, targets, 0.99 * not_done)

    def update():  # As in ReplayAlgorithm.optimize_agent.
        algorithm.update(batch)
        algorithm.update_counter += 1
        if algorithm.update_counter % algorithm.target_update_interval == 0:
            agent.update_target(algorithm.target_update_tau)

    return timed(update, n)


def our_steps(algo: str, n: int) -> float:
    """Return environment steps per second."""
    import torch

    from rlpyt.envs.gym import make
    from rlpyt.runners.minibatch_rl import MinibatchRl
    from rlpyt.samplers.serial.sampler import SerialSampler

    times = []

    class TimedRunner(MinibatchRl):
        def run_iteration(self, itr):
            super().run_iteration(itr)
            times.append(time.perf_counter())

    algorithm, agent = parts(algo, BATCH)
    sampler = SerialSampler(make, dict(id=ENV_ID), batch_T=1, batch_B=1, max_decorrelation_steps=0)
    n_steps = BATCH + n // 5 + n
    affinity = dict(master_torch_threads=torch.get_num_threads())  # As was said, and not as a run would choose.
    TimedRunner(
        algo=algorithm, agent=agent, sampler=sampler, n_steps=n_steps, log_interval_steps=n_steps, seed=0, affinity=affinity
    ).train()
    return n / (times[-1] - times[-1 - n])


# --- Stable-Baselines3 ------------------------------------------------------------------------------------------------
def their_steps(algo: str, n: int) -> float:
    """Return environment steps per second of Stable-Baselines3."""
    from stable_baselines3 import SAC, TD3
    from stable_baselines3.common.callbacks import BaseCallback

    times = []

    class Timer(BaseCallback):
        def _on_step(self):
            times.append(time.perf_counter())
            return True

    Cls = dict(sac=SAC, td3=TD3)[algo]
    model = Cls(
        "MlpPolicy", ENV_ID, learning_rate=LR, batch_size=BATCH, learning_starts=BATCH, train_freq=1, gradient_steps=1, buffer_size=100_000,
        policy_kwargs=dict(net_arch=[HIDDEN, HIDDEN]), seed=0, device="cpu",
    )  # fmt: skip
    model.learn(BATCH + n // 5 + n, callback=Timer())
    return n / (times[-1] - times[-1 - n])


# --- Ensembles of critics ---------------------------------------------------------------------------------------------
CRITICS = {  # The critics of configurations, with their batches, all with the inputs of HalfCheetah.
    "two critics": dict(n=2, hidden=256, layers=2, outputs=1, batch=256),
    "mujoco redq": dict(n=10, hidden=256, layers=2, outputs=1, batch=256),
    "mujoco tqc": dict(n=5, hidden=512, layers=3, outputs=25, batch=256),
    "mujoco crossq, without normalization": dict(n=2, hidden=2048, layers=2, outputs=1, batch=256),
    "pendulum redq": dict(n=10, hidden=64, layers=2, outputs=1, batch=128),
    "pendulum tqc": dict(n=5, hidden=64, layers=2, outputs=25, batch=128),
}


def critics(name: str, together: bool, n: int) -> float:
    """Return seconds of the values of a batch and their gradients, of all critics."""
    import torch

    from rlpyt.models.mlp import MlpModel
    from rlpyt.models.qpg.ensemble import QEnsembleModel
    from rlpyt.models.utils import keep_large_blocks

    keep_large_blocks()  # As agents do.
    s = CRITICS[name]
    hidden_sizes, batch = [s["hidden"]] * s["layers"], s["batch"]
    observation, action = torch.randn(batch, N_OBSERVATION), torch.randn(batch, N_ACTION)
    if together:
        model = QEnsembleModel(
            (N_OBSERVATION,), hidden_sizes=hidden_sizes, action_size=N_ACTION, n_critics=s["n"], n_quantiles=s["outputs"]
        )
        values = lambda: model(observation, None, None, action)  # noqa: E731
    else:
        models = [MlpModel(N_OBSERVATION + N_ACTION, hidden_sizes, s["outputs"]) for _ in range(s["n"])]

        def values():
            x = torch.cat([observation, action], dim=1)
            return torch.stack([model(x) for model in models], dim=1)

    def once():
        values().square().mean().backward()

    for _ in range(2):  # The first pass allocates the gradients.
        once()
    return timed(once, n)


def compare_critics(args: argparse.Namespace) -> None:
    from common import median, ratio, rounds

    def work(n, hidden, layers, outputs, batch):
        return n * batch * hidden * (N_OBSERVATION + N_ACTION + hidden * (layers - 1) + outputs)

    for threads in args.threads:
        for name, s in CRITICS.items():
            n = max(10, args.n * work(**CRITICS["two critics"]) // work(**s))  # All take about equally long.
            timers = {
                key: lambda what=("critics", name, key == "together", n), threads=threads: 1e3 * run(*what, n_threads=threads)
                for key in ("together", "apart")
            }
            ms = rounds(timers, args.rounds)
            print(
                f"{name}, {threads} threads: {median(ms['together']):.2f} ms as one batched product, {median(ms['apart']):.2f} ms as "
                f"{s['n']} networks; the product is {ratio(ms['apart'], ms['together']):.2f} times as fast",
                flush=True,
            )


# ----------------------------------------------------------------------------------------------------------------------
MEASURES = {func.__name__: func for func in (bare_update, bare_steps, our_update, our_steps, their_steps, critics)}


def run(*what, n_threads: int, python: str = sys.executable) -> float:
    """Measure in a process of its own."""
    out = subprocess.run([python, __file__, "--measure", json.dumps(what), "--threads", str(n_threads)], capture_output=True, text=True)
    if out.returncode:
        raise RuntimeError(out.stderr)
    return float(out.stdout.split()[-1])


def main(args: argparse.Namespace) -> None:
    from common import median, ratio, ratios, rounds, tell

    for algo in args.algos:
        for threads in args.threads:
            contenders = {
                "update": ("our_update", algo, args.n),
                "update, bare, two networks": ("bare_update", algo, False, args.n),
                "update, bare, one batched product": ("bare_update", algo, True, args.n),
            }
            results = rounds({k: lambda v=v, threads=threads: 1e3 * run(*v, n_threads=threads) for k, v in contenders.items()}, args.rounds)
            bare = min(list(contenders)[1:], key=lambda k, results=results: median(results[k]))
            for name, values in results.items():
                speed = ratio(results[bare], values)
                print(f"{algo}, {threads} threads: {name} {median(values):.2f} ms, {speed:.2f} times as fast as the faster bare one")
            tell(f"{algo}, {threads} threads: update", to_bare=ratios(results[bare], results["update"]))
            batched = "batched" in bare
            contenders = {"rlpyt": ("our_steps", algo, args.n), "bare": ("bare_steps", algo, batched, args.n)}
            timers = {k: lambda v=v, threads=threads: run(*v, n_threads=threads) for k, v in contenders.items()}
            if not args.ours:
                timers["Stable-Baselines3"] = lambda algo=algo, threads=threads: run(
                    "their_steps", algo, args.n, n_threads=threads, python=args.sb3_python
                )
            results = rounds(timers, args.rounds)
            for name, values in results.items():
                speed = ratio(results["rlpyt"], values)
                print(f"{algo}, {threads} threads: {name} {median(values):.0f} steps/s, rlpyt {speed:.2f} times as fast")
            others = {"bare": "bare", "sb3": "Stable-Baselines3"}
            figures = {f"to_{key}": ratios(results["rlpyt"], results[name]) for key, name in others.items() if name in results}
            steps = {f"{key}_steps": results[name] for key, name in others.items() if name in results}
            tell(f"{algo}, {threads} threads", steps=results["rlpyt"], **figures, **steps)
            sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sb3_python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--n", type=int, default=500, help="updates, or environment steps, per measurement")
    parser.add_argument("--algos", nargs="+", default=["sac", "td3"], choices=["sac", "td3"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2], help="of torch")
    parser.add_argument("--ours", action="store_true", help="without Stable-Baselines3")
    parser.add_argument("--busy", type=int, default=0, help="other processes that compute meanwhile")
    parser.add_argument("--critics", action="store_true", help="measure ensembles of critics, and nothing else")
    parser.add_argument("--measure", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        import torch

        torch.set_num_threads(args.threads[0])
        name, *arguments = args.measure
        print(MEASURES[name](*arguments))
    else:
        from common import busy

        with busy(args.busy):
            (compare_critics if args.critics else main)(args)
