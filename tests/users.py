"""A collector and a sampler as users write them for the original rlpyt: importable as ``users`` here and in spawned processes."""

import numpy as np

from rlpyt.samplers.base import BaseSampler
from rlpyt.samplers.buffer import build_samples_buffer
from rlpyt.samplers.collections import AgentInputs
from rlpyt.samplers.collectors import DecorrelatingStartCollector
from rlpyt.utils.buffer import buffer_func, numpify_buffer, torchify_buffer


class MyCollector(DecorrelatingStartCollector):
    """A training loop that fills the documented fields of a batch, and knows no others."""

    mid_batch_reset = True

    def collect_batch(self, agent_inputs, traj_infos, itr):
        agent_buf, env_buf = self.samples_np.agent, self.samples_np.env
        completed_infos = []
        inputs = AgentInputs(*(buffer_func(part, np.copy) for part in agent_inputs))
        inputs_pyt = torchify_buffer(inputs)
        agent_buf.prev_action[0] = inputs.prev_action
        env_buf.prev_reward[0] = inputs.prev_reward
        self.agent.sample_mode(itr)
        for t in range(self.batch_T):
            env_buf.observation[t] = inputs.observation
            action, agent_info = numpify_buffer(tuple(self.agent.step(*inputs_pyt)))
            for b, env in enumerate(self.envs):
                before = np.copy(inputs.observation[b])
                o, r, d, env_info = env.step(action[b])
                traj_infos[b].step(before, action[b], r, d, None, env_info)
                if getattr(env_info, "traj_done", d):
                    completed_infos.append(traj_infos[b].terminate(o))
                    traj_infos[b] = self.TrajInfoCls()
                    o = env.reset()
                if d:
                    self.agent.reset_one(idx=b)
                inputs.observation[b], inputs.prev_reward[b] = o, r
                env_buf.done[t, b] = d
                if env_info is not None:
                    env_buf.env_info[t, b] = env_info
            inputs.prev_action[:] = action
            agent_buf.action[t], env_buf.reward[t] = action, inputs.prev_reward
            if agent_info is not None:
                agent_buf.agent_info[t] = agent_info
        if "bootstrap_value" in agent_buf:
            agent_buf.bootstrap_value[:] = self.agent.value(*inputs_pyt)
        return inputs, traj_infos, completed_infos


class MySampler(BaseSampler):
    """A sampler in one process, written on the base class alone."""

    def initialize(self, agent, affinity=None, seed=None, bootstrap_value=False, traj_info_kwargs=None, rank=0, world_size=1):
        envs = [self.EnvCls(**self.env_kwargs) for _ in range(self.batch_spec.B)]
        agent.initialize(envs[0].spaces, share_memory=False, global_B=self.batch_spec.B, env_ranks=list(range(self.batch_spec.B)))
        self.samples_pyt, self.samples_np, examples = build_samples_buffer(
            agent, envs[0], self.batch_spec, bootstrap_value, agent_shared=False, env_shared=False, subprocess=False
        )
        for name, value in (traj_info_kwargs or {}).items():
            setattr(self.TrajInfoCls, "_" + name, value)
        self.collector = self.CollectorCls(0, envs, self.samples_np, self.batch_spec.T, self.TrajInfoCls, agent)
        self.agent_inputs, self.traj_infos = self.collector.start_envs(self.max_decorrelation_steps)
        self.collector.start_agent()
        return examples

    def obtain_samples(self, itr):
        self.agent_inputs, self.traj_infos, completed = self.collector.collect_batch(self.agent_inputs, self.traj_infos, itr)
        self.collector.reset_if_needed(self.agent_inputs)
        return self.samples_pyt, completed
