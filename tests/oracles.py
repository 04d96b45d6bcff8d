"""Slow and obvious versions of what the package does fast: one step, one environment, one number at a time."""

from __future__ import annotations

import math

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


def v_trace(reward, value, done, bootstrap_value, ratio, discount, lambda_, rho_clip, c_clip, timeout=None, timeout_value=None):
    """Advantages and targets: every step adds up the corrected TD errors to come in its episode, times the product of ratios before them.

    The sums of equation 1 of Espeholt et al. 2018, with the advantage at the next step's target, of which λ counts. The advantage lacks
    the ratio of its own step.
    """
    T = len(reward)
    td_error = np.zeros(T)
    for t in range(T):
        next_value = bootstrap_value if t == T - 1 else value[t + 1]
        if done[t]:
            next_value = timeout_value[t] if timeout is not None and timeout[t] else 0.0
        td_error[t] = reward[t] + discount * next_value - value[t]

    def correction(t):
        total, factor = 0.0, 1.0
        for s in range(t, T):
            total += factor * min(rho_clip, ratio[s]) * td_error[s]
            factor *= discount * lambda_ * min(c_clip, ratio[s])
            if done[s]:
                break
        return total

    target = np.array([value[t] + correction(t) for t in range(T)])
    later = np.array([0.0 if done[t] or t == T - 1 else discount * lambda_ * correction(t + 1) for t in range(T)])
    return td_error + later, target


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
    """One step of one environment, and the observation that followed it if that was lost to a reset.

    It is not valid if the environment stood still, and `prev_rnn_state` is the agent's from before it.
    """

    def __init__(self, observation, action, reward, done, timeout, final_observation, valid=True, prev_rnn_state=None):
        self.observation, self.action, self.reward = observation, action, reward
        self.done, self.timeout, self.final_observation = done, timeout, final_observation
        self.valid, self.prev_rnn_state = valid, prev_rnn_state


class NaiveReplay:
    """Remembers all steps of all environments and works out any transition from them.

    Steps are numbered from the first one ever; `T` rows of them are in memory. With a step, `forward` rows before it are read: the
    one with the previous action, or more for older frames.
    """

    def __init__(self, T, B, discount, n_step, forward=1, null_action=0):
        self.T, self.B, self.discount, self.n_step, self.forward = T, B, discount, n_step, forward
        self.null_action = null_action
        self.history = [[] for _ in range(B)]

    def append(self, b, step):
        self.history[b].append(step)

    @property
    def written(self):
        return len(self.history[-1])

    def in_memory(self, i):
        """Whether the row with this number has been written and not been overwritten."""
        return 0 <= i < self.written and i >= self.written - self.T

    def valid_steps(self):
        """Numbers of the steps for which every row that a transition reads is in memory."""
        steps = range(max(self.written - self.T, 0), self.written)  # None before is in memory.
        return [i for i in steps if all(self.in_memory(j) for j in range(i - self.forward, i + self.n_step + 1))]

    def drawable(self):
        """Pairs (number, environment) of what may be replayed."""
        return [(i, b) for i in self.valid_steps() for b in range(self.B) if self.history[b][i].valid]

    def window(self, i, b):
        """The steps of the n-step window from step i on, up to the end of the episode."""
        steps = []
        for k in range(self.n_step):
            steps.append(self.history[b][i + k])
            if steps[-1].done:
                break
        return steps

    def n_step_return(self, i, b):
        return sum(self.discount**k * step.reward for k, step in enumerate(self.window(i, b)))

    def previous(self, i, b):
        """Action and reward that the agent is given at step i."""
        before = self.history[b][i - 1]
        return (self.null_action, 0.0) if before.done else (before.action, before.reward)

    def transition(self, i, b):
        """Dictionary of what replaying step i of environment b should give."""
        steps = self.history[b]
        step, window = steps[i], self.window(i, b)
        last, n_steps = window[-1], len(window)
        prev_action, prev_reward = self.previous(i, b)
        result = dict(
            observation=step.observation,
            prev_action=prev_action,
            prev_reward=prev_reward,
            action=step.action,
            return_=self.n_step_return(i, b),
            done=step.done,
            done_n=last.done,
            timeout=step.timeout,
            timeout_n=last.timeout,
        )
        if last.done and last.final_observation is None:
            result.update(bootstrap_discount=0.0)
        else:
            result.update(bootstrap_discount=self.discount**n_steps, target_prev_action=last.action)
            result.update(target_prev_reward=last.reward)
            result.update(target_observation=last.final_observation if last.done else steps[i + n_steps].observation)
        return result


class NaiveSequenceReplay(NaiveReplay):
    """Remembers all steps of all environments and works out any sequence from them.

    Sequences start at the steps whose number is a multiple of `interval`, which cuts the memory into blocks. What a sequence reads before
    and after the block it starts in is counted in whole blocks: those before must be in memory, those after must have been begun.
    """

    def __init__(self, T, B, discount, n_step, batch_T, interval=1, forward=1, null_action=0):
        super().__init__(T, B, discount, n_step, forward, null_action)
        self.batch_T, self.interval = batch_T, max(interval, 1)

    def blocks(self, n):
        """Blocks that n rows make, rounded up."""
        return -(-n // self.interval)

    def valid_steps(self, batch_T=None):
        """Numbers of the steps at which a sequence may start."""
        n_after = (batch_T or self.batch_T) + self.n_step - 1
        starts = []
        for i in range(0, self.written, self.interval):
            first_read = i - self.blocks(self.forward) * self.interval
            last_read = i + self.blocks(n_after) * self.interval
            if self.in_memory(first_read) and last_read < self.written:
                assert all(self.in_memory(j) for j in range(i - self.forward, i + n_after + 1))
                starts.append(i)
        return starts

    def drawable(self, batch_T=None):
        """Pairs (number, environment) of the starts of what may be replayed; other steps of a sequence need not be valid."""
        return [(i, b) for i in self.valid_steps(batch_T) for b in range(self.B) if self.history[b][i].valid]

    def sequence(self, i, b, batch_T=None):
        """Dictionary of what replaying the sequence from step i of environment b on should give."""
        main = range(i, i + (batch_T or self.batch_T))
        all_ = range(i, i + (batch_T or self.batch_T) + self.n_step)  # With those of the targets.
        steps = self.history[b]
        return dict(
            all_observation=[steps[j].observation for j in all_],
            all_action=[steps[j - 1].action for j in all_],
            all_reward=[steps[j - 1].reward for j in all_],
            return_=[self.n_step_return(j, b) for j in main],
            done=[steps[j].done for j in main],
            done_n=[self.window(j, b)[-1].done for j in main],
            all_prev_action=[self.previous(j, b)[0] for j in all_],
            all_prev_reward=[self.previous(j, b)[1] for j in all_],
            valid=[steps[j].valid and not self.window(j, b)[-1].timeout for j in main],
            init_rnn_state=steps[i].prev_rnn_state,
        )


class NaivePriorities:
    """Remembers the priority, to the power of alpha, of everything that was ever written: of start k of environment b."""

    def __init__(self, alpha, default, shift=0):
        self.alpha, self.default, self.shift = alpha, default, shift
        self.mass = {}

    def write(self, k, b, priority=None):
        """Start k is new; a priority that comes with it is meant for the start `shift` before it."""
        self.mass[k, b] = self.default**self.alpha
        if priority is not None and k >= self.shift:
            self.mass[k - self.shift, b] = priority**self.alpha

    def update(self, k, b, priority):
        self.mass[k, b] = priority**self.alpha


def is_weights(mass, beta, eps):
    """Importance sampling weights of a batch drawn in proportion to mass [n]."""
    weights = [(1 / (m + eps)) ** beta for m in mass]
    return [w / max(weights) for w in weights]


# ------------------------------------------------------------------------------------------------------------------
# R2D1: one number
# ------------------------------------------------------------------------------------------------------------------
def h(x, eps=1e-3):
    """The rescaling of values (Pohlen et al. 2018)."""
    return math.copysign(math.sqrt(abs(x) + 1) - 1, x) + eps * x


def h_inverse(z, eps=1e-3):
    """Its inverse."""
    return math.copysign(((math.sqrt(1 + 4 * eps * (abs(z) + 1 + eps)) - 1) / (2 * eps)) ** 2 - 1, z)


def softmax_in_words(values, tau):
    """Probabilities and τ log π, of plain numbers, for the policy softmax(values / τ)."""
    total = sum(math.exp((v - max(values)) / tau) for v in values)
    log_pi = [(v - max(values)) / tau - math.log(total) for v in values]
    return [math.exp(x) for x in log_pi], [tau * x for x in log_pi]


def munchausen_reward(algo, qs, action):
    """The first term that Vieillard et al. 2020 add, given Q-values on the learned scale."""
    _, scaled_log_pi = softmax_in_words([h_inverse(q) for q in qs], algo.munchausen_temperature)
    return algo.munchausen_alpha * max(scaled_log_pi[action], algo.munchausen_min)


def soft_value(algo, values, chooser_qs):
    """The value, on the scale of rewards, of the softmax policy of `chooser_qs`; both are on the learned scale."""
    pi, scaled_log_pi = softmax_in_words([h_inverse(q) for q in chooser_qs], algo.munchausen_temperature)
    return sum(p * (h_inverse(v) - s) for p, v, s in zip(pi, values, scaled_log_pi))
