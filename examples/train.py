"""Train any configuration of rlpyt.experiments.configs.

What it teaches: experiments as data. A configuration names the classes of a run and their settings; this script puts them together.

    python examples/train.py atari_ff_ppo pong_2M --n_parallel 2
    python examples/train.py mujoco_sac sac_1M_serial --set env.id=HalfCheetah-v5 algo.learning_rate=1e-3
    python examples/train.py atari_ff_ppo pong_2M --set accelerate.bf16=True

As a run of an experiment (see launch.py), it is told its hardware, directory and number, and finds what is different in this run there:

    python examples/train.py {slot_affinity_code} {log_dir} {run_ID} {config_key}
"""

import argparse

from rlpyt.experiments.build import SAMPLERS, build, load_class, read_value
from rlpyt.experiments.configs import classes_of, load, look_up, variant
from rlpyt.runners.minibatch_rl import MinibatchRlBase
from rlpyt.utils.launching.affinity import affinity_from_code
from rlpyt.utils.launching.exp_launcher import resume_from
from rlpyt.utils.launching.variant import load_variant
from rlpyt.utils.logging.context import logger_context
from rlpyt.utils.quick_args import arguments_of

OPTIONAL_CLASSES = ("traj_info", "optim", "replay_buffer", "collector", "alternating_agent")
SMOKE = dict(  # No setting is larger than this in a tiny run.
    algo=dict(batch_T=8, warmup_T=4, store_rnn_state_interval=4, epochs=2, minibatches=4, min_steps_learn=128, replay_size=2048),
    runner=dict(n_steps=512, log_interval_steps=256),
    sampler=dict(batch_T=32, batch_B=4, max_decorrelation_steps=10, eval_n_envs=2, eval_max_steps=100),
)


def build_and_train(
    module,
    key,
    log_dir=None,
    run_ID=0,
    seed=0,
    cuda_idx=None,
    n_parallel=2,
    sampler=None,
    settings=(),
    affinity=None,
    smoke=False,
    sections=None,
    resume_from=None,
):
    """Train, and return the directory of the run. `smoke` makes it tiny, to see whether everything works.

    `affinity` goes to the runner; if it is None, it is made from `cuda_idx` and `n_parallel`.
    `sections` are settings to change, by section; besides those of the configuration, "classes" has import paths, or names of samplers.
    `resume_from` is the directory of a run to go on with.
    ValueError, before anything starts, for names that do not exist.
    """
    config_module = load(module)
    config = config_module.configs[look_up(key, config_module.configs, f"configuration in {module}")]
    paths = classes_of(config_module, key)
    sections = dict(sections or {})
    for part, path in sections.pop("classes", {}).items():
        paths[look_up(part, [*paths, *OPTIONAL_CLASSES], "part of a run named")] = path
    if sampler is not None:
        paths["sampler"] = sampler
    paths["sampler"] = SAMPLERS.get(paths["sampler"], paths["sampler"])
    config = {"accelerate": {}, **config}
    config = variant(config, **sections)
    config = variant(config, **changes(config, settings))
    if smoke:
        config = limited(config, dict(algo=load_class(paths["algo"]), runner=MinibatchRlBase, sampler=load_class(paths["sampler"])))
    if affinity is None:
        affinity = dict(cuda_idx=cuda_idx, workers_cpus=list(range(n_parallel)), set_affinity=False)
    runner = build(config, paths, affinity, seed)
    runner.resume_from = resume_from
    log_dir = f"{module}_{key}" if log_dir is None else log_dir
    params = dict(config, classes=paths, seed=seed, affinity=affinity)  # All it takes to build the run again: rlpyt resume, rlpyt eval.
    with logger_context(log_dir, run_ID, name=f"{module}_{key}", log_params=params) as run_dir:
        runner.train()
    return run_dir


def build_and_train_in_slot(slot_affinity_code, log_dir, run_ID, config_key, **settings):
    """Train as a run of an experiment: `config_key` is module:key, the variant is in `log_dir`, and `run_ID` is the seed as well."""
    module, colon, key = config_key.partition(":")
    if not colon:
        raise ValueError(f"config_key={config_key!r} must be a configuration module and a key in it, e.g. cartpole:ppo.")
    return build_and_train(
        module,
        key,
        log_dir,
        int(run_ID),
        seed=int(run_ID),
        affinity=affinity_from_code(slot_affinity_code),
        sections=load_variant(log_dir),
        resume_from=resume_from(),
        **settings,
    )


def command_line(build_and_train, description):
    """Call a function with what the command line says; its options are the function's arguments."""
    helps = dict(
        game="Atari game",
        run_ID="number of the run, part of its directory",
        cuda_idx="GPU that trains; default: none",
        sample_cuda_idxs="GPUs that act, each with a process and workers of its own; default: none, one process",
        sample_mode="gpu, or alternating: two groups of workers in turn",
        n_parallel="worker processes of each sampling process",
        seed="the same seed gives the same environments and first parameters; default: a new one",
    )
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, argument in arguments_of(build_and_train).items():
        if name == "smoke":
            parser.add_argument("--smoke", help="a tiny run, to see whether everything works", action="store_true")
        elif name in helps:
            kind = dict(nargs="*", type=int) if name.endswith("s") else dict(type=str if isinstance(argument.default, str) else int)
            parser.add_argument(f"--{name}", help=helps[name], default=argument.default, **kind)
    build_and_train(**vars(parser.parse_args()))


def changes(config, settings):
    """Read settings such as "algo.learning_rate=1e-3" into sections; ValueError if they are not of that form, or the section is none."""
    sections = {}
    for setting in settings:
        name, is_, text = setting.partition("=")
        section, dot, name = name.partition(".")
        if not (is_ and dot):
            raise ValueError(f"--set {setting} must be of the form section.name=value, e.g. algo.learning_rate=1e-3.")
        sections.setdefault(look_up(section, config, "section"), {})[name] = read_value(text)
    return sections


def limited(config, classes):
    """The configuration with no setting above SMOKE, also where it is a default of the section's class."""
    sections = {}
    for section, limits in SMOKE.items():
        defaults = {name: a.default for name, a in arguments_of(classes[section]).items() if a.default is not a.empty}
        values = {**defaults, **config[section]}
        sections[section] = {name: min(values[name], limit) for name, limit in limits.items() if values.get(name)}
    return variant(config, **sections)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "names",
        help="configuration module and key, e.g. cartpole ppo; or slot_affinity_code, log_dir, run_ID and config_key, module:key",
        nargs="+",
    )
    single = parser.add_argument_group("only with module and key")
    single.add_argument("--log_dir", help="directory of the experiment; default: made from module and key", default=None)
    single.add_argument("--run_ID", help="number of the run, part of its directory", type=int, default=0)
    single.add_argument("--seed", help="the same seed gives the same run", type=int, default=0)
    single.add_argument("--cuda_idx", help="GPU to use; default: none", type=int, default=None)
    single.add_argument("--n_parallel", help="worker processes of parallel samplers, in each group", type=int, default=2)
    parser.add_argument("--sampler", help="instead of the configuration's", choices=list(SAMPLERS), default=None)
    parser.add_argument("--set", help="settings to change: section.name=value", nargs="+", default=[], dest="settings")
    parser.add_argument("--smoke", help="a tiny run, to see whether everything works", action="store_true")
    args = vars(parser.parse_args())
    names = args.pop("names")
    if len(names) == 2:
        build_and_train(*names, **args)
    elif len(names) == 4:
        build_and_train_in_slot(*names, **{name: args[name] for name in ("sampler", "settings", "smoke")})
    else:
        parser.error(f"give module and key, or slot_affinity_code, log_dir, run_ID and config_key, not {' '.join(names)}")
