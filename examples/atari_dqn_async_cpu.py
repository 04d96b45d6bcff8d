"""DQN on an Atari game, with sampling, by agents in worker processes, and training at the same time.

What it teaches: the parallel samplers run asynchronously, too: a process of its own with workers of its own. It takes over the latest
parameters before each batch (ParametersVersion in the log says which).

    python examples/atari_dqn_async_cpu.py --game pong --n_parallel 2
"""

import train


def build_and_train(game="pong", run_ID=0, cuda_idx=None, n_parallel=2, seed=None, smoke=False):
    """Train, and return the directory of the run. `smoke` makes it tiny, to see whether everything works."""
    affinity = dict(
        optimizer=[dict(cuda_idx=cuda_idx)],  # One dictionary for each process that trains; several share each update.
        sampler=dict(workers_cpus=list(range(n_parallel))),  # One process samples, with so many workers.
        set_affinity=False,  # True binds processes to the processors listed.
    )
    return train.build_and_train(
        "atari_dqn",
        "double_pri_duel",
        log_dir="atari_dqn_async_cpu",
        run_ID=run_ID,
        seed=seed,
        sampler="async_cpu",
        settings=[f"env.game={game}", "sampler.batch_T=4"],
        affinity=affinity,
        smoke=smoke,
    )


if __name__ == "__main__":
    train.command_line(build_and_train, __doc__)
