"""A process group of torch.distributed whose collectives are Horovod's on the ft backend."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from horovod.torch.mpi_ops import Sum
from horovod.torch.mpi_ops import size as job_size
from torch._C import _distributed_c10d as c10d

from hvd_ft.errors import HvdFtError
from hvd_ft.torch.distributed.contents import (
    as_bytes,
    assign,
    fill,
    fill_each,
    plain,
    sizes,
)
from hvd_ft.torch.distributed.devices import takes_devices
from hvd_ft.torch.distributed.members import Members, members
from hvd_ft.torch.distributed.messages import Messages
from hvd_ft.torch.distributed.operations import Operations
from hvd_ft.torch.distributed.reductions import reduction
from hvd_ft.torch.distributed.sparse import gather_sparse
from hvd_ft.torch.distributed.work import Finisher, Tensors, done
from hvd_ft.torch.wrapped import Wrapper

NAME = "hvd_ft"


def _collective(collective: Callable[..., dist.Work]) -> Callable[..., dist.Work]:
    """Has a collective take tensors of any device, and raise its errors.

    It raises them if it is synchronous, and those of earlier ones: `wait` of a work that is made
    from a future does not raise them.
    """
    staged = takes_devices(collective)

    @functools.wraps(collective)
    def call(group: "FtGroup", *arguments: Any, **more: Any) -> dist.Work:
        work = staged(group, *arguments, **more)
        options = more.get("opts", arguments[-1] if arguments else None)
        if not getattr(options, "asyncOp", True):
            work.wait()
        group._finisher.raise_failure()
        return work

    return call


class FtGroup(dist.ProcessGroup):
    """The ranks of a group; torch.distributed calls the functions, and documents them.

    Args:
        name: the group's, the same on all ranks and different from those of other groups.
        number: how many groups the script has made before.
        its: the group's ranks.
        rank: this process's rank in the group.
    """

    def __init__(self, name: str, number: int, its: Members, rank: int) -> None:
        super().__init__(rank, len(its.ranks))
        self._name, self._description = name, "undefined"
        self._its = its
        self._rank = rank
        self._operations = Operations(name, its)
        self._finisher = Finisher(self._operations)
        self._work = self._finisher.work
        self._messages = Messages(its.ranks, number)
        self._first_pass: Wrapper | None = None

    @property
    def _me(self) -> int:
        return self._its.now(self._rank)

    @property
    def _ranks(self) -> int:
        return len(self._its.ranks)

    def getRank(self) -> int:
        """Returns this process's rank in the group."""
        return self._me

    def getSize(self) -> int:
        """Returns how many ranks the group has, by which gradients are divided."""
        return self._ranks

    def getBackendName(self) -> str:
        """Returns the backend's name."""
        return NAME

    # PyTorch keeps names in the backends that a group has, and this group has none.
    def getGroupName(self) -> str:
        """Returns the group's name."""
        return self._name

    def setGroupName(self, name: str) -> None:
        """Names the group; PyTorch does when it has made the group."""
        self._name = name

    def getGroupDesc(self) -> str:
        """Returns the description that the script has given, or "undefined"."""
        return self._description

    def setGroupDesc(self, description: str) -> None:
        """Describes the group."""
        self._description = description

    def new_group(
        self,
        ranks: Sequence[int],
        timeout: Any = None,
        pg_options: Any = None,
        group_name: str = "",
        group_desc: str | None = None,
    ) -> "FtGroup | None":
        """Makes a group of some ranks; called on all ranks. None on those that are not in it.

        Raises:
            HvdFtError: only the ranks of the new group call it.
        """
        name = str(group_name)
        if not name.isdecimal():  # PyTorch does not call the other ranks
            raise HvdFtError(
                "new_group(use_local_synchronization=True) is not supported on this backend: "
                "leave it out, and call new_group on all ranks"
            )
        number = next_number()
        its = members([self._its.ranks[rank] for rank in ranks], job_size())
        if self._me not in ranks:
            return None
        group = FtGroup(name, number, its, list(ranks).index(self._me))
        group.setGroupDesc(group_desc or "undefined")
        return group

    @_collective
    def allreduce(self, tensors: Tensors, opts: Any = None) -> dist.Work:
        """Reduces each tensor, in place."""
        opts = opts or c10d.AllreduceOptions()
        if self._first_pass is not None:
            return self._reduce_used(tensors, opts)
        works = [self._reduce(tensor, opts.reduceOp, tensors) for tensor in tensors]
        return works[-1] if works else done([])

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> dist.Work:
        """Likewise."""
        return self.allreduce(tensors, opts)

    @_collective
    def reduce(self, tensors: Tensors, opts: Any) -> dist.Work:
        """Reduces a tensor; only the root's is changed."""
        (tensor,) = tensors
        if self._me == opts.rootRank:
            return self._reduce(tensor, opts.reduceOp, tensors)
        return self._reduce(tensor.detach().clone(), opts.reduceOp, tensors)

    @_collective
    def broadcast(self, tensors: Tensors, opts: Any) -> dist.Work:
        """Sets tensors to the root's."""
        works = []
        for tensor in tensors:
            data = as_bytes(tensor)
            started = [self._operations.broadcast(data, opts.rootRank)] if data.numel() else []
            works.append(self._work(started, functools.partial(_set, tensor, data), tensors))
        return works[-1] if works else done([])

    @_collective
    def allgather(
        self, output_tensors: list[Tensors], input_tensors: Tensors, opts: Any = None
    ) -> dist.Work:
        """Gathers a tensor of each rank in the tensors of a list, whose sizes may differ."""
        (outputs,), (tensor,) = output_tensors, input_tensors
        its = self._its.by_set(outputs)
        return self._gather(tensor, lambda data: fill_each(its, data), sum(sizes(its)), outputs)

    @_collective
    def allgather_coalesced(
        self, output_lists: list[Tensors], input_list: Tensors, opts: Any = None
    ) -> dist.Work:
        """Likewise, for several tensors of each rank; `output_lists` is by rank or by tensor."""
        by_tensor = output_lists
        if len(output_lists) == self._ranks:
            by_tensor = [list(column) for column in zip(*output_lists, strict=True)]
        works = [
            self.allgather([outputs], [tensor])
            for outputs, tensor in zip(by_tensor, input_list, strict=True)
        ]
        return works[-1] if works else done([])

    @_collective
    def all_gather_single(
        self, output: torch.Tensor, input: torch.Tensor, opts: Any = None
    ) -> dist.Work:
        """Gathers tensors of the same size in one tensor."""
        if self._its.sorted:
            return self._gather(
                input, lambda data: fill(output, data), sum(sizes([output])), [output]
            )

        def finish(data: torch.Tensor) -> None:
            fill(output, torch.cat(self._its.by_group(data.chunk(self._ranks))))

        return self._gather(input, finish, sum(sizes([output])), [output])

    _allgather_base = all_gather_single

    @_collective
    def all_gather_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> dist.Work:
        """Likewise, for several tensors of each rank."""
        works = [self.all_gather_single(*pair) for pair in zip(outputs, inputs, strict=True)]
        return works[-1] if works else done([])

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    @_collective
    def gather(self, output_tensors: list[Tensors], input_tensors: Tensors, opts: Any) -> dist.Work:
        """Gathers a tensor of each rank on the root."""
        (tensor,) = input_tensors
        outputs = output_tensors[0] if self._me == opts.rootRank else []
        parts = [tensor[:0] if tensor.dim() else tensor.reshape(1)[:0]] * self._ranks
        parts[opts.rootRank] = tensor
        return self._exchange(parts, outputs)

    @_collective
    def scatter(
        self, output_tensors: Tensors, input_tensors: list[Tensors], opts: Any
    ) -> dist.Work:
        """Gives each rank a tensor of the root's."""
        (output,) = output_tensors
        nothing = output.reshape(-1)[:0]
        parts = input_tensors[0] if self._me == opts.rootRank else [nothing] * self._ranks
        outputs: Tensors = [nothing] * self._ranks
        outputs[opts.rootRank] = output
        return self._exchange(parts, outputs)

    @_collective
    def reduce_scatter(
        self, output_tensors: Tensors, input_tensors: list[Tensors], opts: Any = None
    ) -> dist.Work:
        """Reduces tensors of a list, whose sizes may differ; each rank gets one."""
        (output,), (inputs,) = output_tensors, input_tensors
        opts = opts or c10d.ReduceScatterOptions()
        whole = torch.cat([plain(each).reshape(-1) for each in inputs])
        if len({each.numel() for each in inputs}) == 1:
            return self._reduce_scatter(output, whole, opts.reduceOp)
        start = sum(each.numel() for each in inputs[: self._me])
        return self._reduce(
            whole,
            opts.reduceOp,
            [output],
            lambda: assign(output, whole[start : start + output.numel()]),
        )

    @_collective
    def reduce_scatter_single(
        self, output: torch.Tensor, input: torch.Tensor, opts: Any = None
    ) -> dist.Work:
        """Reduces a tensor; each rank gets a slice of it."""
        opts = opts or c10d.ReduceScatterOptions()
        return self._reduce_scatter(output, plain(input).reshape(-1), opts.reduceOp)

    _reduce_scatter_base = reduce_scatter_single

    @_collective
    def reduce_scatter_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> dist.Work:
        """Likewise, for several tensors."""
        works = [
            self.reduce_scatter_single(*pair, opts) for pair in zip(outputs, inputs, strict=True)
        ]
        return works[-1] if works else done([])

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    @_collective
    def alltoall(
        self, output_tensors: Tensors, input_tensors: Tensors, opts: Any = None
    ) -> dist.Work:
        """Sends a tensor to each rank, and receives one of each rank."""
        return self._exchange(input_tensors, output_tensors)

    @_collective
    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: Sequence[int],
        input_split_sizes: Sequence[int],
        opts: Any = None,
    ) -> dist.Work:
        """Likewise, slices of one tensor."""
        parts = _slices(as_bytes(input), input, input_split_sizes, self._ranks)
        if output.is_contiguous():
            outputs = _slices(as_bytes(output), output, output_split_sizes, self._ranks)
            return self._exchange(parts, outputs, [output])
        rows = torch.empty(sum(sizes([output])), dtype=torch.uint8, device="cpu")
        outputs = _slices(rows, output, output_split_sizes, self._ranks)
        return self._exchange(parts, outputs, [output], lambda: fill(output, rows))

    alltoall_base = all_to_all_single

    @_collective
    def barrier(self, opts: Any = None) -> dist.Work:
        """Waits for all ranks: reduces a number."""
        return self._reduce(torch.zeros(1, dtype=torch.int32, device="cpu"), dist.ReduceOp.SUM, [])

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """Likewise; hvd_ft itself names a rank that is missing."""
        self.barrier().wait()

    def send(self, tensors: Tensors, dest: int, tag: int = 0) -> dist.Work:
        """Sends a tensor; the work is done, as the message is in the log."""
        (tensor,) = tensors
        self._messages.send(tensor, dest, tag)
        return done(tensors)

    def recv(self, tensors: Tensors, source: int, tag: int = 0) -> dist.Work:
        """Receives a tensor, when the work is waited for."""
        (tensor,) = tensors
        return self._messages.receive(tensor, source, tag)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> dist.Work:
        """Refuses to receive from any rank.

        Raises:
            HvdFtError: always. After a restart another message could come first.
        """
        raise HvdFtError(
            "recv without a source is not supported on the backend hvd_ft, as after a restart "
            "another message could come first: give it src="
        )

    @contextlib.contextmanager
    def first_pass(self, wrapper: Wrapper) -> Iterator[None]:
        """Within it, the first allreduce is that of the map of used parameters.

        Args:
            wrapper: has the reduced map, or gets it.
        """
        self._first_pass = wrapper
        try:
            yield
        finally:
            self._first_pass = None

    def _reduce_used(self, tensors: Tensors, opts: Any) -> dist.Work:
        (tensor,), wrapper = tensors, self._first_pass
        assert wrapper is not None
        self._first_pass = None
        if wrapper.used is not None:
            tensor.copy_(wrapper.used)
            return done(tensors)

        def keep() -> None:
            wrapper.used = tensor.clone()

        return self._reduce(tensor, opts.reduceOp, tensors, keep)

    def _reduce(
        self,
        tensor: torch.Tensor,
        op: Any,
        outputs: Tensors,
        then: Callable[[], None] = lambda: None,
    ) -> dist.Work:
        """Reduces a tensor in place."""
        if tensor.layout is torch.sparse_coo:
            return self._work(*gather_sparse(self._operations, tensor, op, self._ranks), outputs)
        real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        how = reduction(op, real.dtype)
        data = plain(real).to(how.dtype)
        if not data.numel():
            return self._work([], lambda _: then(), outputs)
        if how.op is None:
            started = self._operations.gather(data.reshape(1, -1))
        else:
            started = self._operations.reduce(data, how.op)

        def finish(results: list[Any]) -> None:
            found = data if how.op is not None else how.of_all(results[0])
            assign(real, how.finished(found, self._ranks, real.dtype))
            then()

        return self._work([started], finish, outputs)

    def _reduce_scatter(self, output: torch.Tensor, whole: torch.Tensor, op: Any) -> dist.Work:
        """Reduces a tensor of one dimension; this rank gets its slice of it."""
        how = reduction(op, whole.dtype)
        if how.op != Sum or not self._its.sorted:
            mine = whole if whole.numel() == 0 else whole.clone()
            start = self._me * output.numel()
            return self._reduce(
                mine, op, [output], lambda: assign(output, mine[start : start + output.numel()])
            )
        data = whole.to(how.dtype).reshape(self._ranks, -1)
        if not data.numel():
            return self._work([], lambda _: None, [output])
        started = self._operations.reduce_scatter(data, Sum)

        def finish(results: list[Any]) -> None:
            assign(output, how.finished(results[0], self._ranks, output.dtype))

        return self._work([started], finish, [output])

    def _gather(
        self,
        tensor: torch.Tensor,
        finish: Callable[[torch.Tensor], None],
        size: int,
        outputs: Tensors,
    ) -> dist.Work:
        """Joins the contents of tensors in the process set's order: `size` bytes."""
        if size == 0:  # done when what was started before is, as the last of several
            return self._work([], lambda _: None, outputs)
        started = self._operations.gather(as_bytes(tensor))
        return self._work([started], lambda results: finish(results[0]), outputs)

    def _exchange(
        self,
        parts: Tensors,
        into: Tensors,
        outputs: Tensors | None = None,
        then: Callable[[], None] = lambda: None,
    ) -> dist.Work:
        """Sends a part to each rank of the group, and fills one of each rank."""
        started = self._operations.exchange(parts)

        def finish(results: list[Any]) -> None:
            if into:
                data, _ = results[0]
                fill_each(self._its.by_set(into), data)
            then()

        return self._work([started], finish, into if outputs is None else outputs)


def _set(tensor: torch.Tensor, data: torch.Tensor, _: list[Any]) -> None:
    fill(tensor, data)


_groups = 0


def next_number() -> int:
    """Returns how many groups this process has made before, and counts one."""
    global _groups
    _groups += 1
    return _groups - 1


def _slices(data: torch.Tensor, tensor: torch.Tensor, splits: Sequence[int], ranks: int) -> Tensors:
    """Returns the bytes of slices of a tensor's first dimension; of equal ones without splits."""
    rows = tensor.shape[0] if tensor.dim() else 1
    numbers = list(splits) or [rows // ranks] * ranks
    row = data.numel() // rows if rows else 0
    return list(data.split([number * row for number in numbers]))
