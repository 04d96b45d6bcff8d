"""Installation of rlpyt. Tested versions of everything are in constraints.txt: pip install -c constraints.txt -e ".[atari,plot]"."""

from pathlib import Path

from setuptools import find_packages, setup

atari = ["ale-py>=0.10", "opencv-python-headless>=4.8"]
mujoco = ["mujoco>=3.1", "imageio>=2.14"]
plot = ["matplotlib>=3.8"]
video = ["pillow", "imageio-ffmpeg", "pygame-ce"]  # GIF, MP4, rendering of Gymnasium's classic environments
box2d = ['box2d>=2.3.10 ; python_version < "3.14"', "pygame-ce"]  # Later Pythons have no wheel of it.
envpool = ['envpool>=1.2.5 ; python_version >= "3.11" and python_version < "3.14"']  # Other Pythons have no wheel of it.
ray = ["ray>=2.30"]
minari = ["minari[hdf5]>=0.5"]
tune = ["optuna>=5.0"]

setup(
    name="rlpyt",
    version="1.0.0.dev0",
    description="Deep reinforcement learning in PyTorch, at high throughput: policy gradient, deep Q-learning, Q-function policy gradient.",
    long_description=(Path(__file__).parent / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.10",
    packages=find_packages(include=["rlpyt", "rlpyt.*"]),
    package_data={"rlpyt": ["py.typed"]},  # Its type hints are meant for type checkers.
    entry_points={"console_scripts": ["rlpyt = rlpyt.cli:main"]},
    install_requires=[
        "numpy>=2.0",
        "torch>=2.10",
        "gymnasium>=1.0",
        "psutil",
        "cloudpickle",
        "numba>=0.61",
        "tqdm",
        "tensorboard>=2.21",
    ],
    extras_require={
        "atari": atari,
        "mujoco": mujoco,
        "plot": plot,
        "video": video,
        "box2d": box2d,
        "wandb": ["wandb"],
        "envpool": envpool,
        "ray": ray,
        "minari": minari,
        "tune": tune,
        "test": [  # pytest-xdist 3.8 forgets with pytest 9.2 which tests belong together in one process.
            *("pytest>=8,<9.2", "pytest-timeout", "pytest-xdist", "hypothesis>=6", "ruff", "mypy"),
            *(*atari, *mujoco, *plot, *video, *box2d, *ray, *minari, *tune, "wandb"),
        ],
        "docs": ["sphinx>=8", "myst-parser>=4", "furo"],
    },
)
