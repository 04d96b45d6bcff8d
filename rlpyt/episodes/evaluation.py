"""Another path to `rlpyt.samplers.episodic.evaluation`."""

from rlpyt.utils.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, {"rlpyt.samplers.episodic.evaluation": ["obtain_evaluation_episodes", "rollout"]})
