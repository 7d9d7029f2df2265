"""Meta-GMVAE: its loss from torch.distributions, its rule against a loop, and bad settings."""

from __future__ import annotations

import pytest
import torch
from latent_tasks import IMAGE, images, scores, task
from steps import run_loss
from torch import nn
from torch.distributions import Bernoulli, Categorical, Independent, MixtureSameFamily, Normal

from psco.errors import InputError
from psco.evaluation.rules import RULES, Embeddings, Heads
from psco.methods import METHODS
from psco.methods.meta_gmvae import MetaGMVAE, draw_latents
from psco.networks import Networks
from psco.networks.set_attention import SetAttention
from psco.ops.mixtures import fit_mixture


def gmvae(**options) -> MetaGMVAE:
    torch.manual_seed(0)
    f = nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.ReLU())
    options = {"components": 3, "latent": 4, "width": 4, "set_size": 6, **options}
    method = MetaGMVAE(Networks(f, width=12, image=IMAGE), **options).double()
    method.set_batch_size(12)
    return method


@pytest.mark.parametrize(("samples", "decoded"), [(3, 3), (3, 1), (1, 1)])
def test_the_loss_is_the_evidence_bound_of_torch_distributions(samples, decoded):
    method = gmvae(samples=samples, reconstructions=decoded).eval()
    x = images()
    torch.manual_seed(3)
    found = run_loss(method, x, x)
    torch.manual_seed(3)  # the same latents, and the same start of EM
    mean, log_variance = method.posterior(method.backbone(x).view(2, 6, 12))
    z = draw_latents(mean, log_variance, samples)
    mixture = fit_mixture(z.detach(), 3, method.em_steps)
    kl, reconstruction = [], []
    for b in range(2):
        parts = Independent(Normal(mixture.means[b], 1.0), 1)
        prior = MixtureSameFamily(Categorical(logits=mixture.log_weights[b]), parts)
        for i in range(6):
            q = Independent(Normal(mean[b, i], (0.5 * log_variance[b, i]).exp()), 1)
            for s in range(samples):
                latent = z[b, i * samples + s]
                kl.append(q.log_prob(latent) - prior.log_prob(latent))
                if s < decoded:
                    p = Bernoulli(logits=method.decoder(latent[None])[0], validate_args=False)
                    target = IMAGE.to_unit(x[6 * b + i])
                    reconstruction.append(-p.log_prob(target).sum())
    torch.testing.assert_close(found["kl"], torch.stack(kl).mean())
    torch.testing.assert_close(found["reconstruction"], torch.stack(reconstruction).mean())
    torch.testing.assert_close(found["total"], found["kl"] + found["reconstruction"])


def test_attention_equals_its_loop_and_ignores_the_order_of_a_set():
    torch.manual_seed(0)
    block, x = SetAttention(8, heads=2).double(), torch.randn(1, 5, 8, dtype=torch.float64)
    q, k, v = (layer(x[0]) for layer in (block.to_query, block.to_key, block.to_value))
    read = torch.zeros(5, 8, dtype=torch.float64)
    for part in (slice(0, 4), slice(4, 8)):
        for i in range(5):
            weights = torch.stack([q[i, part] @ k[j, part] / 8**0.5 for j in range(5)]).softmax(0)
            read[i, part] = sum(weights[j] * v[j, part] for j in range(5))
    twin = q + read + torch.relu(block.out(q + read))
    torch.testing.assert_close(block(x)[0], twin)
    order = torch.tensor([3, 1, 0, 4, 2])
    torch.testing.assert_close(block(x[:, order]), block(x)[:, order])
    with pytest.raises(InputError, match="heads must divide the width 8 of the features, got 3"):
        SetAttention(8, heads=3)


@pytest.mark.parametrize("queries", ["together", "alone"])
def test_a_task_gets_the_same_scores_alone_and_among_others(queries):
    method = gmvae().float().eval()
    supports, labels, asked, heads, _ = task(method)
    rule = RULES["gmvae"](samples=8, queries=queries)
    both = scores(rule, supports, labels, asked, heads, first=5)
    assert both.shape == (2, 12, 3)
    assert both.isfinite().all()
    for t in range(2):
        one = torch.tensor([t])
        alone = scores(rule, supports[one], labels[one], asked[one], heads, first=5 + t)
        torch.testing.assert_close(alone[0], both[t], rtol=1e-4, atol=1e-4)


def test_queries_alone_do_not_depend_on_one_another_and_together_they_do():
    method = gmvae().float().eval()
    supports, labels, asked, heads, _ = task(method, separation=0.5)
    few = Embeddings(*(x[:, :3] for x in (asked.features, asked.support, asked.query)))
    for queries, same in (("alone", True), ("together", False)):
        rule = RULES["gmvae"](samples=8, queries=queries)
        assert rule.transductive != same
        whole = scores(rule, supports, labels, asked, heads)[:, :3]
        part = scores(rule, supports, labels, few, heads)
        assert torch.allclose(whole, part, atol=1e-4) == same


@pytest.mark.parametrize("queries", ["together", "alone"])
def test_separated_classes_are_classified_without_error(queries):
    method = gmvae().float().eval()
    with torch.no_grad():  # latents that say where an image is
        for block in method.posterior.blocks:
            for layer in (block.to_query, block.to_key, block.to_value):
                nn.init.zeros_(layer.weight)
            nn.init.eye_(block.to_query.weight)
        nn.init.zeros_(method.posterior.last.weight)
        method.posterior.last.weight[:4, :4] = 3 * torch.eye(4)
        nn.init.constant_(method.posterior.last.bias, -2)
    supports, labels, asked, heads, truth = task(method)
    found = scores(RULES["gmvae"](queries=queries), supports, labels, asked, heads)
    assert (found.argmax(dim=2) == truth).all()


def test_the_rule_needs_a_network_of_the_method():
    method = gmvae().float()
    supports, labels, asked, heads, _ = task(method)
    other = METHODS["random"](Networks(nn.Flatten()))
    for wrong in (None, Heads(heads.projector, heads.predictor, network=other)):
        with pytest.raises(InputError, match="'gmvae' needs a run of the method 'meta-gmvae'"):
            scores(RULES["gmvae"](), supports, labels, asked, wrong)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"components": 1}, "components must be at least 2, got 1"),
        (
            {"components": 25},
            "the latents of a set, 24, got 25; --set method.components=24",
        ),
        ({"em_steps": 0}, "em_steps must be > 0, got 0"),
        ({"samples": 2, "reconstructions": 3}, "between 1 and samples, 2, got 3"),
        ({"set_size": 5, "components": 2}, None),
    ],
)
def test_settings_that_make_no_sense_are_refused(options, message):
    if message is None:  # 12 images are two sets of about 5
        assert gmvae(**options).sets == 2
        return
    with pytest.raises(InputError, match=message):
        gmvae(**options)


def test_a_batch_that_is_not_made_of_equal_sets_is_refused_with_one_that_is():
    with pytest.raises(InputError, match=r"multiple of method.set_size, 6, got 13;.*batch_size=12"):
        gmvae().set_batch_size(13)
