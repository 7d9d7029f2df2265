"""The variants of the study: for each data set a base recipe and single changes to it."""

from __future__ import annotations

from dataclasses import dataclass, field

BASE = "base"
FOUR = [(5, 1), (5, 5), (20, 1), (20, 5)]  # ways and shots


def both(*parts: str) -> list[str]:
    """Change both views in the same way: ``both("elastic=null")``."""
    return [f"views.{view}.{part}" for part in parts for view in ("view_a", "view_b")]


def views(parts: str) -> list[str]:
    """Replace the parts of both views: ``views("{crop: {}}")``."""
    return [f"views.{view}={parts}" for view in ("view_a", "view_b")]


@dataclass(frozen=True)
class Study:
    """A data set, the recipe that is changed, and the changes.

    Parameters
    ----------
    data
        Name of the data set.
    recipe, overrides
        The base.
    epochs
        Default length of a run.
    settings
        Ways and shots of the validation tasks.
    every
        Use every n-th training image only.
    variants
        Overrides by name; each is one change, or several that belong together.
    """

    data: str
    recipe: str
    epochs: float
    settings: list[tuple[int, int]]
    variants: dict[str, list[str]]
    overrides: list[str] = field(default_factory=list)
    every: int = 1


# Changes that apply to all data sets.
COMMON = {
    "shots-1": ["method.shots=1"],
    "own-view": ["method.own_view=true"],
    "reciprocal-1": ["method.reciprocal=1"],
    "reciprocal-3": ["method.reciprocal=3"],
    "own-view-reciprocal-1": ["method.own_view=true", "method.reciprocal=1"],
    "spare-shots": ["method.spare_shots=true"],
    "momentum-to-1": ["method.momentum_end=1.0"],
    "filled-queue": ["method.filled_queue=true"],
    "mean-weights-quarter": ["train.average_last=0.25"],
    "temperature-0.2": ["method.temperature=0.2"],
    "moco-temperature-0.1": ["method.moco_temperature=0.1"],
    "moco-temperature-0.07": ["method.moco_temperature=0.07"],
}

# With a single shot the reciprocal filter has no effect.
FOR_MANY_SHOTS = ("shots-1", "reciprocal-1", "reciprocal-3")

HANDWRITING = (
    "{affine: {rotation: 15, shear: 0.25, log_scale: [-0.25, 0.2], shift: 0.2}, elastic: {}}"
)

AFFINE_WEAKER = "affine={rotation: 10, shear: 0.17, log_scale: [-0.17, 0.13], shift: 0.13}"
AFFINE_STRONGER = "affine={rotation: 22, shear: 0.37, log_scale: [-0.37, 0.3], shift: 0.3}"

# The changes that help on their own.
TOGETHER = [*both("stroke={}"), "method.own_view=true", "method.shots=1"]

# Values of the paper, from before the recipe's own were chosen.
PAPER_QUEUE = ["method.momentum=0.99", "method.queue_size=16384"]

OMNIGLOT = Study(
    data="omniglot",
    recipe="omniglot-fast",
    # The recipe before any of its values were chosen.
    overrides=[
        *both("stroke=null", "elastic.sigma=0.03"),
        "views.at_test=0",
        "method.shots=5",
        "method.own_view=false",
        "method.moco_temperature=0.2",
        *PAPER_QUEUE,
    ],
    epochs=3,
    settings=FOUR,
    variants={
        "views-paper": [*views("{crop: {}, flip: {}}"), "image.source_size=105"],
        "views-crop-0.4": [*views("{crop: {scale: [0.4, 1.0]}}"), "image.source_size=105"],
        "views-affine-only": both("elastic=null"),
        "views-elastic-only": both("affine=null"),
        "views-weaker": both(AFFINE_WEAKER, "elastic.sigma=0.02"),
        "views-affine-stronger": both(AFFINE_STRONGER),
        "views-elastic-0.05": both("elastic.sigma=0.05"),
        "views-stroke": both("stroke={}"),
        "views-erase": ["views.view_a.erase={fill: white}"],
        "views-at-test-4": ["views.at_test=4"],
        "best-together": [*TOGETHER, "method.moco_temperature=0.1"],
        "best-together-0.07": [*TOGETHER, "method.moco_temperature=0.07"],
        "rate-0.05": ["train.learning_rate=0.05"],
        "rate-0.2": ["train.learning_rate=0.2"],
        "no-warm-up": ["train.warmup_steps=0"],
        "weight-decay-1e-4": ["train.weight_decay=0.0001"],
        "momentum-0.95": ["method.momentum=0.95"],
        "momentum-0.996": ["method.momentum=0.996"],
        "queue-4096": ["method.queue_size=4096"],
        "shots-2": ["method.shots=2"],
        "shots-10": ["method.shots=10"],
        "heads-1024": ["heads.hidden=1024"],
        "heads-4096-256": ["heads={hidden: 4096, out: 256}"],
        "mean-weights-half": ["train.average_last=0.5"],
        "temperature-0.5": ["method.temperature=0.5"],
        **COMMON,
    },
)

# The choices from OMNIGLOT's short runs, in longer ones, where pseudo-labels are better.
OMNIGLOT_LONGER = Study(
    data="omniglot",
    recipe="omniglot-fast",
    overrides=[*both("elastic.sigma=0.03"), "views.at_test=0", *PAPER_QUEUE],
    epochs=4,
    settings=FOUR,
    variants={
        "temperature-0.2": ["method.temperature=0.2"],
        "temperature-0.2-spare": ["method.temperature=0.2", "method.spare_shots=true"],
        "temperature-0.1-spare": ["method.temperature=0.1", "method.spare_shots=true"],
        "views-affine-stronger": both(AFFINE_STRONGER),
        "views-affine-weaker": both(AFFINE_WEAKER),
        "views-elastic-0.05": both("elastic.sigma=0.05"),
        "views-affine-weaker-elastic-0.05": both(AFFINE_WEAKER, "elastic.sigma=0.05"),
        "queue-4096": ["method.queue_size=4096"],
        "filled-queue": ["method.filled_queue=true"],
        "momentum-0.95": ["method.momentum=0.95"],
        "momentum-0.95-queue-4096": ["method.momentum=0.95", "method.queue_size=4096"],
    },
)

GLYPHS = Study(
    data="glyphs",
    recipe="glyphs",
    # The recipe before any of its values were chosen.
    overrides=[*views("{crop: {scale: [0.4, 1.0]}}"), "method.moco_temperature=0.2"],
    epochs=3,
    settings=FOUR,
    variants={
        "views-handwriting": views(HANDWRITING),
        "views-handwriting-stroke": views(HANDWRITING[:-1] + ", stroke: {}}"),
        "best-together": [
            *views(HANDWRITING[:-1] + ", stroke: {}}"),
            "method.moco_temperature=0.1",
        ],
        "views-affine-only": views(HANDWRITING.replace(", elastic: {}", "")),
        "views-crop-0.6": both("crop.scale=[0.6, 1.0]"),
        "rate-0.05": ["train.learning_rate=0.05"],
        "rate-0.2": ["train.learning_rate=0.2"],
        "queue-2048": ["method.queue_size=2048"],
        "shots-5": ["method.shots=5"],
        "heads-2048": ["heads.hidden=2048"],
        **{name: change for name, change in COMMON.items() if name not in FOR_MANY_SHOTS},
    },
)

MINIIMAGENET = Study(
    data="miniimagenet",
    recipe="miniimagenet",
    epochs=2,
    settings=[(5, 1), (5, 5)],
    every=3,
    overrides=["method.queue_size=4096"],  # a third of the subset
    variants={
        "views-crop-0.4": both("crop.scale=[0.4, 1.0]"),
        "views-blur": ["views.view_a.blur={sigma: [0.1, 0.8]}"],
        "views-no-colour-change": ["views.view_a.jitter=null", "views.view_a.grey=null"],
        "views-affine-added": both(
            "affine={rotation: 15, shear: 0.1, log_scale: [0, 0], shift: 0, fill: reflect}"
        ),
        "rate-0.1-warm-up": ["train.learning_rate=0.1", "train.warmup_steps=20"],
        **COMMON,
    },
)

STUDIES = {
    "omniglot": OMNIGLOT,
    "omniglot-longer": OMNIGLOT_LONGER,
    "glyphs": GLYPHS,
    "miniimagenet": MINIIMAGENET,
}
# Rules that are also evaluated on the base, in settings with at least HEADS_FROM shots.
HEADS = ("ridge", "logistic")
HEADS_FROM = 5
