/* Shape, dtype and strides of a tensor, without its data. */
#ifndef INFINIOP_TENSOR_DESCRIPTOR_H
#define INFINIOP_TENSOR_DESCRIPTOR_H

#include "../infinicore.h"

struct InfiniopTensorDescriptor;
typedef struct InfiniopTensorDescriptor *infiniopTensorDescriptor_t;

/* ndim: 0 to 64. shape: ndim lengths, may be NULL where ndim is 0. strides: ndim distances in elements, negative and 0
   (broadcast) allowed; NULL: contiguous, C order. Everything is copied.
   NULL_POINTER, BAD_TENSOR_DTYPE (unknown), BAD_TENSOR_SHAPE (more than 64 dimensions, a length beyond 63 bits),
   BAD_PARAM (all elements' bytes beyond 63 bits), BAD_TENSOR_STRIDES (a stride beyond 63 bits in bytes). */
__C __export infiniStatus_t infiniopCreateTensorDescriptor(infiniopTensorDescriptor_t *desc_ptr, size_t ndim,
                                                           const size_t *shape, const ptrdiff_t *strides,
                                                           infiniDtype_t dtype);

/* May be called right after the operator descriptor has been created. NULL_POINTER, BAD_PARAM (already destroyed). */
__C __export infiniStatus_t infiniopDestroyTensorDescriptor(infiniopTensorDescriptor_t desc);

#endif
