"""Every collective of torch.distributed on tutti, with every type, reduction and kind of memory, against reference.py and Gloo.

Started as the ranks of one job.
"""
import itertools
import zlib

import torch
import torch.distributed as dist

import ranks
from reference import OPS, TYPES, allowed, inputs_of_all, reduced, same, values

import torch_tutti

dist.init_process_group("gloo")
GLOO = dist.group.WORLD
TUTTI = dist.new_group(backend="tutti")
RANK, SIZE = dist.get_rank(), dist.get_world_size()
SHAPES = ((0,), (1,), (7,), (3, 5), (40, 50), (300, 400))
cases = 0
ways = itertools.cycle(("at once", "later", "by a future", "by asking"))


def generator(*key):
    return torch.Generator().manual_seed(zlib.crc32(repr(key).encode()))


def inputs(dtype, shape, kind, *key):
    """This rank's numbers, in memory of that kind: all ranks may differ in it."""
    t = values(dtype, shape, generator(RANK, str(dtype), shape, *key))
    if kind == "strided":
        wide = torch.zeros((*shape[:-1], 2 * shape[-1]), dtype=dtype)
        wide[..., ::2] = t
        return wide[..., ::2]
    return t.t().contiguous().t() if kind == "transposed" and len(shape) == 2 else t


def done(call):
    """Calls it and waits, in one of the ways that there are; all ranks in the same."""
    global cases
    cases += 1
    way = next(ways)
    if way == "at once":
        return call(async_op=False)
    work = call(async_op=True)
    if way == "by asking":
        while not work.is_completed():
            pass
    if way == "by a future":
        work.get_future().wait()
    return work.wait()


def tries():
    """Types, shapes and kinds of memory, not all with all."""
    kinds = itertools.cycle(("plain", "transposed", "plain", "strided", "plain"))
    for dtype, shape in itertools.product(TYPES, SHAPES):
        yield dtype, shape, next(kinds)


def all_reduce():
    for (dtype, shape, kind), op in itertools.product(tries(), OPS):
        if not allowed(op, dtype):
            continue
        t = inputs(dtype, shape, kind, op)
        wanted = reduced(op, inputs_of_all(t, GLOO))
        done(lambda **how: dist.all_reduce(t, op=OPS[op], group=TUTTI, **how))
        same(t, wanted, f"all_reduce {op} {dtype} {shape} {kind}")
    for dtype in (torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64):
        for op in ("SUM", "PRODUCT", "MIN", "MAX"):
            ours, theirs = (inputs(dtype, (1000,), "plain", op) for _ in range(2))
            dist.all_reduce(ours, op=OPS[op], group=TUTTI)
            dist.all_reduce(theirs, op=OPS[op], group=GLOO)
            same(ours, theirs, f"all_reduce {op} {dtype} against Gloo's")


def premul_sum():
    t = inputs(torch.float32, (500,), "plain")
    wanted = sum(x.double() * (r + 0.5) for r, x in enumerate(inputs_of_all(t, GLOO))).float()
    done(lambda **how: dist.all_reduce(t, op=torch._C._distributed_c10d._make_nccl_premul_sum(RANK + 0.5), group=TUTTI, **how))
    same(t, wanted, "premul_sum")


def reduce():
    for (dtype, shape, kind), op in itertools.product(tries(), ("SUM", "MAX", "BXOR", "PRODUCT")):
        if not allowed(op, dtype):
            continue
        root = len(shape) % SIZE
        t = inputs(dtype, shape, kind, op)
        before = t.clone()
        wanted = reduced(op, inputs_of_all(t, GLOO))
        done(lambda **how: dist.reduce(t, root, op=OPS[op], group=TUTTI, **how))
        same(t, wanted if RANK == root else before, f"reduce {op} {dtype} {shape} {kind}")


def broadcast():
    for dtype, shape, kind in tries():
        root = len(shape) % SIZE
        t = inputs(dtype, shape, kind)
        wanted = inputs_of_all(t, GLOO)[root]
        done(lambda **how: dist.broadcast(t, root, group=TUTTI, **how))
        same(t, wanted, f"broadcast {dtype} {shape} {kind}")


def all_gather():
    for dtype, shape, kind in tries():
        t = inputs(dtype, shape, kind)
        wanted = inputs_of_all(t, GLOO)
        places = [torch.empty_like(t) for _ in range(SIZE)] if kind != "plain" else list(torch.empty((SIZE, *shape), dtype=dtype))
        done(lambda **how: dist.all_gather(places, t, group=TUTTI, **how))
        for r in range(SIZE):
            same(places[r], wanted[r], f"all_gather {dtype} {shape} {kind} of {r}")
        whole = torch.empty((SIZE * shape[0], *shape[1:]), dtype=dtype)
        into = getattr(dist, "all_gather_into_tensor", None) or dist._all_gather_base
        done(lambda **how: into(whole, t, group=TUTTI, **how))
        same(whole, torch.cat(wanted), f"all_gather_into_tensor {dtype} {shape} {kind}")
    # Shares that differ in size, which Gloo does not have.
    places = [torch.zeros(5 * r + 1) for r in range(SIZE)]
    done(lambda **how: dist.all_gather(places, torch.full((5 * RANK + 1,), float(RANK)), group=TUTTI, **how))
    for r in range(SIZE):
        same(places[r], torch.full((5 * r + 1,), float(r)), "all_gather of uneven shares")


def coalesced():
    parts = [inputs(torch.float32, shape, kind, "c") for shape, kind in (((7,), "plain"), ((40, 50), "transposed"), ((0,), "plain"))]
    all_parts = [inputs_of_all(t, GLOO) for t in parts]
    places = [[torch.empty_like(t) for t in parts] for _ in range(SIZE)]
    done(lambda **how: dist.all_gather_coalesced(places, parts, group=TUTTI, **how))
    for i, r in itertools.product(range(len(parts)), range(SIZE)):
        same(places[r][i], all_parts[i][r], f"all_gather_coalesced: {i} of {r}")
    done(lambda **how: dist.all_reduce_coalesced(parts, op=dist.ReduceOp.MAX, group=TUTTI, **how))
    for t, everyone in zip(parts, all_parts):
        same(t, reduced("MAX", everyone), "all_reduce_coalesced")


def gather_and_scatter():
    for dtype, shape, kind in tries():
        root = len(shape) % SIZE
        t = inputs(dtype, shape, kind)
        everyone = inputs_of_all(t, GLOO)
        places = [torch.empty_like(t) for _ in range(SIZE)] if RANK == root else None
        done(lambda **how: dist.gather(t, places, dst=root, group=TUTTI, **how))
        for r in range(SIZE if RANK == root else 0):
            same(places[r], everyone[r], f"gather {dtype} {shape} {kind} of {r}")
        place = torch.empty_like(t)
        done(lambda **how: dist.scatter(place, everyone if RANK == root else None, src=root, group=TUTTI, **how))
        same(place, everyone[RANK], f"scatter {dtype} {shape} {kind}")


def reduce_scatter():
    for (dtype, shape, kind), op in itertools.product(tries(), ("SUM", "AVG", "MIN", "BOR", "PRODUCT")):
        if not allowed(op, dtype):
            continue
        blocks = [inputs(dtype, shape, kind, op, r) for r in range(SIZE)]
        wanted = reduced(op, [everyone for everyone in inputs_of_all(torch.stack(blocks), GLOO)])[RANK]
        place = torch.empty_like(blocks[0])
        done(lambda **how: dist.reduce_scatter(place, blocks, op=OPS[op], group=TUTTI, **how))
        same(place, wanted, f"reduce_scatter {op} {dtype} {shape} {kind}")
        place = torch.empty_like(blocks[0])
        into = getattr(dist, "reduce_scatter_tensor", None) or dist._reduce_scatter_base
        done(lambda **how: into(place, torch.cat(blocks), op=OPS[op], group=TUTTI, **how))
        same(place, wanted, f"reduce_scatter_tensor {op} {dtype} {shape} {kind}")
    blocks = [torch.full((3 * r + 2,), float(RANK + r)) for r in range(SIZE)]
    place = torch.zeros(3 * RANK + 2)
    done(lambda **how: dist.reduce_scatter(place, blocks, group=TUTTI, **how))
    same(place, torch.full_like(place, float(sum(r + RANK for r in range(SIZE)))), "reduce_scatter of uneven shares")


def all_to_all():
    for dtype, shape, kind in tries():
        blocks = [inputs(dtype, shape, kind, r) for r in range(SIZE)]
        wanted = [everyone[RANK] for everyone in inputs_of_all(torch.stack(blocks), GLOO)]
        places = [torch.empty_like(b) for b in blocks]
        done(lambda **how: dist.all_to_all(places, blocks, group=TUTTI, **how))
        for r in range(SIZE):
            same(places[r], wanted[r], f"all_to_all {dtype} {shape} {kind} from {r}")
        whole = torch.empty((SIZE * shape[0], *shape[1:]), dtype=dtype)
        done(lambda **how: dist.all_to_all_single(whole, torch.cat(blocks), group=TUTTI, **how))
        same(whole, torch.cat(wanted), f"all_to_all_single {dtype} {shape} {kind}")
    # Rank r sends r + 1 + j rows to rank j.
    for dtype in TYPES:
        rows = [RANK + 1 + j for j in range(SIZE)]
        source = torch.cat([torch.full((n, 3), float(10 * RANK + j)).to(dtype) for j, n in enumerate(rows)])
        place = torch.empty((sum(r + 1 + RANK for r in range(SIZE)), 3), dtype=dtype)
        done(lambda **how: dist.all_to_all_single(place, source, [r + 1 + RANK for r in range(SIZE)], rows, group=TUTTI, **how))
        same(place, torch.cat([torch.full((r + 1 + RANK, 3), float(10 * r + RANK)).to(dtype) for r in range(SIZE)]), f"all_to_all_single by splits {dtype}")


def send_and_recv():
    left, right = (RANK - 1) % SIZE, (RANK + 1) % SIZE
    for dtype, shape, kind in tries():
        t, place = inputs(dtype, shape, kind), inputs(dtype, shape, kind, "place")
        wanted = inputs_of_all(t, GLOO)[left]
        works = [dist.isend(t, right, group=TUTTI), dist.irecv(place, left, group=TUTTI)]
        for work in works:
            work.wait()
        same(place, wanted, f"send and recv {dtype} {shape} {kind}")
    several = [torch.full((4,), float(i)) for i in range(3)]
    places = [torch.empty(4) for _ in range(3)]
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, t, right, TUTTI) for t in several] + [dist.P2POp(dist.irecv, p, left, TUTTI) for p in places]):
        work.wait()
    for i in range(3):
        same(places[i], several[i], "messages of a pair keep their order")


def started_together():
    """Calls between a beginning and an end. Whoever waits in between is told; each Work is complete when all calls are, copies to strided places included."""
    sums, part, message = inputs(torch.float32, (40, 50), "transposed", "t"), inputs(torch.int64, (7,), "strided", "t"), torch.full((3,), float(RANK))
    wanted_sums, wanted_parts = reduced("SUM", inputs_of_all(sums, GLOO)), inputs_of_all(part, GLOO)
    places, received = [torch.empty(2 * 7, dtype=torch.int64)[::2] for _ in range(SIZE)], torch.empty(3)
    on = (torch.device("cpu"),) if int(torch.__version__.split(".")[0]) >= 2 else ()
    TUTTI._start_coalescing(*on)
    works = [dist.all_reduce(sums, group=TUTTI, async_op=True), dist.all_gather(places, part, group=TUTTI, async_op=True),
             dist.isend(message, (RANK + 1) % SIZE, group=TUTTI), dist.irecv(received, (RANK - 1) % SIZE, group=TUTTI)]
    assert not any(work.is_completed() for work in works)
    error = ranks.failure_of(works[0].wait)
    assert error.code == "invalid_state" and "coalesced" in str(error), error
    TUTTI._end_coalescing(*(on or (works,)))
    works[2].wait()
    same(sums, wanted_sums, "all_reduce started with others")
    for r in range(SIZE):
        same(places[r], wanted_parts[r], f"all_gather started with others: of {r}")
    same(received, torch.full((3,), float((RANK - 1) % SIZE)), "a message started with others")
    assert all(work.is_completed() and work.is_success() for work in works)


def differentiable():
    """torch.distributed.nn: what flows back is exchanged, too."""
    import torch.distributed.nn.functional as nn

    x = torch.full((4,), RANK + 1.0, requires_grad=True)
    total = SIZE * (SIZE + 1) / 2
    y = nn.all_reduce(x, group=TUTTI)
    (y * (RANK + 1)).sum().backward()
    same(y.detach(), torch.full((4,), total), "nn.all_reduce")
    same(x.grad, torch.full((4,), total), "the gradient of nn.all_reduce")
    x = torch.full((4,), RANK + 1.0, requires_grad=True)
    rows = nn.all_gather(x, group=TUTTI)
    sum((r + 1) * row.sum() for r, row in enumerate(rows)).backward()
    same(torch.stack(list(rows)).detach(), torch.arange(1.0, SIZE + 1).view(-1, 1).expand(SIZE, 4), "nn.all_gather")
    same(x.grad, torch.full((4,), SIZE * (RANK + 1.0)), "the gradient of nn.all_gather")


def objects():
    everyone = [None] * SIZE
    dist.all_gather_object(everyone, {"rank": RANK, "text": "x" * RANK}, group=TUTTI)
    assert everyone == [{"rank": r, "text": "x" * r} for r in range(SIZE)], everyone
    shared = [f"from {RANK}", RANK]
    dist.broadcast_object_list(shared, src=SIZE - 1, group=TUTTI)
    assert shared == [f"from {SIZE - 1}", SIZE - 1], shared
    gathered = [None] * SIZE if RANK == 0 else None
    dist.gather_object(("of", RANK), gathered, dst=0, group=TUTTI)
    assert RANK != 0 or gathered == [("of", r) for r in range(SIZE)], gathered
    own = [None]
    dist.scatter_object_list(own, [f"to {r}" for r in range(SIZE)] if RANK == 1 else None, src=1, group=TUTTI)
    assert own == [f"to {RANK}"], own


def allocated():
    """Memory that ranks read in place, in sizes around those where the library begins to, and views of it."""
    for count, dtype in ((0, torch.float32), (3, torch.int64), (1000, torch.float16), (300001, torch.float32)):
        t = torch_tutti.zeros(count, dtype=dtype)
        assert t.shape == (count,) and t.dtype == dtype and not t.any()
        t.copy_(values(dtype, (count,), generator(RANK, count)))
        wanted = reduced("SUM", inputs_of_all(t, GLOO))
        done(lambda **how: dist.all_reduce(t, group=TUTTI, **how))
        same(t, wanted, f"all_reduce of {count} {dtype} in place")
    whole = torch_tutti.zeros(SIZE, 50000)
    whole[RANK] = RANK + 1.0
    own = whole[RANK].clone()
    done(lambda **how: dist.all_gather(list(whole), own, group=TUTTI, **how))
    same(whole, torch.arange(1.0, SIZE + 1).view(-1, 1).expand(SIZE, 50000), "all_gather into allocated memory")
    view = whole[0]
    del whole
    dist.broadcast(view, 0, group=TUTTI)
    same(view, torch.ones(50000), "a view outlives its whole")


def many_at_once():
    """A hundred operations under way, waited for in another order than they were started; some are not waited for at all."""
    tensors = [torch.full((50 * i + 1,), float(RANK + i)) for i in range(100)]
    works = [dist.all_reduce(t, group=TUTTI, async_op=True) for t in tensors]
    futures = [w.get_future().then(lambda f: f.value()[0].sum().item()) for w in works[1::2]]
    for work in reversed(works[::2]):
        work.wait()
    sums = [f.wait() for f in futures]
    for i, t in enumerate(tensors):
        same(t, torch.full_like(t, float(sum(r + i for r in range(SIZE)))), f"the {i}th of many")
    assert sums == [t.sum().item() for t in tensors[1::2]], sums
    dropped = torch.ones(100000)
    dist.all_reduce(dropped, group=TUTTI, async_op=True)
    del dropped
    dist.barrier(group=TUTTI)


def subgroups():
    """Groups of two and of one, beside the whole; a rank that is in none."""
    pair, alone = dist.new_group([0, SIZE - 1], backend="tutti"), dist.new_group([0], backend="tutti")
    if RANK in (0, SIZE - 1):
        t = torch.tensor([float(RANK + 1)])
        dist.all_reduce(t, group=pair)
        assert t.item() == 1 + SIZE, t
    if RANK == 0:
        t = torch.tensor([5.0])
        dist.all_reduce(t, group=alone)
        dist.barrier(group=alone)
        assert t.item() == 5.0, t
    assert not torch_tutti.explain(64, TUTTI).startswith("self")


def refusals():
    """What is refused is refused before anything is sent, so the group lives on."""
    for call, code, text in (
        (lambda: dist.reduce(torch.ones(2, dtype=torch.complex64), 0, op=dist.ReduceOp.MAX, group=TUTTI), "unsupported", "MAX of ComplexFloat means nothing"),
        (lambda: dist.reduce(torch.ones(2, dtype=torch.complex64), 0, op=dist.ReduceOp.PRODUCT, group=TUTTI), "unsupported", "PRODUCT of ComplexFloat"),
        (lambda: dist.all_reduce(torch.ones(2), op=dist.ReduceOp.BAND, group=TUTTI), "unsupported", "BAND of Float"),
        (lambda: dist.all_reduce(torch.ones(2).bool(), op=dist.ReduceOp.AVG, group=TUTTI), "unsupported", "AVG of bool"),
        (lambda: dist.all_reduce(torch.eye(3).to_sparse(), group=TUTTI), "unsupported", "to_dense"),
        (lambda: TUTTI._allgather_base(torch.ones(SIZE * 3 + 1), torch.ones(3)), "invalid_argument", f"output of {SIZE * 3 + 1} Float"),
        (lambda: dist.all_to_all_single(torch.ones(SIZE * 2), torch.ones(SIZE * 2 + 1), group=TUTTI), "invalid_argument", "multiple of"),
        (lambda: dist.send(torch.ones(1), (RANK + 1) % SIZE, group=TUTTI, tag=3), "unsupported", "tag 3"),
        (lambda: dist.recv(torch.ones(1), group=TUTTI), "unsupported", "recv from any rank"),
    ):
        error = ranks.failure_of(call, text)
        assert error.code == code and text in str(error), error
    dist.barrier(group=TUTTI)


for test in (all_reduce, premul_sum, reduce, broadcast, all_gather, coalesced, gather_and_scatter, reduce_scatter, all_to_all, send_and_recv, started_together,
             differentiable, objects, allocated, many_at_once, subgroups, refusals):
    before = cases
    test()
    if RANK == 0:
        print(f"{test.__name__}: {cases - before} cases", flush=True)
dist.barrier()
GLOO = TUTTI = None      # Gloo's threads may not outlive the interpreter
dist.destroy_process_group()
