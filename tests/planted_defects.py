"""Candidates with one defect each, of the kinds that kernels have shipped with; `infiniop-cy check` must name each.

PLANTED: name: (operator, dtype, the property under which a reader would look for it).
"""
import ctypes
import os
import sys
import time

import numpy as np
from numpy.lib.stride_tricks import as_strided

import infiniop_cy as iop

SCRATCH = np.random.default_rng(os.getpid())
KEPT = []
CACHE = {}


# ---- values

def wrong_sign_in_the_tail(grad_output, input):
    result = iop.gelu_backward(grad_output, input)
    return np.where(input < -6, -result, result)


def zero_in_the_tail(grad_output, input):
    return np.where(input < -7, np.float32(0), iop.gelu_backward(grad_output, input))


def tanh_instead_of_erf(grad_output, input):
    return iop.gelu_backward(grad_output, input, approximate="tanh")


def without_the_half(grad_output, input):
    """The term that a published formula forgot."""
    return iop.gelu_backward(grad_output, input, approximate="tanh") - grad_output / 2


def in_storage_precision(grad_output, input):
    s = 1 / (1 + np.exp(-input))
    return grad_output * s * (1 - s)


def cut_off(grad_output, input):
    """float32 to bfloat16 by dropping bits."""
    wide = iop.gelu_backward(grad_output.astype(np.float32), input.astype(np.float32))
    return (wide.view(np.uint32) >> 16).astype(np.uint16).view(input.dtype)


def nan_at_infinity(grad_output, input):
    result = iop.gelu_backward(grad_output, input)
    return np.where(np.isinf(input), np.float32(np.nan), result)


def boundary_belongs_to_the_other_side(grad_output, input):
    return np.where(input >= 0, grad_output, 0 * grad_output)


def slope_at_minus_zero(grad_output, input, negative_slope=0.01):
    return np.where((input > 0) | ((input == 0) & np.signbit(input)), grad_output,
                    iop.leaky_relu_backward(grad_output, input, negative_slope))


def multiplies_by_a_mask(grad_output, input):
    """inf * 0 is NaN where relu is 0."""
    return grad_output * (input > 0)


def nan_is_dropped(grad_output, input):
    return np.where(np.isnan(input), np.float32(0), iop.sigmoid_backward(grad_output, input))


def cube_overflows(grad_output, input, approximate="none"):
    result = iop.gelu_backward(grad_output, input, approximate=approximate)
    return np.where(np.isinf(input ** 3), np.float32(np.nan), result)


def slope_in_storage_precision(grad_output, input, negative_slope=0.01):
    return iop.leaky_relu_backward(grad_output, input, float(input.dtype.type(negative_slope)))


def one_input_in_65536(grad_output, input):
    result = iop.sigmoid_backward(grad_output, input)
    return np.where(input == np.float16(3.140625), result * np.float16(1.01), result)


def flushes_subnormals(grad_output, input):
    result = iop.sigmoid_backward(grad_output, input)
    return np.where(np.abs(result) < np.finfo(np.float32).smallest_normal, np.float32(0), result)


def subnormal_input_is_zero(grad_output, input):
    tiny = np.abs(input) < np.finfo(np.float32).smallest_normal
    return np.where(tiny, np.float32(0), iop.relu_backward(grad_output, input))


def double_in_single(grad_output, input):
    return iop.gelu_backward(grad_output.astype(np.float32), input.astype(np.float32)).astype(np.float64)


def ties_go_up(grad_output, input, negative_slope=0.01):
    """float32 to bfloat16 by adding half of what is cut off."""
    wide = iop.leaky_relu_backward(grad_output.astype(np.float32), input.astype(np.float32), negative_slope)
    up = ((wide.view(np.uint32) + 0x8000) >> 16).astype(np.uint16).view(input.dtype)
    return np.where(np.isfinite(wide), up, wide.astype(input.dtype))


def saturates_at_half_of_the_range(grad_output, input):
    """By the largest power of two, taken for the largest number."""
    return np.clip(iop.relu_backward(grad_output, input), np.float16(-32768), np.float16(32768))


def nan_in_a_window(grad_output, input):
    result = iop.sigmoid_backward(grad_output, input)
    return np.where((input > 100) & (input < 100.5), np.nan, result)


# ---- memory

def past_the_end(grad_output, input, out=None):
    result = iop.relu_backward(grad_output, input)
    if out is None:
        return result
    out[...] = result
    if out.ndim == 1 and out.size % 8 and out.strides[0] == out.itemsize:  # whole vectors are stored
        as_strided(out, (-(-out.size // 8) * 8,))[out.size:] = 0
    return out


def fills_the_gaps(grad_output, input, out=None):
    """Strides of the output are not looked at beyond its first row."""
    out = np.empty_like(input) if out is None else out
    out[...] = iop.relu_backward(grad_output, input)
    if out.ndim == 2 and out.strides[0] > out.strides[1] * out.shape[1] > 0:
        as_strided(out, (out.shape[0] - 1, out.strides[0] // out.strides[1]), out.strides)[:, out.shape[1]:] = 0
    return out


def scratch_in_the_input(grad_output, input):
    if not input.flags.writeable or 0 in input.strides:
        return iop.sigmoid_backward(grad_output, input)
    result = iop.sigmoid_backward(grad_output, input)
    np.exp(-np.abs(input), out=input)
    return result


def reads_after_it_wrote(grad_output, input, out=None):
    out = np.empty_like(input) if out is None else out
    out[...] = input > 0
    out *= grad_output
    return out


def ignores_overlap(grad_output, input, out=None):
    """Element by element in blocks: right in place, wrong one element further."""
    if out is None or out.ndim != 1:
        return iop.relu_backward(grad_output, input, out=out)
    for at in range(0, out.size, 16):
        part = slice(at, at + 16)
        iop.relu_backward(grad_output[part], input[part], out=out[part])
    return out


def adds_to_the_output(grad_output, input, out=None):
    result = iop.relu_backward(grad_output, input)
    return result if out is None else np.add(out, result, out=out)


def restores_the_input(grad_output, input):
    """Scratch as above, and nobody sees it afterwards, except another thread."""
    if not input.flags.writeable or 0 in input.strides or not input.size:
        return iop.sigmoid_backward(grad_output, input)
    keep = input.copy()
    input *= -1
    result = iop.sigmoid_backward(grad_output, input)
    input[...] = keep
    return result


def loads_a_whole_vector(grad_output, input):
    """The rest of a vector past the end is read, and not used."""
    if input.ndim == 1 and input.size % 8 and input.strides[0] == input.itemsize:
        as_strided(input, (-(-input.size // 8) * 8,)).sum()
    return iop.relu_backward(grad_output, input)


def keeps_its_results(grad_output, input):
    KEPT.append(iop.relu_backward(grad_output, input).copy())
    return KEPT[-1].copy()


def gives_what_it_got(grad_output, input):
    """No copy where nothing is 0: the caller's gradients share memory."""
    whole = grad_output.shape == input.shape and (input > 0).all()
    return grad_output if whole else iop.relu_backward(grad_output, input)


def one_buffer_for_all(grad_output, input):
    """Made once for each shape, so that nothing is allocated."""
    buffer = CACHE.setdefault(input.shape, np.empty_like(input))
    np.copyto(buffer, iop.relu_backward(grad_output, input))
    return buffer


def transposes_what_it_returns(grad_output, input, out=None):
    """Right where out= is given, as in the tests of its author."""
    result = iop.relu_backward(grad_output, input, out=out)
    return result.T if out is None else out


def reads_rows_with_their_padding(grad_output, input):
    """What is behind the last row is padding, too, or another tensor."""
    if input.ndim == 2 and input.strides[0] > input.strides[1] * input.shape[1] > 0:
        as_strided(input, (input.shape[0], input.strides[0] // input.strides[1]), input.strides).sum()
    return iop.relu_backward(grad_output, input)


def rounds_upwards_ever_after(grad_output, input):
    result = iop.relu_backward(grad_output, input)
    ctypes.CDLL("libm.so.6").fesetround(0x800)
    return result


# ---- shapes

def last_elements_forgotten(grad_output, input):
    result = iop.relu_backward(grad_output, input)
    result.reshape(-1)[result.size // 8 * 8:] = 0
    return result


def widens(grad_output, input):
    return iop.relu_backward(grad_output.astype(np.float64), input.astype(np.float64))


def scalar_becomes_a_row(grad_output, input):
    return np.atleast_1d(iop.relu_backward(grad_output, input))


def counts_elements_in_20_bits(grad_output, input):
    result = iop.relu_backward(grad_output, input)
    result.reshape(-1)[1 << 20:] = 0
    return result


def drops_axes_of_length_one(grad_output, input):
    return np.squeeze(iop.relu_backward(grad_output, input))


def broadcasts_the_wrong_axis(grad_output, input):
    shape = np.broadcast_shapes(grad_output.shape, input.shape)
    return iop.relu_backward(np.resize(grad_output, shape), np.resize(input, shape))


def expanded_by_strides(grad_output, input):
    """Strides of 0, as those of the gradient of a sum, are not looked at."""
    if grad_output.shape == input.shape and input.size > 1 and not any(grad_output.strides):
        grad_output = np.pad(grad_output.ravel()[:1], (0, input.size - 1)).reshape(input.shape)
    return iop.relu_backward(grad_output, input)


def repeats_what_is_short(grad_output, input):
    return iop.relu_backward(np.resize(grad_output, input.shape), input)


# ---- bits, crashes

def assumes_contiguous(grad_output, input):
    flat = as_strided(input, (input.size,), (input.itemsize,)) if input.ndim and all(
        s > 0 for s in input.strides) else input.ravel()
    return iop.relu_backward(np.ascontiguousarray(grad_output), flat.reshape(input.shape))


def thread_borders(grad_output, input, num_threads=1):
    """The element at the border of two threads' parts is computed by neither."""
    result = iop.relu_backward(grad_output, input)
    num_threads = num_threads or 1
    if result.ndim == 1 and result.size > 1000:
        result[[result.size * i // num_threads for i in range(1, num_threads)]] = -1
    return result


def threads_assume_contiguous(grad_output, input):
    """Where several share the elements, each is given a part of the memory."""
    return (assumes_contiguous if input.size > 4000 else iop.relu_backward)(grad_output, input)


def first_call_has_no_table(grad_output, input):
    """What is computed once is there from the second call on."""
    warm, CACHE["table"] = "table" in CACHE, True
    return iop.relu_backward(grad_output, input) * np.float32(warm)


def race(grad_output, input):
    """Some updates get lost."""
    result = iop.relu_backward(grad_output, input)
    if result.size > 10_000:
        result.reshape(-1)[SCRATCH.integers(result.size)] += 1
    return result


def depends_on_the_neighbours(grad_output, input):
    """A scale factor for the whole array, as some 8-bit kernels have."""
    scale = np.float32(1) + np.float32(2.0 ** -20) * np.float32(input.size % 7)
    return iop.sigmoid_backward(grad_output, input) / scale


def crashes_when_empty(grad_output, input):
    if input.size == 0:
        os.abort()
    return iop.relu_backward(grad_output, input)


def exits_for_a_column(grad_output, input):
    """As a command-line tool ends at what it does not know."""
    if input.ndim == 2 and input.shape[1] == 1:
        sys.exit(3)
    return iop.relu_backward(grad_output, input)


def hangs_on_a_scalar(grad_output, input):
    if input.ndim == grad_output.ndim == 0:
        time.sleep(1000)
    print("computing", flush=True)
    return iop.relu_backward(grad_output, input)


def output_has_strides_of_the_input(grad_output, input, out=None):
    if out is None or out.flags.c_contiguous or not input.flags.c_contiguous:
        return iop.relu_backward(grad_output, input, out=out)
    out.T.flat[:] = iop.relu_backward(grad_output, input).ravel()
    return out


def cached_by_shape(grad_output, input):
    """As autotuning does it, with a result instead of a choice."""
    return CACHE.setdefault(input.shape, iop.relu_backward(grad_output, input)).copy()


# ---- convolution

def transposed_strides(grad_output, input, weight, *, stride, padding, dilation, groups):
    gradients = list(iop.conv_backward(grad_output, input, weight, stride=stride, padding=padding, dilation=dilation,
                                       groups=groups))
    if len(set(stride)) > 1:  # the sizes are taken from the other axis
        gradients[0] = np.flip(gradients[0], axis=(-1, -2))
    return gradients


def padding_off_by_one(grad_output, input, weight, *, padding, **geometry):
    gradients = list(iop.conv_backward(grad_output, input, weight, padding=padding, **geometry))
    if any(np.ravel(padding)):
        gradients[0] = np.roll(gradients[0], 1, axis=-1)
    return gradients


def groups_swapped(grad_output, input, weight, *, groups, **geometry):
    gradients = list(iop.conv_backward(grad_output, input, weight, groups=groups, **geometry))
    if groups > 1:
        gradients[1] = np.roll(gradients[1], gradients[1].shape[0] // groups, axis=0)
    return gradients


def dilation_of_one_axis(grad_output, input, weight, *, dilation, **geometry):
    gradients = list(iop.conv_backward(grad_output, input, weight, dilation=dilation, **geometry))
    if any(d > 1 for d in dilation):
        gradients[0][..., 1:] = gradients[0][..., :-1].copy()
    return gradients


def flipped_kernel(grad_output, input, weight, **geometry):
    flip = (slice(None), slice(None), *(slice(None, None, -1) for _ in weight.shape[2:]))
    gradients = list(iop.conv_backward(grad_output, input, weight[flip], **geometry))
    gradients[1] = gradients[1][flip]
    return gradients


def transposed_kernel(grad_output, input, weight, **geometry):
    gradients = list(iop.conv_backward(grad_output, input, weight, **geometry))
    if weight.ndim == 4 and weight.shape[2] != weight.shape[3]:
        gradients[1] = gradients[1].swapaxes(2, 3).reshape(weight.shape)
    return gradients


def bias_of_the_first_sample(grad_output, input, weight, **geometry):
    gradients = iop.conv_backward(grad_output, input, weight, **geometry)
    return gradients[0], gradients[1], grad_output[:1].sum((0, *range(2, grad_output.ndim)), dtype=np.float32)


def half_accumulator(grad_output, input, weight, **geometry):
    """Sums kept in 16 bits between channels."""
    grad_input = np.zeros_like(input)
    if geometry["groups"] > 1:
        return iop.conv_backward(grad_output, input, weight, **geometry)
    for channel in range(weight.shape[0]):
        part = slice(channel, channel + 1)
        grad_input += iop.conv_backward(grad_output[:, part], input, weight[part], **geometry).grad_input
    return grad_input, *iop.conv_backward(grad_output, input, weight, **geometry)[1:]


def untouched_pixels(grad_output, input, weight, *, out=None, **geometry):
    """Pixels that no window touches keep what was there."""
    gradients = iop.conv_backward(grad_output, input, weight, **geometry)
    if out is None:
        return gradients
    touched = iop.conv_backward(np.ones_like(grad_output), input, np.ones_like(weight), **geometry).grad_input != 0
    np.copyto(out[0], gradients[0], where=touched)
    out[1][...], out[2][...] = gradients[1:]
    return out


def samples_share_a_sum(grad_output, input, weight, **geometry):
    """0 * NaN of one sample is added to the others."""
    gradients = list(iop.conv_backward(grad_output, input, weight, **geometry))
    gradients[0] = gradients[0] + 0 * grad_output.sum()
    return gradients


def one_side_pads_both(grad_output, input, weight, *, padding, **geometry):
    gradients = list(iop.conv_backward(grad_output, input, weight, padding=padding, **geometry))
    if isinstance(padding[0], tuple):
        gradients[0] = gradients[0][..., ::-1]
    return gradients


def sum_by_threads(grad_output, input, weight, *, num_threads=None, **geometry):
    """A partial sum of grad_weight per thread."""
    gradients = list(iop.conv_backward(grad_output, input, weight, **geometry))
    parts = np.array_split(np.arange(input.shape[0]), num_threads or 1)
    gradients[1] = sum(iop.conv_backward(grad_output[p], input[p], weight, **geometry).grad_weight for p in parts)
    return gradients


def batch_decides_the_order(grad_output, input, weight, **geometry):
    gradients = list(iop.conv_backward(grad_output, input, weight, **geometry))
    if input.shape[0] > 1:
        gradients[0] = np.nextafter(gradients[0], np.float32(0))
    return gradients


def three_axes_as_two(grad_output, input, weight, **geometry):
    gradients = list(iop.conv_backward(grad_output, input, weight, **geometry))
    if input.ndim == 5:
        gradients[0] = np.roll(gradients[0], 1, axis=2)
    return gradients


def depthwise_in_reverse(grad_output, input, weight, *, groups, **geometry):
    """One output per channel, as in most networks, has a path of its own."""
    gradients = list(iop.conv_backward(grad_output, input, weight, groups=groups, **geometry))
    if groups == input.shape[1] == weight.shape[0] > 1:
        gradients[1] = gradients[1][::-1]
    return gradients


def one_sample_alone(grad_output, input, weight, **geometry):
    gradients = list(iop.conv_backward(grad_output, input, weight, **geometry))
    if input.shape[0] == 1 and weight.shape[2:] == (3, 3):
        gradients[1] = np.zeros_like(weight)
    return gradients


def kernel_past_the_image(grad_output, input, weight, **geometry):
    gradients = list(iop.conv_backward(grad_output, input, weight, **geometry))
    if any(k > n for k, n in zip(weight.shape[2:], input.shape[2:])):
        gradients[1] = np.roll(gradients[1], 1, -1)
    return gradients


def nan_is_no_term(grad_output, input, weight, **geometry):
    return iop.conv_backward(np.nan_to_num(grad_output, posinf=np.inf, neginf=-np.inf), input, weight, **geometry)


def half_products(grad_output, input, weight, **geometry):
    """As tensor cores may do it: exact on small integers."""
    halves = (a.astype(np.float16).astype(np.float32) for a in (grad_output, input, weight))
    return iop.conv_backward(*halves, **geometry)


def wide_weights(grad_output, input, weight, **geometry):
    gradients = list(iop.conv_backward(grad_output, input, weight, **geometry))
    gradients[1] = gradients[1].astype(np.float32)
    return gradients


def weights_by_way_of_the_input(grad_output, input, weight, *, output_mask=(True, True, True), **geometry):
    gradients = list(iop.conv_backward(grad_output, input, weight, **geometry))
    if not output_mask[0]:
        gradients[1] = np.zeros_like(weight)
    return [gradient if wanted else None for gradient, wanted in zip(gradients, output_mask)]


def batch_of_one_without_its_axis(grad_output, input, weight, **geometry):
    gradients = list(iop.conv_backward(grad_output, input, weight, **geometry))
    if len(input) == 1:
        gradients[0] = gradients[0][0]
    return gradients


def exits_for_far_taps(grad_output, input, weight, *, dilation, **geometry):
    if max(dilation) > 2:
        sys.exit(3)
    return iop.conv_backward(grad_output, input, weight, dilation=dilation, **geometry)


def wrong_where_large(grad_output, input, weight, **geometry):
    """Its algorithm for large images, which no textbook case reaches, has the sign of another convention."""
    gradients = list(iop.conv_backward(grad_output, input, weight, **geometry))
    if input.size > 150_000:
        gradients[1] = -gradients[1]
    return gradients


def first_call_has_no_plan(grad_output, input, weight, **geometry):
    warm, CACHE["plan"] = "plan" in CACHE, True
    return [gradient * np.float32(warm) for gradient in iop.conv_backward(grad_output, input, weight, **geometry)]


def nothing_is_returned(grad_output, input, weight, **geometry):
    return None, None, None


# ---- forward convolution

def forward_with_an_axis_in_front(input, weight, bias=None, **geometry):
    return iop.conv(input, weight, bias, **geometry)[None]


def forward_without_padding(input, weight, bias=None, *, padding, **geometry):
    """Windows stay inside the image, and the borders of the output stay 0."""
    result = iop.conv(input, weight, bias, padding=padding, **geometry)
    pixels = iop.conv(np.ones_like(input[:1, :1]), np.ones_like(weight[:1, :1]), padding=padding,
                      **geometry | {"groups": 1})
    return np.where(pixels < np.prod(weight.shape[2:]), result.dtype.type(0), result)


def forward_with_flipped_kernel(input, weight, bias=None, **geometry):
    """A convolution in the sense of mathematics."""
    return iop.conv(input, weight[(..., *(slice(None, None, -1),) * (weight.ndim - 2))], bias, **geometry)


def forward_with_groups_exchanged(input, weight, bias=None, *, groups, **geometry):
    """The groups' channels interleaved, as if the weight had them last."""
    n, c, *pixels = input.shape
    mixed = input.reshape(n, c // groups, groups, *pixels).swapaxes(1, 2).reshape(input.shape)
    return iop.conv(mixed, weight, bias, groups=groups, **geometry)


def forward_with_bias_twice(input, weight, bias=None, **geometry):
    return iop.conv(input, weight, bias if bias is None else bias + bias, **geometry)


def forward_with_bias_by_group(input, weight, bias=None, *, groups, **geometry):
    """Each group gets the bias of the first."""
    bias = bias if bias is None else np.tile(bias[:len(bias) // groups], groups)
    return iop.conv(input, weight, bias, groups=groups, **geometry)


def forward_with_half_accumulator(input, weight, bias=None, *, groups, **geometry):
    """Sums kept in 16 bits between channels."""
    if groups > 1:
        return iop.conv(input, weight, bias, groups=groups, **geometry)
    parts = [iop.conv(input[:, c:c + 1], weight[:, c:c + 1], **geometry) for c in range(weight.shape[1])]
    result = np.zeros_like(parts[0])
    for part in parts:
        result += part
    return result if bias is None else result + bias.reshape(-1, *(1,) * (input.ndim - 2))


def forward_with_a_bias_rounded_apart(input, weight, bias=None, **geometry):
    """Added to what is rounded already, as two calls of a framework do it."""
    result = iop.conv(input, weight, **geometry)
    return result if bias is None else result + bias.reshape(-1, *(1,) * (input.ndim - 2))


def forward_with_dilation_of_the_first_axis(input, weight, bias=None, *, padding, dilation, **geometry):
    """For all axes; the output's shape is right."""
    result = iop.conv(input, weight, bias, padding=padding, dilation=dilation, **geometry)
    if len(set(dilation)) > 1:
        result[...] = result[..., ::-1].copy()
    return result


def forward_with_strides_exchanged(input, weight, bias=None, *, stride, **geometry):
    result = iop.conv(input, weight, bias, stride=stride, **geometry)
    if len(set(stride)) > 1:
        other = iop.conv(input, weight, bias, stride=stride[::-1], **geometry)
        result[...] = np.resize(other, result.shape)
    return result


def forward_pads_before_alone(input, weight, bias=None, *, padding, **geometry):
    padding = [(sum(pair), 0) for pair in padding] if isinstance(padding[0], tuple) else padding
    return iop.conv(input, weight, bias, padding=padding, **geometry)


def forward_by_transforms(input, weight, bias=None, **geometry):
    """As Fourier transforms of a batch mix its samples: a NaN reaches them all."""
    result = iop.conv(input, weight, bias, **geometry)
    return result + 0 * input.sum(dtype=input.dtype)


def forward_batch_decides(input, weight, bias=None, **geometry):
    result = iop.conv(input, weight, bias, **geometry)
    return np.nextafter(result, np.float32(0)) if len(input) > 1 else result


def forward_split_by_threads(input, weight, bias=None, *, groups, num_threads=None, **geometry):
    """Channels are shared out: each thread sums its own."""
    if groups > 1 or (num_threads or 1) < 2:
        return iop.conv(input, weight, bias, groups=groups, **geometry)
    parts = np.array_split(np.arange(weight.shape[1]), min(num_threads, weight.shape[1]))
    result = sum(iop.conv(input[:, p], weight[:, p], **geometry) for p in parts)
    return result if bias is None else result + bias.reshape(-1, *(1,) * (input.ndim - 2))


def forward_reads_past_the_input(input, weight, bias=None, **geometry):
    """The last vector of the last row is loaded whole."""
    if input.flags.c_contiguous and input.size % 16:
        as_strided(input, (-(-input.size // 16) * 16,), (input.itemsize,)).sum()
    return iop.conv(input, weight, bias, **geometry)


def forward_adds_to_the_output(input, weight, bias=None, *, out=None, **geometry):
    """beta = 1 in its matrix product."""
    result = iop.conv(input, weight, bias, **geometry)
    return result if out is None else np.add(out, result, out=out)


def forward_packs_in_place(input, weight, bias=None, **geometry):
    """The input is scaled where it lies."""
    result = iop.conv(input, weight, bias, **geometry)
    if input.flags.writeable:
        input *= 2
    return result


def forward_of_three_axes_as_two(input, weight, bias=None, **geometry):
    result = iop.conv(input, weight, bias, **geometry)
    return np.roll(result, 1, axis=2) if input.ndim == 5 else result


def forward_keeps_nothing_past_the_kernel(input, weight, bias=None, *, stride, **geometry):
    """Windows that leave gaps are taken side by side."""
    result = iop.conv(input, weight, bias, stride=stride, **geometry)
    if any(s > k for s, k in zip(stride, weight.shape[2:])):
        near = tuple(map(min, stride, weight.shape[2:]))
        result[...] = iop.conv(input, weight, bias, stride=near, **geometry)[(..., *map(slice, result.shape[2:]))]
    return result


PLANTED = {
    "wrong_sign_in_the_tail": ("gelu_backward", "float32", "sign"),
    "zero_in_the_tail": ("gelu_backward", "float32", "not vanished"),
    "tanh_instead_of_erf": ("gelu_backward", "float32", "accuracy"),
    "without_the_half": ("gelu_backward", "float32", "accuracy"),
    "in_storage_precision": ("sigmoid_backward", "float16", "accuracy"),
    "cut_off": ("gelu_backward", "bfloat16", "rounding"),
    "nan_at_infinity": ("gelu_backward", "float32", "special values"),
    "boundary_belongs_to_the_other_side": ("relu_backward", "float32", "special values"),
    "slope_at_minus_zero": ("leaky_relu_backward", "float32", "special values"),
    "multiplies_by_a_mask": ("relu_backward", "float16", "special values"),
    "nan_is_dropped": ("sigmoid_backward", "float32", "special values"),
    "cube_overflows": ("gelu_backward", "float32", "finite"),
    "slope_in_storage_precision": ("leaky_relu_backward", "bfloat16", "rounding"),
    "one_input_in_65536": ("sigmoid_backward", "float16", "accuracy"),
    "flushes_subnormals": ("sigmoid_backward", "float32", "accuracy"),
    "subnormal_input_is_zero": ("relu_backward", "float32", "not vanished"),
    "double_in_single": ("gelu_backward", "float64", "accuracy"),
    "past_the_end": ("relu_backward", "float32", "no writes outside"),
    "fills_the_gaps": ("relu_backward", "float32", "no writes outside"),
    "scratch_in_the_input": ("sigmoid_backward", "float32", "inputs unchanged"),
    "reads_after_it_wrote": ("relu_backward", "float32", "in place"),
    "ignores_overlap": ("relu_backward", "float32", "overlap"),
    "last_elements_forgotten": ("relu_backward", "float32", "shapes"),
    "widens": ("relu_backward", "float32", "shapes"),
    "scalar_becomes_a_row": ("relu_backward", "float32", "shapes"),
    "counts_elements_in_20_bits": ("relu_backward", "float32", "shapes"),
    "drops_axes_of_length_one": ("relu_backward", "float32", "same bits by cut"),
    "broadcasts_the_wrong_axis": ("relu_backward", "float32", "broadcast"),
    "assumes_contiguous": ("relu_backward", "float32", "same bits by layout"),
    "threads_assume_contiguous": ("relu_backward", "float32", "same bits by layout"),
    "thread_borders": ("relu_backward", "float32", "same bits by threads"),
    "first_call_has_no_table": ("relu_backward", "float32", "same bits by run"),
    "race": ("relu_backward", "float32", "same bits by run"),
    "depends_on_the_neighbours": ("sigmoid_backward", "float32", "same bits by cut"),
    "crashes_when_empty": ("relu_backward", "float32", "runs"),
    "hangs_on_a_scalar": ("relu_backward", "float32", "runs"),
    "exits_for_a_column": ("relu_backward", "float32", "runs"),
    "exits_for_far_taps": ("conv_backward", "float32", "dilation"),
    "transposed_strides": ("conv_backward", "float32", "stride"),
    "padding_off_by_one": ("conv_backward", "float32", "padding"),
    "groups_swapped": ("conv_backward", "float32", "groups"),
    "dilation_of_one_axis": ("conv_backward", "float32", "dilation"),
    "flipped_kernel": ("conv_backward", "float32", "convolution"),
    "transposed_kernel": ("conv_backward", "float32", "kernel axes"),
    "bias_of_the_first_sample": ("conv_backward", "float32", "bias gradient"),
    "half_accumulator": ("conv_backward", "float16", "error of sums"),
    "untouched_pixels": ("conv_backward", "float32", "stride"),
    "samples_share_a_sum": ("conv_backward", "float32", "NaN and inf"),
    "one_side_pads_both": ("conv_backward", "float32", "asymmetric padding"),
    "sum_by_threads": ("conv_backward", "float32", "same bits by threads"),
    "batch_decides_the_order": ("conv_backward", "float32", "same bits by cut"),
    "ties_go_up": ("leaky_relu_backward", "bfloat16", "rounding"),
    "saturates_at_half_of_the_range": ("relu_backward", "float16", "accuracy"),
    "nan_in_a_window": ("sigmoid_backward", "float64", "finite"),
    "adds_to_the_output": ("relu_backward", "float32", "output written"),
    "restores_the_input": ("sigmoid_backward", "float32", "inputs unchanged"),
    "loads_a_whole_vector": ("relu_backward", "float32", "no reads outside"),
    "keeps_its_results": ("relu_backward", "float32", "no leak"),
    "one_buffer_for_all": ("relu_backward", "float32", "own array"),
    "transposes_what_it_returns": ("relu_backward", "float32", "returned"),
    "reads_rows_with_their_padding": ("relu_backward", "float32", "no reads outside"),
    "gives_what_it_got": ("relu_backward", "float32", "own array"),
    "rounds_upwards_ever_after": ("relu_backward", "float32", "settings kept"),
    "expanded_by_strides": ("relu_backward", "float32", "broadcast"),
    "repeats_what_is_short": ("relu_backward", "float32", "broadcast"),
    "output_has_strides_of_the_input": ("relu_backward", "float32", "same bits by layout"),
    "cached_by_shape": ("relu_backward", "float32", "accuracy"),
    "depthwise_in_reverse": ("conv_backward", "float32", "groups"),
    "one_sample_alone": ("conv_backward", "float32", "convolution"),
    "kernel_past_the_image": ("conv_backward", "float32", "padding"),
    "nan_is_no_term": ("conv_backward", "float32", "NaN and inf"),
    "half_products": ("conv_backward", "float32", "error of sums"),
    "wide_weights": ("conv_backward", "float16", "shapes"),
    "weights_by_way_of_the_input": ("conv_backward", "float32", "some gradients"),
    "three_axes_as_two": ("conv_backward", "float32", "dimensions"),
    "batch_of_one_without_its_axis": ("conv_backward", "float32", "same bits by cut"),
    "wrong_where_large": ("conv_backward", "float32", "any geometry"),
    "first_call_has_no_plan": ("conv_backward", "float32", "same bits by run"),
    "nothing_is_returned": ("conv_backward", "float32", "convolution"),
    "forward_with_an_axis_in_front": ("conv", "float32", "convolution"),
    "forward_without_padding": ("conv", "float32", "padding"),
    "forward_with_flipped_kernel": ("conv", "float32", "convolution"),
    "forward_with_groups_exchanged": ("conv", "float32", "groups"),
    "forward_with_bias_twice": ("conv", "float32", "bias"),
    "forward_with_bias_by_group": ("conv", "float32", "bias"),
    "forward_with_half_accumulator": ("conv", "float16", "error of sums"),
    "forward_with_a_bias_rounded_apart": ("conv", "bfloat16", "error of sums"),
    "forward_with_dilation_of_the_first_axis": ("conv", "float32", "dilation"),
    "forward_with_strides_exchanged": ("conv", "float32", "stride"),
    "forward_pads_before_alone": ("conv", "float32", "asymmetric padding"),
    "forward_by_transforms": ("conv", "float32", "NaN and inf"),
    "forward_batch_decides": ("conv", "float32", "same bits by cut"),
    "forward_split_by_threads": ("conv", "float32", "same bits by threads"),
    "forward_reads_past_the_input": ("conv", "float32", "no reads outside"),
    "forward_adds_to_the_output": ("conv", "float32", "output written"),
    "forward_packs_in_place": ("conv", "float32", "inputs unchanged"),
    "forward_of_three_axes_as_two": ("conv", "float32", "dimensions"),
    "forward_keeps_nothing_past_the_kernel": ("conv", "float32", "stride"),
}
NOT_QUICK = ("counts_elements_in_20_bits",)
NEEDS_GLIBC = ("keeps_its_results", "rounds_upwards_ever_after")
