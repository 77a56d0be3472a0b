"""The small labelled sets: torn tales with their mood, and pairs of sentences with how much they have in common."""

from random import Random

from tests.proof.tale import grammar

KEPT = 0.25  # of a tale's words are legible, each by chance: what is left decides how sure one can be of its mood
WHO = (
    ("the farmer", "a man who farms"),
    ("the nurse", "a woman from the hospital"),
    ("the pupil", "a child at school"),
)
DID = (
    ("bought {} at {}", "paid for {} at {}"), ("lost {} near {}", "could not find {} any more, somewhere around {}"),
    ("repaired {} behind {}", "fixed {} at the back of {}"),
)  # fmt: skip
WHAT = (
    ("a bicycle", "a bike"),
    ("a watch", "a small clock for the wrist"),
    ("a violin", "an instrument with four strings"),
)
WHERE = (
    ("the station", "where the trains stop"),
    ("the market", "where fruit is sold"),
    ("the lake", "the shore of the water"),
)
SAME = 5  # the grade of one thing said twice; 0 where all four facts differ


def torn(text: str, random: Random) -> str:
    """A tale of which some words are left, in their order."""
    words = [word for word in text.split() if random.random() < KEPT]
    return " ".join(words) or text


def moods(count: int, seed: int) -> list[tuple[str, str]]:
    """(mood, torn tale), `count` of them."""
    random = Random(seed)
    return [(one.mood, torn(one.text, random)) for one in grammar.tales(count, seed)]


def pairs(count: int, seed: int) -> list[tuple[str, str, float]]:
    """(sentence, sentence, grade 0 to 5): of four facts, as many more are the same as the grade is higher; the second
    sentence always in other words."""
    random, found = Random(seed), []
    for number in range(count):
        changed = number % 5
        first = [random.randrange(3) for _ in range(4)]
        differ = random.sample(range(4), changed)
        second = [(one + 1 + random.randrange(2)) % 3 if place in differ else one for place, one in enumerate(first)]
        found.append((_said(first, 0), _said(second, 1), round(SAME * (4 - changed) / 4, 2)))
    return found


def _said(facts: list[int], way: int) -> str:
    who, did, what, where = (table[fact][way] for table, fact in zip((WHO, DID, WHAT, WHERE), facts))
    sentence = f"{who} {did.format(what, where)}."
    return sentence[0].upper() + sentence[1:]
