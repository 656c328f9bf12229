"""What to look at where the shapes of a convolution do not go together: the smallest change that makes them fit."""
from infiniop_cy.functions import geometry, output_extents
from infiniop_cy.status import InfiniopError

_MOST = 16  # what is tried as padding or stride


class _Attempt:
    """A convolution's shapes and geometry, and whether they go together. output: None where the call makes it."""

    def __init__(self, input, weight, output, **given):
        self.shapes = {"input": tuple(input), "weight": tuple(weight), "output": output and tuple(output)}
        self.given = given

    def fits(self, **changed):
        """Whether it is a convolution, with some shapes or parameters replaced."""
        given = {name: changed.get(name, value) for name, value in self.given.items()}
        input, weight, output = (changed.get(name, shape) for name, shape in self.shapes.items())
        if not 3 <= len(weight) <= 5 or len(input) != len(weight):
            return False
        try:
            stride, pairs, dilation, groups = geometry("conv", weight, **given)
        except InfiniopError:
            return False
        if min(*stride, *dilation, groups, *weight[2:]) < 1 or input[1] != weight[1] * groups or weight[0] % groups:
            return False
        pixels = output_extents(input, weight, stride, pairs, dilation)
        return min(pixels) > 0 and output in (None, (input[0], weight[0], *pixels))


def _channels_first(shape):
    return (shape[0], shape[-1], *shape[1:-1])


def _of_layout(attempt, output):
    """Channels last, as in TensorFlow and in images; weights as TensorFlow and JAX keep them."""
    if not 3 <= len(attempt.shapes["weight"]) == len(attempt.shapes["input"]):
        return None
    last = {name: _channels_first(shape) for name, shape in attempt.shapes.items() if shape}
    weight = attempt.shapes["weight"]
    axes = (len(weight) - 1, len(weight) - 2, *range(len(weight) - 2))
    turned = tuple(weight[axis] for axis in axes)
    names = {"input": "input", "weight": "weight", "output": output}
    images = {name: last[name] for name in ("input", "output") if name in last}
    for changed in ({"input": last["input"]}, images, images | {"weight": last["weight"]}, images | {"weight": turned},
                    {"weight": last["weight"]}, {"weight": turned}):
        if attempt.fits(**changed):
            ways = [f"np.transpose(weight, {axes})" if shape is turned else f"np.moveaxis({names[name]}, -1, 1)"
                    for name, shape in changed.items()]
            words = " and ".join(names[name] for name in changed)
            layout = "laid out as (*kernel, in, out)" if changed == {"weight": turned} else "channels-last (NHWC)"
            return f"{'is' if len(changed) == 1 else 'are'} {words} {layout}? {', '.join(ways)} would fit"
    return None


def _of_arguments(attempt, output):
    """Two arguments in each other's place; one image instead of a batch."""
    input, weight, out = attempt.shapes.values()
    if out and attempt.fits(input=out, output=input):
        return f"are {output} and input in each other's place?"
    if attempt.fits(input=weight, weight=input):
        return "are input and weight in each other's place?"
    if attempt.fits(input=(1, *input), output=out and (1, *out)) or attempt.fits(input=(1, *input)):
        return "is input one image without a batch? input[np.newaxis] is a batch of one"
    return None


def _of_groups(attempt, output):
    """Weights of as many groups as the channels say."""
    channels, of_weight = attempt.shapes["input"][1:2], attempt.shapes["weight"][1:2]
    if channels and of_weight and of_weight[0]:
        groups = channels[0] // of_weight[0]
        if attempt.fits(groups=groups):
            return f"groups={groups} would fit"
    return None


def _of_pixels(attempt, output):
    """Another value of one parameter."""
    for name in ("padding", "stride", "dilation"):
        fitting = [n for n in range(name != "padding", _MOST) if attempt.fits(**{name: n})]
        if fitting:
            return f"look at padding, stride and dilation: {name}={fitting[0]} would fit"
    if attempt.shapes["output"] and attempt.fits(output=None):
        return f"look at padding, stride and dilation, or at {output}"
    return None


def conv_hint(input, weight, output, name, **given):
    """A question or a value to try, "" where none fits. output: shape of what is called `name`, or None; given: stride,
    padding, dilation and groups as the call had them."""
    attempt = _Attempt(input, weight, output, **given)
    if attempt.fits():
        return ""
    ways = _of_groups, _of_layout, _of_arguments, _of_pixels  # in a forward call the first may be all there is to see
    return next(filter(None, (find(attempt, name) for find in ways)), "")
