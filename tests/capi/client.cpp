// A client of the C libraries that knows nothing of Python: relu by infiniop on enough elements for threads, and the
// example of aclnnLeakyReluBackward.
#include <cstdio>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_leaky_relu_backward.h"
#include "infiniop.h"
#include "infinirt.h"

int main() {
    const size_t shape[] = {100000};
    std::vector<float> g(shape[0], 3), x(shape[0], -1), out(shape[0], 7);
    x.back() = 1;
    infiniopHandle_t handle;
    infiniopTensorDescriptor_t t;
    infiniopReluBackwardDescriptor_t op;
    if (infinirtSetDevice(INFINI_DEVICE_CPU, 0) || infiniopCreateHandle(&handle) ||
        infiniopCreateTensorDescriptor(&t, 1, shape, nullptr, INFINI_DTYPE_F32) ||
        infiniopCreateReluBackwardDescriptor(handle, &op, t, t, t) || infiniopDestroyTensorDescriptor(t) ||
        infiniopReluBackward(op, nullptr, 0, out.data(), x.data(), g.data(), nullptr) ||
        infiniopDestroyReluBackwardDescriptor(op) || infiniopDestroyHandle(handle))
        return 1;
    std::printf("%g %g %g\n", out[0], out[shape[0] - 2], out.back());

    float gradient[] = {2, 3, 4, 5}, self[] = {1, 2, 3, 4}, result[] = {0, 0, 0, 0}, slope = 0.01f;
    const int64_t four[] = {4}, one[] = {1};
    aclTensor *tensors[3];
    float *data[] = {gradient, self, result};
    for (int i = 0; i < 3; i++)
        tensors[i] = aclCreateTensor(four, 1, ACL_FLOAT, one, 0, ACL_FORMAT_ND, four, 1, data[i]);
    aclScalar *scalar = aclCreateScalar(&slope, ACL_FLOAT);
    uint64_t size;
    aclOpExecutor *executor;
    if (aclnnLeakyReluBackwardGetWorkspaceSize(tensors[0], tensors[1], scalar, true, tensors[2], &size, &executor) ||
        aclnnLeakyReluBackward(nullptr, size, executor, nullptr))
        return 2;
    std::printf("%g %g %g %g\n", result[0], result[1], result[2], result[3]);
    return 0;
}
