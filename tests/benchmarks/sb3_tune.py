"""Search for good settings of Stable-Baselines3 as rl_zoo3 does, and train the best ones again; used by bench_tune.py.

    PYTHON tests/benchmarks/sb3_tune.py cartpole_ppo --seed 0 --seconds 300 --steps 100000 --trainings 3 --out found.json

PYTHON is that of an environment with Stable-Baselines3 and Optuna; rlpyt and rl_zoo3 need not be installed there. As in rl_zoo3, Optuna's
TPE sampler and median pruner begin after 10 trials, and a trial is one run, in this process. Its value is the mean return of the last
evaluation, of 5 episodes with the best action, which also scores the trained agents. A trial that meets a NaN is pruned. The ranges are
those that rl_zoo3 documents for PPO and SAC, apart from `learning_starts`: with the documented one, half of the trials would not learn in
the first half of the 20,000 steps. Each trial is evaluated `--evaluations` times, and may be pruned after a third of these.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import optuna
import stable_baselines3
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

N_STARTUP_TRIALS = 10
FAILURES = (AssertionError, ValueError)  # such as NaNs of a large learning rate
N_EVAL_EPISODES = 5
N_EPISODES = 20  # of the score after training again, as in ours
GAMMAS = [0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999]
NETS = dict(tiny=[64], small=[64, 64], medium=[256, 256], big=[400, 300])


def ppo(trial):
    """Settings of PPO in rl_zoo3's ranges."""
    settings = dict(
        batch_size=trial.suggest_categorical("batch_size", [8, 16, 32, 64, 128, 256, 512]),
        n_steps=trial.suggest_categorical("n_steps", [8, 16, 32, 64, 128, 256, 512, 1024, 2048]),
        gamma=trial.suggest_categorical("gamma", GAMMAS),
        learning_rate=trial.suggest_float("learning_rate", 1e-5, 1, log=True),
        ent_coef=trial.suggest_float("ent_coef", 1e-8, 0.1, log=True),
        clip_range=trial.suggest_categorical("clip_range", [0.1, 0.2, 0.3, 0.4]),
        n_epochs=trial.suggest_categorical("n_epochs", [1, 5, 10, 20]),
        gae_lambda=trial.suggest_categorical("gae_lambda", [0.8, 0.9, 0.92, 0.95, 0.98, 0.99, 1.0]),
        max_grad_norm=trial.suggest_categorical("max_grad_norm", [0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 2, 5]),
        vf_coef=trial.suggest_float("vf_coef", 0, 1),
    )
    net = trial.suggest_categorical("net_arch", ["tiny", "small", "medium"])
    activation = trial.suggest_categorical("activation_fn", ["tanh", "relu"])
    settings["batch_size"] = min(settings["batch_size"], settings["n_steps"])
    activation_fn = dict(tanh=torch.nn.Tanh, relu=torch.nn.ReLU)[activation]
    return dict(settings, policy_kwargs=dict(net_arch=NETS[net], activation_fn=activation_fn))


def sac(trial):
    """Settings of SAC in rl_zoo3's ranges."""
    train_freq = trial.suggest_categorical("train_freq", [1, 4, 8, 16, 32, 64, 128, 256, 512])
    return dict(
        gamma=trial.suggest_categorical("gamma", GAMMAS),
        learning_rate=trial.suggest_float("learning_rate", 1e-5, 1, log=True),
        batch_size=trial.suggest_categorical("batch_size", [16, 32, 64, 128, 256, 512, 1024, 2048]),
        buffer_size=trial.suggest_categorical("buffer_size", [10_000, 100_000, 1_000_000]),
        learning_starts=trial.suggest_categorical("learning_starts", [100, 500, 1000]),
        train_freq=train_freq,
        gradient_steps=train_freq,
        tau=trial.suggest_categorical("tau", [0.001, 0.005, 0.01, 0.02, 0.05, 0.08]),
        policy_kwargs=dict(net_arch=NETS[trial.suggest_categorical("net_arch", ["small", "medium", "big"])]),
    )


TASKS = {  # class, environment, number of environments, settings of a trial
    "cartpole_ppo": ("PPO", "CartPole-v1", 8, ppo),
    "pendulum_sac": ("SAC", "Pendulum-v1", 1, sac),
}


class Evaluations(BaseCallback):
    """Evaluates at equal distances, tells the trial, and ends training if the trial is pruned or the time is up."""

    def __init__(self, trial, env, interval, deadline):
        super().__init__()
        self.trial, self.env, self.interval, self.deadline = trial, env, interval, deadline
        self.n, self.score, self.is_pruned, self.is_late = 0, None, False, False

    def _on_step(self):
        if self.num_timesteps >= (self.n + 1) * self.interval:
            self.n += 1
            self.score, _ = evaluate_policy(self.model, self.env, N_EVAL_EPISODES, deterministic=True)
            self.trial.report(self.score, self.n)
            self.is_pruned = self.trial.should_prune()
        self.is_late = time.process_time() > self.deadline
        return not (self.is_pruned or self.is_late)


def make_model(task, settings, seed):
    algorithm, env_id, n_envs, _ = TASKS[task]
    return getattr(stable_baselines3, algorithm)("MlpPolicy", make_vec_env(env_id, n_envs, seed=seed), seed=seed, device="cpu", **settings)


def search(task, seed, seconds, steps, n_evaluations):
    """Search for so many seconds of this process; return the study."""
    deadline = time.process_time() + seconds
    sampler = optuna.samplers.TPESampler(n_startup_trials=N_STARTUP_TRIALS, seed=seed)
    pruner = optuna.pruners.MedianPruner(n_startup_trials=N_STARTUP_TRIALS, n_warmup_steps=n_evaluations // 3)
    study = optuna.create_study(sampler=sampler, pruner=pruner, direction="maximize")
    eval_env = make_vec_env(TASKS[task][1], N_EVAL_EPISODES, seed=seed + 10_000)

    def objective(trial):
        callback = Evaluations(trial, eval_env, steps / n_evaluations, deadline)
        try:
            make_model(task, TASKS[task][3](trial), seed).learn(steps, callback=callback)
        except FAILURES as error:
            raise optuna.TrialPruned from error
        if callback.is_late:
            study.stop()
        if callback.is_pruned or callback.is_late or callback.score is None:
            raise optuna.TrialPruned
        return callback.score

    study.optimize(objective)
    return study


def best_of(study):
    """The best complete trial; without one, the pruned trial with the best last evaluation; None without any."""
    states = optuna.trial.TrialState
    if study.get_trials(states=[states.COMPLETE]):
        return study.best_trial
    evaluated = [trial for trial in study.get_trials(states=[states.PRUNED]) if trial.intermediate_values]
    return max(evaluated, key=lambda trial: trial.intermediate_values[max(trial.intermediate_values)], default=None)


def trained_score(task, settings, seed, steps):
    """Mean return after training; NaN if training fails."""
    model = make_model(task, settings, seed)
    try:
        model.learn(steps)
    except FAILURES:
        return float("nan")
    score, _ = evaluate_policy(model, make_vec_env(TASKS[task][1], N_EPISODES // 2, seed=seed + 10_000), N_EPISODES, deterministic=True)
    return float(score)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=list(TASKS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=300, help="processor seconds of the search")
    parser.add_argument("--steps", type=int, default=100_000, help="environment steps of a trial")
    parser.add_argument("--evaluations", type=int, default=5, help="evaluations of a trial")
    parser.add_argument("--trainings", type=int, nargs="*", default=[], help="seeds with which the best settings are trained again")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    began = time.process_time()
    study = search(args.task, args.seed, args.seconds, args.steps, args.evaluations)
    found = dict(seconds=time.process_time() - began, trials=len(study.trials), settings=None, best=None, scores=[])
    best = best_of(study)
    if best is not None:
        last = best.intermediate_values[max(best.intermediate_values)]
        settings = TASKS[args.task][3](optuna.trial.FixedTrial(best.params))
        scores = [trained_score(args.task, settings, seed, args.steps) for seed in args.trainings]
        found.update(settings=best.params, best=float(last), scores=[score if np.isfinite(score) else None for score in scores])
    args.out.write_text(json.dumps(found))
