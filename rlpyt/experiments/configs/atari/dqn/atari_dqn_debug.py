"""DQN on Atari games with other replay buffers and collectors, to compare them."""

from rlpyt.experiments.configs import variant
from rlpyt.experiments.configs.atari.dqn import atari_dqn

classes = dict(atari_dqn.classes, sampler="rlpyt.samplers.parallel.cpu.sampler.CpuSampler")
classes_by_key = dict(
    catdqn=atari_dqn.categorical,
    ernbw=atari_dqn.categorical,
    reset_collector=dict(collector="rlpyt.samplers.parallel.cpu.collectors.CpuResetCollector"),
    monolithic_uniformframe=dict(replay_buffer="rlpyt.replays.non_sequence.frame.UniformReplayFrameBuffer"),
    uniform_noframe=dict(replay_buffer="rlpyt.replays.non_sequence.uniform.UniformReplayBuffer"),
)

dqn = variant(atari_dqn.dqn)

configs = dict(
    dqn=dqn,
    double_pri_duel=variant(atari_dqn.double_pri_duel),
    catdqn=variant(dqn, algo=dict(learning_rate=2.5e-4)),
    ernbw=variant(dqn, algo=dict(n_step_return=3, learning_rate=6.25e-5)),
    reset_collector=variant(dqn),
    monolithic_uniformframe=variant(dqn),
    uniform_noframe=variant(dqn),
)
