// The part of onnxruntime's stable C ABI that is called here: what a custom-op library needs, and
// sessions.
//
// The onnxruntime wheels ship no headers, and a header pins a library to the version it came from.
// The ABI itself is small and append-only: `OrtApi` is a table of function pointers whose order
// never changes, so naming the slots that are called here is enough to run on every later version.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lucid_fx::ort {

struct Status;
struct Env;
struct Session;
struct SessionOptions;
struct RunOptions;
struct MemoryInfo;
struct CustomOpDomain;
struct KernelInfo;
struct KernelContext;
struct Value;
struct TensorInfo;  // OrtTensorTypeAndShapeInfo
struct ShapeInferContext;
struct Attribute;  // OrtOpAttr

enum StatusCode : int { kFail = 1, kInvalidArgument = 2, kRuntimeException = 6 };
enum ElementType : int {
  kUndefined = 0,  // as the type of an operand: any
  kFloat32 = 1,
  kUint8 = 2,
  kFloat16 = 10,
  kFloat64 = 11,
  kBFloat16 = 16
};
enum Characteristic : int { kRequired = 0, kOptional = 1 };
enum AttributeType : int { kInt = 1 };
enum GraphOptimization : int { kOptimizeNothing = 0, kOptimizeAll = 99 };
enum LogSeverity : int { kFatal = 4 };
enum AllocatorType : int { kArenaAllocator = 1 };
enum MemoryType : int { kDefaultMemory = 0 };

// The lowest API version that has every slot below and reads every field of CustomOp.
constexpr uint32_t kApiVersion = 18;

struct ApiBase {
  const void* const* (*GetApi)(uint32_t version);  // the slots of OrtApi, or null
  const char* (*GetVersionString)();
};

// SLOT(index in OrtApi, name, result, arguments)
#define LUCID_FX_ORT_SLOTS(SLOT)                                                                  \
  SLOT(0, CreateStatus, Status*, (int code, const char* message))                                 \
  SLOT(2, GetErrorMessage, const char*, (const Status* status))                                   \
  SLOT(3, CreateEnv, Status*, (int severity, const char* id, Env** out))                          \
  SLOT(7, CreateSession, Status*,                                                                 \
       (const Env* env, const char* path, const SessionOptions* options, Session** out))          \
  SLOT(8, CreateSessionFromArray, Status*,                                                        \
       (const Env* env, const void* model, size_t size, const SessionOptions* options,            \
        Session** out))                                                                           \
  SLOT(9, Run, Status*,                                                                           \
       (Session * session, const RunOptions* options, const char* const* input_names,             \
        const Value* const* inputs, size_t input_count, const char* const* output_names,          \
        size_t output_count, Value** outputs))                                                    \
  SLOT(10, CreateSessionOptions, Status*, (SessionOptions * *out))                                \
  SLOT(22, SetSessionLogSeverityLevel, Status*, (SessionOptions * options, int severity))         \
  SLOT(23, SetSessionGraphOptimizationLevel, Status*, (SessionOptions * options, int level))      \
  SLOT(24, SetIntraOpNumThreads, Status*, (SessionOptions * options, int threads))                \
  SLOT(26, CreateCustomOpDomain, Status*, (const char* domain, CustomOpDomain** out))             \
  SLOT(27, CustomOpDomain_Add, Status*, (CustomOpDomain * domain, const struct CustomOp* op))     \
  SLOT(28, AddCustomOpDomain, Status*, (SessionOptions * options, CustomOpDomain * domain))       \
  SLOT(49, CreateTensorWithDataAsOrtValue, Status*,                                               \
       (const MemoryInfo* where, void* data, size_t bytes, const int64_t* dims, size_t rank,      \
        int type, Value** out))                                                                   \
  SLOT(51, GetTensorMutableData, Status*, (Value * value, void** out))                            \
  SLOT(57, CreateTensorTypeAndShapeInfo, Status*, (TensorInfo * *out))                            \
  SLOT(58, SetTensorElementType, Status*, (TensorInfo * info, int type))                          \
  SLOT(59, SetDimensions, Status*, (TensorInfo * info, const int64_t* dims, size_t rank))         \
  SLOT(60, GetTensorElementType, Status*, (const TensorInfo* info, int* out))                     \
  SLOT(61, GetDimensionsCount, Status*, (const TensorInfo* info, size_t* out))                    \
  SLOT(62, GetDimensions, Status*, (const TensorInfo* info, int64_t* dims, size_t rank))          \
  SLOT(63, GetSymbolicDimensions, Status*,                                                        \
       (const TensorInfo* info, const char** names, size_t rank))                                 \
  SLOT(65, GetTensorTypeAndShape, Status*, (const Value* value, TensorInfo** out))                \
  SLOT(69, CreateCpuMemoryInfo, Status*, (int allocator, int memory, MemoryInfo** out))           \
  SLOT(85, KernelInfoGetAttribute_float, Status*,                                                 \
       (const KernelInfo* info, const char* name, float* out))                                    \
  SLOT(86, KernelInfoGetAttribute_int64, Status*,                                                 \
       (const KernelInfo* info, const char* name, int64_t* out))                                  \
  SLOT(87, KernelInfoGetAttribute_string, Status*,                                                \
       (const KernelInfo* info, const char* name, char* out, size_t* size))                       \
  SLOT(88, KernelContext_GetInputCount, Status*, (const KernelContext* context, size_t* out))     \
  SLOT(90, KernelContext_GetInput, Status*,                                                       \
       (const KernelContext* context, size_t index, const Value** out))                           \
  SLOT(91, KernelContext_GetOutput, Status*,                                                      \
       (KernelContext * context, size_t index, const int64_t* dims, size_t rank, Value** out))    \
  SLOT(92, ReleaseEnv, void, (Env * env))                                                         \
  SLOT(93, ReleaseStatus, void, (Status * status))                                                \
  SLOT(94, ReleaseMemoryInfo, void, (MemoryInfo * info))                                          \
  SLOT(95, ReleaseSession, void, (Session * session))                                             \
  SLOT(96, ReleaseValue, void, (Value * value))                                                   \
  SLOT(99, ReleaseTensorTypeAndShapeInfo, void, (TensorInfo * info))                              \
  SLOT(100, ReleaseSessionOptions, void, (SessionOptions * options))                              \
  SLOT(101, ReleaseCustomOpDomain, void, (CustomOpDomain * domain))                               \
  SLOT(130, AddSessionConfigEntry, Status*,                                                       \
       (SessionOptions * options, const char* key, const char* value))                            \
  SLOT(230, KernelInfo_GetInputCount, Status*, (const KernelInfo* info, size_t* out))             \
  SLOT(232, KernelInfo_GetInputName, Status*,                                                     \
       (const KernelInfo* info, size_t index, char* out, size_t* size))                           \
  SLOT(244, KernelInfo_GetNodeName, Status*, (const KernelInfo* info, char* out, size_t* size))   \
  SLOT(249, KernelInfoGetConstantInput_tensor, Status*,                                           \
       (const KernelInfo* info, size_t index, int* is_constant, const Value** out))               \
  SLOT(268, ShapeInferContext_GetInputTypeShape, Status*,                                         \
       (const ShapeInferContext* context, size_t index, TensorInfo** out))                        \
  SLOT(269, ShapeInferContext_GetAttribute, Status*,                                              \
       (const ShapeInferContext* context, const char* name, const Attribute** out))               \
  SLOT(270, ShapeInferContext_SetOutputTypeShape, Status*,                                        \
       (const ShapeInferContext* context, size_t index, const TensorInfo* info))                  \
  SLOT(271, SetSymbolicDimensions, Status*, (TensorInfo * info, const char** names, size_t rank)) \
  SLOT(272, ReadOpAttr, Status*,                                                                  \
       (const Attribute* attribute, int type, void* data, size_t size, size_t* out))              \
  SLOT(274, KernelContext_ParallelFor, Status*,                                                   \
       (const KernelContext* context, void (*task)(void* argument, size_t index), size_t tasks,   \
        size_t batches, void* argument))

// The slots above as typed function pointers, copied out of the table once per registration.
struct Api {
#define LUCID_FX_ORT_MEMBER(index, name, result, arguments) result(*name) arguments;
  LUCID_FX_ORT_SLOTS(LUCID_FX_ORT_MEMBER)
#undef LUCID_FX_ORT_MEMBER

  static Api bind(const void* const* table) {
    Api api;
#define LUCID_FX_ORT_BIND(index, name, result, arguments) \
  api.name = reinterpret_cast<result(*) arguments>(const_cast<void*>(table[index]));
    LUCID_FX_ORT_SLOTS(LUCID_FX_ORT_BIND)
#undef LUCID_FX_ORT_BIND
    return api;
  }

  // The first slot alone, to report that a table is too old to bind.
  static decltype(CreateStatus) bind_create_status(const void* const* table) {
    return reinterpret_cast<decltype(CreateStatus)>(const_cast<void*>(table[0]));
  }
};

// OrtCustomOp. `version` tells onnxruntime how many of the fields it may read.
struct CustomOp {
  uint32_t version;
  void* (*CreateKernel)(const CustomOp*, const void* api, const KernelInfo*);  // V2 is used instead
  const char* (*GetName)(const CustomOp*);
  const char* (*GetExecutionProviderType)(const CustomOp*);  // null result: CPU
  int (*GetInputType)(const CustomOp*, size_t index);
  size_t (*GetInputTypeCount)(const CustomOp*);
  int (*GetOutputType)(const CustomOp*, size_t index);
  size_t (*GetOutputTypeCount)(const CustomOp*);
  void (*KernelCompute)(void* kernel, KernelContext*);  // V2 is used instead
  void (*KernelDestroy)(void* kernel);
  int (*GetInputCharacteristic)(const CustomOp*, size_t index);
  int (*GetOutputCharacteristic)(const CustomOp*, size_t index);
  int (*GetInputMemoryType)(const CustomOp*, size_t index);
  int (*GetVariadicInputMinArity)(const CustomOp*);
  int (*GetVariadicInputHomogeneity)(const CustomOp*);
  int (*GetVariadicOutputMinArity)(const CustomOp*);
  int (*GetVariadicOutputHomogeneity)(const CustomOp*);
  Status* (*CreateKernelV2)(const CustomOp*, const void* api, const KernelInfo*, void** kernel);
  Status* (*KernelComputeV2)(void* kernel, KernelContext*);
  Status* (*InferOutputShapeFn)(const CustomOp*, ShapeInferContext*);
  int (*GetStartVersion)(const CustomOp*);
  int (*GetEndVersion)(const CustomOp*);
  size_t (*GetMayInplace)(int** inputs, int** outputs);
  void (*ReleaseMayInplace)(int* inputs, int* outputs);
  size_t (*GetAliasMap)(int** inputs, int** outputs);
  void (*ReleaseAliasMap)(int* inputs, int* outputs);
};

static_assert(sizeof(CustomOp) == 26 * sizeof(void*), "the layout of OrtCustomOp is fixed");

}  // namespace lucid_fx::ort
