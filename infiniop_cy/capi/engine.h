// What the generated per-operator functions call: the same for every elementwise operator. Defined in
// core/capi/infiniop.pxi.
#pragma once
#include "include/infiniop/handle.h"
#include "include/infiniop/ops/conv.h"
#include "include/infiniop/ops/conv_backward.h"
#include "include/infiniop/tensor_descriptor.h"
#include "include/infinirt.h"

extern "C" {
// tensors: in the order of create; position: of the operator in the table; formula: its name; values: its numeric
// parameters, in the row's order.
infiniStatus_t infiniop_elementwise_create(infiniopHandle_t handle, void **desc_ptr,
                                           const infiniopTensorDescriptor_t *tensors, int position, const char *formula,
                                           bool promotes, const double *values, int count);
infiniStatus_t infiniop_elementwise_workspace(void *desc, int position, size_t *size);
// grad_output: null where the operator has none.
infiniStatus_t infiniop_elementwise_calculate(void *desc, int position, void *workspace, size_t workspace_size,
                                              void *out, const void *input, const void *grad_output, void *stream);
infiniStatus_t infiniop_elementwise_destroy(void *desc, int position);
}
