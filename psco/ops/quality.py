"""How good embeddings are, from two views of each image and without labels.

All functions take unit vectors (n, d); row i of ``a`` and of ``b`` belong to image i.
"""

from __future__ import annotations

import torch
from torch import Tensor


def retrieval_accuracy(a: Tensor, b: Tensor) -> float:
    """Return the fraction of rows of ``a`` whose nearest row of ``b`` is of the same image.

    A tie counts as a miss, so that a network that embeds all images alike scores 0 and not 1/n.
    """
    cosines = a @ b.T  # (n, n)
    own = cosines.diagonal().clone()  # (n,)
    others = cosines.fill_diagonal_(-torch.inf).max(dim=1).values  # (n,)
    return float((own > others).double().mean())


def alignment(a: Tensor, b: Tensor) -> float:
    """Return the mean squared distance between two views of an image, in [0, 4]; 0 is best.

    Wang and Isola, Understanding Contrastive Representation Learning through Alignment and
    Uniformity on the Hypersphere, ICML 2020.
    """
    return float((a - b).square().sum(dim=1).double().mean())


def uniformity(x: Tensor) -> float:
    """Return log mean exp(−2 ‖x_i − x_j‖²) over pairs of images, as Wang and Isola (2020) do.

    0 if all embeddings are the same; the lower, the more evenly they cover the sphere.
    """
    squared = torch.pdist(x.double()).square()  # (n (n − 1) / 2,)
    return float(torch.logsumexp(-2 * squared, dim=0) - torch.tensor(len(squared)).log())


def separation(a: Tensor, b: Tensor) -> float:
    """Return minus `alignment` minus `uniformity`: large if views agree and images differ.

    0 for embeddings that are all the same. Of the candidates in results/gauge, for features centred
    on their mean, it ranks runs on different data sets best.
    """
    return -alignment(a, b) - uniformity(b)


def effective_rank(x: Tensor) -> float:
    """Return exp of the entropy of the normalised singular values of the centred rows.

    Between 1, all variance in one direction, and d, evenly distributed (Roy and Vetterli, The
    effective rank, EUSIPCO 2007); 0 if all rows are the same.
    """
    centred = x.double() - x.double().mean(dim=0)
    values = torch.linalg.svdvals(centred)  # (min(n, d),)
    if values.max() <= torch.finfo(x.dtype).eps:
        return 0.0
    p = values / values.sum()
    return float(torch.special.entr(p).sum().exp())
