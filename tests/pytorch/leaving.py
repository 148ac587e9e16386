"""A script may end without destroy_process_group() and without having waited for what it started, callbacks among it.

Started as the ranks of one job.
"""
import torch
import torch.distributed as dist

import torch_tutti  # noqa: F401

dist.init_process_group("tutti")
groups = [None, dist.new_group(backend="tutti")]
works = [dist.all_reduce(torch.ones(100 + i), async_op=True, group=group) for i in range(300) for group in groups]
then = [work.get_future().then(lambda future: future.value()) for work in works]
del works
