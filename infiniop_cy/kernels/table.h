// What one instruction set offers the core: a constant table of functions, the same for all of them.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "parameters.h"

// infiniDtype_t of InfiniCore; its values index the tables below.
enum Dtype {
    DTYPE_INVALID = 0,
    DTYPE_BOOL = 2,
    DTYPE_I8,
    DTYPE_I16,
    DTYPE_I32,
    DTYPE_I64,
    DTYPE_U8,
    DTYPE_U16,
    DTYPE_U32,
    DTYPE_U64,
    DTYPE_F16 = 12,
    DTYPE_F32,
    DTYPE_F64,
    DTYPE_C64 = 17,
    DTYPE_C128,
    DTYPE_BF16,
    DTYPE_COUNT
};

enum { MAX_FORMULAS = 64 };

// How a kernel stores what it computes: over what out holds, added to it, or past the caches to memory, which saves
// reading lines that will be overwritten, and pays where out does not stay in the cache.
enum Store { WRITE, ACCUMULATE, STREAM, STORE_COUNT };

// out[i] = gradient(g[i], x[i]) or, accumulating, out[i] + gradient; n contiguous elements of one dtype.
// out[i] = value(x[i]) of a forward function, which takes no g and does not accumulate.
// out may be g or x itself. All modes give the same bits.
// After streaming, finish_streams() of support.h.
typedef void (*ElementwiseKernel)(const void *g, const void *x, void *out, int64_t n, const FormulaParameters *);

// to[i] = from[i] with strides in bytes; floats round to nearest even, floats to integers truncate and
// saturate (NaN gives 0).
typedef void (*ConvertKernel)(const char *from, int64_t from_stride, char *to, int64_t to_stride, int64_t n);

// to[r][c] = from[c][r]; `from` is contiguous along r with columns `column` bytes apart, `to` along c with rows `row`
// bytes apart.
typedef void (*TransposeKernel)(const char *from, int64_t column, char *to, int64_t row, int64_t rows, int64_t columns);

// Transposes as TransposeKernel does, but row r goes to to + place[r].
typedef void (*TransposeToKernel)(const char *from, int64_t column, char *to, const int64_t *place, int64_t rows,
                                  int64_t columns);

// Copies of rows of bytes, past the caches (after that, finish_streams() of support.h) where addresses are multiples of
// 16. Rows follow each other, or begin and end with cache lines.
typedef void (*StreamKernel)(const char *from, int64_t from_row, char *to, int64_t to_row, int64_t rows, int64_t bytes);

// What is still to go past the caches from a stage.
struct Unsent {
    const char *data;
    char *to;       // a cache line
    int64_t bytes;  // whole cache lines; 0 where there is nothing
    int64_t share;  // of them at a time: whole cache lines
    char *stage;    // the half of the stage that is written next, and before it what follows those bytes and fills no
    int64_t rest;   // line: so many bytes
    char *other;    // the other half
};

// Copies of `rows` rows of `bytes` between zeros, `before` of them, up to `width` in all; rows are from_row and to_row
// bytes apart.
typedef void (*PadKernel)(const char *from, int64_t from_row, char *to, int64_t to_row, int64_t rows, int64_t before,
                          int64_t bytes, int64_t width);

// The batch-reduce product that a matrix micro-kernel computes: the sum over `count` stretches of `depth` steps.
// Stretch s starts at a + a_offset[s] and b + b_offset[s]; a step further is a_step and b_step further. All
// offsets count elements.
struct BatchReduce {
    int64_t count, depth;
    const int64_t *a_offset, *b_offset;
    int64_t a_step, b_step;
    // What the first row, and b, read so much further on is asked for by GEMM_CHAIN; 0: nothing.
    int64_t a_ahead, b_ahead;
    int64_t columns;   // of c that GEMM_PUT may write
    const void *bias;  // of these, added to their sums by GEMM_PUT; whole vectors, or NULL
};

// c[r][j] += sum over the steps of a[indirection[r]] * b[j], for the rows and whole vectors of columns of a register
// tile; the indirection buffer counts elements. The sum runs in the order of the steps: from zero, then added to c; or
// starting from c (GEMM_CHAIN), which makes the bits independent of where the steps are cut. GEMM_PUT: as if c were
// zeros, c being of the storage type; GEMM_PUT_PAST: the same, past the caches, where rows of c are whole cache lines;
// GEMM_PUT_CHAIN: what GEMM_CHAIN would make of zeros, a sum of -0 included.
enum { GEMM_ADD = 0, GEMM_CHAIN = 1, GEMM_PUT = 2, GEMM_PUT_PAST = 3, GEMM_PUT_CHAIN = 4 };
typedef void (*GemmKernel)(const struct BatchReduce *, const void *a, const int64_t *indirection, const void *b,
                           void *c, int64_t c_row, int end);

// A micro-kernel and its size: `rows` rows by `vectors` vectors of columns.
struct RegisterTile {
    int rows, vectors;
    GemmKernel kernel;
};

enum { GEMM_VECTORS = 4 };

struct RegisterTiles {
    int lanes;                                        // of a vector
    int max_vectors;                                  // of the widest that suits many columns, of:
    struct RegisterTile many_rows[GEMM_VECTORS + 1];  // by the number of vectors
    int panel_vectors;                                // of the widest of them: few columns may be so many
    struct RegisterTile few_rows, one_row;            // by more vectors
    struct RegisterTile row[GEMM_VECTORS + 1];        // one, by the number of vectors
};

// VNNI packing of bfloat16 by pairs. Null without AVX-512.
struct VnniKernels {
    // Pairs of channels, pixel by pixel, in `rows` rows of `pixels` between zeros, `before` of them, up to `width`
    // pairs. A channel that is null counts as zeros. Rows are from_row and to_row bytes apart.
    void (*of_planes)(const char *low, const char *high, int64_t from_row, char *to, int64_t to_row, int64_t rows,
                      int64_t before, int64_t pixels, int64_t width);
    // Pairs of channels: pair c of pixel r at to + place[r] + 4 * c; pixels are contiguous, channels `column` bytes
    // apart, after the last one comes a zero. The earlier channel is in the upper half.
    void (*of_channels)(const char *from, int64_t column, char *to, const int64_t *place, int64_t pixels,
                        int64_t channels);
    // Pairs of channels that lie side by side, n of each of `rows` pixels; the same. Rows are from_row and to_row bytes
    // apart.
    void (*of_lines)(const char *from, int64_t from_row, char *to, int64_t to_row, int64_t rows, int64_t n);
    // Pairs of pixels: pair r of channel c, which is at from + column[c], at to + r * row + 4 * c; after an odd last
    // pixel comes a zero. [1]: the earlier pixel in the upper half.
    void (*of_pixels[2])(const char *from, const int64_t *column, char *to, int64_t row, int64_t pixels,
                         int64_t channels);
    // Pairs of numbers of a column, as of_pixels[1] has them; columns lie evenly.
    TransposeKernel transpose;
    // Rows of `pixels` numbers `step` bytes apart, 2 or 4, between zeros, `before` of them, up to `width`, that follow
    // each other from the last number to the first: the first number of row r ends at to - 2 * r * width. Rows are
    // from_row bytes apart.
    void (*reverse)(const char *from, int64_t from_row, int64_t step, char *to, int64_t rows, int64_t before,
                    int64_t pixels, int64_t width);
    // inf and NaN become 2^-100 of their sign; whether there were any.
    int (*replace_nonfinite)(char *values, int64_t n);
    // pad_every_other of 2-byte elements.
    PadKernel pad_every_other;
};

// Numbers as sums of bfloat16, each part the bfloat16 nearest to what the larger parts leave: float32 has three,
// float16 two, bfloat16 one. They give every finite number exactly, as long as no part is subnormal and the first does
// not overflow. inf and NaN of float16 become 2^-100 of their sign, whether there were any is returned; bfloat16 keeps
// them. Of float32 is returned as what some numbers do not fit, if any: those not within bounds, or (either is right)
// so near to one that their largest part is it.
enum { BFLOAT16_PARTS = 3 };
enum { UNFIT_FACTOR = 1, UNFIT_GRADIENT = 2 };

// The least magnitude that is not 0 of an image, a gradient of its output (grad_output, or what stands for it) and
// weights, and the largest of all three. AMX counts subnormals as 0, so the smallest parts of the smallest products
// have to be normal: within the bounds a product that is lost is below 2^-24 of one that is kept.
constexpr float LEAST_FACTOR = 0x1p-40f, LEAST_GRADIENT = 0x1p-56f, MOST = 0x1p60f;

struct PartKernels {
    int parts;
    // Rows of `count` numbers between zeros, `before` of them, up to `width`: part p of row r at to + p * part + r *
    // to_row. Rows are from_row and to_row bytes apart, and every 32 numbers to_next bytes after the 32 before them.
    int (*of_rows)(const char *from, int64_t from_row, char *to, int64_t part, int64_t to_row, int64_t to_next,
                   int64_t rows, int64_t before, int64_t count, int64_t width);
    // Pairs of numbers of at most 16 such rows side by side, row by row, in 64 bytes: part p of pair i at
    // to + p * part + i * 64; zeros where there are none.
    int (*of_row_pairs)(const char *from, int64_t from_row, char *to, int64_t part, int64_t rows, int64_t count);
    // Pairs of channels, pixel by pixel, as VnniKernels.of_planes has them, part by part.
    int (*of_planes)(const char *low, const char *high, int64_t from_row, char *to, int64_t part, int64_t to_row,
                     int64_t rows, int64_t before, int64_t pixels, int64_t width);
    // At most 32 channels of each pixel side by side, in 64 bytes, zeros where there are none: bfloat16 as they are;
    // parts of others from the 17th on in the upper halves of the 32 bits that hold the first 16. Part p of pixel i at
    // to + p * part + i * 64.
    // Pixels are contiguous, channels `column` bytes apart;
    int (*of_pixels)(const char *from, int64_t column, char *to, int64_t part, int64_t pixels, int64_t channels);
    // or channels are contiguous, pixels `step` bytes apart.
    int (*of_lines)(const char *from, int64_t step, char *to, int64_t part, int64_t pixels, int64_t channels);
    // Pairs of pixels, channel by channel, in 64 bytes for 16 channels: part p of pair i of channel c at to + ((c / 32
    // * parts + p) * 2 + c / 16 % 2) * half + i * 64. Channels are contiguous, pixels `step` bytes apart.
    int (*of_line_pairs)(const char *from, int64_t step, char *to, int64_t half, int64_t pairs, int64_t channels);
    // Whether the magnitude of any of n float32 numbers lies outside of [least, MOST] and is not 0.
    int (*outside)(const char *from, int64_t n, float least);
    // At most 16 channels that lie side by side as rows of 32 pixels: part p of channel c at to + p * part + c * 64.
    // Pixel i is at from + line[i]; those from `count` on, and those at INT64_MIN, are zeros. Null for bfloat16.
    int (*of_columns)(const char *from, const int64_t *line, int64_t count, int64_t channels, char *to, int64_t part);
};

// What will be read next, as rows of bytes, `row` bytes from one to the next; of 0 rows, nothing.
struct AmxAhead {
    const char *at;
    int64_t rows, row, bytes;
};

// What an AMX product sums over, in bytes: `count` stretches of `depth` times 32 steps, a stretch beginning at
// a + a_offset and b + b_offset. a: rows a_row apart, the 17th a_down after the first, 32 steps after each other,
// then a_step further. b: rows of columns, b_row apart, each holding two steps of every column, the 17th b_right (in c,
// c_right) after the first. Where numbers are sums of `parts` bfloat16, these lie a_part and b_part apart; of three by
// three parts the products below 2^-24 are left out.
struct AmxBatchReduce {
    int64_t count, depth;
    const int64_t *a_offset, *b_offset;
    int64_t a_row, a_down, a_step, b_row, b_right, c_right;
    int64_t parts, a_part, b_part;
    struct AmxAhead ahead;
};

enum { AMX_SIDE = 32, AMX_STEPS = 32 };  // rows and columns of one call at most, steps of one instruction
enum { AMX_PANELS_COLUMNS = 1024 };      // of several panels that are saved together, at most
enum { AMX_BF16_SUBNORMAL = 2 };         // saved as bfloat16, subnormal sums included

// What becomes of a product: it replaces what is there, its products are added to that one by one, or their sum.
enum AmxSums { AMX_SET, AMX_ADD_PRODUCTS, AMX_ADD_SUM };

// bfloat16 by AMX. Null where the instruction set has none; to be called where infiniop_amx().
struct AmxKernels {
    // c = a b, or c += a b, for any rows and at most AMX_SIDE columns; b and c go on to whole vectors of columns.
    void (*multiply)(const struct AmxBatchReduce *, const void *a, int64_t rows, const void *b, int64_t columns,
                     void *c, int64_t c_row, enum AmxSums how);
    // Rows of n sums to bfloat16; rows are from_row and to_row bytes apart.
    void (*narrow_rows)(const char *from, int64_t from_row, char *to, int64_t to_row, int64_t rows, int64_t n);
    // Rows of AMX_SIDE sums that follow each other, of at most AMX_PANELS_COLUMNS columns in all, `panel` bytes from
    // panel to panel, to rows of float32 (or bf16) to_row bytes apart. past: past the caches, as StreamKernel does.
    // bf16: AMX_BF16_SUBNORMAL where sums may be subnormal, which AMX's own are not.
    void (*save_panels)(const char *from, int64_t panel, char *to, int64_t to_row, int64_t rows, int64_t channels,
                        int bf16, int past);
    // Products of several panels of b, `panel` bytes from one to the next, saved as by save_panels AMX_SIDE rows at a
    // time, while they are in the nearest cache. sums: room for so many rows, or for fewer if there are, of all panels.
    void (*multiply_panels)(const struct AmxBatchReduce *, const char *a, int64_t rows, const char *b, int64_t panel,
                            int64_t channels, char *sums, char *to, int64_t to_row, int bf16, int past);
    // The same of rows of float32 that are taken apart on the way: `rows` of them, a_step bytes apart, of `channels`
    // numbers side by side, as 32 numbers after 32, all->count in all, `chain` of which are summed from zero. packed:
    // room for 2 * AMX_SIDE rows. Returns what numbers do not fit, as PartKernels does.
    int (*multiply_lines)(const struct AmxBatchReduce *all, const char *a, int64_t a_step, int64_t rows,
                          int64_t channels, int64_t chain, char *packed, const char *b, int64_t panel, int64_t columns,
                          char *sums, char *to, int64_t to_row, int past);
};

// sums[r] += sum over `lines` lines of `length` elements of g[i] * x[row[r] + i], r < count <= DOT_ROWS; from line to
// line g goes g_line and x x_line elements further. One partial sum a lane, then a fixed tree. Reads whole vectors: up
// to one vector less an element past the last line. row holds DOT_ROWS entries.
enum { DOT_ROWS = 9 };
typedef void (*DotKernel)(int64_t lines, int64_t length, const void *g, int64_t g_line, const void *x, int64_t x_line,
                          const int64_t *row, int64_t count, void *sums);

// Rows of pixels of some channels: where they lie in a tensor (bytes from neighbour to neighbour), and in blocks of
// [row][pixel][lane] of the compute type, one for each vector of channels, `apart` pixels from block to block and
// `pitch` from row to row. Packing puts zeros around the rows, and into the lanes past the channels. Unpacking may go
// past the caches (stream); after that, finish_streams() of support.h.
struct LaneRows {
    int64_t pixel, row, channel;
    int64_t rows, width, channels;
    int64_t above, below, before, after;  // rows and pixels of zeros
    int64_t pitch, apart;
    bool stream;
};
typedef void (*PackLanesKernel)(const char *from, const struct LaneRows *, void *block);
typedef void (*UnpackLanesKernel)(const void *block, const struct LaneRows *, char *to);

// Pixels of a block whose lanes are channels, under a kernel: tap t of a pixel is `at[t]` pixels further in `from`, and
// weight[t] is a vector. The sum over taps of weight[t] * from, one after the other. All count pixels.
struct StencilRows {
    int64_t rows, width, from_row, from_pixel, to_row, to_pixel, taps;
    const int64_t *at;
};
// What becomes of the products: they replace what is there, are added to that one by one, or their sum is.
enum StencilSums { STENCIL_SET, STENCIL_ADD_PRODUCTS, STENCIL_ADD_SUM };
typedef void (*StencilKernel)(const struct StencilRows *, const void *from, const void *weight, void *to,
                              enum StencilSums how);
// The same for pixels of `channels` elements of storage side by side, from where they lie to where the results shall
// lie. Taps are in lines of up to WIDE_LINE_TAPS with vectors of 64 bytes, else of LINE_TAPS. Distances in bytes, but
// those of pixels in a row of from, `row` of which there are, and `weights`: elements from the weights of a vector of
// channels to those of the next one. Beside from's pixels taps meet zeros. bias: null, or whole vectors of the compute
// type, added last. past: past the caches, as StreamKernel does, where vectors are whole cache lines. Of `width`
// results in a row those from first_column to end_column are computed, in the rows from first_row to end_row; the first
// of them goes to `to`. unsent: null, or what is sent meanwhile, as many bytes as are computed.
enum { LINE_TAPS = 3, WIDE_LINE_TAPS = 5 };
struct PixelLine {
    int64_t taps;                // one, or some each of which meets what the last one meets for the result before
    int64_t at, pixel;           // how far what the first tap meets lies from the result's pixel, in bytes; where in a
                                 // row it lies for the first result
    int64_t first_row, end_row;  // of the results for which that is inside of from
};
struct StencilPixels {
    int64_t first_row, end_row, first_column, end_column, width, channels;
    int64_t from_row, from_pixel, to_row, to_pixel;
    int64_t row, step;  // pixels of from's rows, and from result to result
    int64_t lines;
    const struct PixelLine *line;
    int64_t weights;
    const void *bias;
    struct Unsent *unsent;
    bool past;
};
typedef void (*StencilPixelsKernel)(const struct StencilPixels *, const char *from, const void *weight, char *to);
// Copies the channels of some pixels, which lie side by side, each `copies` times in a row. Behind a pixel's last one
// are SPREAD_MOST elements more for it to write.
enum { SPREAD_MOST = 8 };  // copies
typedef void (*SpreadKernel)(const char *from, int64_t from_pixel, int64_t pixels, int64_t channels, int64_t copies,
                             char *to, int64_t to_pixel);
// sums[t] += sum over pixels of g * the pixel of x that is at[t] further, each a vector. The order depends on rows,
// width and taps alone.
struct StencilDotRows {
    int64_t rows, width, g_row, x_row, x_pixel, taps;
    const int64_t *at;
};
typedef void (*StencilDotKernel)(const struct StencilDotRows *, const void *g, const void *x, void *sums);
// The same, with the same sums, for pixels of whole vectors of channels side by side that are read where they lie, in
// taps by which DOT_PIXEL_TAPS or DOT_PIXEL_REST are summed at a time. Distances in bytes, but `sums`: elements from
// the sums of a vector of channels to those of the next one. Beside the pixels of `inside` a tap meets zeros.
enum { DOT_PIXEL_TAPS = 9, DOT_PIXEL_REST = 7 };
struct TapInside { int64_t first_row, end_row, first, end; };
struct StencilDotPixels {
    int64_t rows, width, vectors, g_row, g_pixel, x_row, x_pixel, sums, taps;
    const int64_t *at;
    const struct TapInside *inside;
    // Whether taps are three rows of three, each of which meets the pixel that the one before it meets for the next
    // pixel of g; and which of those pixels are inside, counted from what the first tap meets first.
    int64_t three_by_three, first_column, end_column;
    // What is prefetched for a row of g: so many rows of x, the last of them at `newest`, and pixels of each.
    int64_t new_rows, next_row, next_pixel, pixels, newest;
};
typedef void (*StencilDotPixelsKernel)(const struct StencilDotPixels *, const char *g, const char *x, void *sums);

// The same for groups of several channels side by side in the lanes: every lane of a group meets all of the group's
// `channels` lanes of `from` (or g), those of channel c with weight[c * apart + t] (or sums[c * apart + t]).
// By pairs of bfloat16 (AVX512_BF16) the weights of a channel and the next one are one vector, its own in the upper
// halves of the lanes, and from, g and x are float32 that bfloat16 holds.
struct LaneGroups { int64_t channels, apart; };
typedef void (*GroupStencilKernel)(const struct StencilRows *, const struct LaneGroups *, const void *from,
                                   const void *weight, void *to);
typedef void (*GroupStencilDotKernel)(const struct StencilDotRows *, const struct LaneGroups *, const void *g,
                                      const void *x, void *sums);

// Adds a row of n elements to each of `rows` rows of `to`, `pitch` elements apart; whole vectors of both. flush: sums
// that are subnormal become 0.
typedef void (*AddToRowsKernel)(const void *row, void *to, int64_t pitch, int64_t rows, int64_t n, int flush);

// Whether there is inf or NaN among n numbers.
typedef int (*NonfiniteKernel)(const void *values, int64_t n);

// `taps` taps of the kernel side by side, over `rows` output pixels side by side: output pixel r meets pixel first +
// r * row_step + k * tap_step of a line of `size` pixels under tap k, which are `pitch` elements apart; outside of the
// line is padding.
struct TapLine { int64_t rows, row_step, taps, tap_step, first, size, pitch; };
// to[r * to_row + k] = the pixel, widened to the compute type, or 0. `from`: the line's pixel 0. Writes whole vectors:
// up to one vector less an element past the taps.
typedef void (*TakeTapsKernel)(const struct TapLine *, const void *from, void *to, int64_t to_row);
// The pixel += from[r * from_row + k], both of the compute type, in the order of k. `to`: the line's pixel 0, pitch 1;
// up to one vector less an element past the line is read and written as it is. No pixel may hold -0.
typedef void (*AddTapsKernel)(const struct TapLine *, const void *from, int64_t from_row, void *to);
// Adds likewise what AddTapsKernel would find in `from`: the sum over channels c of g[r * g_row + c] * w[c * w_row +
// k], in their order from zero. Reads up to one vector less an element past the taps of w.
typedef void (*AddProductsKernel)(const struct TapLine *, const void *g, int64_t g_row, int64_t channels, const void *w,
                                  int64_t w_row, void *to);

// The sum of rows of n elements, step and row bytes apart, in an order that depends on rows and n alone.
typedef double (*SumKernel)(const char *from, int64_t step, int64_t row, int64_t rows, int64_t n);
// sums[c] = what SumKernel gives for channel c, for channels that lie side by side; pixels are step bytes apart.
typedef void (*SumChannelsKernel)(const char *from, int64_t step, int64_t row, int64_t rows, int64_t n,
                                  int64_t channels, double *sums);

// What is known of some numbers: the bits of their largest finite magnitude, whether any is inf or NaN, and whether any
// is -0. A kernel adds to it what it finds; a magnitude in bits fits in 63 of them.
struct Magnitudes {
    int64_t largest;
    int nonfinite, minus_zero;
};
typedef void (*ScanKernel)(const void *from, int64_t n, struct Magnitudes *);
// to[i] += from[i] in units of a grid, to nearest even. What is then beyond +-most, 2^62 at most, counts as one of
// these, and so does NaN. scale: factors whose product is one over the unit; the second one is for float64.
struct Grid { double scale[2], most; };
typedef void (*AddToGridKernel)(const void *from, int64_t *to, int64_t n, const struct Grid *);
// to[i] = from[i] units, |from[i]| <= 2^62, rounded once to nearest even; or, odd, so that rounding float32 to 16 bits
// is the one that counts. The unit is a power of two, at least the smallest number of the type that is rounded to.
typedef void (*FromGridKernel)(const int64_t *from, void *to, int64_t n, double unit, int odd);

// One direction of a formula.
struct FormulaKernels {
    const char *name;
    int inputs;  // 1: x; 2: x and g
    bool (*accepts)(const FormulaParameters *);
    ElementwiseKernel kernel[DTYPE_COUNT][STORE_COUNT];
};

// All of them in one direction, which elementwise.cpp defines.
struct FormulaTable { struct FormulaKernels formula[MAX_FORMULAS / 2]; };
#define INFINIOP_FORMULAS_(direction, isa) infiniop_##direction##_##isa
#define INFINIOP_FORMULAS(direction, isa) INFINIOP_FORMULAS_(direction, isa)

struct KernelTable {
    const char *isa;
    int formula_count;                                   // of both directions
    const struct FormulaKernels *formula[MAX_FORMULAS];  // gradients first
    ConvertKernel convert[DTYPE_COUNT][DTYPE_COUNT];     // [from][to]
    TransposeKernel transpose[DTYPE_COUNT];              // F16, BF16, F32, F64
    TransposeKernel widen_transpose[DTYPE_COUNT];        // F16, BF16, F32, F64: to the compute type
    TransposeToKernel transpose_to[DTYPE_COUNT];         // BF16, F32, F64
    PadKernel pad_rows;
    StreamKernel stream_rows;
    PadKernel pad_every_other;        // 4-byte elements, two apart in the source
    RegisterTiles gemm[DTYPE_COUNT];  // F32, F64
    RegisterTiles dot2;               // by pairs of bfloat16, the earlier step in the upper half:
                                      // a, indirection, a_offset and a_step count bfloat16, b
                                      // pairs; to be called where infiniop_dot2
    VnniKernels vnni;
    PartKernels parts[DTYPE_COUNT];  // F16, BF16, F32; null without AVX-512
    AmxKernels amx;
    DotKernel dot[DTYPE_COUNT];                            // F32, F64
    PackLanesKernel pack_lanes[DTYPE_COUNT];               // F16, BF16, F32, F64
    UnpackLanesKernel unpack_lanes[DTYPE_COUNT];           // F16, BF16, F32, F64
    SpreadKernel spread[DTYPE_COUNT];                      // F16, BF16, F32, F64
    StencilKernel stencil[DTYPE_COUNT];                    // F32, F64
    StencilPixelsKernel stencil_pixels[DTYPE_COUNT];       // F16, BF16: null without AVX-512; F32, F64: or AVX2 on x86
    StencilDotKernel stencil_dot[DTYPE_COUNT];             // F32, F64
    StencilDotPixelsKernel stencil_dot_pixels;             // F32
    NonfiniteKernel has_nonfinite[DTYPE_COUNT];            // F32, F64
    GroupStencilKernel group_stencil[DTYPE_COUNT];         // F32, F64; BF16: by pairs, null without AVX-512
    GroupStencilDotKernel group_stencil_dot[DTYPE_COUNT];  // the same
    TakeTapsKernel take_taps[DTYPE_COUNT];                 // F16, BF16, F32, F64: from
    AddTapsKernel add_taps[DTYPE_COUNT];                   // F32, F64
    AddProductsKernel add_products[DTYPE_COUNT];           // F32, F64
    SumChannelsKernel sum_channels[DTYPE_COUNT];           // F16, BF16, F32, F64
    SumKernel sum_rows[DTYPE_COUNT];                       // F16, BF16, F32, F64
    AddToRowsKernel add_to_rows[DTYPE_COUNT];              // F32, F64
    ScanKernel scan[DTYPE_COUNT];                          // F16, BF16, F32, F64
    AddToGridKernel add_to_grid[DTYPE_COUNT];              // F16, BF16, F32, F64
    FromGridKernel from_grid[DTYPE_COUNT];                 // F32, F64
};

extern const struct KernelTable infiniop_kernels_generic;
extern const struct KernelTable infiniop_kernels_avx2;
extern const struct KernelTable infiniop_kernels_avx512;

// The table for this CPU, or the one that INFINIOP_CY_ISA (infiniop_forced_isa, else null) names; null with the
// problem in words where that cannot run. Chosen once, when the library is loaded.
extern const struct KernelTable *const infiniop_kernels;
extern const char *const infiniop_forced_isa;
extern const char *infiniop_kernels_problem;
extern const char *const infiniop_isa;   // the name that was chosen; amx and avx512 share a table
extern const bool infiniop_avx512_bf16;  // whether this CPU has it: a virtual machine may have AMX and mask that
extern const bool infiniop_dot2;         // whether the chosen table's dot2 tiles run on this CPU, and fast
bool infiniop_amx(void);                 // whether its AMX kernels do; asks the system for them on the first call
// Names of the tables compiled in, null-terminated, best first.
const char *const *infiniop_compiled_isas(void);
