"""Room on a Ray cluster for the actors of samplers."""

from __future__ import annotations

import time

from rlpyt.utils import cluster
from rlpyt.utils.cluster import extend_path, import_ray  # noqa: F401  Documented under this path.
from rlpyt.utils.logging import logger

_FREE_SECONDS = 2.0  # time until a cluster has freed the resources of ended actors


class Cluster(cluster.Cluster):
    """A connection to a Ray cluster that counts how many actors fit into the cluster.

    Args:
        address, init_kwargs: see `rlpyt.utils.cluster.Cluster`.
    """

    def n_places(self, num_cpus: float, n_samplers: int = 1) -> int:
        """Return for how many actors with `num_cpus` each (1 if `num_cpus` is 0) the CPUs suffice.

        Args:
            n_samplers: number of the run's samplers, in separate processes that share a cluster.
        """
        return int(self.resource("CPU") // ((num_cpus or 1) * self._n_sharing(n_samplers)))

    def check_room(self, n: int, num_cpus: float, fewer: str, n_samplers: int = 1) -> None:
        """Check that `n` actors with `num_cpus` each fit into the cluster; log a line if they must wait for others to end.

        Args:
            fewer: the argument that sets the number of actors, for messages.
            n_samplers: see `n_places`.

        Raises:
            ValueError: the cluster has fewer CPUs.
        """
        n_sharing = self._n_sharing(n_samplers)
        if n * num_cpus * n_sharing > self.resource("CPU"):
            shared = f", which {n_sharing} samplers of this run share" if n_sharing > 1 else ""
            raise ValueError(
                f"{n} actors with num_cpus={num_cpus:g} need more than the {self.resource('CPU'):g} CPUs of the Ray cluster{shared}: give "
                f"the sampler less {fewer}, or actor_options with a smaller num_cpus."
            )
        deadline = time.monotonic() + _FREE_SECONDS
        while (free := self._free_cpus()) < n * num_cpus:
            if time.monotonic() > deadline:
                logger.warn(
                    f"{n} actors with num_cpus={num_cpus:g} wait until CPUs become free: now {free:g} of the "
                    f"{self.resource('CPU'):g} CPUs of the Ray cluster are. If none will, give the sampler less {fewer}; or, if the CPUs "
                    "are reserved for this run, actor_options=dict(num_cpus=0)."
                )
                return
            time.sleep(0.1)

    def _free_cpus(self) -> float:
        return float(self._ray.available_resources().get("CPU", 0))

    def _n_sharing(self, n_samplers: int) -> int:
        return 1 if self._is_own else n_samplers
