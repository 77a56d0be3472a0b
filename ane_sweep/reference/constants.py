"""Hold the constants of programs: read when an op needs them, in the form that its kernel wants, and kept while a budget lasts.

    weight = site.constant("weight")                     # a Constant: shape and dtype are known, nothing is read yet
    get = weight.form("packed", pack, torch.float32)     # pack(tensor, empty) makes the form; `empty` gives it memory
    Step(lambda x: multiply(x, get()), [site.name("x")])

A form that the budget has room for is made while the program is compiled, and stays. Any other is made anew by each call of
`get` (within `BUDGET.share_forms()` by the first call alone), in memory that forms of later ops use again. A program runs from
its first op to its last, so that keeping the first forms that fit is as good as any other choice.
"""

from __future__ import annotations

import math
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ane_sweep import memory_limits

KEPT_BYTES = 512 << 20  # of all forms in a process, where memory allows: GPT-2 in fp32, and what is smaller
SMALL_BYTES = 64 << 10  # constants up to this size are read at once and stay
_SHARE = 8  # forms keep at most this part of the memory that is free, or that this process may use
_ALIGNMENT = 64

Empty = Callable[[tuple[int, ...], torch.dtype], Tensor]
Maker = Callable[[Tensor, Empty], Tensor]


class Budget:
    """The bytes that constants may keep in this process: as forms, and as pages of mapped files that were read in place."""

    def __init__(self, limit: int | None = None):
        self.kept = 0
        # reentrant: the garbage collector may end a form in any line
        self._given, self._lock = limit, threading.RLock()
        self._scratch: list[np.ndarray] = []
        self.is_spent = False  # True: a form had no room
        self.shared: dict[Form, Tensor] | None = None
        self._touched: weakref.WeakSet[Constant] = weakref.WeakSet()

    @cached_property
    def limit(self) -> int:
        """Return the bytes, settled at the first use, when this process has its own limits."""
        if self._given is not None:
            return self._given
        return min(KEPT_BYTES, memory_limits.most_bytes() // _SHARE, memory_limits.free_bytes() // _SHARE)

    def admit(self, size: int) -> bool:
        """Reserve the bytes of a form and return True, or return False if they exceed the budget."""
        with self._lock:
            if self.kept + size > self.limit:
                self.is_spent = True
                return False
            self.kept += size
            return True

    def give_back(self, size: int) -> None:
        with self._lock:
            self.kept -= size

    @contextmanager
    def share_forms(self) -> Iterator[None]:
        """Make each form that is not kept once within this context, as for one op on several inputs. One thread may do so."""
        self.shared = {}
        try:
            yield
        finally:
            self.shared = None

    def note_touched(self, constant: Constant) -> None:
        """Note that a mapped constant is read in place; if those exceed the budget, give back the pages of the others."""
        with self._lock:
            if sum(one.nbytes for one in self._touched) + constant.nbytes > self.limit:
                for one in self._touched:
                    one.release()
                self._touched.clear()
            self._touched.add(constant)

    def borrow(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return uninitialised memory, which is lent again when no tensor uses it any more."""
        size = math.prod(shape) * dtype.itemsize
        with self._lock:
            free = [place for place in range(len(self._scratch)) if sys.getrefcount(self._scratch[place]) == 2]
            fitting = [place for place in free if self._scratch[place].nbytes >= size + _ALIGNMENT]
            if not fitting:
                for place in reversed(free):  # all are too small: one of the right size replaces them
                    del self._scratch[place]
                self._scratch.append(np.empty(size + _ALIGNMENT, np.uint8))
            memory = self._scratch[fitting[0] if fitting else -1]
            start = -memory.ctypes.data % _ALIGNMENT
            # A tensor over an array holds a reference to it, for as long as any view of the tensor lives.
            return torch.from_numpy(memory[start : start + size]).view(dtype).view(shape)


BUDGET = Budget()


class Constant:
    """A tensor that does not depend on the inputs.

    read      returns the tensor: a view into a mapped file, or computed anew by each call
    release   gives the pages of the file that `read` touched back to the system
    is_view   True: `read` returns a view
    is_held   True: the tensor is in memory anyway, and its forms stay
    """

    is_view, is_held, is_touched = False, False, False

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        read: Callable[[], Tensor],
        release: Callable[[], None] | None = None,
    ):
        self.shape, self.dtype, self.read = shape, dtype, read
        self.ndim, self.nbytes = len(shape), math.prod(shape) * dtype.itemsize
        self.device = torch.device("cpu")
        self._release = release
        self._forms: dict[str, Form] = {}

    def release(self) -> None:
        """Give the pages of the mapped file back to the system, which reads them again when they are needed."""
        self.is_touched = False
        if self._release is not None:
            self._release()

    def get(self) -> Tensor:
        """Return the tensor as the program declares it, for as long as one op runs."""
        if not self.is_view:
            return self.form("declared", lambda tensor, _: tensor, self.dtype)()
        if not self.is_touched:
            BUDGET.note_touched(self)
            self.is_touched = True
        return self.read()

    def form(self, name: str, make: Maker, dtype: torch.dtype) -> Form:
        """Return a function that returns the tensor in another form; ops that ask for the same name share it.

        make    called with the tensor as declared and with `empty(shape, dtype)`, which returns uninitialised memory for
                the result; a result may also lie elsewhere
        dtype   of the result, for its size
        """
        if name not in self._forms:
            self._forms[name] = Form(self, make, math.prod(self.shape) * dtype.itemsize)
        return self._forms[name]

    def forget_forms(self) -> None:
        """Drop all forms, which would live on with the constant, as each knows the other."""
        self._forms.clear()

    def transposed(self) -> Constant:
        """Return the constant of the transposed matrix, computed from this one whenever it is read."""
        if self.is_held:
            return hold(self.read().t().contiguous())
        return Constant(self.shape[::-1], self.dtype, lambda: self.read().t().contiguous(), self.release)

    def wide(self) -> Callable[[], Tensor]:
        """Return a function that returns the tensor with fp16 widened to fp32."""
        return self.form("wide", _widen_into, torch.float32) if self.dtype == torch.float16 else self.get

    def use_wide(self, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """Return what `compute` makes of the fp16 tensor: as declared if it is mapped and its wide form is not kept, else widened."""
        form = self.form("wide", _widen_into, torch.float32)
        return self.convert(compute) if self.is_view and form.value is None else compute(form())

    def convert(self, make: Callable[[Tensor], Tensor]) -> Tensor:
        """Return what `make` makes of the tensor; pages that were read for it alone go back to the system."""
        made = make(self.read())
        if not self.is_touched:
            self.release()
        return made


def view_mapped(tensor: Tensor, release: Callable[[], None]) -> Constant:
    """Return the constant of a tensor that is a view into a mapped file."""
    constant = Constant(tuple(tensor.shape), tensor.dtype, lambda: tensor, release)
    constant.is_view = True
    return constant


def hold(tensor: Tensor) -> Constant:
    """Return the constant of a tensor that is in memory already."""
    constant = Constant(tuple(tensor.shape), tensor.dtype, lambda: tensor)
    constant.is_view = constant.is_held = constant.is_touched = True
    constant.device = tensor.device
    return constant


def resolve(value: object) -> object:
    """Return the tensor of a constant, and any other value unchanged."""
    return value.get() if isinstance(value, Constant) else value


class Room:
    """Room for one form of a constant: `is_given` unless the budget lacks it. Forms of held tensors are not counted."""

    def __init__(self, constant: Constant, size: int):
        self.budget = BUDGET
        self.size = size if not constant.is_held and self.budget.admit(size) else 0
        self.is_given = constant.is_held or self.size > 0

    def __del__(self) -> None:
        self.budget.give_back(self.size)


class Form:
    """One form of a constant: `value` if it is kept, else made by each call."""

    def __init__(self, constant: Constant, make: Maker, size: int):
        self.constant, self.maker, self.room = constant, make, Room(constant, size)
        self.value = self._make(lambda shape, dtype: torch.empty(shape, dtype=dtype)) if self.room.is_given else None

    def __call__(self) -> Tensor:
        if self.value is not None:
            return self.value
        shared = self.room.budget.shared
        if shared is None:
            return self._make(self.room.budget.borrow)
        if self not in shared:
            shared[self] = self._make(self.room.budget.borrow)
        return shared[self]

    def _make(self, empty: Empty) -> Tensor:
        return self.constant.convert(lambda tensor: self.maker(tensor, empty))


def _widen_into(tensor: Tensor, empty: Empty) -> Tensor:
    return empty(tuple(tensor.shape), torch.float32).copy_(tensor)
