"""Deliberate errors in the code, and whether the tests notice them.

    python tests/mutations.py --results all.json            # the tests of each error, quick or not
    python tests/mutations.py --results quick.json --quick  # only the quick ones
    python tests/mutations.py --only replays/ --jobs 2      # the errors in files whose name contains that
    python tests/mutations.py --table quick=quick.json full=all.json

Each error is made in a copy of the tree, never in the tree itself, and the test files that have most to do with it run there until one
fails. `--results` is a file that is kept up to date; what it holds already is not run again, so that an interrupted run goes on. `--table`
writes tests/mutations.md from such files. All errors take about half an hour of one processor.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "tests" / "mutations.md"
TIMEOUT = 900  # seconds for the tests of one error


class Mutant(NamedTuple):
    """One error.

    Attributes:
        file: below rlpyt/.
        old: text that occurs once in it.
        new: what takes its place.
        tests: the test files that have most to do with it, below tests/, separated by spaces.
        says: what is wrong then.
    """

    file: str
    old: str
    new: str
    tests: str
    says: str


MUTANTS = [
    # --- algos ---------------------------------------------------------------------------------------------------------
    Mutant(
        "returns.py",
        "ended_before[1:] = torch.cumsum(flags[:-1], dim=0).clamp_(max=1)",
        "ended_before[:] = torch.cumsum(flags, dim=0).clamp_(max=1)",
        "test_returns.py",
        "the last step of an episode is not valid",
    ),
    Mutant(
        "algos/pg/base.py",
        "until_done=not self.mid_batch_reset or self.agent.recurrent)",
        "until_done=not self.mid_batch_reset)",
        "algos/pg/test_recurrent.py algos/pg/test_base.py",
        "recurrent agents learn from steps after the end of the first episode",
    ),
    Mutant(
        "algos/pg/base.py",
        "            prev_reward = null_after_done(prev_reward, env.done)\n",
        "",
        "algos/pg/test_base.py algos/pg/test_recurrent.py",
        "the reward of the last episode is given to the agent in training",
    ),
    Mutant(
        "algos/pg/base.py",
        "loss - coeff * entropy if",
        "loss + coeff * entropy if",
        "algos/pg/test_a2c.py",
        "entropy is made small",
    ),
    Mutant(
        "algos/pg/ppo.py",
        "return torch.minimum(unclipped, clipped)",
        "return torch.maximum(unclipped, clipped)",
        "algos/pg/test_ppo.py",
        "the larger of the two objectives counts",
    ),
    Mutant(
        "algos/pg/ppo.py",
        "ratio_clip = self._ratio_clip * self.remaining(max(itr - 1, 0))",
        "ratio_clip = self.ratio_clip * self.remaining(max(itr - 1, 0))",
        "algos/pg/test_ppo.py",
        "the clip falls faster than linearly",
    ),
    Mutant(
        "algos/pg/ppo.py",
        "old_dist_info = _where(valid.bool(), old_dist_info, dist_info)",
        "pass",
        "algos/pg/test_ppo.py algos/pg/test_recurrent.py",
        "blank rows of the batch go into the likelihood ratio",
    ),
    Mutant(
        "algos/pg/impala.py",
        "return return_, weight * advantage, valid",
        "return return_, advantage, valid",
        "algos/pg/test_off_policy.py",
        "actions that the policy no longer takes weigh as much as when they were taken",
    ),
    Mutant(
        "algos/pg/impala.py",
        "self.process_returns(inputs.lagging, ratio, value)",
        "self.process_returns(inputs.lagging, ratio)",
        "algos/pg/test_off_policy.py",
        "values are as old as the batch",
    ),
    Mutant(
        "algos/pg/appo.py",
        "advantage = advantage * (self.rho_clip / ratio).clamp(max=1)",
        "pass",
        "algos/pg/test_off_policy.py",
        "rare actions that have become likely outweigh all others",
    ),
    Mutant(
        "algos/pg/appo.py",
        "value.to(return_.dtype) if self.clip_value_loss",
        "acted.value if self.clip_value_loss",
        "algos/pg/test_off_policy.py",
        "values are clipped around those of the policy that acted",
    ),
    Mutant(
        "algos/dqn/dqn.py",
        "self.agent(*samples.target_inputs) if self.double_dqn else target_qs)",
        "target_qs)",
        "algos/dqn/test_dqn.py algos/dqn/test_combinations.py",
        "double Q-learning chooses by the target network",
    ),
    Mutant(
        "algos/dqn/dqn.py",
        "max(0, itr - 1 - self.min_itr_learn) / (last_itr - self.min_itr_learn)",
        "itr / last_itr",
        "algos/dqn/test_dqn.py",
        "beta changes before learning begins",
    ),
    Mutant(
        "algos/dqn/cat_dqn.py",
        "next_ps = self.agent(*samples.target_inputs) if self.double_dqn else target_ps",
        "next_ps = target_ps",
        "algos/dqn/test_cat_dqn.py algos/dqn/test_combinations.py",
        "categorical double Q-learning is not double",
    ),
    Mutant(
        "algos/dqn/cat_dqn.py",
        ".clamp_(0, P - 1)  # [n,P]",
        ".clamp_(0, P - 2)  # [n,P]",
        "algos/dqn/test_cat_dqn.py",
        "no probability reaches the highest atom",
    ),
    Mutant(
        "algos/dqn/r2d1.py",
        "alive = ~samples.done[:W].any(dim=0)",
        "alive = ~samples.done[: W - 1].any(dim=0)",
        "algos/dqn/test_r2d1.py",
        "an episode that ends with the last step of the warm-up leaves its state",
    ),
    Mutant(
        "algos/dqn/r2d1.py",
        "end = (t + n).clamp(max=T - 1)",
        "end = (t + n - 1).clamp(max=T - 1)",
        "algos/dqn/test_r2d1.py",
        "input priorities bootstrap one step too early",
    ),
    Mutant(
        "algos/dqn/r2d1.py",
        "self.pri_eta * abs_errors.amax(dim=0) + (1 - self.pri_eta)",
        "(1 - self.pri_eta) * abs_errors.amax(dim=0) + self.pri_eta",
        "algos/dqn/test_r2d1.py",
        "eta weighs the mean, not the largest error",
    ),
    Mutant(
        "algos/dqn/quantile_dqn.py",
        "else next_quantiles, samples.target_inputs)",
        "else next_quantiles, samples.agent_inputs)",
        "algos/test_masks.py algos/dqn/test_quantile_dqn.py",
        "targets of quantiles obey the mask of the observation before",
    ),
    Mutant(
        "algos/dqn/quantile_dqn.py",
        "masked_means(agent(*samples.target_inputs) if self.double_dqn else next_quantiles,",
        "masked_means(next_quantiles,",
        "algos/dqn/test_quantile_dqn.py",
        "double Q-learning of quantiles is not double",
    ),
    Mutant(
        "algos/dqn/quantile_dqn.py",
        "qs = masked_means(agent.target(*samples.agent_inputs), samples.agent_inputs)",
        "qs = masked_means(agent.target(*samples.target_inputs), samples.target_inputs)",
        "algos/dqn/test_quantile_dqn.py",
        "Munchausen's reward is that of the policy at the next observation",
    ),
    Mutant(
        "algos/dqn/quantile_r2d1.py",
        "target_quantiles = all_targets[n:]",
        "target_quantiles = all_targets[:T]",
        "algos/dqn/test_quantile_r2d1.py",
        "targets of recurrent quantiles are those of the same step",
    ),
    Mutant(
        "algos/dqn/quantile_r2d1.py",
        "quantiles[n:] if self.double_dqn else target_quantiles, [inputs[0][n:]]",
        "quantiles[n:] if self.double_dqn else target_quantiles, [inputs[0][:T]]",
        "algos/dqn/test_quantile_r2d1.py",
        "targets of recurrent quantiles obey the masks of n steps before",
    ),
    Mutant(
        "algos/qpg/sac.py",
        "torch.addcmul(target_q, alpha, next_log_pi, value=-1)",
        "torch.addcmul(target_q, alpha, next_log_pi, value=1)",
        "algos/qpg/test_qpg_algos.py",
        "entropy counts against the target",
    ),
    Mutant(
        "algos/qpg/sac.py",
        "mean_of_valid(-self.target_entropy - log_pi.detach(), valid)",
        "mean_of_valid(self.target_entropy - log_pi.detach(), valid)",
        "algos/qpg/test_qpg_algos.py",
        "alpha is tuned for the wrong entropy",
    ),
    Mutant(
        "algos/qpg/td3.py",
        "torch.minimum(*self.agent.target_q_at_mu(*samples.target_inputs))",
        "torch.maximum(*self.agent.target_q_at_mu(*samples.target_inputs))",
        "algos/qpg/test_qpg_algos.py",
        "the larger target value counts",
    ),
    Mutant(
        "algos/qpg/base.py",
        "else ~timeout_n.bool() | (bootstrap > 0)",
        "else ~timeout_n.bool()",
        "algos/qpg/test_qpg_algos.py algos/qpg/test_qpg_training.py",
        "truncated transitions are left out although their last observation is known",
    ),
    Mutant(
        "algos/qpg/ddpg.py",
        "(self.update_counter + 1) % self.policy_update_interval == 0",
        "self.update_counter % self.policy_update_interval == 0",
        "algos/qpg/test_qpg_algos.py",
        "the policy is updated one update too early",
    ),
    Mutant(
        "algos/qpg/ensemble_sac.py",
        "pi_loss = mean_of_valid(pi_losses, valid)",
        "pi_loss = pi_losses.mean()",
        "algos/qpg/test_ensemble_sac.py",
        "the policy of an ensemble also learns from samples that do not count",
    ),
    Mutant(
        "algos/qpg/ensemble_sac.py",
        "mean_of_valid(log_pi.detach() + self.target_entropies(samples), valid)",
        "(log_pi.detach() + self.target_entropies(samples)).mean()",
        "algos/qpg/test_ensemble_sac.py",
        "alpha of an ensemble is also tuned on samples that do not count",
    ),
    Mutant(
        "algos/qpg/ensemble_sac.py",
        "atoms - (alpha * next_log_pi)[:, None]",
        "atoms",
        "algos/qpg/test_ensemble_sac.py",
        "targets of quantile critics lack the entropy",
    ),
    Mutant(
        "algos/qpg/ensemble_sac.py",
        ".values[:, :n_kept]",
        ".values[:, -n_kept:]",
        "algos/qpg/test_ensemble_sac.py",
        "targets drop the smallest quantiles",
    ),
    Mutant(
        "algos/qpg/ensemble_sac.py",
        "self.agent.n_critics * (self.agent.n_quantiles - self.n_dropped_quantiles)",
        "self.agent.n_critics * self.agent.n_quantiles - self.n_dropped_quantiles",
        "algos/qpg/test_ensemble_sac.py",
        "targets drop so many quantiles of all critics together",
    ),
    Mutant(
        "algos/qpg/ensemble_sac.py",
        "return torch.rand(n, device=self.agent.device).topk(self.n_target_critics).indices",
        "return torch.arange(self.n_target_critics, device=self.agent.device)",
        "algos/qpg/test_ensemble_sac.py",
        "targets always take the same few critics",
    ),
    Mutant(
        "algos/qpg/ensemble_sac.py",
        "alpha_loss = -self._log_alpha *",
        "alpha_loss = self._log_alpha *",
        "algos/qpg/test_ensemble_sac.py",
        "alpha of an ensemble grows where entropy is too high",
    ),
    Mutant(
        "algos/qpg/ensemble_sac.py",
        "with self.freeze_q():\n            q = self.value_for_policy(self.agent.q(*samples.agent_inputs, action))",
        "with torch.enable_grad():\n            q = self.value_for_policy(self.agent.q(*samples.agent_inputs, action))",
        "algos/qpg/test_ensemble_sac.py",
        "the policy's loss trains the ensemble, too",
    ),
    Mutant(
        "algos/qpg/ensemble_sac.py",
        "self.discount, self.n_step_return) > 0  # [n]",
        "self.discount, self.n_step_return) >= 0  # [n]",
        "algos/qpg/test_ensemble_sac.py",
        "statistics of critics include what follows a termination",
    ),
    Mutant(
        "agents/qpg/ensemble_sac_agent.py",
        "with super().freeze_q(), by_running_statistics(self.q_model):",
        "with super().freeze_q():",
        "algos/qpg/test_ensemble_sac.py agents/qpg/test_qpg_agents.py",
        "the policy's loss changes the statistics of critics",
    ),
    Mutant(
        "agents/qpg/ensemble_sac_agent.py",
        "with by_running_statistics(self.model):\n            return self.pi(",
        "with torch.no_grad():\n            return self.pi(",
        "algos/qpg/test_ensemble_sac.py agents/qpg/test_qpg_agents.py",
        "targets change the statistics of the policy",
    ),
    Mutant(
        "agents/qpg/ensemble_sac_agent.py",
        "layer.train(isinstance(layer, torch.nn.Dropout))",
        "pass",
        "algos/qpg/test_ensemble_sac.py agents/qpg/test_qpg_agents.py",
        "target networks do not drop units",
    ),
    Mutant(
        "algos/qpg/recurrent.py",
        "valid_from_done(done).bool() & (t[:T] < W + T)",
        "valid_from_done(done).bool()",
        "algos/qpg/test_recurrent.py",
        "the last step of a sequence is trained on several times",
    ),
    Mutant(
        "algos/qpg/recurrent.py",
        "_zero_where(begun | ~counts.any(dim=0), (states, target_states))",
        "_zero_where(~counts.any(dim=0), (states, target_states))",
        "algos/qpg/test_recurrent.py",
        "an episode begins with the states after the one before",
    ),
    Mutant(
        "algos/qpg/recurrent.py",
        "agent.remember(*warmup, target_states, target=True)",
        "agent.remember(*warmup, target_states)",
        "algos/qpg/test_recurrent.py",
        "networks, not target networks, warm up the states for targets",
    ),
    Mutant(
        "algos/qpg/recurrent.py",
        "target_inputs=AgentInputsRnn(*_rows(inputs, slice(n, None)), target_states)",
        "target_inputs=AgentInputsRnn(*_rows(inputs, slice(n - 1, -1)), target_states)",
        "algos/qpg/test_recurrent.py",
        "targets of sequences are a step too early",
    ),
    Mutant(
        "algos/qpg/recurrent.py",
        "torch.where(done & (rows < warmup_T), rows + 1, 0)",
        "torch.where(done & (rows < warmup_T - 1), rows + 1, 0)",
        "algos/qpg/test_recurrent.py",
        "an episode of a sequence that ends with the last step of the warm-up leaves its states",
    ),
    Mutant(
        "algos/qpg/recurrent.py",
        "for leaf in leaves]).all(dim=0)",
        "for leaf in leaves]).any(dim=0)",
        "algos/qpg/test_recurrent.py",
        "zeros in the state of one network make a step the first of an episode",
    ),
    Mutant(
        "algos/qpg/recurrent.py",
        "used[n:] |= counts & ~done_n",
        "used[n:] |= counts",
        "algos/qpg/test_recurrent.py",
        "observations after a termination are not left out of sequences",
    ),
    Mutant(
        "algos/offline/iql.py",
        "(advantage.detach() < 0).to(v.dtype)",
        "(advantage.detach() > 0).to(v.dtype)",
        "algos/offline/test_iql.py",
        "V is the expectile of the worst actions",
    ),
    Mutant(
        "algos/offline/iql.py",
        "torch.minimum(*agent.target_q(*samples.agent_inputs, samples.action))",
        "torch.minimum(*agent.q(*samples.agent_inputs, samples.action))",
        "algos/offline/test_iql.py",
        "advantages are by the networks, not by the target networks",
    ),
    Mutant(
        "algos/offline/iql.py",
        "weight = (self.temperature * advantage.detach()).exp()",
        "weight = (self.temperature * advantage).exp()",
        "algos/offline/test_iql.py",
        "the policy's loss trains V",
    ),
    Mutant(
        "algos/offline/iql.py",
        "agent, valid = self.agent, self.valid_samples(samples)",
        "agent, valid = self.agent, None",
        "algos/offline/test_iql.py",
        "truncated transitions count in losses without their last observation",
    ),
    Mutant(
        "algos/qpg/td3.py",
        "mean_of_valid(q.detach().abs(), valid).clamp",
        "mean_of_valid(q.abs(), valid).clamp",
        "algos/qpg/test_qpg_algos.py",
        "the weight of Q in TD3+BC has a gradient",
    ),
    Mutant(
        "algos/qpg/td3.py",
        "self.behavior_cloning / mean_of_valid(q.detach().abs(), valid)",
        "self.behavior_cloning / mean_of_valid(q.detach().abs())",
        "algos/qpg/test_qpg_algos.py",
        "the weight of Q in TD3+BC depends on samples that do not count",
    ),
    Mutant(
        "algos/replay.py",
        "else env.next_observation[-1:],",
        "else env.observation[-1:],",
        "algos/dqn/test_dqn.py runners/test_changed_environments.py",
        "an episode that was cut off ends with the observation before",
    ),
    Mutant(
        "algos/replay.py",
        "valid=None if valid is None else valid.bool(),",
        "valid=None if valid is None else torch.ones_like(env.done).bool(),",
        "algos/dqn/test_combinations.py algos/dqn/test_dqn.py algos/dqn/test_r2d1.py",
        "blank rows are replayed",
    ),
    # --- replays -------------------------------------------------------------------------------------------------------
    Mutant(
        "replays/storage.py",
        "completed = ring.rows(1 - self.n_step, n)",
        "completed = ring.rows(-self.n_step, n)",
        "replays/non_sequence/test_buffers.py replays/test_all_buffers.py",
        "n-step returns are a row off",
    ),
    Mutant(
        "replays/storage.py",
        "self.as_T_B[1][self.storage.rows.row(-self.n_step), B_idxs] = True",
        "self.as_T_B[1][self.storage.rows.row(-1), B_idxs] = True",
        "replays/test_final_observations.py replays/non_sequence/test_buffers.py replays/test_all_buffers.py runners/test_resume.py",
        "the end of an episode that is cut off is not seen by transitions over several steps",
    ),
    Mutant(
        "replays/n_step.py",
        'self.ring.move_to(s["written"], s["claimed"])',
        'self.ring.move_to(s["written"])',
        "replays/test_all_buffers.py replays/test_async.py",
        "a loaded buffer takes rows for valid that were being overwritten",
    ),
    Mutant(
        "replays/ring.py",
        "first = max(claimed - T, 0) + forward",
        "first = max(written - T, 0) + forward",
        "replays/test_ring.py replays/test_async.py replays/test_sum_tree.py",
        "rows that are being overwritten are drawn",
    ),
    Mutant(
        "replays/sum_tree.py",
        "self._turn_on(max(written - self.off_backward, first), end)",
        "self._turn_on(max(written, first), end)",
        "replays/test_sum_tree.py",
        "rows that waited for what follows them are never drawn",
    ),
    Mutant(
        "replays/sum_tree.py",
        "start = written - self.input_priority_shift",
        "start = written",
        "replays/test_sum_tree.py replays/sequence/test_sequences.py algos/dqn/test_r2d1.py",
        "input priorities belong to other sequences",
    ),
    Mutant(
        "replays/sum_tree.py",
        "priorities = np.where(self.blank.reshape(-1)[ids % self.size], 0, priorities)",
        "priorities = priorities + 0",
        "replays/test_sum_tree.py replays/test_misuse.py",
        "blank rows can be drawn after an update of their priority",
    ),
    Mutant(
        "replays/prioritized.py",
        "powers = np.empty(priorities.shape)\n        bad = kernels.powers(priorities.reshape(-1), float(self.alpha), ",
        "powers = np.empty(priorities.shape)\n        bad = kernels.powers(priorities.reshape(-1), 1.0, ",
        "replays/non_sequence/test_buffers.py replays/test_all_buffers.py",
        "alpha does not count",
    ),
    Mutant(
        "replays/prefetch.py",
        "        self._ids = draw.ids\n        self._next_draw = ",
        "        self._next_draw = ",
        "replays/test_prefetch.py",
        "priorities go to the batch that was drawn ahead",
    ),
    Mutant(
        "replays/final_observations.py",
        "self._counts[_FREED] = n_freed + len(slots)",
        "self._counts[_FREED] = n_freed",
        "replays/test_final_observations.py",
        "memory of final observations is never used again",
    ),
    Mutant(
        "utils/kernels.py",
        "bootstrap_discount[i] = discounts[steps]",
        "bootstrap_discount[i] = discounts[N]",
        "replays/non_sequence/test_buffers.py replays/test_all_buffers.py utils/test_kernels.py",
        "transitions that a time limit shortened are discounted over all n steps",
    ),
    Mutant(
        "utils/kernels.py",
        "before[i] = null if done[previous] else previous",
        "before[i] = previous",
        "replays/non_sequence/test_buffers.py replays/test_all_buffers.py",
        "replayed first steps have the action and reward of the episode before",
    ),
    Mutant(
        "utils/kernels.py",
        "valid[k, j] = not blank and not (timed_out and until_end < N)",
        "valid[k, j] = not blank and not (timed_out and until_end <= N)",
        "replays/sequence/test_sequences.py replays/test_all_buffers.py",
        "steps of sequences long before a time limit are not valid",
    ),
    Mutant(
        "utils/kernels.py",
        "t - age, b, age + n >= n_target_frames, target_out",
        "t - age, b, age >= n_target_frames, target_out",
        "replays/non_sequence/test_buffers.py replays/test_all_buffers.py utils/test_kernels.py",
        "frames of the episode before are in the next observation",
    ),
    Mutant(
        "utils/kernels.py",
        "y += zero if done[t, j] else discount * gae_lambda * following[j]",
        "y += zero if done[t, j] else gae_lambda * following[j]",
        "test_returns.py",
        "advantages are not discounted",
    ),
    # --- samplers ------------------------------------------------------------------------------------------------------
    Mutant(
        "samplers/columns.py",
        "return 1 + int(generator.random() * max_steps)",
        "return int(generator.random() * max_steps)",
        "samplers/test_collectors.py samplers/test_samplers_agree.py",
        "decorrelation may take no step, and never takes the most",
    ),
    Mutant(
        "samplers/collectors.py",
        "self._inputs.observation[b] = env.next_observation[t, b]",
        "self._inputs.observation[b] = env.observation[t, b]",
        "samplers/test_wait_reset.py samplers/test_collectors.py",
        "an environment that waited goes on from the observation before",
    ),
    Mutant(
        "samplers/collectors.py",
        "        env.done[t + 1 :, b] = True\n",
        "",
        "samplers/test_wait_reset.py samplers/test_collectors.py",
        "steps that were not taken are not done",
    ),
    Mutant(
        "samplers/collectors.py",
        "return [each + (i < more) for i in range(n_envs)]",
        "return [each + (i <= more) for i in range(n_envs)]",
        "samplers/test_evaluation.py",
        "one evaluation episode too many",
    ),
    Mutant(
        "samplers/actors.py",
        "        self.prev_reward[ended] = 0\n",
        "",
        "samplers/test_collectors.py samplers/test_samplers_agree.py samplers/test_recurrent_state.py",
        "the agent sees the last reward of the episode before",
    ),
    Mutant(
        "samplers/actors.py",
        "n_before = np.count_nonzero(self.batch.env.timeout[:t, truncated], axis=0)",
        "n_before = np.zeros(len(truncated), int)",
        "samplers/test_collectors.py samplers/test_samplers_agree.py",
        "the second time limit in a batch is bootstrapped by the first one's observation",
    ),
    Mutant(
        "samplers/actors.py",
        "        self.prev_action[:] = self.null_action\n        self.prev_reward[...] = 0\n",
        "",
        "samplers/test_evaluation.py samplers/test_collectors.py samplers/test_samplers_agree.py",
        "an evaluation begins with the action and reward that the one before ended with",
    ),
    Mutant(
        "samplers/traj_infos.py",
        'sums["_cur_discount"] *= info._discount',
        'sums["_cur_discount"] = info._discount ** (i + 1)',
        "samplers/test_traj_infos.py",
        "discounted returns of episodes that go on in the next batch begin anew",
    ),
    Mutant(
        "samplers/kernels.py",
        "factor[b] *= 1.0 if is_skipped[b] else discount",
        "factor[b] *= discount",
        "samplers/test_traj_infos.py",
        "the steps of idle environments count in discounted returns",
    ),
    Mutant(
        "samplers/parallel/base.py",
        "if len(completed_at) == len(completed):",
        "if False:",
        "samplers/test_samplers_agree.py",
        "the order of completed episodes depends on the number of workers",
    ),
    Mutant(
        "samplers/parallel/base.py",
        'fits = state.get("columns") == self._all_columns()',
        "fits = True",
        "runners/test_resume.py samplers/test_columns.py",
        "states of workers are restored into other ones",
    ),
    Mutant(
        "samplers/parallel/gpu/action_server.py",
        "if agent.recurrent and agent.alternating and agent.get_alt() != number:",
        "if agent.recurrent and agent.alternating and agent.get_alt() == number:",
        "samplers/test_samplers_agree.py samplers/test_recurrent_state.py",
        "halves have each other's recurrent state",
    ),
    Mutant(
        "samplers/workers.py",
        "if sign_of_life or (pool._progress != self.progress).any():",
        "if sign_of_life:",
        "samplers/test_workers.py",
        "slow workers are taken for hung ones",
    ),
    Mutant(
        "samplers/episodic/workers.py",
        "needs_reset, self._needs_reset[b] = self._needs_reset[b], True",
        "needs_reset = self._needs_reset[b]",
        "samplers/episodic/test_workers.py samplers/episodic/test_samplers.py",
        "an environment is not reset after an episode that was too long",
    ),
    Mutant(
        "samplers/ray/batch_sampler.py",
        "self._add_restarted(sorted(call.restarted))",
        "self._add_restarted([])",
        "samplers/test_ray_batch_sampler.py::test_columns_of_a_lost_actor_begin_anew_with_the_first_batch_that_it_has_not_collected",
        "replay does not know which environments were lost with an actor",
    ),
    # --- runners -------------------------------------------------------------------------------------------------------
    Mutant(
        "runners/minibatch_rl.py",
        "if 0 < itr < self.min_itr_learn - 1:",
        "if 0 < itr < self.min_itr_learn:",
        "runners/test_minibatch_rl.py",
        "the evaluation just before learning begins is left out",
    ),
    Mutant(
        "runners/minibatch_rl.py",
        "if itr >= self.min_itr_learn - 1:\n                self.save_itr_snapshot(*self._numbers(itr))",
        "if itr >= self.min_itr_learn:\n                self.save_itr_snapshot(*self._numbers(itr))",
        "runners/test_minibatch_rl.py runners/test_resume.py",
        "the first snapshot is left out",
    ),
    Mutant(
        "runners/diagnostics.py",
        "train_time = now - self._last_time - eval_time * training_pauses",
        "train_time = now - self._last_time",
        "runners/test_minibatch_rl.py",
        "StepsPerSecond counts the seconds of evaluation",
    ),
    Mutant(
        "runners/diagnostics.py",
        '("OptimizationTime (s)", optimization - replay),',
        '("OptimizationTime (s)", optimization),',
        "runners/test_minibatch_rl.py",
        "the seconds of replay are logged twice",
    ),
    Mutant(
        "runners/async_rl.py",
        "updates = self.algo.update_counter - first_update + self.algo.updates_per_optimize",
        "updates = self.algo.update_counter - first_update",
        "runners/test_async_rl.py",
        "the replay ratio is exceeded by one optimization",
    ),
    Mutant(
        "runners/sync_rl.py",
        "return self._settle_seed() + SEED_STEP * self.rank",
        "return self._settle_seed()",
        "runners/test_sync_rl.py",
        "all ranks draw the same random numbers",
    ),
    Mutant(
        "runners/checkpoint.py",
        "for name, _ in self._dropped_before:",
        "for name, _ in self._dropped:",
        "runners/test_resume.py",
        "files of replay that the snapshot before needs are deleted",
    ),
    Mutant(
        "runners/offline_rl.py",
        "        self.agent.train_mode(itr)\n",
        "",
        "runners/test_offline_rl.py",
        "after an evaluation, agents learn from a data set in the mode of sampling",
    ),
    Mutant(
        "runners/offline_rl.py",
        "        n_after = min(n_step, n_blank)\n",
        "        n_after = 0\n",
        "runners/test_offline_rl.py",
        "the last steps of a data set are never drawn",
    ),
    Mutant(
        "runners/offline_rl.py",
        "        algo.learns_statistics = False  # It gets those of the data set here.\n",
        "",
        "runners/test_offline_rl.py",
        "observations of a data set count twice in statistics",
    ),
    Mutant(
        "runners/offline_rl.py",
        "        if self._draws is not None:\n            self._load_draws(self._draws)\n",
        "",
        "runners/test_offline_rl.py",
        "a resumed run on a data set draws other samples",
    ),
    Mutant(
        "runners/offline_rl.py",
        "algo.replay_size = len(episodes) + 2 * n_step + 1 + _n_frames(episodes)",
        "algo.replay_size = len(episodes) + 1 + _n_frames(episodes)",
        "runners/test_offline_rl.py",
        "the first steps of a data set are overwritten",
    ),
    Mutant(
        "utils/interrupt.py",
        "return 128 + (self.signal or 0)",
        "return 1",
        "utils/test_interrupt.py runners/test_minibatch_rl.py",
        "the exit code does not tell of a signal",
    ),
    # --- launching -----------------------------------------------------------------------------------------------------
    Mutant(
        "utils/launching/exp_launcher.py",
        "n_runs = max(entry[0], both[place][0]) if place in both else entry[0]",
        "n_runs = entry[0]",
        "utils/launching/test_exp_launcher.py",
        "runs that were asked for before are not part of the experiment any more",
    ),
    Mutant(
        "utils/launching/sweep.py",
        "elif self.is_stopped or exit_code in EXITS_BY_SIGNAL:",
        "elif self.is_stopped or exit_code == 128 + signal.SIGINT:",
        "utils/launching/test_exp_launcher.py",
        "a run that was told to end counts as failed",
    ),
    Mutant(
        "utils/launching/variant.py",
        "new = copy.deepcopy(dict(variant))",
        "new = dict(variant)",
        "utils/launching/test_variant.py",
        "variants share their dictionaries",
    ),
    Mutant(
        "utils/launching/resources.py",
        "second = [b or a for a, b in zip(first, other)]",
        "second = list(first)",
        "utils/launching/test_affinity.py",
        "both groups of alternating workers have the same hyperthreads",
    ),
    Mutant(
        "utils/launching/halving.py",
        "int(len(there) / eta)",
        "round(len(there) / eta)",
        "utils/launching/test_halving.py",
        "a trial is promoted that is not among the best third",
    ),
    Mutant(
        "utils/launching/journal.py",
        "os.ftruncate(self._descriptor, sum(map(len, _complete_lines(path))))",
        "pass",
        "utils/launching/test_search.py",
        "a line that a killed launcher has half written stays in the journal",
    ),
    Mutant(
        "utils/launching/search.py",
        "pause_at=self._settings.rungs[trial.rung],",
        "pause_at=self._settings.rungs[-1],",
        "utils/launching/test_search.py",
        "trials train up to the last rung at once",
    ),
    Mutant(
        "runners/minibatch_rl.py",
        "self.stop_reason = self._reason_to_pause(self.diagnostics.cum_steps)",
        "pass",
        "runners/test_resume.py",
        "a run that is launched again at its rung trains on",
    ),
    # --- envs, episodes ------------------------------------------------------------------------------------------------
    Mutant(
        "envs/gym.py",
        "timeout = truncated and not terminated",
        "timeout = truncated",
        "envs/test_gym.py",
        "a step that terminates and truncates counts as a time limit",
    ),
    Mutant(
        "envs/gym.py",
        "seed, self._seed = self._seed, None",
        "seed = self._seed",
        "envs/test_gym.py",
        "every episode begins in the same way",
    ),
    Mutant(
        "envs/atari/atari_env.py",
        "lost_life = 0 < lives < self._lives",
        "lost_life = lives < self._lives",
        "envs/atari/test_atari_env.py",
        "the end of a game counts as a lost life",
    ),
    Mutant(
        "envs/atari/atari_env.py",
        "np.maximum(self._raw_frame_1, self._raw_frame_2, out=self._max_frame)",
        "pass",
        "envs/atari/test_atari_env.py",
        "sprites that flicker are not seen",
    ),
    Mutant(
        "envs/multitask.py",
        "own, spaces_seed, *seeds = child_seeds(seed, self.num_tasks + 2)",
        "own, spaces_seed, *seeds = [seed] * (self.num_tasks + 2)",
        "envs/test_multitask.py",
        "all tasks have one seed",
    ),
    Mutant(
        "episodes/assembler.py",
        "self._forget(columns[continues & pieces.ends])",
        "pass",
        "episodes/test_assembler.py",
        "steps of an episode are returned again with the next one",
    ),
    # --- agents, models, distributions, utils --------------------------------------------------------------------------
    Mutant(
        "agents/dqn/epsilon_greedy.py",
        "self.distribution.set_epsilon(self.eps_eval if itr > 0 else 1.0)",
        "self.distribution.set_epsilon(self.eps_eval)",
        "agents/dqn/test_dqn_agents.py agents/dqn/test_catdqn_agent.py",
        "the first evaluation is not of random actions",
    ),
    Mutant(
        "agents/recurrent.py",
        "self._states, self.turn = self._sampling\n",
        "pass\n",
        "agents/test_recurrent.py samplers/test_recurrent_state.py",
        "sampling begins anew after each evaluation",
    ),
    Mutant(
        "models/running_mean_std.py",
        "delta.square() * (self.count * n / count)",
        "delta.square() * n",
        "models/test_running_mean_std.py",
        "the variance of several batches is wrong",
    ),
    Mutant(
        "models/batch_renorm.py",
        "            layer.uses_running = False\n",
        "            pass\n",
        "models/test_batch_renorm.py",
        "layers go on with running statistics after they were told to use them once",
    ),
    Mutant(
        "models/dqn/mlp_iqn_model.py",
        "            make_noisy(self.first)\n",
        "",
        "models/dqn/test_noisy.py",
        "the first layer for quantiles is without noise",
    ),
    Mutant(
        "models/batch_renorm.py",
        "                r, d = self._corrections(mean, var)\n                self._count(mean, var)\n",
        "                self._count(mean, var)\n                r, d = self._corrections(mean, var)\n",
        "models/test_batch_renorm.py",
        "corrections are relative to statistics that have the batch already",
    ),
    Mutant(
        "models/batch_renorm.py",
        "if self.uses_running or not self.training:",
        "if not self.training:",
        "models/test_batch_renorm.py algos/qpg/test_ensemble_sac.py",
        "running statistics are not used, and change, where they must not",
    ),
    Mutant(
        "models/qpg/ensemble.py",
        "return _Dropped.apply(grad, ctx.p, ctx.places), None, None",
        "return grad, None, None",
        "models/qpg/test_ensemble.py",
        "dropped units have gradients",
    ),
    Mutant(
        "distributions/gaussian.py",
        "log_density = log_density - math.log(self.squash) - 2 *",
        "log_density = log_density - 2 *",
        "distributions/test_gaussian.py",
        "the density of squashed samples forgets their scale",
    ),
    Mutant(
        "utils/seed.py",
        "_permute_32_bits(PURPOSES[purpose] << _INDEX_BITS | index,",
        "_permute_32_bits(index,",
        "utils/test_seed.py samplers/test_samplers_agree.py",
        "evaluation environments have the seeds of training ones",
    ),
    Mutant(
        "utils/aggregate.py",
        "take(range(n // 4, n - n // 4), axis=axis)",
        "take(range(round(n / 4), n - round(n / 4)), axis=axis)",
        "utils/test_aggregate.py",
        "the interquartile mean is wrong unless the runs are a multiple of four",
    ),
    Mutant(
        "utils/logging/store.py",
        "return itr == 0 or (itr + 1) // self.gap > (self.last_itr + 1) // self.gap",
        "return itr == 0 or itr // self.gap > self.last_itr // self.gap",
        "utils/logging/test_logger.py",
        "snapshots at a gap come an iteration late",
    ),
]


def copy_tree(tree: Path, directory: Path) -> None:
    """Copy the files of a working tree, but for those that git ignores."""
    names = subprocess.run(
        ["git", "-C", str(tree), "ls-files", "-z", "--cached", "--others", "--exclude-standard"], capture_output=True, check=True
    )
    for name in names.stdout.decode().split("\0"):
        if name and (tree / name).is_file():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(tree / name, directory / name)


class Copy:
    """A copy of a tree, in which errors are made one after the other."""

    def __init__(self, tree: Path) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="mutations-"))
        copy_tree(tree, self.path)
        self._time = int(time.time())

    def write(self, file: Path, text: str) -> None:
        """Write a file with another time than before, by which Python and numba see that what they compiled is outdated."""
        file.write_text(text)
        self._time += 1
        os.utime(file, (self._time, self._time))

    def judge(self, mutant: Mutant, quick: bool) -> dict:
        """Return what becomes of an error."""
        file = self.path / "rlpyt" / mutant.file
        text = file.read_text()
        if text.count(mutant.old) != 1:
            return dict(result="outdated", by=f"the text occurs {text.count(mutant.old)} times")
        self.write(file, text.replace(mutant.old, mutant.new))
        try:
            return self._run(mutant, quick)
        finally:
            self.write(file, text)

    def _run(self, mutant: Mutant, quick: bool) -> dict:
        tests = [f"tests/{name}" for name in mutant.tests.split()]
        command = [sys.executable, "-m", "pytest", "-x", "-rfE", "-p", "no:cacheprovider", *tests, *(["-m", "not full"] if quick else [])]
        environment = dict(os.environ, PYTHONPATH=str(self.path), OMP_NUM_THREADS="1")
        start = time.monotonic()
        with tempfile.TemporaryFile("w+") as output:  # Not a pipe, which processes that are left behind could keep open.
            outputs = dict(stdout=output, stderr=subprocess.STDOUT)
            process = subprocess.Popen(["nice", "-n", "3", *command], cwd=self.path, env=environment, start_new_session=True, **outputs)
            try:
                code = process.wait(TIMEOUT)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                return dict(result="caught", by=f"no end after {TIMEOUT} s", seconds=TIMEOUT)
            output.seek(0)
            text = output.read()
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE)
        result = {0: "survived", 1: "caught", 2: "caught", 5: "survived"}.get(code, f"pytest ended with {code}")
        return dict(result=result, by=failed[1] if failed else text[-300:] if code else "", seconds=round(time.monotonic() - start, 1))


def judge_all(mutants: list[Mutant], tree: Path, jobs: int, quick: bool, results: Path | None) -> dict[str, dict]:
    """Return what becomes of each error, by its key; print it, and keep it in the file `results`."""
    found = json.loads(results.read_text()) if results is not None and results.exists() else {}
    todo, lock = queue.SimpleQueue(), threading.Lock()
    for mutant in mutants:
        if key_of(mutant) not in found:
            todo.put(mutant)

    def work() -> None:
        copy = Copy(tree)
        try:
            while not todo.empty():
                mutant = todo.get()
                outcome = copy.judge(mutant, quick)
                with lock:
                    found[key_of(mutant)] = outcome
                    if results is not None:
                        results.write_text(json.dumps(found, indent=1))
                    print(f"{outcome['result']:9} {mutant.file}: {mutant.says} ({outcome['by']})", flush=True)
        finally:
            shutil.rmtree(copy.path, ignore_errors=True)

    threads = [threading.Thread(target=work) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def key_of(mutant: Mutant) -> str:
    """What an error is called in files of results."""
    return f"{mutant.file}: {mutant.says}"


def table(columns: dict[str, dict[str, dict]]) -> str:
    """Return the table of all errors, with a column for each file of results, by its title."""
    lines = [f"| file | error | {' | '.join(columns)} |", "|---|---|" + "---|" * len(columns)]
    for mutant in MUTANTS:
        outcomes = [found.get(key_of(mutant), dict(result="not run"))["result"] for found in columns.values()]
        marked = [f"**{outcome}**" if outcome != "caught" else outcome for outcome in outcomes]
        lines.append(f"| `{mutant.file}` | {mutant.says} | {' | '.join(marked)} |")
    caught = [sum(found.get(key_of(mutant), {}).get("result") == "caught" for mutant in MUTANTS) for found in columns.values()]
    lines.append(f"| | **caught, of {len(MUTANTS)}** | {' | '.join(f'**{n}**' for n in caught)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="errors whose file or description contains this")
    parser.add_argument("--jobs", type=int, default=1, help="how many run at the same time, each in a copy of its own")
    parser.add_argument("--quick", action="store_true", help="run only the quick tests")
    parser.add_argument("--tree", type=Path, default=ROOT, help="a checkout with the code and the tests; default: this one")
    parser.add_argument("--results", type=Path, help="file with the results, which is read and written")
    parser.add_argument("--table", nargs="+", metavar="TITLE=FILE", help="write tests/mutations.md from such files, and run nothing")
    args = parser.parse_args()
    if args.table:
        columns = {title: json.loads(Path(file).read_text()) for title, file in (each.split("=", 1) for each in args.table)}
        page = PAGE.read_text()
        PAGE.write_text(page[: page.index("| file |")] + table(columns))
        return
    mutants = [mutant for mutant in MUTANTS if args.only in key_of(mutant)]
    found = judge_all(mutants, args.tree, args.jobs, args.quick, args.results)
    n_caught = sum(found[key_of(mutant)]["result"] == "caught" for mutant in mutants)
    print(f"{n_caught} of {len(mutants)} caught")
    sys.exit(n_caught < len(mutants))


if __name__ == "__main__":
    main()
