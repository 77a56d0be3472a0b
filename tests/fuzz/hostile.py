"""Values that nobody expects, and where to put them: into bytes, JSON and protobuf messages. All drawn from a seed."""

import copy
import json
import random
from typing import Any

NUMBERS = (
    0, 1, -1, 2, 7, 64, 255, 2**16, 2**31 - 1, 2**31, 2**32, 2**40, 2**53, 2**63 - 1, 2**64 - 1, -(2**40), -(2**63),
)  # fmt: skip
FLOATS = (0.0, -0.0, 0.5, -1.5, 1e-300, 1e300, float("inf"), float("-inf"), float("nan"))
TEXTS = (
    "", " ", "x", "\0", "a\0b", "../../etc/passwd", "/etc/passwd", "@model_path/weights/weight.bin", "@model_path/../../x",
    "é\u202e\U0001f600", "\ud800", "None", "1e999", "main", "x" * 5000, "\x1b]0;title\a", "%s{}{0}", "nan", "fp16", "int4",
)  # fmt: skip


def deep(levels: int, kind: str = "[") -> str:
    """JSON text nested as deep as that."""
    return "[" * levels + "]" * levels if kind == "[" else '{"a":' * levels + "1" + "}" * levels


def value(draw: random.Random) -> Any:
    """Any JSON value."""
    one = (
        lambda: draw.choice(NUMBERS), lambda: draw.choice(FLOATS), lambda: draw.choice(TEXTS), lambda: None, lambda: True,
        lambda: [], lambda: {}, lambda: [value(draw) for _ in range(draw.randrange(4))],
        lambda: {draw.choice(TEXTS): value(draw)},
    )  # fmt: skip
    return draw.choice(one)()


def changed_bytes(content: bytes, draw: random.Random) -> bytes:
    """Some bytes flipped, a piece cut out, doubled or overwritten by a hostile number."""
    made = bytearray(content or b"\0")
    for _ in range(draw.choice((1, 1, 1, 2, 4, 16))):
        place = draw.randrange(len(made) or 1)
        how = draw.randrange(6)
        if how <= 2:
            made[place : place + 1] = bytes([draw.randrange(256)])
        elif how == 3:
            made[place : place + 8] = (draw.choice(NUMBERS) % 2**64).to_bytes(8, "little")
        elif how == 4:
            del made[place : place + draw.randrange(1, 64)]
        else:
            made[place:place] = made[place : place + draw.randrange(1, 64)]
    return bytes(made[: draw.randrange(len(made) + 1)] if draw.random() < 0.1 else made)


def changed_json(content: Any, draw: random.Random) -> str:
    """The text of a JSON value with one or some of its parts replaced, removed or doubled, or of something else."""
    if draw.random() < 0.05:
        levels = draw.choice((50, 900, 5_000, 100_000))
        return draw.choice((deep(levels), deep(levels, "{"), "", "{", "\0", "NaN", '{"a":' + "9" * 5000 + "}"))
    made = copy.deepcopy(content)
    for _ in range(draw.choice((1, 1, 1, 2, 5))):
        places = list(_places(made))
        holder, key = draw.choice(places) if places else (None, None)
        how = draw.randrange(5)
        if holder is None:
            made = value(draw)
        elif how <= 2:
            holder[key] = value(draw)
        elif how == 3:
            del holder[key]
        elif isinstance(holder, dict):
            holder[draw.choice(TEXTS)] = holder[key]
        else:
            holder.append(holder[key])
    text = json.dumps(made)
    if draw.random() < 0.05 and places:
        text = text.replace("null", deep(draw.choice((900, 5_000, 100_000))), 1)
    return text


def _places(content: Any):
    """(container, key) of every part of a JSON value."""
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, part in list(items):
        yield content, key
        yield from _places(part)


def change_message(message: Any, draw: random.Random) -> None:
    """One field of a protobuf message, or of one inside it, replaced, removed, doubled or moved."""
    spots = list(_spots(message))
    if not spots:
        return
    holder, field = draw.choice(spots)
    if _is_map(field):
        _change_map(getattr(holder, field.name), draw)
    elif field.is_repeated:
        _change_list(getattr(holder, field.name), field, draw)
    elif field.message_type is None and draw.random() < 0.85:
        setattr(holder, field.name, _scalar(field, getattr(holder, field.name), draw))
    else:
        holder.ClearField(field.name)


def _spots(message: Any):
    """(message, field) of everything that is set in a message."""
    for field, found in message.ListFields():
        yield message, field
        if field.message_type is None:
            continue
        if _is_map(field):
            if field.message_type.fields_by_name["value"].message_type is not None:
                for key in found:
                    yield from _spots(found[key])
            continue
        for part in found if field.is_repeated else (found,):
            yield from _spots(part)


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _change_map(found: Any, draw: random.Random) -> None:
    keys = sorted(found)
    key = draw.choice(keys)
    if draw.random() < 0.4 or not hasattr(found[key], "CopyFrom"):
        del found[key]
    else:
        found[draw.choice((*TEXTS[:1], "x", "main", "CoreML8", *keys))].CopyFrom(found[draw.choice(keys)])


def _change_list(found: Any, field: Any, draw: random.Random) -> None:
    place, how = draw.randrange(len(found)), draw.randrange(4)
    if how == 0:
        del found[place]
    elif field.message_type is None:
        if how == 1:
            found[place] = _scalar(field, found[place], draw)
        else:
            found.append(_scalar(field, found[place], draw))
    elif how == 1:
        found.add().CopyFrom(found[place])
    else:
        other = draw.randrange(len(found))
        kept = copy.deepcopy(found[place])
        found[place].CopyFrom(found[other])
        found[other].CopyFrom(kept)


def _scalar(field: Any, now: Any, draw: random.Random) -> Any:
    """A value that the field can hold."""
    if isinstance(now, bool):
        return not now
    if isinstance(now, int):
        bits, signed = (64, field.cpp_type == field.CPPTYPE_INT64)
        if field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32, field.CPPTYPE_ENUM):
            bits, signed = 32, field.cpp_type != field.CPPTYPE_UINT32
        made = draw.choice((*NUMBERS, now + 1, now - 1, now * 2)) % 2**bits
        if field.cpp_type == field.CPPTYPE_ENUM:
            return draw.randrange(64)
        return made - 2**bits if signed and made >= 2 ** (bits - 1) else made
    if isinstance(now, float):
        return draw.choice((0.0, -1.0, 1e30, float("inf"), float("nan")))
    if isinstance(now, bytes):
        return changed_bytes(now, draw)
    return draw.choice([text for text in TEXTS if text != "\ud800"])
