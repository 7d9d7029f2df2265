"""The accuracies printed in the paper, in percent (Tables 1 and 2)."""

from __future__ import annotations

Setting = tuple[int, int]  # ways, shots
# Rows whose queries were normalised or clustered together. MAML and training from scratch used the
# BatchNorm statistics of the query batch.
TRANSDUCTIVE = (
    *("scratch", "maml", "cactus-maml", "umtra", "lasium-maml"),
    *("meta-gmvae", "meta-svebm"),
)

_OMNIGLOT: tuple[Setting, ...] = ((5, 1), (5, 5), (20, 1), (20, 5))
_MINIIMAGENET: tuple[Setting, ...] = ((5, 1), (5, 5), (5, 20), (5, 50))
_CROSS_DOMAIN: tuple[Setting, ...] = ((5, 5), (5, 20))

# Table 1: four numbers on Omniglot, then four on miniImageNet; None where the paper has none.
_WITHIN: dict[str, tuple[float | None, ...]] = {
    "scratch": (52.50, 74.78, 24.91, 47.62, 27.59, 38.48, 51.53, 59.63),
    "cactus-maml": (68.84, 87.78, 48.09, 73.36, 39.90, 53.97, 63.84, 69.64),
    "cactus-protonets": (68.12, 83.58, 47.75, 66.27, 39.18, 53.36, 61.54, 63.55),
    "umtra": (83.80, 95.43, 74.25, 92.12, 39.93, 50.73, 61.11, 67.15),
    "lasium-maml": (83.26, 95.29, None, None, 40.19, 54.56, 65.17, 69.13),
    "lasium-protonets": (80.15, 91.10, None, None, 40.05, 52.53, 61.09, 64.89),
    "meta-gmvae": (94.92, 97.09, 82.21, 90.61, 42.82, 55.73, 63.14, 68.26),
    "meta-svebm": (91.85, 97.21, 79.66, 92.21, 43.38, 58.03, 67.07, 72.28),
    "psco": (96.37, 99.13, 89.64, 97.07, 46.70, 63.26, 72.22, 73.50),
    "simclr": (92.13, 97.06, 80.95, 91.60, 43.35, 52.50, 61.83, 64.85),
    "moco": (92.66, 97.38, 82.13, 92.35, 41.92, 50.94, 60.23, 63.45),
    "swav": (93.13, 97.32, 82.63, 92.12, 43.24, 52.41, 61.36, 64.52),
    "maml": (94.46, 98.83, 84.60, 96.29, 46.81, 62.13, 71.03, 75.54),
    "protonets": (98.35, 99.58, 95.31, 98.81, 46.56, 62.29, 70.05, 72.04),
}

# Table 2, trained on miniImageNet: two numbers for each of these data sets, in this order.
CROSS_DOMAIN = ("cub", "cars", "places", "plantae", "cropdiseases", "eurosat", "isic", "chestx")
_ACROSS: dict[str, tuple[float, ...]] = {
    "meta-gmvae": (
        *(47.48, 54.08, 31.39, 38.36, 57.70, 65.08, 38.27, 45.02),
        *(73.56, 81.22, 73.83, 80.11, 33.48, 39.48, 23.23, 26.26),
    ),
    "meta-svebm": (
        *(45.50, 54.61, 34.27, 46.23, 51.27, 61.09, 38.12, 46.22),
        *(71.82, 83.13, 70.83, 80.21, 38.85, 48.43, 26.26, 28.91),
    ),
    "psco": (
        *(57.38, 68.58, 44.01, 57.50, 63.60, 73.95, 52.72, 64.53),
        *(88.24, 94.95, 81.08, 87.65, 44.00, 54.59, 24.78, 27.69),
    ),
    "simclr": (
        *(52.11, 61.89, 37.40, 50.05, 60.10, 69.93, 43.42, 54.92),
        *(79.90, 88.73, 79.14, 85.05, 42.83, 51.35, 25.14, 29.21),
    ),
    "moco": (
        *(53.23, 62.81, 38.65, 51.77, 59.09, 69.08, 43.97, 55.45),
        *(80.96, 89.85, 79.94, 86.16, 43.43, 52.14, 25.24, 29.19),
    ),
    "swav": (
        *(51.58, 61.38, 36.85, 50.03, 59.57, 69.70, 42.68, 54.03),
        *(80.15, 89.24, 79.31, 85.62, 43.21, 51.99, 24.99, 28.57),
    ),
    "maml": (
        *(56.57, 64.17, 41.17, 48.82, 60.05, 67.54, 47.33, 54.86),
        *(77.76, 83.24, 71.48, 76.70, 47.34, 55.09, 22.61, 24.25),
    ),
    "protonets": (
        *(56.74, 65.03, 38.98, 47.98, 59.39, 67.77, 45.89, 54.29),
        *(76.01, 83.64, 64.91, 70.88, 40.62, 48.38, 23.15, 25.72),
    ),
}


def trained_on(data: str) -> str:
    """Return the data set on which the paper trained the networks that it tests on ``data``."""
    return "miniimagenet" if data in CROSS_DOMAIN else data


def published(data: str, method: str) -> dict[Setting, float]:
    """Return the paper's accuracies of a method on a data set by (ways, shots); may be empty."""
    if data in ("omniglot", "miniimagenet"):
        row = _WITHIN.get(method, (None,) * 8)
        settings, numbers = (_OMNIGLOT, row[:4]) if data == "omniglot" else (_MINIIMAGENET, row[4:])
    elif data in CROSS_DOMAIN and method in _ACROSS:
        place = 2 * CROSS_DOMAIN.index(data)
        settings, numbers = _CROSS_DOMAIN, _ACROSS[method][place : place + 2]
    else:
        return {}
    return {s: n for s, n in zip(settings, numbers, strict=True) if n is not None}
