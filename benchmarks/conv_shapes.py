"""Convolutions to measure, by family: one ConvCase each, from the tables of the papers."""
from infiniop_cy.testing.conv import ConvCase


def _square(name, batch, cin, cout, size, kernel, stride=1, padding=0, groups=1, dilation=1):
    return ConvCase(name, batch, groups, cin, cout, (size, size), (kernel, kernel), stride, padding, dilation)


def _typical():
    """The shapes that have targets."""
    yield _square("56 3x3", 8, 64, 64, 56, 3, 1, 1)
    yield _square("28 3x3", 8, 128, 128, 28, 3, 1, 1)
    yield _square("14 3x3", 8, 256, 256, 14, 3, 1, 1)
    yield _square("56 1x1", 8, 64, 256, 56, 1)
    yield _square("224 7x7 s2", 8, 3, 64, 224, 7, 2, 3)
    yield _square("28 depthwise 3x3", 8, 128, 128, 28, 3, 1, 1, groups=128)
    yield ConvCase("1024 k5", 16, 1, 64, 64, (1024,), (5,), 1, 2)
    yield ConvCase("16x28x28 3x3x3", 2, 1, 16, 32, (16, 28, 28), (3, 3, 3), 1, 1)
    yield _square("56 3x3 d2", 8, 64, 64, 56, 3, 1, 2, dilation=2)
    yield _square("56 3x3 g32", 8, 128, 128, 56, 3, 1, 1, groups=32)


def _resnet50(batch=8):
    """He et al., Deep Residual Learning (2015), table 1; stride in the 3x3 convolutions, as every framework has it."""
    yield _square("stem 7x7 s2", batch, 3, 64, 224, 7, 2, 3)
    size, cin = 56, 64
    for stage, width in enumerate((64, 128, 256, 512), start=2):
        stride = 1 if stage == 2 else 2
        yield _square(f"conv{stage} reduce", batch, cin, width, size, 1)
        yield _square(f"conv{stage} 3x3 first", batch, width, width, size, 3, stride, 1)
        yield _square(f"conv{stage} shortcut", batch, cin, 4 * width, size, 1, stride)
        size, cin = size // stride, 4 * width
        yield _square(f"conv{stage} expand", batch, width, cin, size, 1)
        yield _square(f"conv{stage} reduce again", batch, cin, width, size, 1)
        if stride == 2:
            yield _square(f"conv{stage} 3x3", batch, width, width, size, 3, 1, 1)


def _mobilenet(batch=8):
    """Howard et al., MobileNets (2017), table 1; Sandler et al., MobileNetV2 (2018), table 2."""
    yield _square("v1 stem 3x3 s2", batch, 3, 32, 224, 3, 2, 1)
    size = 112
    for cin, cout, stride in ((32, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2),
                              (512, 512, 1), (512, 1024, 2), (1024, 1024, 1)):
        yield _square(f"v1 depthwise {cin} s{stride}", batch, cin, cin, size, 3, stride, 1, groups=cin)
        size //= stride
        yield _square(f"v1 pointwise {cin}-{cout}", batch, cin, cout, size, 1)
    for width, size, stride in ((96, 112, 2), (144, 56, 1), (192, 28, 1), (384, 14, 1), (576, 14, 2), (960, 7, 1)):
        yield _square(f"v2 depthwise {width} s{stride}", batch, width, width, size, 3, stride, 1, groups=width)
    for cin, cout, size in ((16, 96, 112), (144, 24, 56), (192, 32, 28), (384, 64, 14), (160, 960, 7), (320, 1280, 7)):
        yield _square(f"v2 pointwise {cin}-{cout}", batch, cin, cout, size, 1)


def _unet():
    """Ronneberger et al., U-Net (2015), figure 1, the contracting path on 256 x 256 with padding."""
    size, cin = 256, 1
    for width in (64, 128, 256, 512):
        yield _square(f"encoder {size} first", 1, cin, width, size, 3, 1, 1)
        yield _square(f"encoder {size} second", 1, width, width, size, 3, 1, 1)
        size, cin = size // 2, width


def _audio():
    """Waveforms (Baevski et al., wav2vec 2.0, 2020, section 4.2) and mel frames (Radford et al., Whisper, 2022)."""
    size, cin = 16000, 1
    for kernel, stride in ((10, 5), (3, 2), (3, 2), (3, 2), (3, 2), (2, 2), (2, 2)):
        yield ConvCase(f"wav2vec k{kernel} s{stride} at {size}", 2, 1, cin, 512, (size,), (kernel,), stride)
        size, cin = (size - kernel) // stride + 1, 512
    yield ConvCase("whisper stem k3", 2, 1, 80, 384, (3000,), (3,), 1, 1)
    yield ConvCase("whisper stem k3 s2", 2, 1, 384, 384, (3000,), (3,), 2, 1)


def _video():
    """Three-dimensional: Tran et al., C3D (2015), figure 3, on quarter-size clips."""
    for name, cin, cout, size in (("conv1a", 3, 64, (16, 56, 56)), ("conv2a", 64, 128, (16, 28, 28)),
                                  ("conv3a", 128, 256, (8, 14, 14)), ("conv4a", 256, 512, (4, 7, 7))):
        yield ConvCase(f"c3d {name}", 1, 1, cin, cout, size, (3, 3, 3), 1, 1)


FAMILIES = {name: tuple(shapes()) for name, shapes in {
    "typical": _typical, "resnet50": _resnet50, "mobilenet": _mobilenet, "unet": _unet, "audio": _audio,
    "video": _video}.items()}
