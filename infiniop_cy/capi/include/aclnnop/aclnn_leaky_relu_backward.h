/* LeakyReluBackward in two phases: out = self > 0 ? gradOutput : gradOutput * negativeSlope. */
#ifndef ACLNNOP_LEAKY_RELU_BACKWARD_H
#define ACLNNOP_LEAKY_RELU_BACKWARD_H

#include "../aclnn/acl_meta.h"

/* gradOutput, self: FLOAT, FLOAT16, BFLOAT16 or DOUBLE, 0 to 8 dimensions, any strides; they broadcast, and promote
   where they differ (FLOAT16 with BFLOAT16 to FLOAT). out: the broadcast shape; these dtypes, an integer, BOOL,
   COMPLEX64 or COMPLEX128 (by a cast). negativeSlope: FLOAT, FLOAT16, BFLOAT16, DOUBLE, INT8, INT16, INT32, INT64,
   UINT8 or BOOL. Empty tensors are allowed. 161001 for a null pointer. 161002 for a dtype not listed, more than 8
   dimensions, shapes that do not fit, a negative slope with selfIsResult, an out that overlaps itself, or an out that
   overlaps an input without being the same. */
__C __export aclnnStatus aclnnLeakyReluBackwardGetWorkspaceSize(const aclTensor *gradOutput, const aclTensor *self,
                                                                const aclScalar *negativeSlope, bool selfIsResult,
                                                                aclTensor *out, uint64_t *workspaceSize,
                                                                aclOpExecutor **executor);

/* Compute, and destroy the executor. 161001 for a null executor, 161002 for one already used or a workspace too small.
 */
__C __export aclnnStatus aclnnLeakyReluBackward(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
                                                void *stream);

#endif
