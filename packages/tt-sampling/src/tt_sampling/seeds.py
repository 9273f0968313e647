"""The seed contract: what a random draw depends on.

A request's draw number `index` (0 is its first emitted token) depends on (stream, index) alone: not on the row, the
batch around it, the lane, preemption or the phase. `stream` is the request's seed; an unseeded request gets a stream
of its own. Nothing is advanced and nothing is kept, so a discarded draw (a prompt chunk) costs nothing and a resumed
request continues where it was.
"""

import random

MASK64 = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
MIX_1 = 0xBF58476D1CE4E5B9
MIX_2 = 0x94D049BB133111EB


def signed64(seed: int) -> int:
    """The seed folded into a signed 64-bit integer, as device seed tensors hold it."""
    return ((seed + (1 << 63)) & MASK64) - (1 << 63)


def mix64(x: int) -> int:
    """SplitMix64's output function: 64 bits in, 64 well-mixed bits out (unsigned)."""
    x &= MASK64
    x = ((x ^ (x >> 30)) * MIX_1) & MASK64
    x = ((x ^ (x >> 27)) * MIX_2) & MASK64
    return x ^ (x >> 31)


def draw_bits(stream: int, index: int) -> int:
    """The 64 random bits (unsigned) of draw `index` of a stream."""
    return mix64(mix64(stream + GOLDEN) + GOLDEN * (index + 1))


def uniform(stream: int, index: int, attempt: int = 0) -> float:
    """Draw `index` of a stream as a float64 in (0, 1), 52 bits. A later attempt is a fresh draw of the same index."""
    bits = draw_bits(stream, index)
    if attempt:
        bits = mix64(bits + attempt * GOLDEN)
    return ((bits >> 12) + 0.5) * 2.0**-52


class Streams:
    """Hands out the stream of each admitted request.

    Unseeded requests get streams from a generator of their own, so that they differ from one another and from every
    small seed. `entropy` makes a launch reproducible: the engine's seed and the data-parallel rank.
    """

    def __init__(self, *entropy: int) -> None:
        self._unseeded = random.Random(repr(entropy))

    def of(self, seed: int | None) -> int:
        """The stream of a request: signed 64 bit."""
        return signed64(self._unseeded.getrandbits(64) if seed is None else seed)
