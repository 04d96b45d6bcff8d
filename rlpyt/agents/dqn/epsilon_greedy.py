"""Epsilon-greedy exploration: annealing, one epsilon per environment, evaluation."""

from __future__ import annotations

import math
import multiprocessing as mp
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from rlpyt.utils.logging import logger
from rlpyt.utils.quick_args import save__init__args
from rlpyt.utils.settings import FRACTION, STEPS, checked
from rlpyt.utils.shared_int import SharedInt

# Base of the mixins, classes in front of an agent. It tells type checkers the attributes of an agent; at run time it is empty.
if TYPE_CHECKING:
    from rlpyt.agents.base import BaseAgent as AgentMixin
    from rlpyt.distributions.epsilon_greedy import EpsilonGreedy
    from rlpyt.envs.base import EnvSpaces
else:
    AgentMixin = object


class EpsilonGreedyAgentMixin(AgentMixin):
    """Sets the epsilon of the agent's (epsilon-greedy) distribution in each mode. It comes before the agent class.

    While sampling, epsilon changes linearly from eps_init at iteration eps_itr_min to eps_final at eps_itr_max. In
    evaluation it is eps_eval, and 1 at iteration 0 (before any training).

    Args:
        eps_init, eps_final: epsilon before and after annealing.
        eps_final_min: if neither None nor eps_final, final epsilons are log-spaced from eps_final_min to eps_final over
            all environments of the run. If there is only one, its final epsilon is eps_final_min.
        eps_itr_min, eps_itr_max: last sampler iteration at eps_init, first at eps_final. The algorithm overwrites them. They are in
            shared memory, so that all sampler workers see the new values.
        eps_eval: epsilon in evaluation.
    """

    eps_init: float
    eps_final: float
    eps_final_min: float | None
    eps_eval: float
    distribution: EpsilonGreedy

    eps_itr_min = SharedInt()
    eps_itr_max = SharedInt()
    _itr_told = -1  # The last iteration at which epsilon was logged: runner and collector both set the mode.

    @checked(eps_init=FRACTION, eps_final=FRACTION, eps_final_min=FRACTION, eps_itr_min=STEPS, eps_itr_max=STEPS, eps_eval=FRACTION)
    def __init__(
        self,
        eps_init: float = 1,
        eps_final: float = 0.01,
        eps_final_min: float | None = None,
        eps_itr_min: int = 50,
        eps_itr_max: int = 1000,
        eps_eval: float = 0.001,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        save__init__args(locals())
        if self.eps_final_min is not None and not 0 < self.eps_final_min <= self.eps_final:
            raise ValueError(
                f"eps_final_min={self.eps_final_min} must be above 0, and at most eps_final={self.eps_final}: the epsilons in between "
                "are evenly spaced in their logarithm."
            )
        self._make_one_epsilon()

    def _make_one_epsilon(self) -> None:
        self.eps_sample: float | torch.Tensor = self.eps_init
        # Epsilons before and after annealing: the numbers above, or tensors with one value per environment.
        self._eps_init_value: float | torch.Tensor = self.eps_init
        self._eps_final_value: float | torch.Tensor = self.eps_final

    def initialize(self, env_spaces: EnvSpaces, *args: Any, **kwargs: Any) -> None:
        """Extend the method: forget the epsilons of the environments that the agent served before."""
        self._make_one_epsilon()
        super().initialize(env_spaces, *args, **kwargs)

    def set_epsilon_itr_min_max(self, eps_itr_min: int, eps_itr_max: int) -> None:
        """Assign the sampler iterations of annealing. The algorithm calls it; its settings are in environment steps."""
        self.eps_itr_min, self.eps_itr_max = eps_itr_min, eps_itr_max

    def collector_initialize(self, global_B: int = 1, env_ranks: Sequence[int] | None = None) -> None:
        """In a worker process: take the epsilons of its environments."""
        super().collector_initialize(global_B, env_ranks)
        if env_ranks is not None:
            self.make_vec_eps(global_B, env_ranks)

    def make_vec_eps(self, global_B: int, env_ranks: Sequence[int]) -> None:
        """Space final epsilons over the `global_B` environments of the whole run, and select those of `env_ranks`.

        Does nothing without eps_final_min. In alternating sampling, pairs of environments, one of each half, share an epsilon.
        """
        if self.eps_final_min is None or self.eps_final_min == self.eps_final:
            return
        ranks = [int(rank) for rank in env_ranks]
        if self.alternating:
            if global_B % 2:
                raise ValueError(f"global_B={global_B} must be even for alternating sampling: two halves take turns.")
            global_B //= 2
            ranks = sorted({rank // 2 for rank in ranks})
        if not all(0 <= rank < global_B for rank in ranks):
            raise ValueError(f"env_ranks={list(env_ranks)} must be below the number of environments in the whole run.")
        log_min, log_final = math.log10(self.eps_final_min), math.log10(self.eps_final)
        self._eps_final_value = torch.logspace(log_min, log_final, global_B)[ranks]
        self.eps_sample = self._eps_init_value = torch.full_like(self._eps_final_value, self.eps_init)

    def set_sample_epsilon_greedy(self, epsilon: float | torch.Tensor) -> None:
        """Assign the epsilon with which actions are chosen from now on."""
        self.distribution.set_epsilon(epsilon)

    @contextmanager
    def acting_for(self, columns: torch.Tensor, B: int) -> Iterator[None]:
        """Extend the method: epsilons, if there are several, are those of these environments."""
        of_all = self.distribution.epsilon
        if isinstance(of_all, torch.Tensor) and of_all.dim():
            self.distribution.set_epsilon(of_all[columns])
        try:
            with super().acting_for(columns, B):
                yield
        finally:
            self.distribution.set_epsilon(of_all)

    def sample_mode(self, itr: int) -> None:
        """Extend the method: anneal epsilon to its value at sampler iteration `itr`."""
        super().sample_mode(itr)
        itr_min, itr_max = self.eps_itr_min, self.eps_itr_max
        progress = min(1.0, max(0.0, (itr - itr_min) / max(1, itr_max - itr_min)))
        self.eps_sample = progress * self._eps_final_value + (1 - progress) * self._eps_init_value
        self.set_sample_epsilon_greedy(self.eps_sample)
        is_to_be_told = itr <= itr_max and (itr % max(1, itr_max // 10) == 0 or itr == itr_max) and itr != self._itr_told
        if is_to_be_told and mp.parent_process() is None:
            self._itr_told = itr
            logger.log(f"Sampling epsilon at iteration {itr}: {_describe(self.eps_sample)}.")

    def eval_mode(self, itr: int) -> None:
        """Extend the method: set epsilon for evaluation at iteration `itr` of the runner, 1 before any training."""
        super().eval_mode(itr)
        self.distribution.set_epsilon(self.eps_eval if itr > 0 else 1.0)


def _describe(epsilon: float | torch.Tensor) -> str:
    if isinstance(epsilon, torch.Tensor):
        return f"{epsilon.min().item():.3g} to {epsilon.max().item():.3g}"
    return f"{epsilon:.3g}"
