"""Room on a Ray cluster for the actors of samplers."""

from __future__ import annotations

import time

from rlpyt.utils import cluster
from rlpyt.utils.cluster import extend_path, import_ray  # noqa: F401  Documented under this path.
from rlpyt.utils.logging import logger

_FREE_SECONDS = 2.0  # within which a cluster knows that actors have ended, and what they held is free


class Cluster(cluster.Cluster):
    """A connection to a Ray cluster that tells a sampler how many actors find a place there.

    Args:
        address: see `rlpyt.utils.cluster.Cluster`.
        init_kwargs: likewise.
    """

    def n_places(self, num_cpus: float, n_samplers: int = 1) -> int:
        """Return how many actors with `num_cpus` each (one, if that is 0) the CPUs suffice for.

        Args:
            n_samplers: of the run, in separate processes that share a cluster.
        """
        return int(self.resource("CPU") // ((num_cpus or 1) * self._n_sharing(n_samplers)))

    def check_room(self, n: int, num_cpus: float, fewer: str, n_samplers: int = 1) -> None:
        """Check that `n` actors with `num_cpus` each find a place, now or later; say so in the log if it is not now.

        Args:
            fewer: the argument by which a user asks for fewer of them, for messages.
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
                    f"{n} actors with num_cpus={num_cpus:g} wait until others leave them room: {free:g} of the "
                    f"{self.resource('CPU'):g} CPUs of the Ray cluster are free. If that will not be, give the sampler less {fewer}; or, "
                    "where the CPUs are held for this very run, actor_options=dict(num_cpus=0)."
                )
                return
            time.sleep(0.1)

    def _free_cpus(self) -> float:
        return float(self._ray.available_resources().get("CPU", 0))

    def _n_sharing(self, n_samplers: int) -> int:
        return 1 if self._is_own else n_samplers
