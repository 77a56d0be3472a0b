"""Short tales by a grammar of ours: who, where, what was lost, who helped, how it ended. Standard library only.

A tale keeps to what it has said: the hero's name, pronoun, trade, animal and thing come back, the season fits the weather, a
price is paid as it was asked, and how somebody felt follows from how it went. So whoever reads on can expect something.
"""

from dataclasses import dataclass
from random import Random

MOODS = ("glad", "sad", "afraid")
HEROES = (
    ("Mira", "she"), ("Tom", "he"), ("Anka", "she"), ("Jorin", "he"), ("Lena", "she"), ("Otto", "he"), ("Saba", "she"),
    ("Emil", "he"), ("Ruth", "she"), ("Pavel", "he"), ("Ida", "she"), ("Hugo", "he"), ("Nell", "she"), ("Bruno", "he"),
)  # fmt: skip
WORDS = {"she": ("she", "her", "her"), "he": ("he", "him", "his")}  # subject, object, possessive
TRADES = {
    "miller": ("the mill", "flour"), "baker": ("the oven", "bread"), "weaver": ("the loom", "cloth"), "fisher": ("the boat", "fish"),
    "smith": ("the forge", "nails"), "potter": ("the kiln", "jars"), "shepherd": ("the fold", "wool"), "gardener": ("the beds", "pears"),
}  # fmt: skip
ANIMALS = ("goat", "dog", "mule", "goose", "cat", "pony", "hen", "cow")
THINGS = ("ring", "key", "lamp", "coin", "bell", "comb", "knife", "book", "flute", "button")
STUFFS = ("silver", "iron", "wooden", "copper", "golden", "stone", "bone", "glass")
PLACES = {
    "wood": ("oak", "trees"), "river": ("bridge", "reeds"), "market": ("well", "stalls"), "hill": ("tower", "rocks"),
    "harbour": ("pier", "nets"), "village": ("church", "lanes"), "marsh": ("path", "pools"),
}  # fmt: skip
SEASONS = {
    "winter": ("snow", "cold"), "spring": ("rain", "mild"), "summer": ("heat", "dry"), "autumn": ("wind", "grey"),
}  # fmt: skip
HELPERS = ("an old woman", "a small boy", "a tall stranger", "a quiet nun", "a blind fiddler", "a young soldier")
NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine")
SAID = {
    "glad": (
        "{He} laughed all the way home.",
        "{He} sang until the stars came out.",
        "{He} danced with the {animal} before {work}.",
        "That evening there was cake, and nobody wept.",
        "{He} had never been so happy.",
        "{He} was not afraid any more.",
    ),
    "sad": (
        "{He} wept by {work}.",
        "{He} ate nothing that evening.",
        "{He} sat alone and did not sing.",
        "The {animal} hung its head beside {him}.",
        "{He} had never been so sorry.",
        "Nobody laughed in the {place} that night.",
    ),
    "afraid": (
        "{He} shook and barred the door.",
        "{He} did not dare to sleep.",
        "{He} ran until {his} legs gave way.",
        "The {animal} hid behind {him}.",
        "{He} had never been so frightened.",
        "All night {he} listened at the door of {work}, and nobody sang.",
    ),
}
EARLY = {  # what may be felt on the way, which the end need not keep to
    "glad": ("At first {he} was glad, and hummed.", "{He} set out with a light heart."),
    "sad": ("{He} was sad at first, and said little.", "{He} set out with a heavy heart."),
    "afraid": ("At first {he} was afraid, and walked fast.", "{He} set out with a beating heart."),
}


@dataclass(frozen=True)
class Tale:
    text: str
    mood: str


def tale(random: Random) -> Tale:
    """One tale, some sixty words."""
    mood = random.choice(MOODS)
    slots = _slots(random)
    plot = random.choice((_lost, _bargain, _storm, _guest))
    sentences = [_opening(random), *plot(random, mood)]
    if random.random() < 0.5:
        sentences.insert(1, random.choice(EARLY[random.choice(MOODS)]))
    sentences.append(random.choice(SAID[mood]))
    return Tale(" ".join(sentence.format_map(slots) for sentence in sentences), mood)


def tales(count: int, seed: int) -> list[Tale]:
    random = Random(seed)
    return [tale(random) for _ in range(count)]


def _slots(random: Random) -> dict[str, str]:
    name, pronoun = random.choice(HEROES)
    trade, place, season = (random.choice(sorted(table)) for table in (TRADES, PLACES, SEASONS))
    he, him, his = WORDS[pronoun]
    one, two = sorted(random.sample(range(len(NUMBERS)), 2))
    helper = random.choice(HELPERS)
    return {
        "name": name, "he": he, "He": he.capitalize(), "him": him, "his": his, "His": his.capitalize(), "trade": trade,
        "work": TRADES[trade][0], "wares": TRADES[trade][1], "place": place, "spot": PLACES[place][0], "thick": PLACES[place][1],
        "season": season, "weather": SEASONS[season][0], "air": SEASONS[season][1], "animal": random.choice(ANIMALS),
        "thing": random.choice(THINGS), "stuff": random.choice(STUFFS), "few": NUMBERS[one], "many": NUMBERS[two],
        "helper": helper, "Helper": helper.capitalize(), "the_helper": "the " + helper.split(" ", 1)[1],
    }  # fmt: skip


def _opening(random: Random) -> str:
    return random.choice((
        "One {season} morning {name} the {trade} went to the {place} with {his} {animal}.",
        "In the {season}, when the air was {air}, {name} the {trade} walked to the {place} with a {animal}.",
        "{name} was a {trade} who lived near the {place} and kept a {animal}.",
    ))  # fmt: skip


def _lost(random: Random, mood: str) -> list[str]:
    lost = random.choice(
        ("By the {spot} {he} lost {his} {stuff} {thing}.", "{His} {stuff} {thing} fell among the {thick}.")
    )
    sought = random.choice((
        "{He} looked for the {thing} for {few} days.", "{He} and the {animal} searched the {thick} for the {thing}.",
        "{Helper} helped {him} to look for the {stuff} {thing}.",
    ))  # fmt: skip
    ends = {
        "glad": (
            "Then the {animal} found the {thing} by the {spot}.",
            "On the last day the {stuff} {thing} lay before {work}.",
        ),
        "sad": ("But the {stuff} {thing} was gone for good.", "The {thing} was found broken, and could not be mended."),
        "afraid": ("Something among the {thick} called {him} by name.", "In its place lay a {thing} of black fire."),
    }
    return [lost, sought, random.choice(ends[mood])]


def _bargain(random: Random, mood: str) -> list[str]:
    met = "By the {spot} {he} met {helper} who sold a {stuff} {thing}."
    asked = random.choice((
        '"It costs {many} loads of {wares}," said {the_helper}.', '"Give me {many} loads of {wares} for the {thing}," said {the_helper}.',
    ))  # fmt: skip
    ends = {
        "glad": (
            "{name} paid {few} loads of {wares}, and {the_helper} took them and smiled.",
            "{name} paid {many} loads of {wares}, and the {thing} was worth more.",
        ),
        "sad": (
            "{name} paid {many} loads of {wares}, but the {stuff} {thing} was false.",
            "{name} had only {few} loads of {wares}, and went without the {thing}.",
        ),
        "afraid": (
            "{name} paid {many} loads of {wares}, and then {the_helper} had no shadow.",
            "When {name} touched the {thing}, the {spot} went dark.",
        ),
    }
    return [met, asked, random.choice(ends[mood])]


def _storm(random: Random, mood: str) -> list[str]:
    came = random.choice((
        "Then the {weather} came over the {place}, as it does in {season}.", "For {many} days the {weather} lay on the {place}.",
    ))  # fmt: skip
    hid = random.choice(
        ("{He} and the {animal} hid under the {spot}.", "{Helper} showed {him} a shelter near the {spot}.")
    )
    ends = {
        "glad": (
            "When the {weather} had passed, {work} stood as before.",
            "After {few} hours the {weather} was over, and no {wares} were lost.",
        ),
        "sad": (
            "The {weather} took {work} and all the {wares}.",
            "When it was over, the {animal} was lame and the {wares} were lost.",
        ),
        "afraid": (
            "The {weather} howled with a voice, and the voice came nearer.",
            "In the {weather} {many} pairs of eyes stood around the {spot}.",
        ),
    }
    return [came, hid, random.choice(ends[mood])]


def _guest(random: Random, mood: str) -> list[str]:
    came = random.choice(
        ("At night {helper} knocked at {work}.", "That night {helper} asked for a bed and some {wares}.")
    )
    gave = random.choice(
        ("{name} gave {the_helper} {few} pieces of {wares}.", "{name} let {the_helper} sleep beside the {animal}.")
    )
    ends = {
        "glad": (
            "In the morning {the_helper} left a {stuff} {thing} as thanks.",
            "In the morning there were {many} times as many {wares}.",
        ),
        "sad": (
            "In the morning {the_helper} was gone, and so was the {animal}.",
            "In the morning the {stuff} {thing} of {his} mother was gone.",
        ),
        "afraid": (
            "In the night {the_helper} stood over {him} with a {stuff} knife.",
            "In the morning {the_helper} had left no tracks in the {weather}.",
        ),
    }
    return [came, gave, random.choice(ends[mood])]
