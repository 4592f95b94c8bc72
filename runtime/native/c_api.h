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
#define LFX_ABI_VERSION 2 /* changes with any signature or structure below */

/* Element types of lfx_observer_update, numbered as in ONNX. */
enum { LFX_FLOAT32 = 1, LFX_FLOAT16 = 10, LFX_FLOAT64 = 11 };

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
} lfx_observer_state;

/* Records one batch. `isa` forces a kernel set by name; null takes the best. */
LFX_API int lfx_observer_update(const char* key, const lfx_observer_config* config, int32_t type,
                                const void* data, const int64_t* dims, size_t rank,
                                const char* isa);

/* Reads the state; with kind = null when nothing was recorded. The arrays may be null; otherwise
 * they hold `channels` and `bins` elements as *state says on entry, and it is an error when the
 * observer has another number by now. */
LFX_API int lfx_observer_read(const char* key, lfx_observer_state* state, float* channel_min,
                              float* channel_max, int64_t* histogram);

/* Replaces the state by one read earlier. */
LFX_API int lfx_observer_load(const char* key, const lfx_observer_config* config,
                              const lfx_observer_state* state, const float* channel_min,
                              const float* channel_max, const int64_t* histogram);

/* Forgets all observers whose key starts with `prefix`. */
LFX_API void lfx_observer_reset(const char* prefix);

#ifdef __cplusplus
}
#endif

#endif /* LUCID_FX_C_API_H_ */
