/* Gradients of a 1-, 2- or 3-dimensional convolution. */
#ifndef INFINIOP_CONV_BACKWARD_H
#define INFINIOP_CONV_BACKWARD_H

#include "../handle.h"
#include "../tensor_descriptor.h"

/* Begins with `int device; int device_id`. */
struct InfiniopConvBackwardDescriptor;
typedef struct InfiniopConvBackwardDescriptor *infiniopConvBackwardDescriptor_t;

/* grad_output (N, C_out, out...), input (N, C_in, in...), weight (C_out, C_in/n, kernel...), bias (C_out) or NULL: all
   of one dtype, F16, BF16, F32 or F64; any strides. pads, strides, dilations: one entry per spatial axis, all three as
   int64_t[] (ptrdiff_t[]) or all three as int32_t[]. Which of them is read off the second 32-bit word of strides and of
   dilations, both 0 only in wide entries; the rest of the arrays is read after that. So a wide stride or dilation has
   to be below 2^32, a single entry, of a 1-dimensional convolution, below 2^31, and int32_t lists must not have 0 there
   in both, since they would be read as wide ones. n: number of groups. out = (in + 2*pads - dilations*(kernel - 1) -
   1) / strides + 1. NULL_POINTER, BAD_PARAM (a stride or dilation below 1, a negative
   pad, n not dividing the channels), BAD_TENSOR_SHAPE, BAD_TENSOR_DTYPE, BAD_TENSOR_STRIDES. */
__C __export infiniStatus_t infiniopCreateConvBackwardDescriptor(
    infiniopHandle_t handle, infiniopConvBackwardDescriptor_t *desc_ptr, infiniopTensorDescriptor_t grad_output_desc,
    infiniopTensorDescriptor_t input_desc, infiniopTensorDescriptor_t weight_desc, infiniopTensorDescriptor_t bias_desc,
    void *pads, void *strides, void *dilations, size_t n);

/* Bytes of workspace that infiniopConvBackward needs, at any alignment. NULL_POINTER, BAD_PARAM (destroyed). */
__C __export infiniStatus_t infiniopGetConvBackwardWorkspaceSize(infiniopConvBackwardDescriptor_t desc, size_t *size);

/* grad_input, grad_weight, grad_bias: contiguous, shaped like input, weight and (C_out); NULL leaves one out. stream is
   not used on the CPU. NULL_POINTER, INSUFFICIENT_WORKSPACE, BAD_PARAM (an output overlaps a tensor; grad_bias without
   bias; destroyed). On any error nothing has been written. */
__C __export infiniStatus_t infiniopConvBackward(infiniopConvBackwardDescriptor_t desc, void *workspace,
                                                 size_t workspace_size, void *grad_input, void *grad_weight,
                                                 void *grad_bias, const void *grad_output, const void *input,
                                                 const void *weight, void *stream);

/* NULL_POINTER, BAD_PARAM (already destroyed). */
__C __export infiniStatus_t infiniopDestroyConvBackwardDescriptor(infiniopConvBackwardDescriptor_t desc);

#endif
