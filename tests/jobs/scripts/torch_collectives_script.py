"""Compares each collective of torch.distributed on the backend hvd_ft with Gloo's result.

Prints the number of cases, and a line for each whose results differ. Sums of floating-point numbers
are of whole numbers, as Gloo adds in another order.

Args:
    folder: an empty one, where Gloo's ranks meet.
    library: of a device (fake_device.py) where tensors are, but Gloo's; optional.
"""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from fake_device import load

import hvd_ft.torch as hvd
import hvd_ft.torch.distributed  # noqa: F401 (makes the backend known)

NUMBERS = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
)
OPS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")
Group = Any
Case = Callable[[Group], Any]


def own(shape: Any, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Returns whole numbers, others on each rank."""
    return of_rank(dist.get_rank(), shape, dtype, seed)


def of_rank(
    rank: int, shape: Any, dtype: torch.dtype = torch.float32, seed: int = 0
) -> torch.Tensor:
    """Returns a rank's."""
    generator = torch.Generator("cpu").manual_seed(100 * seed + rank)
    numbers = torch.randint(1, 5, shape, generator=generator, device="cpu")
    return numbers.to(dtype).to(torch.get_default_device())


def reductions() -> Iterator[tuple[str, Case]]:
    for dtype in NUMBERS:
        for op in OPS:
            if not (op.startswith("B") if dtype.is_floating_point else op == "AVG"):
                yield (
                    f"all_reduce {dtype} {op}",
                    lambda g, d=dtype, o=op: reduced(own((3, 5), d), o, g),
                )

    def strided(g: Group) -> torch.Tensor:
        base = own((6, 4))
        dist.all_reduce(base.t(), group=g)
        return base

    def to_one(g: Group) -> torch.Tensor:
        tensor, root = own((4,), seed=3), dist.get_process_group_ranks(g)[-1]
        dist.reduce(tensor, root, group=g)
        return tensor if dist.get_rank() == root else torch.zeros(0)

    def several(g: Group) -> list[torch.Tensor]:
        tensors = [own((n,), seed=n) for n in (1, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7)]
        dist.all_reduce_coalesced(tensors, group=g)
        return tensors

    def sparse(g: Group) -> torch.Tensor:
        at = torch.tensor([[dist.get_rank(), 4], [0, 1]])
        tensor = torch.sparse_coo_tensor(at, own((2,)), (6, 2))
        dist.all_reduce(tensor, group=g)
        return tensor.to_dense()

    def mean(g: Group) -> torch.Tensor:
        tensor = own((8,)) * dist.get_world_size(g)
        dist.all_reduce(tensor, group=g)
        return tensor / dist.get_world_size(g)

    yield "all_reduce strided", strided
    yield "all_reduce scalar", lambda g: reduced(own(()), "SUM", g)
    yield "all_reduce empty", lambda g: reduced(own((0, 3)), "SUM", g)
    yield "all_reduce complex", lambda g: reduced(own((3,), torch.complex64), "SUM", g)
    if torch.get_default_device().type == "cpu":
        yield "all_reduce sparse", sparse
    yield "all_reduce_coalesced", several
    yield "reduce", to_one
    yield "mean", mean


def reduced(tensor: torch.Tensor, op: str, group: Group) -> torch.Tensor:
    dist.all_reduce(tensor, op=getattr(dist.ReduceOp, op), group=group)
    return tensor


def movements() -> Iterator[tuple[str, Case]]:
    def broadcast(g: Group, dtype: torch.dtype) -> torch.Tensor:
        tensor = own((3, 2), dtype)
        dist.broadcast(tensor, dist.get_process_group_ranks(g)[-1], group=g)
        return tensor

    def gathered(g: Group, dtype: torch.dtype) -> list[torch.Tensor]:
        tensors = [torch.empty((2, 3), dtype=dtype) for _ in range(dist.get_world_size(g))]
        dist.all_gather(tensors, own((2, 3), dtype), group=g)
        return tensors

    for dtype in (*NUMBERS, torch.bool, torch.complex64):
        if dtype is not torch.complex64:
            yield f"broadcast {dtype}", lambda g, d=dtype: broadcast(g, d)
        yield f"all_gather {dtype}", lambda g, d=dtype: gathered(g, d)

    def into(g: Group) -> torch.Tensor:
        output = torch.empty(dist.get_world_size(g) * 3, 2)
        dist.all_gather_single(output, own((3, 2)), group=g)
        return output

    def several(g: Group) -> list[torch.Tensor]:
        """The last one is empty; as they are when the call returns."""
        tensors = [own((2, 2)), own((3,), seed=1), torch.ones(0)]
        outputs = [list(map(torch.zeros_like, tensors)) for _ in range(dist.get_world_size(g))]
        dist.all_gather_coalesced(outputs, tensors, group=g)
        return [tensor.clone() for of_rank in outputs for tensor in of_rank]

    def to_root(g: Group) -> list[torch.Tensor]:
        root = dist.get_process_group_ranks(g)[0]
        here = dist.get_rank() == root
        tensors = [torch.empty(5) for _ in range(dist.get_world_size(g))] if here else None
        dist.gather(own((5,)), tensors, root, group=g)
        return tensors or []

    def from_root(g: Group) -> torch.Tensor:
        root = dist.get_process_group_ranks(g)[-1]
        tensors = [own((3,), seed=n) for n in range(dist.get_world_size(g))]
        output = torch.empty(3)
        dist.scatter(output, tensors if dist.get_rank() == root else None, root, group=g)
        return output

    def scattered(g: Group) -> torch.Tensor:
        output = torch.empty(4)
        dist.reduce_scatter(output, list(own((dist.get_world_size(g), 4))), group=g)
        return output

    def scattered_single(g: Group, op: str) -> torch.Tensor:
        output = torch.empty(2, 3)
        whole = own((2 * dist.get_world_size(g), 3))
        dist.reduce_scatter_single(output, whole, op=getattr(dist.ReduceOp, op), group=g)
        return output

    yield "all_gather_single", into
    yield "all_gather_coalesced", several
    yield "gather", to_root
    yield "scatter", from_root
    yield "reduce_scatter", scattered
    for op in ("SUM", "MAX"):
        yield f"reduce_scatter_single {op}", lambda g, o=op: scattered_single(g, o)


def exchanges() -> Iterator[tuple[str, Case]]:
    def each(g: Group) -> list[torch.Tensor]:
        size = dist.get_world_size(g)
        outputs = [torch.empty(3) for _ in range(size)]
        dist.all_to_all(outputs, [own((3,), seed=to) for to in range(size)], group=g)
        return outputs

    def single(g: Group) -> torch.Tensor:
        output = torch.empty(2 * dist.get_world_size(g), 3)
        dist.all_to_all_single(output, own(tuple(output.shape)), group=g)
        return output

    def split(g: Group) -> torch.Tensor:
        size, me = dist.get_world_size(g), dist.get_rank(g)
        sent, got = [me + to for to in range(size)], [from_ + me for from_ in range(size)]
        output = torch.empty(sum(got), 2)
        dist.all_to_all_single(output, own((sum(sent), 2)), got, sent, group=g)
        return output

    yield "all_to_all", each
    yield "all_to_all_single", single
    yield "all_to_all_single uneven", split


def objects() -> Iterator[tuple[str, Case]]:
    def gathered(g: Group) -> list[Any]:
        found: list[Any] = [None] * dist.get_world_size(g)
        dist.all_gather_object(found, {"rank": dist.get_rank(), "text": "a" * dist.get_rank()}, g)
        return found

    def broadcast(g: Group) -> list[Any]:
        root = dist.get_process_group_ranks(g)[-1]
        found = ["this", 3] if dist.get_rank() == root else [None, None]
        dist.broadcast_object_list(found, root, group=g)
        return found

    def scattered(g: Group) -> list[Any]:
        ranks = dist.get_process_group_ranks(g)
        found: list[Any] = [None]
        objects = [f"to {rank}" for rank in ranks] if dist.get_rank() == ranks[0] else None
        dist.scatter_object_list(found, objects, ranks[0], group=g)
        return found

    def to_root(g: Group) -> list[Any]:
        root = dist.get_process_group_ranks(g)[-1]
        found = [None] * dist.get_world_size(g) if dist.get_rank() == root else None
        dist.gather_object(("of", dist.get_rank()), found, root, group=g)
        return found or []

    yield "all_gather_object", gathered
    yield "gather_object", to_root
    yield "broadcast_object_list", broadcast
    yield "scatter_object_list", scattered


def messages() -> Iterator[tuple[str, Case]]:
    def around(g: Group, dtype: torch.dtype) -> torch.Tensor:
        size, me = dist.get_world_size(g), dist.get_rank(g)
        ranks = dist.get_process_group_ranks(g)
        first, second = torch.empty(3, dtype=dtype), torch.empty(3, dtype=dtype)
        works = [dist.irecv(t, ranks[me - 1], group=g, tag=4) for t in (first, second)]
        for seed in (0, 1):
            dist.isend(own((3,), dtype, seed), ranks[(me + 1) % size], group=g, tag=4).wait()
        for work in reversed(works):
            work.wait()
        return torch.stack([first, second])

    def batch(g: Group) -> torch.Tensor:
        size, me = dist.get_world_size(g), dist.get_rank(g)
        ranks = dist.get_process_group_ranks(g)
        found = torch.empty(3)
        ops = [
            dist.P2POp(dist.isend, own((3,)), ranks[(me + 1) % size], group=g),
            dist.P2POp(dist.irecv, found, ranks[me - 1], group=g),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        return found

    for dtype in (torch.float32, torch.bfloat16):
        yield f"isend and irecv {dtype}", lambda g, d=dtype: around(g, d)
    yield "batch_isend_irecv", batch


def asynchronous() -> Iterator[tuple[str, Case]]:
    def many(g: Group) -> list[torch.Tensor]:
        tensors = [own((n % 3 + 1,), seed=n) for n in range(30)]
        works = [dist.all_reduce(tensor, group=g, async_op=True) for tensor in tensors]
        for work in reversed(works):
            work.wait()
        return tensors

    def future(g: Group) -> torch.Tensor:
        work = dist.all_reduce(own((4,)), group=g, async_op=True)
        return work.get_future().then(lambda done: done.value()[0] * 2).wait()

    yield "name", lambda g: [g.group_name, g.group_desc]
    yield "many at once", many
    yield "future", future


def uneven(group: Group) -> bool:
    """Whether sizes may differ from rank to rank, which Gloo refuses."""
    ranks, me = dist.get_process_group_ranks(group), dist.get_rank()
    gathered = [torch.empty(rank + 1, 2) for rank in ranks]
    dist.all_gather(gathered, own((me + 1, 2)), group=group)
    scattered = torch.empty(me + 1)
    dist.reduce_scatter(scattered, [own((to + 1,), seed=to) for to in ranks], group=group)
    sums = torch.stack([of_rank(rank, (me + 1,), seed=me) for rank in ranks]).sum(0)
    return same(gathered, [of_rank(rank, (rank + 1, 2)).cpu() for rank in ranks]) and same(
        scattered, sums.cpu()
    )


def results(groups: dict[str, Group]) -> dict[str, Any]:
    found = {}
    for name, group in groups.items():
        for make in (reductions, movements, exchanges, objects, messages, asynchronous):
            for what, case in make():
                if group is not None:
                    found[f"{name}: {what}"] = tried(case, group)
        dist.barrier()
    return found


def tried(case: Case, group: Group) -> Any:
    try:
        return case(group)
    except Exception as error:  # a case that fails on one backend only is a difference
        return repr(error)


def groups() -> dict[str, Group]:
    ranks = list(range(dist.get_world_size()))
    some = dist.new_group(ranks[1:], group_desc="some")
    return {
        "all": dist.group.WORLD,
        "some": some if dist.get_rank() in ranks[1:] else None,
    }


def same(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one.cpu(), other)
    return bool(one == other)


hvd.init()
dist.init_process_group("hvd_ft")
made = groups()
if len(sys.argv) > 2:
    torch.set_default_device(load(sys.argv[2]))
on_ft = results(made)
refused_by_gloo = [uneven(group) for group in made.values() if group is not None]
torch.set_default_device("cpu")
if made["some"] is not None:
    dist.destroy_process_group(made["some"])
dist.destroy_process_group()
dist.init_process_group(
    "gloo", init_method=f"file://{sys.argv[1]}/meet", rank=hvd.rank(), world_size=hvd.size()
)
on_gloo = results(groups())
lines = [
    f"DIFFERS {hvd.rank()} {name}: {found} instead of {on_gloo[name]}"
    for name, found in on_ft.items()
    if not same(found, on_gloo[name])
]
lines += [f"DIFFERS {hvd.rank()} uneven"] * (not all(refused_by_gloo))
lines.append(f"COMPARED {hvd.rank()} {len(on_ft)}")
print("\n".join(" ".join(line.split()) for line in lines), flush=True)
