/* The C API of liblucid_fx, for tests, tools and languages other than C++.
 *
 * Strings are UTF-8. A function that can fail returns 0, or 1 with the reason in lfx_last_error().
 */
#ifndef LUCID_FX_C_API_H_
#define LUCID_FX_C_API_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LFX_API __attribute__((visibility("default")))
#define LFX_ABI_VERSION 5 /* changes with any signature or structure below */

/* Element types, numbered as in ONNX. */
enum { LFX_FLOAT32 = 1, LFX_UINT8 = 2, LFX_INT8 = 3, LFX_FLOAT16 = 10, LFX_FLOAT64 = 11 };

LFX_API int32_t lfx_abi_version(void);
LFX_API const char* lfx_version(void);
LFX_API const char* lfx_last_error(void); /* of the calling thread */

/* The best instruction set of this machine: "scalar", "avx2", "avxvnni", "avx512", "avx512vnni",
 * "neon" or "neondot". */
LFX_API const char* lfx_cpu_isa(void);

/* The i-th kernel set that this machine can run, best first, or null. */
LFX_API const char* lfx_kernel_isa(size_t i);

typedef struct {
  const char* kind; /* "minmax", "moving_average", "per_channel", ... as the op's attribute */
  int64_t bins;
  float averaging_constant;
  int64_t ch_axis;
} lfx_observer_config;

typedef struct {
  const char* kind;
  int64_t batches, elements, max_elements, nan_count, inf_count;
  float overall_min, overall_max;
  float average_min, average_max;
  float histogram_min, histogram_max;
  int64_t channels; /* 0 before the first batch, and for the kinds without */
  int64_t bins;
  int64_t columns; /* of a Gram matrix */
} lfx_observer_state;

/* Records one batch of float32, float16 or float64. `isa` forces a kernel set by name; null takes
 * the best. */
LFX_API int lfx_observer_update(const char* key, const lfx_observer_config* config, int32_t type,
                                const void* data, const int64_t* dims, size_t rank,
                                const char* isa);

/* Reads the state; with kind = null when nothing was recorded. The arrays may be null; otherwise
 * they hold `channels` and `bins` elements as *state says on entry, and it is an error when the
 * observer has another number by now. */
LFX_API int lfx_observer_read(const char* key, lfx_observer_state* state, float* channel_min,
                              float* channel_max, int64_t* histogram);

/* The sum of x^T x over all rows x that were observed, [columns][columns], of kind "gram". */
LFX_API int lfx_observer_gram(const char* key, double* gram, int64_t columns);

/* Replaces the state by one read earlier; Gram matrices are not loaded. */
LFX_API int lfx_observer_load(const char* key, const lfx_observer_config* config,
                              const lfx_observer_state* state, const float* channel_min,
                              const float* channel_max, const int64_t* histogram);

/* Forgets all observers whose key starts with `prefix`. */
LFX_API void lfx_observer_reset(const char* prefix);

/* How many NaN and infinities all observers saw whose key starts with `prefix`. */
LFX_API int64_t lfx_observer_nonfinite(const char* prefix);

/* A model that runs for what its ops do, as those observers: in a session of the library's own, in
 * the thread that asks. onnxruntime must have loaded this library before. */
typedef struct lfx_session lfx_session;

typedef struct {
  const void* model; /* serialized, `size` bytes of it; null: it is in the file */
  size_t size;
  const char* path;
  const char* output; /* the name of any of its outputs */
  int32_t optimize;
  const char* const* entries; /* onnxruntime's session configuration: keys and values in turn */
  size_t entry_count;
} lfx_session_source;

LFX_API int lfx_session_open(const lfx_session_source* source, lfx_session** session);
LFX_API void lfx_session_close(lfx_session* session); /* lanes that still run keep it open */

/* Samples side by side, each in one of at most `threads` threads, that of the caller included; every
 * observer takes them in the order in which they are put. To put one copies it, and may run some. It
 * is an error to put one when another has failed. lfx_lanes_finish runs what is left, and its error
 * is that of the first sample that failed; then others can be put. lfx_lanes_done counts those that
 * were put since, or before while there are none, and ran to their end. */
typedef struct lfx_lanes lfx_lanes;

typedef struct {
  const char* name; /* of the model's input */
  int32_t type;     /* of an element, numbered as in ONNX; no strings */
  const void* data;
  size_t bytes;
  const int64_t* dims;
  size_t rank;
} lfx_array;

LFX_API int lfx_lanes_new(const lfx_session* session, size_t threads, lfx_lanes** lanes);
LFX_API int lfx_lanes_put(lfx_lanes* lanes, const lfx_array* inputs, size_t count);
LFX_API int lfx_lanes_finish(lfx_lanes* lanes);
LFX_API int64_t lfx_lanes_done(const lfx_lanes* lanes);
LFX_API void lfx_lanes_free(lfx_lanes* lanes);

/* Block-scaled tensors. Every array is contiguous and row-major; results do not depend on
 * `threads` (at least 1) and `isa` (a kernel set by name, null for the best). */

/* Where codes lie in memory: fields of `bits` (2, 4, 8), the first in the lowest bits of a byte, in
 * lines along `axis`, each padded with zeros to whole units of `unit` (1, 4) bytes. The axis is
 * swapped with the last one. A code in memory of its own is a byte. */
typedef struct {
  const int64_t* dims;
  size_t rank; /* at least 1 */
  size_t axis;
  int32_t bits, unit;
} lfx_block_packing;

enum { LFX_BLOCK_HALF_AWAY = 0, LFX_BLOCK_HALF_EVEN = 1, LFX_BLOCK_SMALL_FLOAT = 2 };

typedef struct {
  int32_t kind;
  float low, high;             /* the quotient is clamped to them */
  int32_t mantissa_bits, bias; /* of a small float */
  int32_t bits;                /* of a code */
} lfx_block_encoder;

LFX_API int lfx_block_pack(const lfx_block_packing* packing, const uint8_t* codes, uint8_t* data,
                           int32_t threads, const char* isa);

/* Fields of `sign` bits are sign-extended; 0 for none. */
LFX_API int lfx_block_unpack(const lfx_block_packing* packing, const uint8_t* data, int32_t sign,
                             uint8_t* codes, int32_t threads, const char* isa);

/* The code nearest to x / scale, packed. `block` holds the extent of a block along each axis, and
 * `scales` a number for each block. *finite is 0 when an element is NaN or infinite. */
LFX_API int lfx_block_quantize(const lfx_block_packing* packing, const int64_t* block,
                               const float* x, const float* scales,
                               const lfx_block_encoder* encoder, uint8_t* data, int32_t* finite,
                               int32_t threads, const char* isa);

/* table[code] * scale, with the low bits of the field as index of 2, 4, ... 256 entries. */
LFX_API int lfx_block_dequantize(const lfx_block_packing* packing, const int64_t* block,
                                 const uint8_t* data, const float* scales, const float* table,
                                 int32_t entries, float* y, int32_t threads, const char* isa);

/* The least and the greatest element of every block; meaningless when *finite is 0. */
LFX_API int lfx_block_extremes(const int64_t* dims, const int64_t* block, size_t rank,
                               const float* x, float* min, float* max, int32_t* finite,
                               int32_t threads, const char* isa);

/* How the codes of a tensor become real, (code - zero_point) * scale clamped to what is needed, and
 * where their grid ends. Real values have zero_point = 0 and scale = 1; no end is an infinity. */
typedef struct {
  float zero_point, scale;
  float needed_low, needed_high;
  float below, above; /* a float value is outside the grid when it is beyond them */
  double low, high;   /* ends of the grid */
} lfx_noise_form;

typedef struct {
  double signal, noise; /* squares of the float values, and of the differences */
  double outside;       /* squares of how far values are outside the grid */
  float largest;        /* absolute difference */
  float low, high;      /* of the float values */
  int64_t elements, clipped;
} lfx_noise_sums;

/* Adds n float values, and their codes of type LFX_UINT8, LFX_INT8 or LFX_FLOAT32, to *sums. Values
 * that are not finite, or 1e16 and more, are left out. `isa` forces a kernel set by name; null
 * takes the best. */
LFX_API int lfx_noise_add(const lfx_noise_form* form, int32_t type, const float* exact,
                          const void* given, size_t n, lfx_noise_sums* sums, const char* isa);

/* Matrix products with packed weights, as the op lucid_fx.MatMulInt4 computes them; the layout of
 * the packed arrays is described in matmul/matmul.h. */
typedef struct {
  int64_t k, n, block; /* rows and columns of the weights, rows under one scale */
  int64_t bits;        /* 2, 4 or 8 */
} lfx_matmul_layout;

/* The sizes that follow: columns in panels of 16, blocks of each, bytes of codes in a panel. */
LFX_API int lfx_matmul_sizes(const lfx_matmul_layout* layout, int64_t* panels, int64_t* blocks,
                             int64_t* panel_bytes);

/* Codes of k rows and n columns, row-major, a byte each and unsigned, and back. */
LFX_API int lfx_matmul_pack(const lfx_matmul_layout* layout, const uint8_t* codes, uint8_t* packed,
                            int32_t threads);
LFX_API int lfx_matmul_unpack(const lfx_matmul_layout* layout, const uint8_t* packed,
                              uint8_t* codes, int32_t threads);

/* Real weights of k rows and n columns at w[row * row_stride + column * column_stride]. First their
 * extremes under each scale, [blocks][n]; *finite is 0 when a weight is NaN or infinite. Then codes
 * clamp(rint(w / scale) + zero, low, 2^bits - 1), [k][n]; zeros = null stands for 2^(bits - 1). */
LFX_API int lfx_matmul_extremes(const lfx_matmul_layout* layout, const float* w, int64_t row_stride,
                                int64_t column_stride, float* least, float* greatest,
                                int32_t* finite, int32_t threads);
LFX_API int lfx_matmul_encode(const lfx_matmul_layout* layout, const float* w, int64_t row_stride,
                              int64_t column_stride, const float* scales, const uint8_t* zeros,
                              int32_t low, uint8_t* codes, int32_t threads);

/* y[m, n] = a[m, k] * W + bias. `scale_type` is f32, f16, bf16 or ue4m3; `zeros` and `bias` may be
 * null; `compute` is int8 or float32; `isa` forces a kernel set by name, null takes the best. */
LFX_API int lfx_matmul(const lfx_matmul_layout* layout, const uint8_t* packed, const void* scales,
                       const char* scale_type, float global_scale, const uint8_t* zeros,
                       const float* bias, const char* compute, const float* a, int64_t m, float* y,
                       int32_t threads, const char* isa);

/* Reads all bytes and returns a sum of them: how fast memory is, for benchmarks. */
LFX_API uint64_t lfx_read_bytes(const void* data, size_t bytes, int32_t threads);

/* The i-th kernel set built into this library, best first, or null; *runs tells whether this
 * machine can run it. */
LFX_API const char* lfx_matmul_isa(size_t i, int32_t* runs);

#ifdef __cplusplus
}
#endif

#endif /* LUCID_FX_C_API_H_ */
