/* The C interface of the numrsc runtime. Generated from runtime-min/src/capi.rs: do not edit.
 *
 * Functions that can fail give an error, to be freed by the caller, or NULL. */

#ifndef NUMRSC_H
#define NUMRSC_H

#include <stddef.h>
#include <stdint.h>

// Element types: the numbers of ONNX's `TensorProto.DataType`. Types narrower than a byte take one byte per element.
typedef enum numrsc_dtype {
  // The elements are `numrsc_tensor`.
  NUMRSC_SEQUENCE = 0,
  NUMRSC_F32 = 1,
  NUMRSC_U8 = 2,
  NUMRSC_I8 = 3,
  NUMRSC_U16 = 4,
  NUMRSC_I16 = 5,
  NUMRSC_I32 = 6,
  NUMRSC_I64 = 7,
  // The elements are `numrsc_string`.
  NUMRSC_STR = 8,
  NUMRSC_BOOL = 9,
  NUMRSC_F16 = 10,
  NUMRSC_F64 = 11,
  NUMRSC_U32 = 12,
  NUMRSC_U64 = 13,
  NUMRSC_BF16 = 16,
  NUMRSC_F8E4M3 = 17,
  NUMRSC_F8E4M3FNUZ = 18,
  NUMRSC_F8E5M2 = 19,
  NUMRSC_F8E5M2FNUZ = 20,
  NUMRSC_U4 = 21,
  NUMRSC_I4 = 22,
  NUMRSC_F4E2M1 = 23,
  NUMRSC_F8E8M0 = 24,
  NUMRSC_U2 = 25,
  NUMRSC_I2 = 26,
} numrsc_dtype;

// Ends runs of a context. Used by any number of threads at once.
typedef struct numrsc_canceller numrsc_canceller;

// What a thread needs to run a model. Used by one thread at a time.
typedef struct numrsc_context numrsc_context;

// What went wrong.
typedef struct numrsc_error numrsc_error;

// A loaded model. It may be used by several threads at once, and freed before its contexts.
typedef struct numrsc_model numrsc_model;

// What a running model sees of its surroundings; only the runtime makes one.
typedef struct numrsc_run_context numrsc_run_context;

// An input or output of a model. Lives as long as the model.
typedef struct numrsc_port {
  const char *name;
  // A `numrsc_dtype`: of the tensor, or of the tensors within the sequence.
  int32_t dtype;
  // 0 for a tensor, 1 for a sequence of tensors, 2 for a sequence of such sequences.
  int32_t depth;
  // The number of axes, or -1 if it is open (within sequences).
  int64_t rank;
  // The size of each axis, or -1 if it is known only when running.
  const int64_t *dims;
  // The whole type as text.
  const char *type_text;
} numrsc_port;

// A tensor: elements in order of the last axis first. A sequence has one axis, its length.
typedef struct numrsc_tensor {
  const void *data;
  // A `numrsc_dtype`.
  int32_t dtype;
  size_t rank;
  const size_t *dims;
} numrsc_tensor;

// A buffer for the output at a position.
typedef struct numrsc_buffer {
  size_t output;
  void *data;
  size_t bytes;
} numrsc_buffer;

// A string of any bytes; it does not end with 0.
typedef struct numrsc_string {
  const char *data;
  size_t length;
} numrsc_string;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of artifacts that this library reads.
uint32_t numrsc_format_version(void);

// Load an artifact. Weights are mapped, not read. The file must not be written to while the model lives.
struct numrsc_error *numrsc_load(const char *path, struct numrsc_model **model);

// As `numrsc_load`, and compare the weights with their checksum.
struct numrsc_error *numrsc_load_verified(const char *path, struct numrsc_model **model);

// Make a model of what is linked into the program, under the names in the header that `numrsc compile --emit obj` (or `staticlib`,
// `so`) writes: for a model `m` these are `m_manifest`, `m_manifest_size`, `m_entry`, `m_weights` and `m_weights_size`. Nothing is copied, so all of it
// must stay where it is while the model and its contexts live.
struct numrsc_error *numrsc_from_parts(const uint8_t *manifest,
                                       uint64_t manifest_size,
                                       int32_t (*entry)(struct numrsc_run_context *context),
                                       const uint8_t *weights,
                                       uint64_t weights_size,
                                       struct numrsc_model **model);

// Null is allowed.
void numrsc_model_free(struct numrsc_model *model);

size_t numrsc_input_count(const struct numrsc_model *model);

size_t numrsc_output_count(const struct numrsc_model *model);

// Describe an input.
struct numrsc_error *numrsc_input(const struct numrsc_model *model,
                                  size_t position,
                                  struct numrsc_port *port);

// Describe an output.
struct numrsc_error *numrsc_output(const struct numrsc_model *model,
                                   size_t position,
                                   struct numrsc_port *port);

// Make a context that runs on that many threads, the calling one included; 0 is as many as the process may use.
struct numrsc_error *numrsc_context_new(const struct numrsc_model *model,
                                        size_t threads,
                                        struct numrsc_context **context);

// Compute with subnormal numbers, those below 1.2e-38 (`keep` is 1), or take them for 0 as by default (0): the former is exact, but takes many processors a
// hundred times as long for each of them.
struct numrsc_error *numrsc_keep_subnormals(struct numrsc_context *context,
                                            int32_t keep);

// Make what ends runs of a context from other threads. It may be freed before or after the context.
struct numrsc_error *numrsc_canceller_new(struct numrsc_context *context,
                                          struct numrsc_canceller **canceller);

// End the run under way, if there is one, and all that follow until `numrsc_reset`. Loops look for it once a round.
void numrsc_cancel(const struct numrsc_canceller *canceller);

// Let runs begin again.
void numrsc_reset(const struct numrsc_canceller *canceller);

// Null is allowed.
void numrsc_canceller_free(struct numrsc_canceller *canceller);

// Null is allowed.
void numrsc_context_free(struct numrsc_context *context);

// Run with inputs in the order of the model. `names` is null, or as many names, and then the order is free.
struct numrsc_error *numrsc_run(struct numrsc_context *context,
                                const char *const *names,
                                const struct numrsc_tensor *inputs,
                                size_t input_count);

// As `numrsc_run`, and write some outputs to buffers of the caller.
struct numrsc_error *numrsc_run_into(struct numrsc_context *context,
                                     const char *const *names,
                                     const struct numrsc_tensor *inputs,
                                     size_t input_count,
                                     const struct numrsc_buffer *buffers,
                                     size_t buffer_count);

// An output of the last run. What `tensor` points to lives until the context runs again or is freed.
struct numrsc_error *numrsc_result(struct numrsc_context *context,
                                   size_t position,
                                   struct numrsc_tensor *tensor);

// An output by its name.
struct numrsc_error *numrsc_result_named(struct numrsc_context *context,
                                         const char *name,
                                         struct numrsc_tensor *tensor);

// The shape of an output of the last run, also of one in a buffer of the caller.
struct numrsc_error *numrsc_result_shape(const struct numrsc_context *context,
                                         size_t position,
                                         size_t *rank,
                                         const size_t **dims);

// Lives as long as the error. Of null it is empty.
const char *numrsc_error_text(const struct numrsc_error *error);

// Null is allowed.
void numrsc_error_free(struct numrsc_error *error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* NUMRSC_H */
