"""Settings of other frameworks by their names there, for the error about an unknown setting."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rlpyt.utils.misc import did_you_mean


class Ours(NamedTuple):
    """The setting here that corresponds to one of another framework.

    Attributes:
        name: its name here.
        of: the object that has it.
        note: a further difference.
        or_else: what corresponds to it in objects without a setting `name`.
    """

    name: str
    of: str
    note: str = ""
    or_else: Ours | None = None


_ALGO, _SAMPLER, _AGENT, _RUNNER = "the algorithm", "the sampler", "the agent", "the runner"
_TOLD_BY = {_ALGO: "learning_rate", _SAMPLER: "EnvCls", _AGENT: "ModelCls", _RUNNER: "algo"}  # A setting that only this kind of object has.
_MINIBATCHES = Ours("minibatches", _ALGO, "their number instead of their size", Ours("batch_B", _ALGO, "the number of sequences"))
_REPLAY_RATIO = Ours("replay_ratio", _ALGO, "samples replayed per sample taken")
_WORKERS = Ours("workers_cpus", f"the affinity of {_RUNNER}", "an entry for each worker process")
NAMES_ELSEWHERE = {  # Names in Stable-Baselines3 and CleanRL; at the end, those of RLlib and Tianshou that differ.
    "lr": Ours("learning_rate", _ALGO),
    "policy_lr": Ours("learning_rate", _ALGO),
    "q_lr": Ours("q_learning_rate", _ALGO, or_else=Ours("learning_rate", _ALGO)),
    "anneal_lr": Ours("linear_lr_schedule", _ALGO),
    "gamma": Ours("discount", _ALGO),
    "n_epochs": Ours("epochs", _ALGO),
    "update_epochs": Ours("epochs", _ALGO),
    "num_minibatches": Ours("minibatches", _ALGO),
    "minibatch_size": _MINIBATCHES,
    "batch_size": _MINIBATCHES,
    "clip_range": Ours("ratio_clip", _ALGO),
    "clip_coef": Ours("ratio_clip", _ALGO),
    "ent_coef": Ours("entropy_loss_coeff", _ALGO, or_else=Ours("fixed_alpha", _ALGO)),
    "alpha": Ours("fixed_alpha", _ALGO),
    "autotune": Ours("fixed_alpha", _ALGO, "None to tune it"),
    "clip_range_vf": Ours("clip_value_loss", _ALGO, "by ratio_clip"),
    "clip_vloss": Ours("clip_value_loss", _ALGO),
    "norm_reward": Ours("normalize_reward", _ALGO),
    "vf_coef": Ours("value_loss_coeff", _ALGO),
    "max_grad_norm": Ours("clip_grad_norm", _ALGO),
    "norm_adv": Ours("normalize_advantage", _ALGO),
    "buffer_size": Ours("replay_size", _ALGO),
    "learning_starts": Ours("min_steps_learn", _ALGO),
    "gradient_steps": _REPLAY_RATIO,
    "train_freq": _REPLAY_RATIO,
    "train_frequency": _REPLAY_RATIO,
    "tau": Ours("target_update_tau", _ALGO),
    "target_network_frequency": Ours("target_update_interval", _ALGO, "in gradient updates"),
    "policy_delay": Ours("policy_update_interval", _ALGO),
    "policy_frequency": Ours("policy_update_interval", _ALGO),
    "replay_buffer_class": Ours("ReplayBufferCls", _ALGO),
    "exploration_fraction": Ours("eps_steps", _ALGO, "in environment steps"),
    "exploration_initial_eps": Ours("eps_init", _AGENT),
    "start_e": Ours("eps_init", _AGENT),
    "exploration_final_eps": Ours("eps_final", _AGENT),
    "end_e": Ours("eps_final", _AGENT),
    "action_noise": Ours("action_std", _AGENT),
    "exploration_noise": Ours("action_std", _AGENT),
    "target_policy_noise": Ours("target_noise_std", _AGENT),
    "policy_noise": Ours("target_noise_std", _AGENT),
    "noise_clip": Ours("target_noise_clip", _AGENT),
    "policy": Ours("agent", _RUNNER),
    "policy_kwargs": Ours("model_kwargs", _AGENT),
    "net_arch": Ours("hidden_sizes", f"model_kwargs of {_AGENT}"),
    "env": Ours("EnvCls", _SAMPLER, "a class or function, to be called with env_kwargs"),
    "env_id": Ours("env_kwargs", _SAMPLER, "dict(id=...), with rlpyt.envs.gym.make as EnvCls"),
    "n_envs": Ours("batch_B", _SAMPLER),
    "num_envs": Ours("batch_B", _SAMPLER),
    "n_steps": Ours("batch_T", _SAMPLER, or_else=Ours("n_step_return", _ALGO)),
    "num_steps": Ours("batch_T", _SAMPLER),
    "n_eval_episodes": Ours("eval_max_trajectories", _SAMPLER),
    "eval_freq": Ours("log_interval_steps", f"{_RUNNER}, which evaluates if it is called ...Eval"),
    "total_timesteps": Ours("n_steps", _RUNNER),
    "log_interval": Ours("log_interval_steps", _RUNNER, "in environment steps"),
    "seed": Ours("seed", _RUNNER),
    "cuda": Ours("cuda_idx", f"the affinity of {_RUNNER}"),
    "device": Ours("cuda_idx", f"the affinity of {_RUNNER}"),
    "n_workers": _WORKERS,
    "num_workers": _WORKERS,
    "tensorboard_log": Ours("use_summary_writer", "logger_context"),
    "discount_factor": Ours("discount", _ALGO),
    "lambda_": Ours("gae_lambda", _ALGO),
    "num_epochs": Ours("epochs", _ALGO),
    "repeat_per_collect": Ours("epochs", _ALGO),
    "clip_param": Ours("ratio_clip", _ALGO),
    "eps_clip": Ours("ratio_clip", _ALGO),
    "entropy_coeff": Ours("entropy_loss_coeff", _ALGO),
    "vf_loss_coeff": Ours("value_loss_coeff", _ALGO, "which multiplies half of the squared error"),
    "advantage_normalization": Ours("normalize_advantage", _ALGO),
    "kl_target": Ours("target_kl", _ALGO),
    "grad_clip": Ours("clip_grad_norm", _ALGO),
    "num_steps_sampled_before_learning_starts": Ours("min_steps_learn", _ALGO),
    "training_intensity": _REPLAY_RATIO,
    "update_per_step": _REPLAY_RATIO,
    "target_network_update_freq": Ours("target_update_interval", _ALGO, "in gradient updates"),
    "target_update_freq": Ours("target_update_interval", _ALGO, "in gradient updates"),
    "n_step": Ours("n_step_return", _ALGO),
    "estimation_step": Ours("n_step_return", _ALGO),
    "double_q": Ours("double_dqn", _ALGO),
    "is_double": Ours("double_dqn", _ALGO),
    "env_config": Ours("env_kwargs", _SAMPLER),
    "num_env_runners": _WORKERS,
    "num_envs_per_env_runner": Ours("batch_B", _SAMPLER, "of all workers together"),
    "rollout_fragment_length": Ours("batch_T", _SAMPLER),
    "step_per_collect": Ours("batch_T", _SAMPLER, "of each environment"),
    "fcnet_hiddens": Ours("hidden_sizes", f"model_kwargs of {_AGENT}"),
    "evaluation_duration": Ours("eval_max_trajectories", _SAMPLER),
    "episode_per_test": Ours("eval_max_trajectories", _SAMPLER),
    "callbacks": Ours("hooks", _RUNNER),
}
_CRITICS = "q_model_kwargs of an agent with an ensemble of critics"
OWNERS = {  # The object that has the setting of each name.
    **{ours.name: ours.of for ours in NAMES_ELSEWHERE.values()},
    **dict.fromkeys(("n_critics", "n_quantiles", "target_networks", "action_squash", "pretrain_std"), _AGENT),
    **dict.fromkeys(("n_target_critics", "n_dropped_quantiles", "policy_value", "target_entropy"), _ALGO),
    **dict.fromkeys(("prioritized_replay", "munchausen", "warmup_T", "bootstrap_timelimit"), _ALGO),
    **dict.fromkeys(("dueling", "noisy"), "model_kwargs of a DQN agent"),
    "rnn": "the models of a recurrent agent, which get it by model_kwargs",
    **dict.fromkeys(("dropout", "layer_norm"), _CRITICS),
    "batch_renorm": f"model_kwargs and {_CRITICS}",
}


def which_setting(name: str, names: Iterable[str], anywhere: bool = True) -> str:
    """Return the last sentence of the error about an unknown setting: its name here, the object that has it, or similar names.

    Args:
        name: the unknown setting.
        names: the known settings.
        anywhere: `name` may also be a setting of another object.
    """
    names, ours = list(names), NAMES_ELSEWHERE.get(name)
    asked = next((of for of, setting in _TOLD_BY.items() if setting in names), "")  # The kind of object that has no such setting.
    counterparts = [each for each in (ours, ours.or_else) if each is not None] if ours is not None else []
    for each in counterparts:
        if each.name in names and each.of.startswith(asked):
            return _sentence(f"Here it is called {each.name!r}", each.note)
    if not anywhere:
        return did_you_mean(name, names)
    for each in counterparts:
        if not _is_of(each.of, asked):
            return _sentence(f"Here that is {each.name!r} of {each.of}", each.note)
    if counterparts:
        return f"{_others(asked)} have {counterparts[0].name!r} for it."
    if name in OWNERS:
        return f"{_others(asked)} have it." if _is_of(OWNERS[name], asked) else f"It belongs to {OWNERS[name]}."
    return did_you_mean(name, names)


def _is_of(owner: str, asked: str) -> bool:
    """Return whether an owner is the kind of object that was asked; False if that kind is unknown."""
    return bool(asked) and owner.startswith(asked)


def _others(asked: str) -> str:
    return f"Other {asked.removeprefix('the ')}s"


def _sentence(what: str, note: str) -> str:
    return f"{what}, {note}." if note else f"{what}."
