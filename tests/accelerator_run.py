"""Does a tiny run on the pretended accelerator, on a real one, or on the CPU, and writes what came out.

    python accelerator_run.py OUT '{"config": "cartpole:ppo", "sampler": "gpu", "device": 0}'

The description has: ``config``, a configuration of `rlpyt.experiments.configs`; ``sampler``, a name in `rlpyt.experiments.build.SAMPLERS`;
``device``, 0 or None for the CPU; and perhaps ``real``, for an accelerator that torch finds, ``ranks`` of `SyncRl`, ``graphs``,
``serve_fraction`` of the sampler, and changes of the configuration, such as ``runner={"n_steps": 640}``. OUT becomes a file for
`torch.load`: the agent's parameters by their names, ``updates``, ``batch_T``, and what `accelerator.Counts` counted in each update, each
iteration of the algorithm, and each batch of the sampler. A process does one run, since autograd cannot be used before and after a fork.
"""

import contextlib
import functools
import glob
import json
import os
import sys
import tempfile

import torch

torch.set_num_threads(1)


def main(out, config, sampler, device=None, real=False, ranks=0, graphs=False, serve_fraction=None, **changes):
    is_pretended = device is not None and not real
    if is_pretended:
        import accelerator
    import golden

    from rlpyt.experiments.build import build
    from rlpyt.utils.logging.context import logger_context

    run = golden.Run(*config.split(":"), sampler)
    affinity = dict(run.affinity, cuda_idx=device)
    if ranks:
        affinity = [affinity] * ranks
    elif sampler.startswith("async_"):
        affinity = dict(optimizer=[dict(cuda_idx=device, set_affinity=False, torch_threads=1)], sampler=affinity, set_affinity=False)
    counts = []
    with accelerator.pretended() if is_pretended else contextlib.nullcontext():
        settings, classes = golden.settings_of(run)
        settings = {**settings, **{part: {**settings[part], **change} for part, change in changes.items()}}
        if serve_fraction is not None:
            settings["sampler"] = {**settings["sampler"], "serve_fraction": serve_fraction}
        built = build(settings, classes, affinity, golden.SEED)
        if graphs:
            built.algo.accelerate(cuda_graphs=True)
        if is_pretended and not ranks and not sampler.startswith("async_"):
            count_calls(accelerator, counts, built.algo, "_update", "optimize_agent")
            count_calls(accelerator, counts, built.sampler, "obtain_samples")
        with tempfile.TemporaryDirectory() as directory, logger_context(directory, 0, "run", log_params={}, snapshot_mode="last"):
            built.train()
            (path,) = glob.glob(os.path.join(directory, "**", "params.pkl"), recursive=True)
            snapshot = torch.load(path, weights_only=False)
    parameters = {name: x for name, x in golden.leaves(snapshot["agent_state_dict"]) if isinstance(x, torch.Tensor)}
    assert all(type(x) is torch.Tensor and x.device.type == "cpu" for x in parameters.values())
    torch.save(
        dict(
            parameters=parameters,
            updates=snapshot.get("cum_updates", built.algo.update_counter),
            batch_T=built.sampler.batch_spec.T,
            counts=counts,
        ),
        out,
    )


def count_calls(accelerator, counts, owner, *names):
    """Add what is counted in each call of methods of `owner` to `counts`, as dictionaries."""

    def counting(name, func):
        @functools.wraps(func)  # Ours to those who ask, so that nothing is done in another way.
        def counted(*args, **kwargs):
            with accelerator.counted() as found:
                result = func(*args, **kwargs)
            counts.append(dict(what=name.strip("_"), **{what: dict(counter) for what, counter in vars(found).items()}))
            return result

        return counted

    for name in names:
        setattr(owner, name, counting(name, getattr(owner, name)))


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    main(sys.argv[1], **json.loads(sys.argv[2]))
