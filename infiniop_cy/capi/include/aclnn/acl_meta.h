/* Tensors and scalars of the aclnn calls. Values as in CANN. */
#ifndef ACLNN_ACL_META_H
#define ACLNN_ACL_META_H

#include "../infinicore.h"

typedef int32_t aclnnStatus;
typedef struct aclTensor aclTensor;
typedef struct aclScalar aclScalar;
typedef struct aclOpExecutor aclOpExecutor;

#define ACLNN_SUCCESS 0
#define ACLNN_ERR_PARAM_NULLPTR 161001
#define ACLNN_ERR_PARAM_INVALID 161002
#define ACLNN_ERR_RUNTIME_ERROR 361001

typedef enum {
    ACL_DT_UNDEFINED = -1,
    ACL_FLOAT = 0,
    ACL_FLOAT16 = 1,
    ACL_INT8 = 2,
    ACL_INT32 = 3,
    ACL_UINT8 = 4,
    ACL_INT16 = 6,
    ACL_UINT16 = 7,
    ACL_UINT32 = 8,
    ACL_INT64 = 9,
    ACL_UINT64 = 10,
    ACL_DOUBLE = 11,
    ACL_BOOL = 12,
    ACL_COMPLEX64 = 16,
    ACL_COMPLEX128 = 17,
    ACL_BF16 = 27
} aclDataType;

typedef enum { ACL_FORMAT_UNDEFINED = -1, ACL_FORMAT_NCHW = 0, ACL_FORMAT_NHWC = 1, ACL_FORMAT_ND = 2 } aclFormat;

/* A view of tensorData: viewDimsNum lengths, strides in elements (NULL: contiguous), the first element `offset`
   elements after tensorData. storageDims and format are not used. Everything is copied. NULL for a null pointer that is
   required, for more than 64 dimensions, an unknown dataType, or an offset that no address can have. */
__C __export aclTensor *aclCreateTensor(const int64_t *viewDims, uint64_t viewDimsNum, aclDataType dataType,
                                        const int64_t *stride, int64_t offset, aclFormat format,
                                        const int64_t *storageDims, uint64_t storageDimsNum, void *tensorData);
__C __export aclnnStatus aclDestroyTensor(const aclTensor *tensor);

/* A copy of the number at `value`. NULL for a null pointer or an unknown or complex dataType, and where INFINIOP_CY_ISA
   names an instruction set that there is not. */
__C __export aclScalar *aclCreateScalar(void *value, aclDataType dataType);
__C __export aclnnStatus aclDestroyScalar(const aclScalar *scalar);

/* For an executor that is not run after all: the second phase of a call takes its own. */
__C __export aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor *executor);

#endif
