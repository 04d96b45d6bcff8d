"""DQN on an Atari game, with one process that samples beside one that trains.

What it teaches: an asynchronous run. Sampling goes on while the agent is trained, which helps where both take their time: `replay_ratio`
is an upper bound now, for which the training waits if it is faster, and the log says how much of its time it trained (OptThrottle). Only
sampler and runner are other ones than in example 1.

    python examples/atari_dqn_async_serial.py --game pong --n_parallel 2
"""

import train


def build_and_train(game="pong", run_ID=0, cuda_idx=None, seed=None, smoke=False):
    """Train, and return the directory of the run. `smoke` makes it tiny, to see whether everything works."""
    affinity = dict(
        optimizer=[dict(cuda_idx=cuda_idx)],  # One dictionary for each process that trains; several share each update.
        sampler=dict(),  # One process samples.
        set_affinity=False,  # True binds processes to the processors listed.
    )
    return train.build_and_train(
        "atari_dqn",
        "double_pri_duel",
        log_dir="atari_dqn_async_serial",
        run_ID=run_ID,
        seed=seed,
        sampler="async_serial",
        settings=[f"env.game={game}", "sampler.batch_T=8", "sampler.batch_B=2"],
        affinity=affinity,
        smoke=smoke,
    )


if __name__ == "__main__":
    train.command_line(build_and_train, __doc__)
