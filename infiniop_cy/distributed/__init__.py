"""Gradients summed over the workers of a data-parallel job, with the same bits on any number of workers.

    >>> import numpy as np
    >>> from infiniop_cy.distributed import GradientSum, cut
    >>> images = np.arange(10, dtype=np.float32)
    >>> sums = GradientSum(shards=4)                # of one process; GradientSum(workers, shards=4) of `with mpi() as`
    >>> pieces = cut(len(images), 4)
    >>> for shard in sums.shards:                   # those of this worker
    ...     sums.add("weight", shard, images[pieces[shard]].sum(keepdims=True))
    >>> sums.result()["weight"]
    array([45.], dtype=float32)

The batch is cut into logical shards, whose number is no worker's business, and each shard's gradient is computed by
the same call wherever it runs. The sum over shards is a sum of integers, so that neither its order nor its grouping
matters: the largest magnitude of a tensor over all shards chooses a grid, each shard is rounded to int64 on it, and the
sum is rounded once more, to the dtype of the gradient.

Source of the method: sums that are exact by splitting at a common grid, of J. Demmel and H. D. Nguyen, "Parallel
reproducible summation", IEEE Transactions on Computers 64 (7), 2015; here with a single bin, which is enough for the
accuracy of a gradient, and in integers, which any engine can add.
"""
from infiniop_cy.distributed.collectives import Workers, alone, mpi, torch
from infiniop_cy.distributed.gradients import GradientSum, cut, sum_gradient

__all__ = ["GradientSum", "Workers", "alone", "cut", "mpi", "sum_gradient", "torch"]
