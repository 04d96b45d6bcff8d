"""Recording episodes, and training from them: PPO learns to balance a pole, plays, and another network learns to do what it did.

What it teaches, compared with example 0: whole episodes as data. A `LocalSampler` plays them, an `EpisodeReplayBuffer` keeps them, and a
file, for later. The algorithm that trains from them, behaviour cloning, has its own loop, around which `Trainer` logs and saves.

    python examples/episodes.py
    python examples/episodes.py --recorded data/local/.../run_0/episodes.pt
"""

import os
from functools import partial

import torch

from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.algos.pg.ppo import PPO
from rlpyt.cli.scripts import command_line
from rlpyt.envs.gym import make as gym_make
from rlpyt.episodes import Trainer, log_performance, make_optimizer
from rlpyt.experiments.smoke import tiny
from rlpyt.replays.episode import EpisodeReplayBuffer
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.samplers.episodic import LocalSampler, VecWorker
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.logging import logger
from rlpyt.utils.logging.context import logger_context
from rlpyt.utils.recipes import Recorded
from rlpyt.utils.seed import make_seed, set_seed

ENV = dict(id="CartPole-v1")
OBSERVATION_SIZE, N_ACTIONS, MAX_LENGTH = 4, 2, 500
SIZES = dict(n_episodes=40, updates_per_epoch=200, n_epochs=10, steps_per_epoch=4000)
SMOKE = dict(n_episodes=8, updates_per_epoch=5, n_epochs=2, steps_per_epoch=100)  # for a tiny run


def play_in(policy, n_envs=8):
    """Return a sampler of whole episodes, of `n_envs` environments in this process; `policy` may be an agent of rlpyt."""
    worker = dict(worker_class=VecWorker, worker_args=dict(n_envs=n_envs))
    return LocalSampler(policy, partial(gym_make, **ENV), max_episode_length=MAX_LENGTH, n_workers=1, **worker)


def demonstrator(seed):
    """Return the runner of an agent like that of example 0."""
    sampler = SerialSampler(EnvCls=gym_make, env_kwargs=ENV, batch_T=32, batch_B=8)
    algo = PPO(discount=0.98, learning_rate=1e-3, gae_lambda=0.8, minibatches=1, epochs=20, ratio_clip=0.2, normalize_advantage=True)
    return MinibatchRl(
        algo=algo,
        agent=MlpFfAgent(),
        sampler=sampler,
        n_steps=40_000,
        log_interval_steps=10_000,
        affinity=dict(master_torch_threads=1),
        seed=seed,
    )


def record(agent, n_episodes):
    """Return a buffer of episodes that the agent plays."""
    sampler = play_in(agent)
    episodes = sampler.obtain_exact_episodes(n_episodes, None)
    sampler.shutdown_worker()
    print(f"Recorded {episodes}, of return {episodes.rewards.sum() / n_episodes:.1f} on average.")
    replay = new_replay()
    replay.append_episodes(episodes)
    return replay


def new_replay():
    """Return an empty buffer."""
    return EpisodeReplayBuffer(capacity=100_000)  # steps


class Policy(Recorded, torch.nn.Module):
    """Draws actions from probabilities. What samplers of episodes want from a policy are the five methods."""

    def __init__(self):
        super().__init__()
        self.logits = torch.nn.Sequential(torch.nn.Linear(OBSERVATION_SIZE, 64), torch.nn.Tanh(), torch.nn.Linear(64, N_ACTIONS))

    @torch.no_grad()
    def get_actions(self, observations):
        """Return actions [B], and what there is to say about them, for observations [B,4]."""
        probabilities = self.logits(torch.as_tensor(observations)).softmax(dim=-1)
        return torch.multinomial(probabilities, 1)[:, 0].numpy(), dict(probabilities=probabilities.numpy())

    def get_action(self, observation):
        """Return the action for one observation [4]."""
        actions, infos = self.get_actions(observation[None])
        return actions[0], {name: info[0] for name, info in infos.items()}

    def reset(self, do_resets=None):
        """Take note that episodes begin: nothing to do without a memory."""

    def get_param_values(self):
        """Return the parameters."""
        return self.state_dict()

    def set_param_values(self, params):
        """Take parameters over."""
        self.load_state_dict(params)


class BehaviourCloning(Recorded):  # So params.json says how it was made, and `rlpyt eval` makes it again.
    """Minimizes -log π(a|s) of recorded steps."""

    def __init__(self, policy, replay, updates_per_epoch, batch_size=256):
        self.policy, self.replay, self.updates_per_epoch, self.batch_size = policy, replay, updates_per_epoch, batch_size
        self.optimizer = make_optimizer(torch.optim.Adam, module=policy, lr=1e-3)
        self._sampler = play_in(policy)

    def train(self, trainer):
        """Train; called by the trainer."""
        returns = None
        for epoch in trainer.step_epochs():
            losses = [self.update() for _ in range(self.updates_per_epoch)]
            trainer.step_itr += len(losses)
            episodes = trainer.obtain_episodes(trainer.step_itr)  # To see how well it plays.
            returns = log_performance(epoch, episodes, discount=1.0)
            logger.record_tabular("Loss", sum(losses) / len(losses))
        return None if returns is None else float(returns.mean())  # None if all epochs are done already.

    def update(self):
        """Do a step on transitions drawn from all episodes; return the loss."""
        steps = self.replay.sample_timesteps(self.batch_size).torch()
        loss = torch.nn.functional.cross_entropy(self.policy.logits(steps.observations), steps.actions.long())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def state_dict(self):
        """Return what a snapshot needs."""
        return dict(policy=self.policy.state_dict(), optimizer=self.optimizer.state_dict(), replay=self.replay.state_dict())

    def load_state_dict(self, state):
        """Go on from there."""
        self.policy.load_state_dict(state["policy"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.replay.load_state_dict(state["replay"])


def build(replay, sizes=SIZES):
    """Return the algorithm, which is trained on a buffer of episodes."""
    return BehaviourCloning(Policy(), replay, sizes["updates_per_epoch"])


def recorded_by(runner, run_dir, n_episodes):
    """Train a demonstrator, with its own log; return a buffer of episodes that it plays, which are also kept in a file."""
    with logger_context(os.path.join(run_dir, "demonstrator"), 0, name="ppo"):
        runner.train()
    replay = record(runner.agent, n_episodes)
    torch.save(replay.state_dict(), os.path.join(run_dir, "episodes.pt"))
    return replay


def build_and_train(recorded: str | None = None, run_ID: int = 0, seed: int | None = None, log_dir: str = "episodes", smoke: bool = False):
    """Train, and return the directory of the run.

    Args:
        recorded: file of episodes of an earlier run; default: train a demonstrator, and record.
    """
    seed = make_seed() if seed is None else seed
    set_seed(seed)
    sizes, runner = SIZES, demonstrator(seed)
    if smoke:
        sizes, runner = SMOKE, tiny(runner)
    config = dict(env=ENV, recorded=recorded, seed=seed)
    with logger_context(log_dir, run_ID, name="cloning_cartpole", log_params=config, snapshot_mode="last") as run_dir:
        if recorded is None:
            replay = recorded_by(runner, run_dir, sizes["n_episodes"])
        else:
            replay = new_replay()
            replay.load_state_dict(torch.load(recorded, weights_only=True))
        trainer = Trainer()  # Logs and saves where the log is open.
        trainer.setup(build(replay, sizes))
        mean_return = trainer.train(n_epochs=sizes["n_epochs"], batch_size=sizes["steps_per_epoch"])
    print(f"Mean return {mean_return:.1f}, learned from {replay.n_episodes} episodes.")
    return run_dir


if __name__ == "__main__":
    command_line(build_and_train, __doc__)
