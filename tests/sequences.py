"""Random sequences in the form in which a replay buffer returns them."""

import numpy as np
import torch

from rlpyt.replays.sequence.n_step import SamplesFromReplay


def random_sequences(seed, n, warmup_T, batch_T, n_step, p_done, discount, draw_actions, init_rnn_state, observation_size):
    """Sequences as a buffer returns them: with terminations, timeouts and, after some, blank rows; all computed in loops.

    draw_actions: ``draw_actions(rng, shape)`` returns actions [*shape,...].
    """
    rng = np.random.default_rng(seed)
    all_T = warmup_T + batch_T + n_step
    L = warmup_T + batch_T
    reward, before = 3 * rng.normal(size=(all_T, n)), rng.normal(size=(1, n))
    done = rng.random((all_T, n)) < p_done
    timeout = done & (rng.random((all_T, n)) < 0.4)
    blank = np.zeros((all_T, n), bool)
    for b in range(n):
        for t in range(1, all_T):
            if done[t - 1, b] and not blank[t - 1, b] and rng.random() < 0.5:
                blank[t : t + int(rng.integers(1, 4)), b] = True
            if blank[t, b]:
                done[t, b], reward[t, b], timeout[t, b] = True, 0.0, False
    return_, done_n, valid = np.zeros((L, n)), np.zeros((L, n), bool), np.ones((L, n), bool)
    for b in range(n):
        for t in range(L):
            valid[t, b] = not blank[t, b]
            for k in range(n_step):
                return_[t, b] += discount**k * reward[t + k, b]
                if done[t + k, b]:
                    done_n[t, b] = True
                    valid[t, b] &= not timeout[t + k, b]
                    break
    all_action = draw_actions(rng, (all_T + 1, n))
    prev_action, prev_reward = all_action[:-1].copy(), np.concatenate([before, reward[:-1]])
    all_reward = prev_reward.copy()
    for t in range(1, all_T):
        prev_action[t, done[t - 1]], prev_reward[t, done[t - 1]] = 0, 0.0
    fields = [rng.normal(size=(all_T, n, observation_size)), all_action[:-1], all_reward, return_, done[:L], done_n]
    # Actions are taken one row later than they are "previous", and the buffer has none after the last one needed.
    observation, action, *rest = map(torch.from_numpy, fields)
    return SamplesFromReplay(
        observation, action, *rest, init_rnn_state, torch.from_numpy(prev_action), torch.from_numpy(prev_reward), torch.from_numpy(valid)
    )
