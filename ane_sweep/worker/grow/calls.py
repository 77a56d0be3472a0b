"""Which lists of blocks repeat, by what the module calls: with few blocks and with a few more, and that this grows to what it
calls with all of them.

A module is run on tensors without numbers, which takes no memory and little time, and every call of torch is an item: the
numbers and texts in it are what it is, the module's own tensors its names, what was made before its reads. They lie on torch's
meta device first; where it mixes them with numbers of its own, or none of its lists repeat so, in torch's FakeTensorMode, which
knows better and takes some five times as long.
"""

import hashlib
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from ane_sweep import native_errors
from ane_sweep.errors import StageError
from ane_sweep.worker.grow import reading, repeats
from ane_sweep.worker.grow.repeats import MOST_PERIOD, Repeat, Trial
from ane_sweep.worker.grow.sequence import Item, Unlike, grown, growth
from ane_sweep.worker.models import _cache, _lazy

Examples = Callable[[], tuple[Tensor, ...]]
Look = Callable[..., list[Item]]  # what the module calls as it is just then


def found(module: nn.Module, examples: Examples, trial: Trial) -> list[Repeat]:
    """The lists that repeat and are worth it. Raises Unlike where there is none, or the module cannot be run without numbers."""

    def look(on_meta: bool, it: str = "it") -> list[Item]:
        return calls(module, examples(), it, on_meta)

    with suppress(Unlike):
        return _found(module, partial(look, True), trial)
    return _found(module, partial(look, False), trial)


def _found(module: nn.Module, look: Look, trial: Trial) -> list[Repeat]:
    candidates = list(repeats.lists(module, trial))
    if not candidates:
        raise Unlike(f"it has no list of {repeats.LEAST_BLOCKS} blocks or more that look alike")
    worth = (lambda lists: lists) if trial.always else repeats.pays
    chosen, whole = worth(candidates), look()
    with suppress(Unlike):  # mostly all repeat one by one: then all but one run is of few blocks
        if all(map(repeats.fits, chosen)):
            _hold(module, look, chosen, whole)
            return chosen
    alike, whys = [], []
    for one in candidates:
        try:
            alike.append(_in_turns(module, look, one, whole))
        except Unlike as error:
            whys.append(f"the blocks of {one.path} are not alike: {error}")
    if not alike:
        raise Unlike("; ".join(whys))
    chosen = worth(alike)
    if len(chosen) > 1:
        _hold(module, look, chosen, whole)
    return chosen


def _in_turns(module: nn.Module, look: Look, one: Repeat, whole: list[Item]) -> Repeat:
    """With the period after which its blocks repeat. Raises Unlike."""
    why = Unlike("they are too few to tell")
    for period in range(1, MOST_PERIOD + 1):
        tried = replace(one, period=period)
        try:
            if repeats.fits(tried):
                _hold(module, look, [tried], whole)
                return tried
        except Unlike as error:
            why = error if period == 1 else why
    raise why


def _hold(module: nn.Module, look: Look, chosen: list[Repeat], whole: list[Item]) -> None:
    """Raise Unlike where what few blocks call does not grow to what all of them call."""

    def run(longer: Repeat | None) -> list[Item]:
        with repeats.shortened(module, chosen, longer):
            return look("with fewer of them it")

    few = run(None)
    growths = [growth(few, run(one), one.trial.turns) for one in chosen]
    if not all(one.splits for one in growths):
        raise Unlike("fewer of them make no difference")
    made = list(grown(few, growths, [one.copies() for one in chosen]))
    if len(made) != len(whole):
        raise Unlike("all of them together call something else than a few")
    for placed, item in zip(made, whole):
        if (few[placed.index].token, placed.names, placed.reads) != (item.token, item.names, item.reads):
            raise Unlike(f"{_told(item)} is another than in the blocks before")


def _told(item: Item) -> str:
    """A call as a reader knows it."""
    what = item.token[0] if isinstance(item.token, tuple) else item.token
    return f"{str(what).removeprefix('aten.').partition('.')[0]}({', '.join(item.names)})"


def calls(module: nn.Module, inputs: tuple[Tensor, ...], it: str = "it", on_meta: bool = False) -> list[Item]:
    """What a run of the module calls. Raises Unlike where it needs numbers, or changes what it holds."""
    device = torch.device("meta" if on_meta else "cpu")
    with nullcontext() if on_meta else FakeTensorMode(allow_non_fake_inputs=True):
        parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
        writer = _Writer(set(module.names) if isinstance(module, _cache.PerLayer) else set())

        def empty(name: str, tensor: Tensor) -> Tensor:
            held = tensor
            if not tensor.dtype.is_floating_point:
                held = _lazy.materialise(tensor)  # such as a table of places: it is what it holds
                if on_meta:
                    held = writer.without_numbers(held)
            elif on_meta or name in parameters:
                held = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
            writer.held[id(held)] = name
            return held

        given = [_without_numbers(one, device) for one in inputs]
        writer.made = {id(one): (0, index, 0) for index, one in enumerate(given)}
        try:
            with (
                torch.no_grad(),
                reading.as_if_traced(),
                repeats.left_alone(module),
                repeats.swapped(module, empty),
                writer,
            ):
                result = module(*given)
        except Exception as error:
            raise _said(error, it) from error
        return [*writer.calls, *(writer.item("output", (one,)) for one in tree_leaves(result))]


def _said(error: BaseException, it: str) -> Unlike:
    """Why it could not be run."""
    while isinstance(error, StageError) and error.__cause__ is not None:  # of a user's own code
        error = error.__cause__
    if isinstance(error, Unlike):
        return error
    if isinstance(error, DataDependentOutputException):
        return Unlike(f"{it} asks for the numbers of a tensor as it runs")
    return Unlike(
        f"{it} cannot be run without numbers ({type(error).__name__}: {' '.join(native_errors.text_of(error).split())[:100]})"
    )


def _without_numbers(value: Tensor, device: torch.device) -> Tensor:
    """But for a place in a window, which says what is looked at and not what is seen there."""
    if value.numel() == 1 and not value.dtype.is_floating_point:
        return torch.tensor(value.tolist(), dtype=value.dtype)
    return torch.empty(value.shape, dtype=value.dtype, device=device)


class _Writer(TorchDispatchMode):
    """Every call of torch as an item. `held`: the module's tensors by id; `states`: those that it may write to."""

    def __init__(self, states: set[str]):
        super().__init__()
        self.states = states
        self.held: dict[int, str] = {}
        self.calls: list[Item] = []
        self.made: dict[int, tuple[int, int, int]] = {}
        self.alive: list[Any] = []  # so that an id stays its own
        self.digests: dict[int, str] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        named = kwargs or {}
        call = self.item(str(func), (args, named), tuple(named))
        if func._schema.is_mutable:
            self._refuse_to_change(args)
        result = func(*args, **named)
        self.alive.append((args, named, result))
        for output, one in enumerate(tree_leaves(result)):
            if isinstance(one, Tensor):
                self.made[id(one)] = 1, len(self.calls), output
        self.calls.append(call)
        return result

    def item(self, what: str, given: Any, more: tuple[str, ...] = ()) -> Item:
        said, names, reads = [], [], []
        for value in tree_leaves(given):
            if not isinstance(value, Tensor):
                said.append(repr(value))
            elif id(value) in self.made:
                said.append("made")
                reads.append(self.made[id(value)])
            elif id(value) in self.held and value.dtype.is_floating_point:
                said.append(f"own {list(value.shape)}")
                names.append(self.held[id(value)])
            else:
                said.append(self._digest(value))
        return Item((what, more, tuple(said)), tuple(names), tuple(reads))

    def without_numbers(self, value: Tensor) -> Tensor:
        """On the meta device; an item still says what it holds."""
        empty = value.to("meta")
        self.digests[id(empty)] = self._digest(value)
        self.alive.append(empty)
        return empty

    def _refuse_to_change(self, args: Any) -> None:
        """What it is traced with afterwards would be another thing for each time that it has run."""
        name = self.held.get(id(args[0])) if args else None
        if name is not None and name not in self.states:
            raise Unlike(f"it changes {name} as it runs")

    def _digest(self, value: Tensor) -> str:
        """Of a tensor that is there and that the module does not hold as its own."""
        if value.is_meta and id(value) not in self.digests:
            raise Unlike("it makes a tensor of numbers where there are none")
        if type(value) not in (Tensor, nn.Parameter):
            return f"tensor {list(value.shape)}"
        if id(value) not in self.digests:
            self.alive.append(value)
            with _disable_current_modes():
                content = value.detach().contiguous().view(-1).numpy()
            self.digests[id(value)] = f"{content.dtype}{list(value.shape)} {hashlib.sha256(content.data).hexdigest()}"
        return self.digests[id(value)]
