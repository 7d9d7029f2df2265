"""PsCo on BYOL: the paper's loss beside BYOL's instead of MoCo's (Section 4.3)."""

from __future__ import annotations

from psco.methods.psco import PsCo


class PsCoOnBYOL(PsCo):
    """PsCo as the paper adds it to BYOL at ImageNet's scale: ``auxiliary`` is ``byol``."""

    title = "PsCo on BYOL"
    summary = "PsCo with BYOL's prediction as the auxiliary loss instead of MoCo's contrast"
