// A convolution and its gradients on a GPU: the workspace that they take, and the launches that compute them.
#pragma once
#include "conv_images.h"

static const char *const cuda_conv_kernel_names[CUDA_CONV_KERNELS] = {
    "pack_weight",
    "grad_input_large",
    "grad_input_small",
    "grad_input_tf32",
    "grad_input_dense",
    "grad_input_part_large",
    "grad_input_part_small",
    "grad_input_sum_parts",
    "grad_input_few",
    "grad_input_direct",
    "grad_weight_large",
    "grad_weight_small",
    "grad_weight_tf32",
    "grad_weight_channels_large",
    "grad_weight_channels_small",
    "grad_weight_direct",
    "reduce",
    "sum_bias",
    "copy_image",
};

// One launch; returns 0 or a driver error, which ends the run.
typedef int (*CudaConvLaunch)(void *context, int kernel, const unsigned grid[3], unsigned block, const void *arguments,
                              size_t bytes);

// Bytes of device workspace that suffice for the output, or all three gradients; -1 where 64 bits do not count them.
INFINIOP_COLD static inline int64_t cuda_conv_workspace(const CudaConvProblem *problem) {
    CudaConvInputPlan input;
    CudaConvWeightPlan weight = CudaConvWeightPlan();
    cuda_conv_plan_input(problem, &input);
    if (!problem->forward) cuda_conv_plan_weight(problem, &weight);
    const CudaConvImages images = cuda_conv_images(problem, &input, &weight, nullptr);
    int64_t bytes = input.bytes > weight.bytes ? input.bytes : weight.bytes;  // one after the other
    if (input.bytes < 0 || input.blocks < 0 || weight.bytes < 0) return -1;
    for (int64_t more : {images.outer_bytes, images.inner_bytes})
        if (more < 0 || add_overflows(bytes, more, &bytes)) return -1;
    return bytes > INT64_MAX - CUDA_CONV_ALIGN ? -1 : bytes;  // callers add that much
}

struct CudaConvRun {
    CudaConvLaunch launch;
    void *context;
};

template <class Arguments>
INFINIOP_COLD static inline int cuda_conv_launch(const CudaConvRun *run, int kernel, int64_t blocks, unsigned threads,
                                                 Arguments *a) {
    int code = 0;
    for (a->first_block = 0; a->first_block < blocks && !code; a->first_block += CUDA_CONV_GRID) {
        const int64_t left = blocks - a->first_block;
        const unsigned grid[3] = {unsigned(left < CUDA_CONV_GRID ? left : int64_t(CUDA_CONV_GRID)), 1, 1};
        code = run->launch(run->context, kernel, grid, threads, a, sizeof *a);
    }
    return code;
}

// Says where the tensors are, and how they lie.
INFINIOP_COLD static inline void cuda_conv_bind(CudaConv *conv, const CudaConvProblem *problem, void *const *data) {
    for (int t = 0; t < CUDA_CONV_TENSORS; t++) {
        const int64_t *strides = problem->strides[t];
        conv->view[t] = {data[t], strides[0], strides[1], {strides[2], strides[3], strides[4]}};
    }
    const CudaConvView *weight = &conv->view[CUDA_CONV_WEIGHT];
    conv->weight_group = problem->forward ? conv->cin * weight->channel : conv->cout * weight->n;
}

INFINIOP_COLD static inline int cuda_conv_run_input(const CudaConvRun *run, CudaConvInputPlan *plan, char *workspace) {
    CudaConvGradInput *a = &plan->arguments;
    a->packed = workspace;
    a->terms = (CudaConvTerm *)(workspace + plan->packed_bytes);
    a->nonfinite = (int32_t *)(workspace + plan->packed_bytes + plan->term_bytes);
    a->slots = workspace + plan->slots_at;
    int code = cuda_conv_launch(run, CUDA_CONV_PACK_WEIGHT, plan->pack_blocks, CUDA_CONV_BLOCK, a);
    if (code) return code;
    if (a->parts == 1) return cuda_conv_launch(run, plan->kernel, plan->blocks, CUDA_CONV_BLOCK, a);
    const int64_t row_tiles = a->row_tiles, tiles = a->column_tiles, of_wave = a->columns / plan->tile_columns;
    for (int64_t first = 0; first < tiles && !code; first += of_wave) {
        const int64_t wave = tiles - first < of_wave ? tiles - first : of_wave;
        a->first_column = first * plan->tile_columns;
        a->column_tiles = wave, a->row_tiles = row_tiles;
        code = cuda_conv_launch(run, plan->kernel, plan->blocks / tiles * wave, CUDA_CONV_BLOCK, a);
        a->column_tiles = cuda_conv_tiles_of(wave * plan->tile_columns, CUDA_CONV_BLOCK);
        a->row_tiles = cuda_conv_tiles_of(a->conv.cin, CUDA_CONV_SUMMED_ROWS);
        const int64_t blocks = a->column_tiles * a->row_tiles * a->conv.groups;
        if (!code) code = cuda_conv_launch(run, CUDA_CONV_INPUT_SUM_PARTS, blocks, CUDA_CONV_BLOCK, a);
    }
    return code;
}

INFINIOP_COLD static inline int cuda_conv_reduce(const CudaConvRun *run, CudaConvGradWeight *a, int from, int64_t slots,
                                                 int to) {
    const int64_t of_channel = cuda_conv_tiles_of(a->conv.cin * a->conv.taps, CUDA_CONV_REDUCED * CUDA_CONV_BLOCK);
    const CudaConvView *v = &a->conv.view[CUDA_CONV_GRAD_WEIGHT];
    const CudaConvAxis *axis = a->conv.axis;
    const int64_t taps[] = {axis[0].kernel, axis[1].kernel, axis[2].kernel};
    a->together = v->space[2] == 1 && v->channel == a->conv.taps && cuda_conv_is_in_line(v, taps);
    a->from = from, a->to = to, a->wave = slots;
    const int64_t blocks = a->conv.groups * a->conv.cout * of_channel;
    return cuda_conv_launch(run, CUDA_CONV_REDUCE, blocks, CUDA_CONV_BLOCK, a);
}

INFINIOP_COLD static inline int cuda_conv_run_weight(const CudaConvRun *run, CudaConvWeightPlan *plan,
                                                     char *workspace) {
    CudaConvGradWeight *a = &plan->arguments;
    if (plan->slot_bytes == 0) return 0;
    a->total = workspace;
    a->slots = workspace + plan->slot_bytes;
    const int start = a->conv.accumulate ? CUDA_CONV_TENSOR : CUDA_CONV_NOWHERE;
    const int64_t units = a->units.count;
    int code = 0;
    if (units == 0) return cuda_conv_reduce(run, a, start, 0, CUDA_CONV_TENSOR);
    const bool each = a->mode == CUDA_CONV_EACH;
    const int64_t most = each ? plan->slots : int64_t(CUDA_CONV_GRID);
    a->continues = !each && a->conv.accumulate;
    if (a->continues) code = cuda_conv_reduce(run, a, start, 0, CUDA_CONV_TOTAL);
    for (a->first_unit = 0; a->first_unit < units && !code; a->first_unit += most) {
        const int64_t left = units - a->first_unit, wave = left < most ? left : most;
        a->wave = wave;
        code = cuda_conv_launch(run, plan->kernel, plan->tiles * (each ? wave : 1), CUDA_CONV_BLOCK, a);
        if (each && !code)
            code = cuda_conv_reduce(run, a, a->first_unit ? int(CUDA_CONV_TOTAL) : start, wave,
                                    wave < left ? CUDA_CONV_TOTAL : CUDA_CONV_TENSOR);
        a->continues = 1;
    }
    return code || each ? code : cuda_conv_reduce(run, a, CUDA_CONV_TOTAL, 0, CUDA_CONV_TENSOR);
}

// Axes of grad_output that lie one after the other become one.
INFINIOP_COLD static inline void cuda_conv_merge_output(CudaConv *conv) {
    int64_t *space = conv->view[CUDA_CONV_GRAD_OUTPUT].space;
    CudaConvAxis *inner = &conv->axis[2];
    for (int d = 1; d >= 0; d--) {
        CudaConvAxis *outer = &conv->axis[d];
        if (outer->size_out != 1 && space[d] != space[2] * inner->size_out) return;
        inner->size_out *= outer->size_out;
        outer->size_out = 1;
        if (!conv->wide) outer->out = cuda_divisor(1), inner->out = cuda_divisor(uint32_t(inner->size_out));
    }
}

INFINIOP_COLD static inline int cuda_conv_run_bias(const CudaConvRun *run, const CudaConvProblem *problem,
                                                   void *const *data) {
    CudaConvGradBias a = CudaConvGradBias();
    cuda_conv_geometry(problem, &a.conv);
    cuda_conv_bind(&a.conv, problem, data);
    a.units = cuda_conv_units(&a.conv, false, CUDA_CONV_SHORT_UNIT);
    if (a.units.count > 0) cuda_conv_merge_output(&a.conv);
    return cuda_conv_launch(run, CUDA_CONV_SUM_BIAS, a.conv.groups * a.conv.cout, CUDA_CONV_BIAS_BLOCK, &a);
}

// The tensors as they lie for a pass: some of them packed.
struct CudaConvPass {
    CudaConvProblem problem;
    void *data[CUDA_CONV_TENSORS];
};

// Between a tensor and its packed form in `pass`; back: from there.
INFINIOP_COLD static inline int cuda_conv_copy_image(const CudaConvRun *run, const CudaConvProblem *problem,
                                                     void *const *data, const CudaConvPass *pass, int tensor, int form,
                                                     bool back) {
    if (form == CUDA_CONV_AS_IT_LIES) return 0;
    CudaConvImage image = cuda_conv_image(problem, tensor);
    CudaConvView views[2];  // the tensor, and packed
    for (int i = 0; i < 2; i++) {
        const int64_t *strides = (i ? &pass->problem : problem)->strides[tensor];
        views[i] = {(i ? pass->data : data)[tensor], strides[0], strides[1], {strides[2], strides[3], strides[4]}};
    }
    image.in_line = cuda_conv_is_in_line(&views[0], image.size) && cuda_conv_is_in_line(&views[1], image.size);
    image.packs = form == CUDA_CONV_PLANES && !back;
    image.from = views[back], image.to = views[!back];
    return cuda_conv_launch(run, CUDA_CONV_COPY_IMAGE, image.batch * image.channel_tiles * image.pixel_tiles,
                            CUDA_CONV_BLOCK, &image);
}

// A pass whose images lie in these forms, in `outer` and `inner` where they are packed.
INFINIOP_COLD static inline CudaConvPass cuda_conv_pass(const CudaConvProblem *problem, void *const *data,
                                                        const int *forms, char *outer, char *inner) {
    CudaConvPass pass = {*problem, {}};
    for (int t = 0; t < CUDA_CONV_TENSORS; t++) {
        pass.data[t] = data[t];
        if (forms[t] == CUDA_CONV_AS_IT_LIES) continue;
        cuda_conv_pack_strides(&pass.problem, t, forms[t]);
        pass.data[t] = cuda_conv_is_outer(t) ? outer : inner;
    }
    return pass;
}

// The three gradients, or the output in grad_input's place.
INFINIOP_COLD static inline int cuda_conv_run_passes(const CudaConvRun *run, const CudaConvProblem *problem,
                                                     void *const *data, char *workspace) {
    CudaConvInputPlan input;
    CudaConvWeightPlan weight = CudaConvWeightPlan();
    cuda_conv_plan_input(problem, &input);
    if (data[CUDA_CONV_GRAD_WEIGHT]) cuda_conv_plan_weight(problem, &weight);
    if (!data[CUDA_CONV_GRAD_INPUT]) input.blocks = 0;
    const CudaConvImages images = cuda_conv_images(problem, &input, &weight, data);
    char *const outer = workspace, *const inner = outer + images.outer_bytes;
    workspace = inner + images.inner_bytes;
    const CudaConvPass first = cuda_conv_pass(problem, data, images.input, outer, inner);
    const CudaConvPass second = cuda_conv_pass(problem, data, images.weight, outer, inner);
    const auto copy = [&](const CudaConvPass &pass, const int *forms, int tensor, bool back) {
        return cuda_conv_copy_image(run, problem, data, &pass, tensor, forms[tensor], back);
    };
    int code = 0;
    const bool of_input = data[CUDA_CONV_GRAD_INPUT], of_weight = data[CUDA_CONV_GRAD_WEIGHT];
    const bool of_first = of_input || data[CUDA_CONV_GRAD_BIAS];
    if (of_first) code = copy(first, images.input, CUDA_CONV_GRAD_OUTPUT, false);
    if (!code && of_input) {
        const bool direct = input.kernel == CUDA_CONV_INPUT_DIRECT;
        const bool as_they_are = direct && (input.arguments.channels_innermost || input.arguments.conv.wide);
        if (problem->accumulate) code = copy(first, images.input, CUDA_CONV_GRAD_INPUT, false);
        cuda_conv_bind(&input.arguments.conv, as_they_are ? problem : &first.problem, as_they_are ? data : first.data);
        if (!code) code = cuda_conv_run_input(run, &input, workspace);
        if (!code) code = copy(first, images.input, CUDA_CONV_GRAD_INPUT, true);
    }
    if (!code && data[CUDA_CONV_GRAD_BIAS]) code = cuda_conv_run_bias(run, &first.problem, first.data);
    if (!code && of_weight) {
        const bool is_packed = of_first && images.input[CUDA_CONV_GRAD_OUTPUT] == images.weight[CUDA_CONV_GRAD_OUTPUT];
        if (!is_packed) code = copy(second, images.weight, CUDA_CONV_GRAD_OUTPUT, false);
        if (!code) code = copy(second, images.weight, CUDA_CONV_INPUT, false);
        cuda_conv_bind(&weight.arguments.conv, &second.problem, second.data);
        if (!code) code = cuda_conv_run_weight(run, &weight, workspace);
    }
    return code;
}

// data: device addresses. A gradient of null is left out; of an output's problem the output is in grad_output's place,
// as it is in the core. workspace: at a multiple of CUDA_CONV_ALIGN.
INFINIOP_COLD static inline int cuda_conv_run(const CudaConvProblem *problem, void *const data[CUDA_CONV_TENSORS],
                                              void *workspace, CudaConvLaunch launch, void *context) {
    const CudaConvRun run = {launch, context};
    if (!problem->forward) return cuda_conv_run_passes(&run, problem, data, (char *)workspace);
    void *exchanged[CUDA_CONV_TENSORS] = {};
    exchanged[CUDA_CONV_GRAD_OUTPUT] = data[CUDA_CONV_INPUT];
    exchanged[CUDA_CONV_WEIGHT] = data[CUDA_CONV_WEIGHT], exchanged[CUDA_CONV_BIAS] = data[CUDA_CONV_BIAS];
    exchanged[CUDA_CONV_GRAD_INPUT] = data[CUDA_CONV_GRAD_OUTPUT];
    return cuda_conv_run_passes(&run, problem, exchanged, (char *)workspace);
}
