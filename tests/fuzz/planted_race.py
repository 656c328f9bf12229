"""Several threads compute into one array, each with a team: the thread sanitizer notices, or it is not watching."""
import threading

import numpy as np

import infiniop_cy as iop

if __name__ == "__main__":
    x = np.ones(200_000, np.float32)
    out, start = np.empty_like(x), threading.Barrier(2)

    def work():
        start.wait()
        for _ in range(50):
            iop.relu_backward(x, x, out=out, num_threads=2)
    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
