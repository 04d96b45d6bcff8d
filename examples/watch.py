"""Loading a trained agent, and watching it play.

What it teaches, compared with example 0: what comes after training. The directory of a run is all that is needed: `rlpyt.load_policy` makes
the agent again, and returns it as a function from observations to actions, for a plain loop of Gymnasium. With `--window` you see it play
(the extra "video" has what this needs); without a screen, `rlpyt video RUN_DIR --out play.gif` films it.

    python examples/example_0.py
    python examples/watch.py data/local/.../example_0/run_0 --window
"""

import gymnasium

import rlpyt
from rlpyt.cli.scripts import command_line
from rlpyt.utils.seed import set_seed


def play(policy, env, seed=None):
    """Play one episode, and return the sum of its rewards."""
    observation, _ = env.reset(seed=seed)
    policy.reset()  # An agent with memory forgets the last episode.
    return_, done = 0.0, False
    while not done:
        observation, reward, terminated, truncated, _ = env.step(policy(observation))
        return_ += float(reward)
        done = terminated or truncated
    return return_


def watch(
    run_dir: str,
    env_id: str = "CartPole-v1",
    n_episodes: int = 5,
    seed: int = 0,
    snapshot: str = "last",
    window: bool = False,
    smoke: bool = False,
):
    """Play, and return the returns.

    Args:
        run_dir: directory of the run, run_<ID>.
        env_id: Gymnasium environment; the one that the agent was trained in.
        n_episodes: how many to play.
        seed: of environment and actions.
        snapshot: the agent of "last", "best" (of runs with snapshot_mode="best"), or a file.
        window: show the environment.
        smoke: one episode only, to see whether everything works.
    """
    set_seed(seed)  # This agent draws its actions from probabilities.
    policy = rlpyt.load_policy(run_dir, snapshot)
    env = gymnasium.make(env_id, render_mode="human" if window else None)
    returns = [play(policy, env, seed + i) for i in range(1 if smoke else n_episodes)]
    env.close()
    print(f"Returns: {', '.join(f'{return_:g}' for return_ in returns)}.")
    return returns


if __name__ == "__main__":
    command_line(watch, __doc__)
