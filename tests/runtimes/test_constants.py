"""Constants of the reference runtime: read when they are needed, kept while a budget lasts, with the same results."""

import gc

import pytest
import torch

from ane_sweep.reference import compressed, constants
from ane_sweep.reference.constants import Budget, Constant, hold


@pytest.fixture
def budget(monkeypatch):
    """A budget of 1 MiB in place of this process's."""
    made = Budget(1 << 20)
    monkeypatch.setattr(constants, "BUDGET", made)
    return made


def computed(values: torch.Tensor, reads: list[int]) -> Constant:
    def read() -> torch.Tensor:
        reads.append(1)
        return values

    return Constant(tuple(values.shape), values.dtype, read)


def test_a_form_that_fits_is_made_once_and_shared(budget):
    reads: list[int] = []
    weight = computed(torch.arange(1000, dtype=torch.float16), reads)
    first, second = weight.wide(), weight.wide()
    assert first is second and budget.kept == 4000
    assert first() is first() and first().dtype == torch.float32 and len(reads) == 1
    assert torch.equal(first(), torch.arange(1000, dtype=torch.float32))


def test_a_form_beyond_the_budget_is_made_by_each_call_in_the_same_memory(budget):
    reads: list[int] = []
    weight = computed(torch.ones(600, 600, dtype=torch.float16), reads)
    get = weight.wide()
    assert budget.kept == 0 and reads == []
    places = {get().data_ptr() for _ in range(3)}
    assert len(reads) == 3 and len(places) == 1 and places.pop() % 64 == 0


def test_memory_is_not_lent_again_while_a_view_of_it_lives(budget):
    get = computed(torch.ones(600, 600, dtype=torch.float16), []).wide()
    view = get().flatten()[5:]
    other = get()
    other.zero_()
    assert bool((view == 1).all())


def test_a_form_gives_its_bytes_back(budget):
    weight = computed(torch.ones(1000, dtype=torch.float16), [])
    weight.wide()
    assert budget.kept == 4000
    del weight
    gc.collect()
    assert budget.kept == 0


def test_forms_of_a_tensor_that_is_held_cost_no_budget(budget):
    get = hold(torch.ones(600, 600, dtype=torch.float16)).wide()
    assert budget.kept == 0 and get() is get()


def test_touched_pages_of_mapped_constants_are_given_back(budget):
    released: list[str] = []
    kinds = [
        constants.view_mapped(torch.ones(400, 400), lambda name=name: released.append(name)) for name in ("a", "b", "c")
    ]
    for constant in kinds:
        constant.get()
    assert released == ["a", "b"] and [one.is_touched for one in kinds] == [False, False, True]


@pytest.mark.parametrize(("vector", "axis"), [(1, None), (2, 1), (2, -1), (2, 0), (2, -2)])
def test_a_table_is_looked_up_by_rows_as_at_once(monkeypatch, vector, axis):
    monkeypatch.setattr(compressed, "_PIECE", 10)
    generator = torch.Generator().manual_seed(0)
    indices = torch.randint(0, 16, (9, 8), generator=generator).to(torch.uint8)
    lut = torch.rand(1, 4, 16, vector, generator=generator).half()
    found = compressed.lut_to_dense(indices=indices, lut=lut, vector_axis=axis)
    assert torch.equal(found, compressed.look_up(indices, lut, axis))
