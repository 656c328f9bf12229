"""The convolutions of whole networks, as torchvision and torchaudio define them when this runs: no table of layers.

Networks are made on torch's meta device, without numbers, and called once on an input of their usual size, while every
convolution that reaches torch's dispatcher is written down: what modules, functions and string paddings come to. So
nothing is downloaded, little memory is taken, and all of it takes ten seconds.

    python benchmarks/zoo.py [FILE.json]        what there is; the file gets all of it
"""
import json
import sys
from collections import defaultdict
from dataclasses import asdict, dataclass
from math import prod
from unittest import mock

from infiniop_cy.testing.conv import ConvCase

PROBED = 2  # samples of the recorded call: batch normalization while training refuses one

IMAGES = {  # name: pixels each way
    "alexnet": 224, "vgg16": 224, "resnet18": 224, "resnet50": 224, "resnext50_32x4d": 224, "wide_resnet50_2": 224,
    "regnet_y_400mf": 224, "regnet_y_3_2gf": 224, "regnet_x_800mf": 224, "regnet_x_8gf": 224, "densenet121": 224,
    "googlenet": 224, "inception_v3": 299, "squeezenet1_0": 224, "squeezenet1_1": 224, "mobilenet_v2": 224,
    "mobilenet_v3_small": 224, "mobilenet_v3_large": 224, "mnasnet1_0": 224, "shufflenet_v2_x1_0": 224,
    "efficientnet_b0": 224, "efficientnet_v2_s": 384, "convnext_tiny": 224, "maxvit_t": 224, "vit_b_16": 224,
    "deeplabv3_resnet50": 520, "lraspp_mobilenet_v3_large": 520, "ssd300_vgg16": 300}
CLIPS = {  # name: frames, height, width
    "r3d_18": (16, 112, 112), "mc3_18": (16, 112, 112), "r2plus1d_18": (16, 112, 112), "s3d": (16, 224, 224),
    "mvit_v2_s": (16, 224, 224)}


@dataclass(frozen=True)
class Layer:
    """A convolution, whether it has a bias, and {network: how often a step computes it}."""

    case: ConvCase
    bias: bool
    networks: dict


# ---- how to make and call each network: a function of none that returns it, one that calls it

def _vision(name):
    import torch
    import torchvision
    builder = torchvision.models.get_model_builder(name)
    unset = {"weights": None}
    if name in ("deeplabv3_resnet50", "lraspp_mobilenet_v3_large", "ssd300_vgg16"):
        unset["weights_backbone"] = None
    if name in ("googlenet", "inception_v3"):
        unset["init_weights"] = False
    size = CLIPS[name] if name in CLIPS else (IMAGES[name],) * 2

    def call(network):
        image = torch.empty(PROBED, 3, *size)
        if name == "ssd300_vgg16":  # all but the boxes, which depend on numbers
            return network.head(list(network.backbone(image).values()))
        return network(image)
    return lambda: builder(**unset), call


def _flow(name):
    import torch
    import torchvision
    return (lambda: torchvision.models.get_model(name, weights=None),
            lambda network: network(*[torch.empty(PROBED, 3, 368, 496) for _ in range(2)]))


def _audio():
    """{name: (make, call)}, inputs of one to five seconds."""
    import torch
    with mock.patch("torch.version.cuda", None):  # which torchaudio compares with its own, though it is not used here
        import torchaudio.models as audio

    def waveform(seconds, rate, *channels):
        return torch.empty(PROBED, *channels, int(seconds * rate))

    def tacotron(network):  # the decoder between them has no convolutions of a sequence
        text = torch.empty(PROBED, 512, 100)
        for convolution in network.encoder.convolutions:
            text = convolution(text)
        network.postnet(torch.empty(PROBED, 80, 600))

    def conformer(network):  # all but the mask, which depends on numbers
        frames = torch.empty(400, PROBED, 144)
        for layer in network.conformer_layers:
            frames = layer(frames, None)

    def hdemucs(network):  # all but the inverse spectrogram at its end, which looks at numbers
        network._ispec = lambda spectrogram, length: torch.empty(*spectrogram.shape[:3], length)
        network(waveform(3, 44100, 2))
    return {
        "wav2vec2_base": (lambda: audio.wav2vec2_base().eval(), lambda network: network(waveform(5, 16000))),
        "conv_tasnet_base": (audio.conv_tasnet_base, lambda network: network(waveform(4, 8000, 1))),
        "hdemucs_high": (lambda: audio.hdemucs_high(["drums", "bass", "other", "vocals"]),
                         hdemucs),
        "wav2letter": (audio.Wav2Letter, lambda network: network(waveform(2, 16000, 1))),
        "wavernn": (lambda: audio.WaveRNN(upsample_scales=[5, 5, 11], n_classes=512, hop_length=275),
                    lambda network: network.upsample(torch.empty(PROBED, 128, 80))),
        "tacotron2": (audio.Tacotron2, tacotron),
        "conformer": (lambda: audio.Conformer(input_dim=144, num_heads=4, ffn_dim=576, num_layers=16,
                                              depthwise_conv_kernel_size=31), conformer)}


def networks(wanted=None):
    """{name: (make, call)} of those whose name contains one of the wanted texts, or of all."""
    found = {name: _vision(name) for name in (*IMAGES, *CLIPS)}
    found |= {name: _flow(name) for name in ("raft_small", "raft_large")}
    try:
        found |= _audio()
    except (ImportError, OSError, RuntimeError) as error:
        print(f"no networks of torchaudio: {error}", file=sys.stderr)
    return {name: how for name, how in found.items() if not wanted or any(text in name for text in wanted)}


# ---- recording

def _recorder():
    """A context that appends to its list the arguments of every convolution."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Recorder(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.seen = []

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if function is torch.ops.aten.convolution.default:
                input, weight, bias, stride, padding, dilation, transposed, _, groups = args
                if not transposed:
                    self.seen.append((tuple(input.shape), tuple(weight.shape), bias is not None, tuple(stride),
                                      tuple(padding), tuple(dilation), groups))
            return function(*args, **(kwargs or {}))
    return Recorder()


def record(make, call):
    """The arguments of every convolution of a call."""
    import torch
    with torch.no_grad():
        try:
            with torch.device("meta"):
                network = make()
        except NotImplementedError:  # it computes its own widths
            network = make().to("meta")
        with torch.device("meta"), _recorder() as recorder:
            call(network)
    return recorder.seen


def _text(numbers):
    """3x5, or 3 where all are the same."""
    return "x".join(map(str, numbers if len(set(numbers)) > 1 else numbers[:1]))


def _case(batch, input, weight, bias, stride, padding, dilation, groups):
    kernel, size = weight[2:], input[2:]
    marks = [f"{mark}{_text(values)}" for mark, values, usual in (
        ("s", stride, 1), ("p", padding, 0), ("d", dilation, 1), ("g", (groups,), 1)) if set(values) != {usual}]
    name = " ".join((f"{batch}x{'x'.join(map(str, input[1:]))}", f"{weight[0]}*{'x'.join(map(str, kernel))}", *marks,
                     *["bias"] * bias))
    return ConvCase(name, batch, groups, input[1], weight[0], size, kernel, stride, padding, dilation)


def collect(batch=4, wanted=None):
    """The distinct layers of these networks, each once, the largest last."""
    counts = defaultdict(lambda: defaultdict(int))
    for name, (make, call) in networks(wanted).items():
        for input, weight, bias, *geometry in record(make, call):
            counts[_case(input[0] * batch // PROBED, input, weight, bias, *geometry), bias][name] += 1
    layers = [Layer(case, bias, dict(found)) for (case, bias), found in counts.items()]
    return sorted(layers, key=lambda layer: layer.case.flops)


def main():
    layers = collect()
    for network in networks():
        own = [layer for layer in layers if network in layer.networks]
        print(f"{network:26} {sum(layer.networks[network] for layer in own):4} convolutions, {len(own):3} distinct, "
              f"{sum(layer.case.flops * layer.networks[network] for layer in own) / 1e9:8.1f} GFLOP a gradient")
    print(f"{len(layers)} distinct layers, {sum(layer.case.flops for layer in layers) / 1e9:.0f} GFLOP a gradient, "
          f"largest tensor {max(prod(shape) for layer in layers for shape in layer.case.shapes) / 1e6:.0f} M elements")
    if sys.argv[1:]:
        with open(sys.argv[1], "w") as file:
            json.dump([asdict(layer) | {"shapes": layer.case.shapes} for layer in layers], file, indent=1)


if __name__ == "__main__":
    main()
