"""The optional methods of policies."""

import numpy as np

from rlpyt.agents.policy import AgentPolicy
from rlpyt.samplers.episodic.policies import _OPTIONAL, OptionalMethods
from tests.policies_for_tests import ScriptedPolicy


class Doubling(ScriptedPolicy):
    def for_envs(self, actions):
        return 2 * actions


def test_methods_that_a_policy_has_are_its_own_and_the_others_do_nothing():
    policy = Doubling()
    optional = OptionalMethods(policy)
    assert "for_envs" in optional and optional.for_envs(3) == 6
    assert "prepare" not in optional and "policy" not in optional
    assert optional.prepare(None) is optional.sampling_state() is optional.take_rewards(np.zeros(1)) is None
    assert optional.copy_for_worker(cpu=True) is policy
    assert OptionalMethods(ScriptedPolicy()).for_envs(3) == 3


def test_an_agent_policy_has_all_optional_methods():
    assert all(callable(getattr(AgentPolicy, name)) for name in _OPTIONAL)
