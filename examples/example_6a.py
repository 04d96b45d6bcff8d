"""One run of the experiment that example_6.py launches.

What it teaches: what a script needs to be launched. It is called with three arguments, and gets its hardware from the first, its settings
from the second, where the launcher has put what is different in this variant, and its number from the third:

    python examples/example_6a.py {slot_affinity_code} {log_dir} {run_ID}
"""

import argparse

from rlpyt.agents.pg.atari import AtariFfAgent
from rlpyt.algos.pg.a2c import A2C
from rlpyt.envs.atari.atari_env import AtariEnv, AtariTrajInfo
from rlpyt.experiments.configs.atari.pg.atari_ff_a2c import configs
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.samplers.parallel.gpu.sampler import GpuSampler
from rlpyt.utils.launching.affinity import affinity_from_code
from rlpyt.utils.launching.exp_launcher import resume_from
from rlpyt.utils.launching.variant import load_variant, update_config
from rlpyt.utils.logging.context import logger_context


def build_and_train(slot_affinity_code, log_dir, run_ID, smoke=False):
    """Train, and return the directory of the run. `smoke` makes it tiny, to see whether everything works."""
    config = update_config(configs["0"], load_variant(log_dir))  # KeyError for settings that the configuration does not have.
    if smoke:
        config["runner"] = dict(n_steps=200, log_interval_steps=100)
        config["sampler"].update(batch_B=4, max_decorrelation_steps=10)
    runner = MinibatchRl(
        algo=A2C(optim_kwargs=config["optim"], **config["algo"]),
        agent=AtariFfAgent(model_kwargs=config["model"], **config["agent"]),
        sampler=GpuSampler(EnvCls=AtariEnv, env_kwargs=config["env"], TrajInfoCls=AtariTrajInfo, **config["sampler"]),
        affinity=affinity_from_code(slot_affinity_code),
        seed=run_ID,
        resume_from=resume_from(),  # The directory of this run if it was interrupted, else None.
        **config["runner"],
    )
    with logger_context(log_dir, run_ID, name=f"a2c_{config['env']['game']}", log_params=config) as run_dir:
        runner.train()
    return run_dir


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("slot_affinity_code", help="hardware, with the run slot, e.g. 0slt_2cpu_1cpr")
    parser.add_argument("log_dir", help="directory of the setting, with variant_config.json")
    parser.add_argument("run_ID", help="number of the run, also its seed", type=int)
    parser.add_argument("--smoke", help="a tiny run, to see whether everything works", action="store_true")
    build_and_train(**vars(parser.parse_args()))
