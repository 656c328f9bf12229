"""A neural network in under 60 lines of code: layers that compute and layers that learn, by infiniop_cy alone.

There is no automatic differentiation. A layer's forward() keeps its input, and its backward() turns grad_output, the
gradient of the loss with respect to the layer's output, into the same for its input.
"""
import numpy as np

import infiniop_cy as iop


class Activation:
    """Any elementwise operator of the library by its name, with that operator's parameters."""

    def __init__(self, name, **parameters):
        self.function, self.gradient = getattr(iop, name), getattr(iop, f"{name}_backward")
        self.parameters = parameters

    def forward(self, input):
        self.input = input
        return self.function(input, **self.parameters)

    def backward(self, grad_output):
        return self.gradient(grad_output, self.input, **self.parameters)


class Conv:
    """A convolution of (N, channels_in, height, width); a kernel as large as the image makes it a dense layer."""

    def __init__(self, channels_in, channels_out, kernel, needs_grad_input=True, **geometry):
        self.weight_shape = channels_out, channels_in, kernel, kernel
        self.needs_grad_input, self.geometry = needs_grad_input, geometry

    def forward(self, input):
        self.input = input
        return iop.conv(input, self.weight, self.bias, **self.geometry)

    def backward(self, grad_output):
        return iop.conv_backward(grad_output, self.input, self.weight, **self.geometry,
                                 output_mask=(self.needs_grad_input, True, True),
                                 out=(None, self.grad_weight, self.grad_bias)).grad_input


class Network:
    """Layers, one after the other. All weights are pieces of one array, and so are their gradients."""

    def __init__(self, layers, dtype, random):
        self.layers = layers
        convolutions = [layer for layer in layers if isinstance(layer, Conv)]
        size = sum(shape[0] + np.prod(shape) for shape in (layer.weight_shape for layer in convolutions))
        self.weights, self.gradients = np.zeros(size, dtype), np.zeros(size, dtype)
        end = 0
        for layer in convolutions:
            (channels, *window), begin = layer.weight_shape, end
            end += channels * np.prod(window)
            layer.weight, layer.grad_weight = (a[begin:end].reshape(layer.weight_shape)
                                               for a in (self.weights, self.gradients))
            layer.bias, layer.grad_bias = (a[end:end + channels] for a in (self.weights, self.gradients))
            layer.weight[...] = random.normal(0, np.sqrt(2 / np.prod(window)), layer.weight_shape)
            end += channels

    def forward(self, output):
        for layer in self.layers:
            output = layer.forward(output)
        return output

    def backward(self, grad_output):
        for layer in reversed(self.layers):
            grad_output = layer.backward(grad_output)


class Adam:
    """Weights of 16 bits round each small step away: the sum of the steps is kept in float32, or float64."""

    def __init__(self, network):
        self.network, self.steps = network, 0
        self.master = network.weights.astype(np.result_type(network.weights, np.float32))
        self.mean, self.square = np.zeros_like(self.master), np.zeros_like(self.master)

    def step(self, rate):
        self.steps += 1
        gradient = self.network.gradients.astype(self.master.dtype, copy=False)
        self.mean += 0.1 * (gradient - self.mean)
        self.square += 0.001 * (gradient * gradient - self.square)
        rate /= 1 - 0.9**self.steps
        self.master -= rate * self.mean / (np.sqrt(self.square / (1 - 0.999**self.steps)) + 1e-8)
        self.network.weights[...] = self.master
