/* A 1-, 2- or 3-dimensional convolution (cross-correlation). */
#ifndef INFINIOP_CONV_H
#define INFINIOP_CONV_H

#include "../handle.h"
#include "../tensor_descriptor.h"

/* Begins with `int device; int device_id`. */
struct InfiniopConvDescriptor;
typedef struct InfiniopConvDescriptor *infiniopConvDescriptor_t;

/* y (N, C_out, out...), x (N, C_in, in...), w (C_out, C_in/groups, kernel...), b (C_out) or NULL: all of one dtype,
   F16, BF16, F32 or F64; any strides. The shapes say how many groups there are. n: number of spatial axes, so that the
   lists have n entries each; pads of NULL are zeros, strides and dilations of NULL are ones; else they are read as
   conv_backward.h says, of 32 or of 64 bits, by those of strides and dilations that are given; where neither is, pads
   are of 64. out = (in + 2*pads - dilations*(kernel - 1) - 1) / strides + 1.
   NULL_POINTER, BAD_PARAM (a stride or dilation below 1, a negative pad), BAD_TENSOR_SHAPE, BAD_TENSOR_DTYPE,
   BAD_TENSOR_STRIDES. */
__C __export infiniStatus_t infiniopCreateConvDescriptor(infiniopHandle_t handle, infiniopConvDescriptor_t *desc_ptr,
                                                         infiniopTensorDescriptor_t y_desc,
                                                         infiniopTensorDescriptor_t x_desc,
                                                         infiniopTensorDescriptor_t w_desc,
                                                         infiniopTensorDescriptor_t b_desc, void *pads, void *strides,
                                                         void *dilations, size_t n);

/* Bytes of workspace that infiniopConv needs, at any alignment. NULL_POINTER, BAD_PARAM (destroyed). */
__C __export infiniStatus_t infiniopGetConvWorkspaceSize(infiniopConvDescriptor_t desc, size_t *size);

/* bias: NULL where the descriptor has none. stream is not used on the CPU. NULL_POINTER, INSUFFICIENT_WORKSPACE,
   BAD_PARAM (y overlaps a tensor; bias without b_desc; destroyed). On any error nothing has been written. */
__C __export infiniStatus_t infiniopConv(infiniopConvDescriptor_t desc, void *workspace, size_t workspace_size, void *y,
                                         const void *x, const void *w, const void *bias, void *stream);

/* NULL_POINTER, BAD_PARAM (already destroyed). */
__C __export infiniStatus_t infiniopDestroyConvDescriptor(infiniopConvDescriptor_t desc);

#endif
