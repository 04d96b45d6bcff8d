"""Slow and obvious versions of what the package does fast: one step, one environment, one number at a time."""

from __future__ import annotations

import numpy as np


# ------------------------------------------------------------------------------------------------------------------
# Returns: one environment, arrays [T]
# ------------------------------------------------------------------------------------------------------------------
def td_return(reward, done, bootstrap_value, discount, timeout=None, timeout_value=None):
    """Discounted returns: every step adds up its own future."""
    T = len(reward)
    returns = np.zeros(T)
    for t in range(T):
        factor = 1.0
        for s in range(t, T):
            returns[t] += factor * reward[s]
            factor *= discount
            if done[s]:
                if timeout is not None and timeout[s]:
                    returns[t] += factor * timeout_value[s]
                break
        else:
            returns[t] += factor * bootstrap_value
    return returns


def gae(reward, value, done, bootstrap_value, discount, gae_lambda, timeout=None, timeout_value=None):
    """Advantages: every step adds up the TD errors to come in its episode."""
    T = len(reward)
    td_error = np.zeros(T)
    for t in range(T):
        next_value = bootstrap_value if t == T - 1 else value[t + 1]
        if done[t]:
            next_value = timeout_value[t] if timeout is not None and timeout[t] else 0.0
        td_error[t] = reward[t] + discount * next_value - value[t]
    advantage = np.zeros(T)
    for t in range(T):
        factor = 1.0
        for s in range(t, T):
            advantage[t] += factor * td_error[s]
            factor *= discount * gae_lambda
            if done[s]:
                break
    return advantage


def n_step_return(reward, done, t, n, discount):
    """Return of the n steps from t on, and whether the episode ended in them."""
    total = 0.0
    for k in range(n):
        if t + k >= len(reward):
            return total, False
        total += discount**k * reward[t + k]
        if done[t + k]:
            return total, True
    return total, False


def valid_until_done(done):
    """1 for every step that no done comes before."""
    return np.array([0.0 if any(done[:t]) else 1.0 for t in range(len(done))])


def columns(function, *arrays, **kwargs):
    """Apply a function of arrays [T] to each environment of arrays [T,B]; numbers and None go to all of them."""
    B = next(a.shape[1] for a in arrays if isinstance(a, np.ndarray))

    def column(x, b):
        return x[..., b] if isinstance(x, np.ndarray) else x

    results = [function(*(column(a, b) for a in arrays), **{k: column(x, b) for k, x in kwargs.items()}) for b in range(B)]
    return np.stack(results, axis=-1)


# ------------------------------------------------------------------------------------------------------------------
# Replay: everything that ever happened, in lists
# ------------------------------------------------------------------------------------------------------------------
class Step:
    """One step of one environment, and the observation that followed it if that was lost to a reset."""

    def __init__(self, observation, action, reward, done, timeout, final_observation):
        self.observation, self.action, self.reward = observation, action, reward
        self.done, self.timeout, self.final_observation = done, timeout, final_observation


class NaiveReplay:
    """Remembers all steps of all environments and works out any transition from them."""

    def __init__(self, T, B, discount, n_step, forward=1, null_action=0):
        self.T, self.B, self.discount, self.n_step, self.forward = T, B, discount, n_step, forward
        self.null_action = null_action
        self.history = [[] for _ in range(B)]

    def append(self, b, step):
        self.history[b].append(step)

    def valid_steps(self):
        """Numbers, counted from the first step ever, of those that can be replayed from a memory of T rows."""
        now = len(self.history[0])
        oldest = max(now - self.T, 0)
        return [i for i in range(now) if i >= oldest + self.forward and i + self.n_step < now]

    def transition(self, i, b):
        """Dictionary of what replaying step i of environment b should give."""
        steps = self.history[b]
        previous, step = steps[i - 1], steps[i]
        result = dict(
            observation=step.observation,
            prev_action=self.null_action if previous.done else previous.action,
            prev_reward=0.0 if previous.done else previous.reward,
            action=step.action,
            done=step.done,
        )
        return_, n_steps, last = 0.0, 0, None
        for k in range(self.n_step):
            last = steps[i + k]
            return_ += self.discount**k * last.reward
            n_steps += 1
            if last.done:
                break
        result.update(return_=return_, done_n=last.done)
        if last.done and not last.timeout:
            result.update(bootstrap_discount=0.0)
        else:
            result.update(bootstrap_discount=self.discount**n_steps, target_prev_action=last.action)
            result.update(target_prev_reward=last.reward)
            result.update(target_observation=last.final_observation if last.done else steps[i + n_steps].observation)
        return result
