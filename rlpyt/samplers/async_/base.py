"""An asynchronous sampler runs in a separate process, and fills two or more batches in turn."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch

from rlpyt.envs.vector import VectorEnvs
from rlpyt.samplers.base import set_traj_info_attributes
from rlpyt.samplers.collectors import episodes_per_env
from rlpyt.types import AsyncAgent, BatchSpec, Samples
from rlpyt.utils.buffer import torchify_buffer
from rlpyt.utils.misc import split_evenly
from rlpyt.utils.processors import bind_master, check_affinity

# Base of the mixins, classes in front of a sampler. It tells type checkers the attributes of a sampler; at run time it is empty.
if TYPE_CHECKING:
    from rlpyt.samplers.parallel.base import ParallelSamplerBase as SamplerMixin
else:
    SamplerMixin = object


class AsyncSamplerMixin(SamplerMixin):
    """In front of a sampler: ``class AsyncCpuSampler(AsyncSamplerMixin, CpuSampler)``.

    The process that trains calls `async_initialize`; it may then split the sampler into `parts`. Each part runs in a separate process,
    where `initialize` binds it to its processors. It fills one of two or more batches in shared memory, and acts with the latest
    parameters that the trained agent has sent (`send_shared_memory`).
    """

    async_ = True
    has_workers = False  # Whether worker processes share the environments of a sampling process.
    agent: AsyncAgent

    def async_initialize(
        self,
        agent: AsyncAgent,
        bootstrap_value: bool = False,
        traj_info_kwargs: dict | None = None,
        seed: int | None = None,
        n_batches: int = 2,
    ) -> tuple[tuple[Samples, ...], dict]:
        """In the process that trains: initialize the agent, allocate batches; return them, and examples of their fields.

        Args:
            agent: the agent, which this process trains.
            bootstrap_value: record the values that policy gradient methods bootstrap from.
            traj_info_kwargs: set as class attributes of the TrajInfo class, with an underscore in front.
            seed: of the run; each environment has its own stream of random numbers, whichever process it is in.
            n_batches: batches to fill in turn, at least 2.

        Raises:
            ValueError: vectors of a given size (`VectorEnvs` with `n`) do not fit the number of environments.
        """
        self.shutdown()
        self._check_vectors(range(self.batch_spec.B), range(self.eval_n_envs), is_split_later=True)
        examples = self._allocate(agent, seed, bootstrap_value, traj_info_kwargs, n_batches=n_batches)
        agent.async_initialize()
        return self.double_buffer, examples

    @property
    def double_buffer(self) -> tuple[Samples, ...]:
        """The batches, torch tensors in shared memory: two, unless `async_initialize` was asked for more."""
        return tuple(samples for samples, _ in self._batches)

    def parts(self, n: int) -> list[Any]:
        """After `async_initialize`: return `n` samplers, each with an even share of environments and columns, for separate processes.

        Raises:
            ValueError: there are not enough environments, or vectors of a given size do not fit the shares.
        """
        if n == 1:
            self._check_vectors(range(self.batch_spec.B), range(self.eval_n_envs), self.has_workers)
            return [self]
        each = 2 if self.alternating else 1
        B = self.batch_spec.B
        if B < n * each or (self.alternating and B % 2):
            raise ValueError(
                f"batch_B={B} environments cannot be shared out among {n} sampling processes"
                f"{', an even number each' if self.alternating else ''}: give the sampler more, or affinity['sampler'] fewer entries."
            )
        shares = [range(each * share.start, each * share.stop) for share in split_evenly(B // each, n)]
        eval_shares = split_evenly(self.eval_n_envs, n)
        for share in zip(shares, eval_shares):
            self._check_vectors(*share, self.has_workers)
        return [self._part(*share) for share in zip(shares, eval_shares)]

    def _check_vectors(self, columns: range, eval_envs: range, is_split_later: bool) -> None:
        """Raise ValueError if vectors of a given size do not fit; `is_split_later`: whether several processes share these columns."""
        for EnvCls, share, total in (
            (self.EnvCls, columns, f"batch_B={self.batch_spec.B}"),
            (self.eval_EnvCls, eval_envs, f"eval_n_envs={self.eval_n_envs}"),
        ):
            if isinstance(EnvCls, VectorEnvs) and share and not (is_split_later and EnvCls.n and len(share) % EnvCls.n == 0):
                EnvCls.check_share(len(share), f"sampling processes have {len(share)} of {total}")

    def _part(self, columns: range, eval_envs: range) -> Any:
        part = copy.copy(self)
        part.shutdown()  # Nothing has been started; what will be is its own.
        part.batch_spec = BatchSpec(self.batch_spec.T, len(columns))
        part._env_ranks = self._env_ranks[columns.start : columns.stop]
        batches_np = [samples_np[:, columns.start : columns.stop] for _, samples_np in self._batches]
        part._batches = [(torchify_buffer(samples_np), samples_np) for samples_np in batches_np]
        part._use_batch(0)
        part.eval_n_envs = len(eval_envs)
        if eval_envs:
            part.eval_max_steps = self.eval_max_T * len(eval_envs)
            shares = episodes_per_env(self.eval_max_trajectories, self.eval_n_envs)
            if shares is not None:
                part.eval_max_trajectories = sum(shares[eval_envs.start : eval_envs.stop])
        part._first_eval_env = self._first_eval_env + eval_envs.start
        return part

    def initialize(self, affinity: dict | None = None) -> None:  # type: ignore[override]
        """In the sampling process: bind it to processors, copy the agent's parameters, start environments and workers.

        Args:
            affinity: that of `MinibatchRl`. ``cuda_idx`` is where the agent acts, if it does so in this process.

        Raises:
            WorkerError: a worker raised or died while it started.
        """
        check_affinity(affinity)
        affinity = affinity or {}
        torch.set_num_threads(int(affinity.get("master_torch_threads") or 1))  # First: forked, it cannot use those of its parent.
        set_traj_info_attributes(self.TrajInfoCls, self._traj_info_kwargs)  # In a process that was not forked.
        self.agent.async_cpu(share_memory=self.agent_in_workers)
        if not self.agent_in_workers:
            self.agent.to_device(affinity.get("cuda_idx"))
        self._start(affinity)
        bind_master(affinity)

    def obtain_samples(self, itr: int, db_idx: int) -> list:  # type: ignore[override]
        """Copy the latest parameters, and fill batch number `db_idx`; return the TrajInfos of the episodes that ended in it."""
        self.agent.recv_shared_memory()
        self._use_batch(db_idx)
        _, traj_infos = super().obtain_samples(itr)
        return traj_infos

    @property
    def acting_parameters_version(self) -> int:
        """Version of the parameters that acted in the last batch. A sampler that samples ahead extends it."""
        return self.agent.parameters_version

    def update_envs(self, updates: Any) -> list[int]:
        """Raise NotImplementedError: environments of an asynchronous sampler cannot be reached."""
        raise NotImplementedError(
            f"The environments of {type(self).__name__} are in processes that never stop sampling: there is no moment between two batches. "
            "Give EnvCls a list, or environments that change by themselves, such as rlpyt.envs.multitask.MultiEnvWrapper; or take a "
            "synchronous sampler."
        )

    def evaluate_agent(self, itr: int) -> list:
        """Copy the latest parameters, and play evaluation episodes; return their TrajInfos."""
        self.agent.recv_shared_memory()
        return super().evaluate_agent(itr) if self.eval_n_envs else []


class AsyncParallelSamplerMixin(AsyncSamplerMixin):
    """For samplers with worker processes."""

    has_workers = True
