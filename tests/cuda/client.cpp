// A client of the C libraries on an NVIDIA GPU: relu by infiniop, a convolution both ways, and what is refused. Exits
// with 10 + the status where a descriptor cannot be created.
#include <cstdio>
#include <vector>

#include "infiniop.h"
#include "infinirt.h"

template <class T> T *on_device(const std::vector<T> &values) {
    void *memory = nullptr;
    if (infinirtMalloc(&memory, values.size() * sizeof(T)) ||
        infinirtMemcpy(memory, values.data(), values.size() * sizeof(T), INFINIRT_MEMCPY_H2D))
        return nullptr;
    return (T *)memory;
}
template <class T> std::vector<T> to_host(const T *memory, size_t n) {
    std::vector<T> values(n);
    infinirtMemcpy(values.data(), memory, n * sizeof(T), INFINIRT_MEMCPY_D2H);
    return values;
}

// The output of 5 pixels under 2 taps, with a bias, to `output`, and what is refused; 0, or what to exit with.
int run_forward(infiniopHandle_t handle, infiniopTensorDescriptor_t y, infiniopTensorDescriptor_t x,
                infiniopTensorDescriptor_t w, infiniopTensorDescriptor_t b, float *output, float *input,
                float *weight) {
    infiniopConvDescriptor_t conv;
    float *bias = on_device(std::vector<float>{0.5f});
    void *workspace = nullptr;
    size_t size;
    if (infiniStatus_t status = infiniopCreateConvDescriptor(handle, &conv, y, x, w, b, nullptr, nullptr, nullptr, 1))
        return 10 + status;
    if (infiniopGetConvWorkspaceSize(conv, &size) || infinirtMalloc(&workspace, size)) return 22;
    if (infiniopConv(conv, workspace, size - 1, output, input, weight, bias, nullptr) !=
        INFINI_STATUS_INSUFFICIENT_WORKSPACE)
        return 23;
    for (void *bad : {(void *)input, (void *)((char *)output + 2)})
        if (infiniopConv(conv, workspace, size, bad, input, weight, bias, nullptr) != INFINI_STATUS_BAD_PARAM)
            return 24;
    if (infiniopConv(conv, workspace, size, output, input, weight, bias, nullptr)) return 25;
    std::vector<float> result = to_host(output, 4);
    std::printf("output %g %g %g %g\n", result[0], result[1], result[2], result[3]);
    return infiniopDestroyConvDescriptor(conv) || infinirtFree(bias) || infinirtFree(workspace) ? 26 : 0;
}

int main() {
    infiniStatus_t status = infinirtSetDevice(INFINI_DEVICE_NVIDIA, 0);
    if (status) return std::printf("%d\n", status), 1;
    if (infinirtSetDevice(INFINI_DEVICE_NVIDIA, 99) != INFINI_STATUS_DEVICE_NOT_FOUND) return 2;
    int count = 0;
    if (infinirtGetDeviceCount(INFINI_DEVICE_NVIDIA, &count) || count < 1) return 3;
    infiniopHandle_t handle;
    if (infiniopCreateHandle(&handle)) return 4;

    const size_t shape[] = {100000};
    std::vector<float> g(shape[0], 3), x(shape[0], -1);
    x.back() = 1;
    float *device_g = on_device(g), *device_x = on_device(x), *out = on_device(g);
    infiniopTensorDescriptor_t t;
    infiniopReluBackwardDescriptor_t op;
    if (infiniopCreateTensorDescriptor(&t, 1, shape, nullptr, INFINI_DTYPE_F32)) return 5;
    if ((status = infiniopCreateReluBackwardDescriptor(handle, &op, t, t, t))) return 10 + status;
    if (infiniopReluBackward(op, nullptr, 0, out, device_x, device_g, nullptr) || infinirtDeviceSynchronize()) return 6;
    std::vector<float> result = to_host(out, shape[0]);
    std::printf("relu %g %g %g\n", result[0], result[shape[0] - 2], result.back());

    // one channel each way: 4 pixels, 2 taps
    const size_t input_shape[] = {1, 1, 5}, weight_shape[] = {1, 1, 2}, output_shape[] = {1, 1, 4}, bias_shape[] = {1};
    infiniopTensorDescriptor_t go, in, weight, bias;
    infiniopConvBackwardDescriptor_t conv;
    ptrdiff_t zero[] = {0}, one[] = {1};
    if (infiniopCreateTensorDescriptor(&go, 3, output_shape, nullptr, INFINI_DTYPE_F32) ||
        infiniopCreateTensorDescriptor(&in, 3, input_shape, nullptr, INFINI_DTYPE_F32) ||
        infiniopCreateTensorDescriptor(&weight, 3, weight_shape, nullptr, INFINI_DTYPE_F32) ||
        infiniopCreateTensorDescriptor(&bias, 1, bias_shape, nullptr, INFINI_DTYPE_F32))
        return 7;
    if ((status = infiniopCreateConvBackwardDescriptor(handle, &conv, go, in, weight, bias, zero, one, one, 1)))
        return 10 + status;
    size_t size;
    void *workspace;
    if (infiniopGetConvBackwardWorkspaceSize(conv, &size) || infinirtMalloc(&workspace, size)) return 8;
    float *ones = on_device(std::vector<float>(4, 1)), *inputs = on_device(std::vector<float>{0, 2, 3, 4, 3}),
          *weights = on_device(std::vector<float>{1, 2}), *grads = on_device(std::vector<float>(8, 7));
    if (infiniopConvBackward(conv, workspace, size, grads, grads + 5, grads + 7, ones, inputs, weights, nullptr))
        return 9;
    result = to_host(grads, 8);
    std::printf("grad_weight %g %g bias %g\n", result[5], result[6], result[7]);

    if (int code = run_forward(handle, go, in, weight, bias, ones, inputs, weights)) return code;

    infiniopDestroyReluBackwardDescriptor(op);
    infiniStatus_t stale = infiniopReluBackward(op, nullptr, 0, out, device_x, device_g, nullptr);
    if (infiniopCreateReluBackwardDescriptor(handle, &op, t, t, t)) return 20;
    infiniStatus_t odd = infiniopReluBackward(op, nullptr, 0, (char *)out + 2, device_x, device_g, nullptr);
    std::printf("stale %d host %d\n", stale, odd);
    for (void *memory : {(void *)device_g, (void *)device_x, (void *)out, workspace, (void *)ones, (void *)inputs,
                         (void *)weights, (void *)grads})
        if (infinirtFree(memory)) return 21;
    return infiniopDestroyConvBackwardDescriptor(conv) || infiniopDestroyHandle(handle);
}
