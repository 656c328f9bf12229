"""A torch module in float16 on a CPU, with torch's convolutions and with this library's, and what a step of each takes.

    python examples/float16_torch.py            # options: --help

The two are one network: the same parameters, the same forward pass up to rounding. All that differs is whose Conv2d it
names. torch has fast float16 convolutions on CPUs forwards, but not backwards.
"""
import argparse
import time

import torch

from infiniop_cy.bridges import torch as bridge


def network(conv, channels):
    """A small image classifier out of one module's convolutions."""
    return torch.nn.Sequential(
        conv(3, channels, 3, padding=1), torch.nn.ReLU(),
        conv(channels, channels, 3, padding=1), torch.nn.ReLU(),
        conv(channels, 2 * channels, 3, stride=2, padding=1), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(2 * channels, 10)).half()


def step(model, images, labels):
    """Forward and backward; returns the loss."""
    model.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(images).float(), labels)
    loss.backward()
    return loss.item()


def compare(batch, size, channels, repeats):
    """({whose: seconds of a step}, the largest difference of a gradient, relative to its norm)."""
    torch.manual_seed(0)
    models = {"torch": network(torch.nn.Conv2d, channels), "infiniop_cy": network(bridge.Conv2d, channels)}
    models["infiniop_cy"].load_state_dict(models["torch"].state_dict())
    images, labels = torch.randn(batch, 3, size, size).half(), torch.arange(batch) % 10
    seconds = {name: [] for name in models}
    for _ in range(repeats):
        for name, model in models.items():  # by turns, so that both see the same machine
            start = time.perf_counter()
            step(model, images, labels)
            seconds[name].append(time.perf_counter() - start)
    difference = max((ours.grad.float() - theirs.grad.float()).norm() / theirs.grad.float().norm()
                     for theirs, ours in zip(*(model.parameters() for model in models.values())))
    return {name: sorted(times)[repeats // 2] for name, times in seconds.items()}, difference.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, value in (("batch", 8), ("size", 32), ("channels", 32), ("repeats", 5)):
        parser.add_argument(f"--{name}", type=int, default=value, help="(default: %(default)s)")
    seconds, difference = compare(**vars(parser.parse_args()))
    for name, one in seconds.items():
        print(f"{name:12}{1000 * one:9.1f} ms a step")
    print(f"{seconds['torch'] / seconds['infiniop_cy']:.0f} times as fast; "
          f"gradients differ by at most {difference:.0e} of their norm")


if __name__ == "__main__":
    main()
