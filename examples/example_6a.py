"""One run of the experiment that example_6.py launches.

What it teaches: what a script needs to be launched. It is called with three arguments, and gets its hardware from the first, its settings
from the second, where the launcher has put what is different in this variant, and its number from the third:

    python examples/example_6a.py {slot_affinity_code} {log_dir} {run_ID}
"""

from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.algos.pg.ppo import PPO
from rlpyt.cli.scripts import command_line
from rlpyt.envs.gym import make as gym_make
from rlpyt.experiments.configs.classic.cartpole import configs
from rlpyt.experiments.smoke import tiny
from rlpyt.runners.minibatch_rl import MinibatchRlEval
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.utils.launching.affinity import affinity_from_code
from rlpyt.utils.launching.exp_launcher import resume_from
from rlpyt.utils.launching.variant import load_variant, update_config
from rlpyt.utils.logging.context import logger_context


def build(slot_affinity_code: str, config: dict, seed: int):
    """Return the runner for a configuration."""
    return MinibatchRlEval(
        algo=PPO(optim_kwargs=config["optim"], **config["algo"]),
        agent=MlpFfAgent(model_kwargs=config["model"], **config["agent"]),
        sampler=CpuSampler(EnvCls=gym_make, env_kwargs=config["env"], **config["sampler"]),
        affinity=affinity_from_code(slot_affinity_code),
        seed=seed,
        resume_from=resume_from(),  # The directory of this run if it was interrupted, else None.
        **config["runner"],
    )


def build_and_train(slot_affinity_code: str, log_dir: str, run_ID: int, smoke: bool = False):
    """Train, and return the directory of the run.

    Args:
        slot_affinity_code: hardware, with the run slot, e.g. 0slt_2cpu_1cpr.
        log_dir: directory of the setting, with variant_config.json.
        run_ID: number of the run, also its seed.
    """
    config = update_config(configs["ppo"], load_variant(log_dir))  # KeyError for settings that the configuration does not have.
    runner = build(slot_affinity_code, config, seed=run_ID)
    if smoke:
        runner = tiny(runner)
    with logger_context(log_dir, run_ID, name=f"ppo_{config['env']['id']}", log_params=config) as run_dir:
        runner.train()
    return run_dir


if __name__ == "__main__":
    command_line(build_and_train, __doc__)
