"""The search for lists of blocks that repeat, by comparing the torch calls of a module with few blocks, with more and with all.

A module is run on tensors without numbers, which takes no memory and little time, and every call of torch becomes an item:
its token holds the call's numbers and texts, its names the module's own tensors, its reads the results of earlier calls. The
tensors lie on torch's meta device first. If the module mixes them with numbers of its own, or no list repeats this way, the
run is tried again in torch's FakeTensorMode, which supports more and takes some five times as long.
"""

import hashlib
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from ane_sweep import native_errors
from ane_sweep.errors import StageError
from ane_sweep.worker.grow import reading, repeats
from ane_sweep.worker.grow.repeats import MOST_PERIOD, GrowthTrial, Repeat
from ane_sweep.worker.grow.sequence import Item, Unlike, find_growth, grow_sequence
from ane_sweep.worker.models import _cache, _lazy

Examples = Callable[[], tuple[Tensor, ...]]
Look = Callable[..., list[Item]]  # returns the calls of the module in its present state


def find_repeats(module: nn.Module, examples: Examples, trial: GrowthTrial) -> list[Repeat]:
    """Return the repeating lists that save time. Raises Unlike if there are none, or the module needs numbers to run."""

    def look(on_meta: bool, it: str = "it") -> list[Item]:
        return list_calls(module, examples(), it, on_meta)

    candidates = list(repeats.find_lists(module, trial))
    if not candidates:
        raise Unlike(f"it has no list of {repeats.LEAST_BLOCKS} blocks or more that look alike")
    with suppress(Unlike):
        return _choose_repeats(module, partial(look, True), trial, candidates)
    return _choose_repeats(module, partial(look, False), trial, candidates)


def _choose_repeats(module: nn.Module, look: Look, trial: GrowthTrial, candidates: list[Repeat]) -> list[Repeat]:
    worth = (lambda lists: lists) if trial.always else repeats.select_worthwhile
    chosen, whole = worth(candidates), look()
    with suppress(Unlike):  # mostly all repeat one by one: then all but one run is of few blocks
        if all(map(repeats.has_enough_blocks, chosen)):
            _check_growth(module, look, chosen, whole)
            return chosen
    alike, whys = [], []
    for one in candidates:
        try:
            alike.append(_find_period(module, look, one, whole))
        except Unlike as error:
            whys.append(f"the blocks of {one.path} are not alike: {error}")
    if not alike:
        raise Unlike("; ".join(whys))
    chosen = worth(alike)
    if len(chosen) > 1:
        _check_growth(module, look, chosen, whole)
    return chosen


def _find_period(module: nn.Module, look: Look, one: Repeat, whole: list[Item]) -> Repeat:
    """Return the list with its period, the number of blocks after which they repeat. Raises Unlike if no list repeats."""
    why = Unlike("they are too few to tell")
    for period in range(1, MOST_PERIOD + 1):
        tried = replace(one, period=period)
        try:
            if repeats.has_enough_blocks(tried):
                _check_growth(module, look, [tried], whole)
                return tried
        except Unlike as error:
            why = error if period == 1 else why
    raise why


def _check_growth(module: nn.Module, look: Look, chosen: list[Repeat], whole: list[Item]) -> None:
    """Raise Unlike if the calls of few blocks do not grow into the calls of all blocks."""

    def run(longer: Repeat | None) -> list[Item]:
        with repeats.shorten_lists(module, chosen, longer):
            return look("with fewer of them it")

    few = run(None)
    growths = [find_growth(few, run(one), one.trial.turns) for one in chosen]
    if not all(one.splits for one in growths):
        raise Unlike("fewer of them make no difference")
    made = list(grow_sequence(few, growths, [one.count_copies() for one in chosen]))
    if len(made) != len(whole):
        raise Unlike("all of them together call something else than a few")
    for placed, item in zip(made, whole):
        if (few[placed.index].token, placed.names, placed.reads) != (item.token, item.names, item.reads):
            kind = str(item.token[0] if isinstance(item.token, tuple) else item.token).removeprefix("aten.")
            call = f"{kind.partition('.')[0]}({', '.join(item.names)})"  # linear(h.0.attn.weight)
            raise Unlike(f"{call} is another than in the blocks before")


def list_calls(module: nn.Module, inputs: tuple[Tensor, ...], it: str = "it", on_meta: bool = False) -> list[Item]:
    """Return the torch calls of one run of the module. Raises Unlike if it needs numbers, or changes its tensors."""
    device = torch.device("meta" if on_meta else "cpu")
    with nullcontext() if on_meta else FakeTensorMode(allow_non_fake_inputs=True):
        parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
        writer = _CallRecorder(set(module.names) if isinstance(module, _cache.CachedFunction) else set())

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

        given = [_empty_input(one, device) for one in inputs]
        writer.made = {id(one): (0, index, 0) for index, one in enumerate(given)}
        try:
            with (
                torch.no_grad(),
                reading.pretend_tracing(),
                repeats.restore_attributes(module),
                repeats.swap_tensors(module, empty),
                writer,
            ):
                result = module(*given)
        except Exception as error:
            raise _explain_failure(error, it) from error
        return [*writer.calls, *(writer.item("output", (one,)) for one in tree_leaves(result))]


def _explain_failure(error: BaseException, it: str) -> Unlike:
    """Return the Unlike that explains why the module could not be run."""
    while isinstance(error, StageError) and error.__cause__ is not None:  # of a user's own code
        error = error.__cause__
    if isinstance(error, Unlike):
        return error
    if isinstance(error, DataDependentOutputException):
        return Unlike(f"{it} asks for the numbers of a tensor as it runs")
    return Unlike(
        f"{it} cannot be run without numbers ({type(error).__name__}: {' '.join(native_errors.text_of(error).split())[:100]})"
    )


def _empty_input(value: Tensor, device: torch.device) -> Tensor:
    """Return an empty tensor of the same shape; a single integer keeps its value, as it is a position in a window."""
    if value.numel() == 1 and not value.dtype.is_floating_point:
        return torch.tensor(value.tolist(), dtype=value.dtype)
    return torch.empty(value.shape, dtype=value.dtype, device=device)


class _CallRecorder(TorchDispatchMode):
    """A recorder of torch calls as items. `held`: names of the module's tensors by id; `states`: names of those it may write."""

    def __init__(self, states: set[str]):
        super().__init__()
        self.states = states
        self.held: dict[int, str] = {}
        self.calls: list[Item] = []
        self.made: dict[int, tuple[int, int, int]] = {}
        self.alive: list[object] = []  # so that an id stays its own
        self.digests: dict[int, str] = {}

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> object:
        named = kwargs or {}
        call = self.item(str(func), (args, named), tuple(named))
        if func._schema.is_mutable and (name := self.held.get(id(args[0]) if args else 0)) not in (None, *self.states):
            raise Unlike(f"it changes {name} as it runs")  # the trace that follows would depend on the runs before it
        result = func(*args, **named)
        self.alive.append((args, named, result))
        for output, one in enumerate(tree_leaves(result)):
            if isinstance(one, Tensor):
                self.made[id(one)] = 1, len(self.calls), output
        self.calls.append(call)
        return result

    def item(self, what: str, given: object, more: tuple[str, ...] = ()) -> Item:
        """Return a call as an item: `given` are its arguments, `more` the names of its keyword arguments."""
        texts, names, reads = [], [], []
        for value in tree_leaves(given):
            if not isinstance(value, Tensor):
                texts.append(repr(value))
            elif id(value) in self.made:
                texts.append("made")
                reads.append(self.made[id(value)])
            elif id(value) in self.held and value.dtype.is_floating_point:
                texts.append(f"own {list(value.shape)}")
                names.append(self.held[id(value)])
            else:
                texts.append(self._digest(value))
        return Item((what, more, tuple(texts)), tuple(names), tuple(reads))

    def without_numbers(self, value: Tensor) -> Tensor:
        """Return the tensor on the meta device, and store a digest of its numbers for items."""
        empty = value.to("meta")
        self.digests[id(empty)] = self._digest(value)
        self.alive.append(empty)
        return empty

    def _digest(self, value: Tensor) -> str:
        """Return a text that identifies the numbers of a tensor that is not one of the module's own float tensors."""
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
