"""Trains a configuration of `rlpyt.experiments.configs`, with changes; used by ``rlpyt train`` and examples/train.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlpyt.experiments.build import SAMPLERS, build, check_parts, load_class, read_value
from rlpyt.experiments.configs import classes_of, load, look_up, variant
from rlpyt.experiments.smoke import limited
from rlpyt.runners.minibatch_rl import MinibatchRlBase
from rlpyt.utils.launching.affinity import affinity_from_code
from rlpyt.utils.launching.exp_launcher import resume_from
from rlpyt.utils.launching.variant import load_variant
from rlpyt.utils.logging.context import has_earlier_run, logger_context

OPTIONAL_CLASSES = ("traj_info", "optim", "replay_buffer", "collector", "alternating_agent")


def build_and_train(
    module: str,
    key: str,
    log_dir: Any = None,
    run_ID: int | str = 0,
    seed: int | None = 0,
    cuda_idx: int | None = None,
    n_parallel: int = 2,
    sampler: str | None = None,
    settings: Sequence[str] = (),
    affinity: Any = None,
    smoke: bool = False,
    sections: Mapping[str, Mapping] | None = None,
    resume_from: Any = None,
) -> str:
    """Train a configuration, and return the directory of the run.

    Args:
        module: last part of a configuration module's name, such as "cartpole".
        key: key of a configuration in the module, such as "ppo".
        log_dir: directory of the experiment, see `rlpyt.utils.logging.context.logger_context`; default "<module>_<key>".
        run_ID: number of the run, part of its directory.
        seed: seed of the run; None draws one.
        cuda_idx: index of the GPU that trains; None for the CPU.
        n_parallel: worker processes of parallel samplers, in each group.
        sampler: name in `rlpyt.experiments.build.SAMPLERS`, or import path; None takes the configuration's.
        settings: changes such as "algo.learning_rate=1e-3". Those of the section affinity win over `affinity`, `cuda_idx`, `n_parallel`.
        affinity: affinity of the runner; None makes it from `cuda_idx` and `n_parallel`.
        smoke: make the run tiny, to see whether everything works.
        sections: changes by section; the section "classes" has import paths, or names of samplers.
        resume_from: directory of a run to resume.

    Raises:
        ValueError: a name does not exist, or an environment, the model or the optimizer cannot be made; raised before anything starts, and
            before files of an earlier run in the directory are moved aside. Without `settings`, `sections` and such files, an environment
            that cannot be made raises its own error, once the run has started.
    """
    config, paths = configuration(module, key, sampler, settings, sections, smoke)
    if affinity is None:
        affinity = dict(cuda_idx=cuda_idx, workers_cpus=list(range(n_parallel)), set_affinity=False)
    runner = build(config, paths, with_settings(affinity, config, settings, sections), seed)
    runner.resume_from = resume_from
    log_dir = f"{module}_{key}" if log_dir is None else log_dir
    if settings or sections or has_earlier_run(log_dir, run_ID):  # Others need no check, which may take a second.
        check_parts(runner, config)
    params = dict(config, configuration=f"{module}:{key}", seed=seed)
    with logger_context(log_dir, run_ID, name=f"{module}_{key}", log_params=params) as run_dir:
        runner.train()
    return run_dir


def build_runner(
    module: str, key: str, affinity: Any, seed: int | None = 0, sampler: str | None = None, settings: Sequence[str] = ()
) -> MinibatchRlBase:
    """Return the runner of a configuration, not started yet; arguments and errors are those of `build_and_train`."""
    config, paths = configuration(module, key, sampler, settings)
    return build(config, paths, with_settings(affinity, config, settings), seed)


def configuration(
    module: str,
    key: str,
    sampler: str | None = None,
    settings: Sequence[str] = (),
    sections: Mapping[str, Mapping] | None = None,
    smoke: bool = False,
) -> tuple[dict[str, dict], dict[str, str]]:
    """Return a configuration with changes, and the import paths of its classes; arguments and errors are those of `build_and_train`."""
    config_module = load(module)
    config = config_module.configs[look_up(key, config_module.configs, "configuration", f"{module} has")]
    paths = classes_of(config_module, key)
    sections = dict(sections or {})
    for part, path in sections.pop("classes", {}).items():
        paths[look_up(part, [*paths, *OPTIONAL_CLASSES], "part of a run named")] = path
    if sampler is not None:
        paths["sampler"] = sampler
    if "." not in paths["sampler"]:
        paths["sampler"] = SAMPLERS[look_up(paths["sampler"], SAMPLERS, "sampler named")]
    config = {"accelerate": {}, "affinity": {}, "eval_env": {}, **config}  # Sections that may be set, though the configuration has none.
    config = variant(config, **sections)
    changed = changes(config, settings)
    config = variant(config, **changed)
    game = config["env"].get("game")
    for section in (sections.get("eval_env") or {}, changed.get("eval_env", {})):
        if section.get("game", game) != game:
            raise ValueError(f"eval_env.game={section['game']!r} cannot be set: env.game={game!r} determines it.")
    if "resume_from" in config["runner"]:
        raise ValueError("runner.resume_from cannot be set: rlpyt resume DIR continues a run, with the settings in its params.json.")
    if smoke:
        config = limited(config, dict(algo=load_class(paths["algo"]), runner=MinibatchRlBase, sampler=load_class(paths["sampler"])))
    return config, paths


def with_settings(affinity: Any, config: Mapping[str, Any], settings: Sequence[str], sections: Mapping[str, Mapping] | None = None) -> Any:
    """Return an affinity, or a list of one per process, with the entries that `sections`, and "affinity.name=value" of `settings`, set.

    Raises:
        ValueError: the affinity is "auto", or that of an asynchronous run, whose processes have different ones; or runner.affinity is set
            to something else than a dictionary.
    """
    both = [sections or {}, changes(config, settings)]
    parts = [("runner.affinity", (changed.get("runner") or {}).get("affinity")) for changed in both]
    parts += [("affinity", changed.get("affinity")) for changed in both]
    given: dict[str, Any] = {}
    for name, part in parts:
        if not isinstance(part, (Mapping, type(None))):
            raise ValueError(f"{name}={part!r} must be a dictionary. Set its entries, e.g. affinity.master_torch_threads=1.")
        given.update(part or {})
    if not given or affinity is None:  # `build` has the settings already.
        return affinity
    if isinstance(affinity, list):
        return [with_settings(each, config, settings, sections) for each in affinity]
    if isinstance(affinity, str) or "optimizer" in affinity:
        which = "'auto'" if isinstance(affinity, str) else "that of an asynchronous run, with an optimizer and samplers"
        raise ValueError(f"affinity.{next(iter(given))} cannot be set: the affinity is {which}. Change it where it is made.")
    return {**affinity, **given}


def build_and_train_in_slot(slot_affinity_code: str, log_dir: Any, run_ID: int | str, config_key: str, **settings: Any) -> str:
    """Train one run of an experiment, with the changes in `log_dir`, and `run_ID` as its seed; `config_key` is "module:key"."""
    module, key = split_key(config_key)
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


def split_key(config_key: str) -> tuple[str, str]:
    """Return module and key of "module:key"; ValueError if it has another form."""
    module, colon, key = config_key.partition(":")
    if not colon:
        raise ValueError(f"config_key={config_key!r} must be a configuration module and a key in it, e.g. cartpole:ppo.")
    return module, key


def changes(config: Mapping[str, Any], settings: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Read settings such as "algo.learning_rate=1e-3" into sections; ValueError for another form, or a section that does not exist.

    "agent.q_model_kwargs.dropout=0.1" is an entry of a setting that is a dictionary.
    """
    sections: dict[str, dict[str, Any]] = {}
    for setting in settings:
        name, is_, text = setting.partition("=")
        section, dot, name = name.partition(".")
        if not (is_ and dot):
            owners = [each for each, values in config.items() if is_ and section in values]  # Without a dot, `section` is the name.
            hint = f" Did you mean {owners[0]}.{setting}?" if len(owners) == 1 else ""
            raise ValueError(f"--set {setting} must be of the form section.name=value, e.g. algo.learning_rate=1e-3.{hint}")
        put(sections.setdefault(look_up(section, config, "section"), {}), name, read_value(text))
    return sections


def put(section: dict[str, Any], name: str, value: Any) -> None:
    """Assign a setting; a name with dots is an entry of a dictionary, at any depth."""
    *outer, last = name.split(".")
    for key in outer:
        section[key] = section[key] if isinstance(section.get(key), dict) else {}
        section = section[key]
    section[last] = value
