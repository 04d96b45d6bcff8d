"""Replay of sequences with the recurrent states that the agent had while sampling: what algorithms for agents with memory share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from rlpyt.algos.replay import SamplesToBuffer
from rlpyt.replays.sequence.frame import (
    AsyncPrioritizedSequenceReplayFrameBuffer,
    AsyncUniformSequenceReplayFrameBuffer,
    PrioritizedSequenceReplayFrameBuffer,
    UniformSequenceReplayFrameBuffer,
)
from rlpyt.replays.sequence.prioritized import AsyncPrioritizedSequenceReplayBuffer, PrioritizedSequenceReplayBuffer
from rlpyt.replays.sequence.uniform import AsyncUniformSequenceReplayBuffer, UniformSequenceReplayBuffer
from rlpyt.utils.buffer import buffer_func
from rlpyt.utils.collections import field_of, namedarraytuple

# What is stored of a step, and the recurrent state before it, [T,B,...], or None if none is stored.
SamplesToBufferRnn = namedarraytuple("SamplesToBufferRnn", SamplesToBuffer._fields + ("prev_rnn_state",))

# Buffers of sequences, by (frames stored once, prioritized, shared by processes).
SEQUENCE_BUFFERS = {
    (False, False, False): UniformSequenceReplayBuffer,
    (False, False, True): AsyncUniformSequenceReplayBuffer,
    (False, True, False): PrioritizedSequenceReplayBuffer,
    (False, True, True): AsyncPrioritizedSequenceReplayBuffer,
    (True, False, False): UniformSequenceReplayFrameBuffer,
    (True, False, True): AsyncUniformSequenceReplayFrameBuffer,
    (True, True, False): PrioritizedSequenceReplayFrameBuffer,
    (True, True, True): AsyncPrioritizedSequenceReplayFrameBuffer,
}


@dataclass(frozen=True)
class Sequences:
    """Sequences that an algorithm replays, in place of transitions.

    Attributes:
        batch_T: steps of a sequence to train on.
        batch_B: sequences per gradient update.
        warmup_T: steps of a sequence before those to train on.
        rnn_state_interval: steps between two stored recurrent states; 0 stores none.
    """

    batch_T: int
    batch_B: int
    warmup_T: int
    rnn_state_interval: int

    buffers: ClassVar = SEQUENCE_BUFFERS

    @property
    def size(self) -> int:
        """Number of steps that an update replays."""
        return (self.batch_T + self.warmup_T) * self.batch_B

    @property
    def n_drawn(self) -> int:
        """Number of sequences that an update draws from the buffer."""
        return self.batch_B

    @property
    def n_trained(self) -> int:
        """Number of steps that an update trains on."""
        return self.batch_T * self.batch_B

    def replay_kwargs(self) -> dict[str, Any]:
        """Return the arguments of the replay buffer about sequences."""
        return dict(rnn_state_interval=self.rnn_state_interval, batch_T=self.warmup_T + self.batch_T)

    def stored(self, steps: SamplesToBuffer, agent_info: Any) -> Any:
        """Return what is stored of steps [T,B,...]: also the recurrent states. Sequences end before an episode does."""
        prev_rnn_state = agent_info.prev_rnn_state if self.rnn_state_interval else None
        return SamplesToBufferRnn(*steps._replace(final_observation=None), prev_rnn_state)


def agent_inputs(samples: Any) -> tuple[Any, Any, torch.Tensor]:
    """Return the agent's inputs at each step of sequences; previous ones are null at episode starts if the buffer provides that."""
    if field_of(samples, "all_prev_reward") is None:
        return samples.all_observation, samples.all_action, samples.all_reward
    return samples.all_observation, samples.all_prev_action, samples.all_prev_reward


def as_model_state(init_rnn_state: Any) -> Any:
    """Transpose a stored state [B,N,...] to [N,B,...] for models; return None for None."""
    return buffer_func(init_rnn_state, lambda x: x.transpose(0, 1).contiguous())
