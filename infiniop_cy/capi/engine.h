// What the generated per-operator functions call: the same for every elementwise operator. Defined in
// core/capi/infiniop.pxi.
#pragma once
#include "include/infiniop/handle.h"
#include "include/infiniop/ops/conv.h"
#include "include/infiniop/ops/conv_backward.h"
#include "include/infiniop/tensor_descriptor.h"
#include "include/infinirt.h"

extern "C" {
// position: of the operator in the table; formula: its name; values: its numeric parameters, in the row's order.
infiniStatus_t infiniop_elementwise_create(infiniopHandle_t handle, void **desc_ptr,
                                           infiniopTensorDescriptor_t grad_input, infiniopTensorDescriptor_t input,
                                           infiniopTensorDescriptor_t grad_output, int position, const char *formula,
                                           bool promotes, const double *values, int count);
infiniStatus_t infiniop_elementwise_workspace(void *desc, int position, size_t *size);
infiniStatus_t infiniop_elementwise_calculate(void *desc, int position, void *workspace, size_t workspace_size,
                                              void *grad_input, const void *input, const void *grad_output,
                                              void *stream);
infiniStatus_t infiniop_elementwise_destroy(void *desc, int position);
}
