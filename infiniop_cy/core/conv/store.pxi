# Sums of grad_input to memory, rounded once, or added to what is there.

cdef char *tile_row(const ConvProblem *problem, int64_t group, const Phase *phase, const Box *tile, int64_t ci,
                    int64_t n, int64_t z, int64_t y) noexcept nogil:
    """Find where a row of a phase's tile begins in grad_input."""
    cdef const ConvView *out = &problem.view[CONV_GRAD_INPUT]
    cdef const ConvAxis *axis = &problem.sample.axis[0]
    return out.data + (tile.n + n) * out.n + (group * problem.sample.cin + ci) * out.channel \
        + (phase.axis[0].first + (tile.first[0] + z) * axis[0].stride) * out.space[0] \
        + (phase.axis[1].first + (tile.first[1] + y) * axis[1].stride) * out.space[1] \
        + (phase.axis[2].first + tile.first[2] * axis[2].stride) * out.space[2]


cdef void save_row(const ConvProblem *problem, char *values, char *out, int64_t step, int64_t count,
                   char *staging) noexcept nogil:
    """Save sums of pixels that follow each other to pixels `step` bytes apart. staging: room for STAGE_PIXELS
    elements."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t x = 0, n
    while problem.accumulate and x < count:
        n = min(<int64_t>STAGE_PIXELS, count - x)
        problem.load(out + x * step, step, staging, sample.item, n)
        add_values(sample, staging, values + x * sample.item, n)
        x += STAGE_PIXELS
    problem.save(values, sample.item, out, step, count)


cdef void narrow_row(const char *sums, char *out, int64_t step, int64_t count, char *staging) noexcept nogil:
    """Round sums that follow each other to bfloat16 elements `step` bytes apart. staging: room for STAGE_PIXELS
    elements."""
    cdef int64_t x = 0, n
    if step == 2:
        kernels.amx.narrow_rows(sums, 0, out, 0, 1, count)
        return
    while x < count:
        n = min(<int64_t>STAGE_PIXELS, count - x)
        kernels.amx.narrow_rows(sums + x * 4, 0, staging, 0, 1, n)
        kernels.convert[DTYPE_BF16][DTYPE_BF16](staging, 2, out + x * step, step, n)
        x += STAGE_PIXELS


cdef bint narrow_pixels(const ConvProblem *problem, const char *sums, int64_t pitch, int64_t pixels, int64_t channels,
                        char *out, int64_t step, int64_t channel, char *staging) noexcept nogil:
    """Save a row of sums by instructions that count subnormal ones as 0, to bfloat16; return whether that could be
    done."""
    cdef int64_t first = 0, c, n, i, row = STAGE_ROW * 4
    if problem.sample.dtype != DTYPE_BF16 or problem.accumulate:
        return False
    if channel == 2:
        kernels.amx.narrow_rows(sums, pitch * 4, out, step, pixels, channels)
        return True
    while first < pixels:
        n = min(<int64_t>STAGE_PIXELS, pixels - first)
        c = 0
        while c < channels:
            kernels.transpose[DTYPE_F32](sums + (first * pitch + c) * 4, pitch * 4, staging, row,
                                         min(<int64_t>AMX_HALF, channels - c), n)
            for i in range(min(<int64_t>AMX_HALF, channels - c)):
                narrow_row(staging + i * row, out + (c + i) * channel + first * step, step, n, staging + i * row)
            c += AMX_HALF
        first += STAGE_PIXELS
    return True


cdef bint fills_lines(const ConvProblem *problem, const char *out, int64_t step, int64_t bytes) noexcept nogil:
    """Say whether so many bytes of each pixel go past the caches: they have to fill whole cache lines."""
    return problem.stream and (step == bytes or (<uintptr_t>out | <uintptr_t>(step | bytes)) % CONV_ALIGN == 0)


cdef void save_pixels(const ConvProblem *problem, const char *sums, int64_t pitch, int64_t pixels, int64_t channels,
                      char *out, int64_t step, int64_t channel, char *staging) noexcept nogil:
    """Save a row of sums, [pixel][pitch], to pixels `step` and channels `channel` bytes apart."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t item = sample.item, first = 0, n, c, i
    cdef char *row
    if bfloat16_dot2(sample) and narrow_pixels(problem, sums, pitch, pixels, channels, out, step, channel, staging):
        return
    if step == item and sample.dtype == sample.compute and not problem.accumulate:
        kernels.transpose[sample.compute](sums, pitch * item, out, channel, channels, pixels)
        return
    if channel == itemsize_of(sample.dtype) and not problem.accumulate:
        if sample.dtype == sample.compute:
            if fills_lines(problem, out, step, channels * item):
                kernels.stream_rows(sums, pitch * item, out, step, pixels, channels * item)
            else:
                kernels.pad_rows(sums, pitch * item, out, step, pixels, 0, channels * item, channels * item)
            return
        for i in range(pixels):
            problem.save(sums + i * pitch * item, item, out + i * step, channel, channels)
        return
    while first < pixels:
        n = min(<int64_t>STAGE_PIXELS // 2, pixels - first)
        c = 0
        while c < channels:
            kernels.transpose[sample.compute](sums + (first * pitch + c) * item, pitch * item, staging,
                                              STAGE_ROW * item, min(sample.lanes, channels - c), n)
            for i in range(min(sample.lanes, channels - c)):
                row = staging + i * STAGE_ROW * item
                save_row(problem, row, out + (c + i) * channel + first * step, step, n, row + STAGE_PIXELS // 2 * item)
            c += sample.lanes
        first += STAGE_PIXELS // 2


cdef void save_some_pixels(const ConvProblem *problem, const InputSums *sums, int64_t number, int64_t pixels,
                           const int64_t *place, char *to, int64_t step, char *saved, char *staging) noexcept nogil:
    """Save so many of a tile's pixels from that number on, one after the other, which lie in sums as they follow each
    other or (not NULL) at their places. saved: room for SAVED_PIXELS of them."""
    cdef int64_t item = problem.sample.item, pitch = sums.pixel_pitch, channel = problem.view[CONV_GRAD_INPUT].channel
    cdef int64_t done = 0, count, i
    if place == NULL:
        save_pixels(problem, sums.data + number * pitch * item, pitch, pixels, sums.channels, to, step, channel,
                    staging)
        return
    while done < pixels:
        count = min(<int64_t>SAVED_PIXELS, pixels - done)
        for i in range(count):
            memcpy(saved + i * pitch * item, sums.data + place[number + done + i] * pitch * item, pitch * item)
        save_pixels(problem, saved, pitch, count, sums.channels, to + done * step, step, channel, staging)
        done += count


cdef void save_tile(const ConvProblem *problem, const Phase *phase, const Box *tile, const InputSums *sums,
                    const int64_t *place, char *saved, char *staging) noexcept nogil:
    """Save a tile of sums as [pixel][ci], its pixels as save_some_pixels has them, to grad_input."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef const ConvView *out = &problem.view[CONV_GRAD_INPUT]
    cdef int64_t n, z, y, rows = tile.extent[1], pixels = tile.extent[2], step = sample.axis[2].stride * out.space[2]
    cdef int64_t number = 0
    add_output_bias(problem, sums, tile, bfloat16_dot2(sample))
    if tile.extent[2] == sample.axis[2].size_in and out.space[1] * sample.axis[1].stride == tile.extent[2] * step:
        rows, pixels = 1, pixels * rows  # they follow each other: one row
    for n in range(tile.samples):
        for z in range(tile.extent[0]):
            for y in range(rows):
                save_some_pixels(problem, sums, number, pixels, place,
                                 tile_row(problem, sums.group, phase, tile, sums.ci_from, n, z, y), step, saved,
                                 staging)
                number += pixels


cdef bint channels_in_line(const ConvProblem *problem) noexcept nogil:
    """Say whether AMX's sums can be saved pixel by pixel, with all of its channels."""
    cdef int dtype = problem.sample.dtype
    return (dtype == DTYPE_F32 or dtype == DTYPE_BF16) and not problem.accumulate \
        and problem.view[CONV_GRAD_INPUT].channel == itemsize_of(dtype)


cdef void save_channels_of_panels(const ConvProblem *problem, const Phase *phase, const Box *tile,
                                  const InputSums *sums, int64_t panel) noexcept nogil:
    """Save panels of AMX's sums, `panel` bytes apart, to a grad_input whose channels lie side by side: pixel by pixel,
    so that memory is written from its beginning to its end."""
    cdef const ConvView *out = &problem.view[CONV_GRAD_INPUT]
    cdef int64_t step = problem.sample.axis[2].stride * out.space[2], n, z, y
    cdef bint bf16 = problem.sample.dtype == DTYPE_BF16
    cdef char *to
    for n in range(tile.samples):
        for z in range(tile.extent[0]):
            for y in range(tile.extent[1]):
                to = tile_row(problem, sums.group, phase, tile, sums.ci_from, n, z, y)
                kernels.amx.save_panels(sum_of_pixel(problem, sums, n, z, y, 0), panel, to, step, tile.extent[2],
                                        sums.channels, bf16,
                                        fills_lines(problem, to, step, sums.channels * out.channel))


cdef void save_positions(const ConvProblem *problem, const Phase *phase, const Box *tile, const InputSums *sums,
                         char *staging) noexcept nogil:
    """Save a tile of AMX's sums as [position][ci] to grad_input."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef const ConvView *out = &problem.view[CONV_GRAD_INPUT]
    cdef int64_t rows = tile.extent[1], pixels = tile.extent[2], step = sample.axis[2].stride * out.space[2], n, z, y
    cdef char *at
    cdef char *to
    add_output_bias(problem, sums, tile, sample.dtype == DTYPE_BF16)
    if sums.extent[2] == pixels and out.space[1] * sample.axis[1].stride == pixels * step:
        rows, pixels = 1, pixels * rows  # they follow each other: one row
    for n in range(tile.samples):
        for z in range(tile.extent[0]):
            for y in range(rows):
                at = sum_of_pixel(problem, sums, n, z, y, 0)
                to = tile_row(problem, sums.group, phase, tile, sums.ci_from, n, z, y)
                if not narrow_pixels(problem, at, sums.pixel_pitch, pixels, sums.channels, to, step, out.channel,
                                     staging):
                    save_pixels(problem, at, sums.pixel_pitch, pixels, sums.channels, to, step, out.channel, staging)


cdef void save_rounded_across(const ConvProblem *problem, const char *sums, int64_t pitch, int64_t pixels,
                              int64_t channels, char *out, int64_t step, bint narrow, char *staging) noexcept nogil:
    """Round sums, [channel][pitch], and transpose them to pixels `step` bytes apart whose channels lie side by side."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t item = sample.item, stored = itemsize_of(sample.dtype), row = STAGE_ROW * stored
    cdef int64_t x = 0, c, i, count, many
    cdef const char *at
    while x < pixels:
        count, c = min(<int64_t>STAGE_PIXELS, pixels - x), 0
        while c < channels:
            many = min(sample.lanes, channels - c)
            for i in range(many):
                at = sums + ((c + i) * pitch + x) * item
                if narrow:
                    kernels.amx.narrow_rows(at, 0, staging + i * row, 0, 1, count)
                else:
                    problem.save(at, item, staging + i * row, stored, count)
            kernels.transpose[sample.dtype](staging, row, out + x * step + c * stored, step, count, many)
            c += sample.lanes
        x += STAGE_PIXELS


cdef void save_planes_across(const ConvProblem *problem, const Phase *phase, const Box *tile, const InputSums *sums,
                             bint narrow, char *staging) noexcept nogil:
    """Save sums as [ci][position] to a grad_input whose channels lie side by side. narrow: by instructions that count
    subnormal sums as 0, to bfloat16."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef int64_t step = sample.axis[2].stride * problem.view[CONV_GRAD_INPUT].space[2], n, z, y
    cdef char *at
    cdef char *to
    for n in range(tile.samples):
        for z in range(tile.extent[0]):
            for y in range(tile.extent[1]):
                at = sum_of_pixel(problem, sums, n, z, y, 0)
                to = tile_row(problem, sums.group, phase, tile, sums.ci_from, n, z, y)
                if sample.dtype == sample.compute:
                    kernels.transpose[sample.dtype](at, sums.ci_pitch * sample.item, to, step, tile.extent[2],
                                                    sums.channels)
                else:
                    save_rounded_across(problem, at, sums.ci_pitch, tile.extent[2], sums.channels, to, step, narrow,
                                        staging)


cdef void save_planes(const ConvProblem *problem, const Phase *phase, const Box *tile, const InputSums *sums,
                      char *staging) noexcept nogil:
    """Save sums as [ci][position] to grad_input."""
    cdef const SampleGeometry *sample = &problem.sample
    cdef const ConvView *out = &problem.view[CONV_GRAD_INPUT]
    cdef int64_t step = sample.axis[2].stride * out.space[2], ci, n, z, y
    cdef bint narrow = bfloat16_dot2(sample) and not problem.accumulate
    cdef char *row
    cdef char *to
    add_output_bias(problem, sums, tile, narrow)
    if out.channel == itemsize_of(sample.dtype) and step != out.channel and sums.channels > 1 \
            and not problem.accumulate:
        save_planes_across(problem, phase, tile, sums, narrow, staging)
        return
    for ci in range(sums.channels):
        for n in range(tile.samples):
            for z in range(tile.extent[0]):
                for y in range(tile.extent[1]):
                    row = sum_of_pixel(problem, sums, n, z, y, 0) + ci * sums.ci_pitch * sample.item
                    to = tile_row(problem, sums.group, phase, tile, sums.ci_from + ci, n, z, y)
                    if narrow:
                        narrow_row(row, to, step, tile.extent[2], staging)
                    else:
                        save_row(problem, row, to, step, tile.extent[2], staging)
