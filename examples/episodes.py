"""Recording episodes, and training from them: PPO learns to balance a pole, plays, and another network learns to do what it did.

What it teaches, compared with example 0: whole episodes as data. A `LocalSampler` plays them, an `EpisodeReplayBuffer` keeps them, and a
file, for later. The algorithm that trains from them, behaviour cloning, has a loop of its own, around which `Trainer` logs and saves.

    python examples/episodes.py
    python examples/episodes.py --recorded data/local/.../run_0/episodes.pt
"""

import argparse
import os
from functools import partial

import torch

from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.algos.pg.ppo import PPO
from rlpyt.envs.gym import make as gym_make
from rlpyt.episodes import Trainer, log_performance, make_optimizer
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


def play_in(policy, n_envs=8):
    """Return a sampler of whole episodes, of `n_envs` environments in this process; `policy` may be an agent of rlpyt."""
    worker = dict(worker_class=VecWorker, worker_args=dict(n_envs=n_envs))
    return LocalSampler(policy, partial(gym_make, **ENV), max_episode_length=MAX_LENGTH, n_workers=1, **worker)


def demonstrator(run_dir, seed, smoke):
    """Train an agent as in example 0, with a log of its own."""
    sampler = SerialSampler(EnvCls=gym_make, env_kwargs=ENV, batch_T=32, batch_B=8)
    algo = PPO(discount=0.98, learning_rate=1e-3, gae_lambda=0.8, minibatches=1, epochs=20, ratio_clip=0.2, normalize_advantage=True)
    agent = MlpFfAgent()
    steps = dict(n_steps=512, log_interval_steps=256) if smoke else dict(n_steps=40_000, log_interval_steps=10_000)
    runner = MinibatchRl(algo=algo, agent=agent, sampler=sampler, seed=seed, affinity=dict(master_torch_threads=1), **steps)
    with logger_context(os.path.join(run_dir, "demonstrator"), 0, name="ppo"):
        runner.train()
    return agent


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


def build_and_train(recorded=None, run_ID=0, seed=None, log_dir="episodes", smoke=False):
    """Train, and return the directory of the run. `smoke` makes it tiny, to see whether everything works."""
    seed = make_seed() if seed is None else seed
    set_seed(seed)
    config = dict(env=ENV, recorded=recorded, seed=seed)
    with logger_context(log_dir, run_ID, name="cloning_cartpole", log_params=config, snapshot_mode="last") as run_dir:
        if recorded is None:
            replay = record(demonstrator(run_dir, seed, smoke), n_episodes=8 if smoke else 40)
            torch.save(replay.state_dict(), os.path.join(run_dir, "episodes.pt"))
        else:
            replay = new_replay()
            replay.load_state_dict(torch.load(recorded, weights_only=True))
        trainer = Trainer()  # Logs and saves where the log is open.
        trainer.setup(BehaviourCloning(Policy(), replay, updates_per_epoch=5 if smoke else 200))
        mean_return = trainer.train(n_epochs=2 if smoke else 10, batch_size=100 if smoke else 4000)
    print(f"Mean return {mean_return:.1f}, learned from {replay.n_episodes} episodes.")
    return run_dir


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recorded", help="file of episodes of an earlier run; default: train a demonstrator, and record", default=None)
    parser.add_argument("--run_ID", help="number of the run, part of its directory", type=int, default=0)
    parser.add_argument("--seed", help="the same seed gives the same run; default: a new one", type=int, default=None)
    parser.add_argument("--smoke", help="a tiny run, to see whether everything works", action="store_true")
    args = parser.parse_args()
    build_and_train(recorded=args.recorded, run_ID=args.run_ID, seed=args.seed, smoke=args.smoke)
