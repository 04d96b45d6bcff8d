"""LunarLander-v3, which counts as solved at a mean return of 200."""

from rlpyt.experiments.configs import variant
from rlpyt.experiments.configs.classic import cartpole

classes = cartpole.classes
classes_by_key = {key: cartpole.classes_by_key[key] for key in ("ppo", "dqn", "catdqn", "rainbow", "qr_dqn", "iqn")}


def landing(config: dict, **sections: dict) -> dict[str, dict]:
    """Return a configuration for CartPole with this task instead, and other settings."""
    sections["sampler"] = dict(eval_max_steps=20_000, **sections["sampler"])  # An episode has up to 1000 steps.
    return variant(config, env=dict(id="LunarLander-v3"), model=dict(hidden_sizes=[256, 256]), **sections)


off_policy: dict[str, dict] = dict(
    algo=dict(batch_size=128, replay_size=100_000, replay_ratio=32, n_step_return=3, target_update_interval=250, eps_steps=25_000),
    runner=dict(n_steps=200e3, log_interval_steps=10e3),
    sampler=dict(batch_T=4, batch_B=4),
)
# The atoms are 3 apart. With atoms 12 apart (-300 to 300), a run learned to hover until the time limit, not to land.
distribution = dict(V_min=-150, V_max=150)
catdqn = variant(cartpole.configs["catdqn"], agent=dict(n_atoms=101), algo=distribution)
# Epsilon explores besides the noise. With noise alone, a run had a return of -142 after 70,000 steps (atoms from -150 to 250).
# Importance-sampling weights make gradients so small that DQN's eps of Adam, 0.01 / batch_size, slows learning down: with it, two of three
# runs hovered until the time limit.
rainbow = variant(
    cartpole.configs["rainbow"], agent=dict(n_atoms=101, eps_init=1.0, eps_final=0.02), algo=distribution, optim=dict(eps=1e-6)
)

configs = dict(
    ppo=landing(
        cartpole.configs["ppo"],
        algo=dict(discount=0.999, learning_rate=3e-4, gae_lambda=0.98, entropy_loss_coeff=0.01, minibatches=32, epochs=4),
        runner=dict(n_steps=1e6, log_interval_steps=50e3),
        sampler=dict(batch_T=128, batch_B=16),
    ),
    dqn=landing(cartpole.configs["dqn"], **off_policy),
    catdqn=landing(catdqn, **off_policy),
    rainbow=landing(rainbow, **off_policy),
    qr_dqn=landing(cartpole.configs["qr_dqn"], **off_policy),
    iqn=landing(cartpole.configs["iqn"], **off_policy),
)
