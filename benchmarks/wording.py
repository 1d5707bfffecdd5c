"""How well `wording_share` tells what flips are made of, in worlds that all show the paper's flips.

In each world the safe rate of a prompt-set is Beta(.253, .128), and that of a wording, given it, Beta(mν, (1−m)ν): the share
of the disagreement that is owed to wording is then 1/(ν + 1), while one answer to each of five wordings gives 53 %
stable-safe sets, 21 % stable-unsafe and 25 % flipping ones (the paper's figures) whatever ν is.

    python benchmarks/wording.py [--studies 1000]
"""

from __future__ import annotations

import argparse
from math import exp, inf, lgamma

import numpy as np

from opensafeintent.statistics import Resamples, estimate
from opensafeintent.statistics.intervals import Floats
from opensafeintent.statistics.wording import disagreement, permutation_p

BETA = (0.253, 0.128)
WORDINGS = 5
SHARES = (0.0, 0.1, 0.25, 0.5, 0.8)
PLANS = ((115, 3), (700, 2), (42, 3))
SEED = 11


def moment(power: int, a: float, b: float) -> float:
    """Return E m^power of a Beta variable."""
    return exp(lgamma(a + power) - lgamma(a) + lgamma(a + b) - lgamma(a + b + power))


def counts(generator: np.random.Generator, share: float, sets: int, epochs: int) -> Floats:
    """Return the safe answers to each wording of one study: shape (prompt_set, wording)."""
    means = generator.beta(*BETA, size=sets)[:, None].repeat(WORDINGS, axis=1)
    strength = inf if share == 0 else 1 / share - 1
    if strength < inf:
        first, second = np.maximum(means * strength, 1e-12), np.maximum((1 - means) * strength, 1e-12)
        means = np.clip(np.nan_to_num(generator.beta(first, second), nan=0.5), 0, 1)
    return generator.binomial(epochs, means).astype(np.float64)


def study(share: float, sets: int, epochs: int, studies: int) -> str:
    """Simulate studies of one size in one world, and say how the interval and the test did."""
    generator = np.random.default_rng((SEED, sets, epochs, int(100 * share)))
    each = np.full(sets, epochs)
    excess, between, p = np.zeros((studies, sets)), np.zeros((studies, sets)), []
    for index in range(studies):
        safe = counts(generator, share, sets, epochs)
        found = disagreement(safe, each)
        excess[index], between[index] = found.excess, found.between
        p.append(permutation_p(safe, each))
    got = estimate(excess, between, Resamples(sets))
    held = (got.low <= share) & (share <= got.high)
    small = np.mean([number is not None and number < 0.05 for number in p])
    bias, error, width = got.value.mean() - share, got.value.std(), (got.high - got.low).mean()
    return f"{sets:5} {epochs:6} {share:6.2f} {bias:+8.4f} {error:8.3f} {held.mean():9.1%} {width:7.3f} {small:9.1%}"


def main() -> None:
    """Print a line for each world and size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=1000)
    studies = parser.parse_args().studies
    safe, unsafe = moment(WORDINGS, *BETA), moment(WORDINGS, *BETA[::-1])
    print(f"stable-safe {safe:.2%}, stable-unsafe {unsafe:.2%}, flips {1 - safe - unsafe:.2%}, in every world")
    print(f"\n{'sets':>5} {'epochs':>6} {'share':>6} {'bias':>8} {'error':>8} {'coverage':>9} {'width':>7} {'p < .05':>9}")
    for sets, epochs in PLANS:
        for share in SHARES:
            print(study(share, sets, epochs, studies), flush=True)


if __name__ == "__main__":
    main()
