"""R2D1 on an Atari game, with sampling and training at the same time.

What it teaches: a recurrent agent samples asynchronously like any other; priorities of new sequences are computed where they are copied
into the replay buffer. `--sample_mode alternating` has it act for one half of the environments while the other half is stepped.

    python examples/atari_r2d1_async.py --game pong --sample_mode alternating
"""

import train


def build_and_train(
    game="pong", run_ID=0, cuda_idx=None, sample_cuda_idxs=(), sample_mode="gpu", n_parallel=2, seed=None, smoke=False
):
    """Train, and return the directory of the run. `smoke` makes it tiny, to see whether everything works."""
    affinity = dict(
        optimizer=[dict(cuda_idx=cuda_idx)],  # One dictionary for each process that trains; several share each update.
        sampler=[  # One dictionary for each process that acts, on its own GPU, for its own workers and its share of the environments.
            dict(cuda_idx=idx, workers_cpus=list(range(n_parallel))) for idx in sample_cuda_idxs or [None]
        ],
        set_affinity=False,  # True binds processes to the processors listed.
    )
    return train.build_and_train(
        "atari_r2d1",
        "r2d1",
        log_dir="atari_r2d1_async",
        run_ID=run_ID,
        seed=seed,
        sampler=f"async_{sample_mode}",
        settings=[f"env.game={game}"],
        affinity=affinity,
        smoke=smoke,
    )


if __name__ == "__main__":
    train.command_line(build_and_train, __doc__)
