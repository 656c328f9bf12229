"""Train the network of train_digits.py on several processes, to the same weights on any number of them.

    mpiexec -n 4 python -m mpi4py examples/train_digits_mpi.py       # one training, on 4 processes
    python examples/train_digits_mpi.py --compare 1 2 3 4            # four trainings, whose weights must not differ

Each batch is cut into 8 shards, whoever computes them: a process computes the gradients of its shards, and
infiniop_cy.distributed adds up those of all, exactly. Prints a hash of the weights. Needs mpi4py and an MPI, for
example from PyPI: pip install 'infiniop_cy[demo-mpi]'.
"""
import argparse
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import time

import numpy as np
from network import Adam
from train_digits import BATCH_SIZE, LEARNING_RATE, REQUIRED_ACCURACY, digits_network, learn, predict, shifted

import infiniop_cy as iop
from infiniop_cy.distributed import GradientSum, cut, mpi

SHARDS = 8


def learn_together(network, images, labels, sums):
    """The gradient of a batch, in network.gradients, from the shards of all processes."""
    for shard, piece in zip(range(SHARDS), cut(len(images), SHARDS)):
        if shard in sums.shards:
            learn(network, images[piece], labels[piece])
            mean_of_batch = network.gradients.dtype.type((piece.stop - piece.start) / len(images))
            sums.add("all weights", shard, network.gradients * mean_of_batch)
    sums.declare("all weights", network.gradients)  # for processes beyond the shards
    network.gradients[...] = sums.result()["all weights"]


def train(workers, epochs, seed=0):
    """The network, and how many of the test digits it reads. All processes draw the same random numbers."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    images, test_images, labels, test_labels = train_test_split(
        digits.images[:, None] / 16, digits.target, test_size=0.2, random_state=seed, stratify=digits.target)
    random = np.random.default_rng(seed)
    network = digits_network("float32", random)
    optimizer, sums = Adam(network), GradientSum(workers, shards=SHARDS)
    batches = -(-len(images) // BATCH_SIZE)
    for _ in range(epochs):
        for batch in np.array_split(random.permutation(len(images)), batches):
            learn_together(network, shifted(images[batch], random), labels[batch], sums)
            progress = (optimizer.steps + 1) / (epochs * batches)
            optimizer.step(LEARNING_RATE * (1 + np.cos(np.pi * progress)) / 2)
    return network, np.mean(predict(network, test_images) == test_labels)


def train_here(epochs):
    """One process of a job."""
    start = time.perf_counter()
    with mpi() as workers, iop.threads(1):
        network, accuracy = train(workers, epochs)
        if workers.rank == 0:
            weights = hashlib.sha256(network.weights.tobytes()).hexdigest()
            print(f"{workers.size} process{'es' * (workers.size > 1)}: weights {weights[:32]}, "
                  f"{accuracy:.2%} of the test digits right, {time.perf_counter() - start:.1f} s", flush=True)
        if accuracy < REQUIRED_ACCURACY:
            sys.exit(f"error: test accuracy {accuracy:.2%} is below {REQUIRED_ACCURACY:.0%}")


def compare(sizes, epochs):
    """Train on each number of processes. Returns whether all came to the same weights."""
    beside = shutil.which("mpiexec", path=str(pathlib.Path(sys.executable).parent))
    mpiexec = beside or shutil.which("mpiexec") or sys.exit("error: there is no mpiexec; pip install mpich has one")
    hashes = set()
    for size in sizes:
        done = subprocess.run(
            [mpiexec, "-n", str(size), sys.executable, "-m", "mpi4py", __file__, "--epochs", str(epochs)],
            env=os.environ | {"OMP_NUM_THREADS": "1"}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
            check=True)
        print(done.stdout, end="", flush=True)
        hashes.add(done.stdout.split("weights ")[1].split(",")[0])
    return len(hashes) == 1


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=12, help="passes over the digits (default: %(default)s)")
    parser.add_argument("--compare", type=int, nargs="+", metavar="N", help="start trainings on so many processes each")
    options = parser.parse_args(arguments)
    if not options.compare:
        train_here(options.epochs)
    elif compare(options.compare, options.epochs):
        print("the same weights every time")
    else:
        sys.exit("error: the weights differ")


if __name__ == "__main__":
    main()
