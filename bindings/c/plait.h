/* Plait: an embeddable engine that reads ONNX language models, generates from them and fine-tunes them.
 *
 *   plait_model_open("model-directory", NULL, &model);
 *   plait_generator_create(model, NULL, &generator);
 *   plait_generator_submit_text(generator, "Once upon a time", -1, NULL, NULL, &request);
 *   while (plait_request_next(request, -1, &event) == PLAIT_OK && event.kind != PLAIT_EVENT_END) ...
 *
 * This header is the whole interface, C11 and C++. It only grows: numbers, names and layouts do not change.
 *
 * Status. Every call returns a plait_status, except a few that return a constant or a text. A call that fails sets
 *   its outputs to NULL or 0 and plait_last_error(). No call aborts, exits, prints or throws.
 * Handles. A handle is one reference to an object. Objects keep what they were created from: handles may be released
 *   in any order. Releasing NULL does nothing; a released handle is always detected (PLAIT_CLOSED), also by its
 *   release function, without harm. Handles are encoded numbers: do not dereference them.
 * Threads. Any function may be called from any thread at any time, with any handle; details for each kind of object
 *   are at its functions. There are no callbacks: the host pulls.
 * Text is UTF-8. Texts that the host passes have a length in bytes; -1 means up to the first NUL.
 * Results of variable size (texts, token ids, logits, saved bytes) are tensors that the caller releases.
 * Structs that the library fills start with struct_size, which the caller sets to sizeof the struct: fields added in
 *   later versions are filled only for callers that know them.
 * Times are in milliseconds as parameters (negative: no limit) and in seconds in results. Sizes are int64_t, token
 *   ids int32_t.
 */
#ifndef PLAIT_H
#define PLAIT_H

#include <stdint.h>

#if defined(__GNUC__)
#define PLAIT_API __attribute__((visibility("default")))
#else
#define PLAIT_API
#endif

/* Enums may hold any int, in C++ as in C: values from the host are checked. */
#ifdef __cplusplus
#define PLAIT_INT : int
extern "C" {
#else
#define PLAIT_INT
#endif

/* ---- Status ------------------------------------------------------------------------------------------------- */

typedef enum plait_status PLAIT_INT {
  PLAIT_OK = 0,
  PLAIT_INVALID_ARGUMENT = 1, /* invalid use */
  PLAIT_NOT_FOUND = 2,        /* no file, tensor or option of that name */
  PLAIT_BAD_MODEL = 3,        /* a model's file violates its format */
  PLAIT_UNSUPPORTED = 4,      /* valid, but not supported */
  PLAIT_OUT_OF_MEMORY = 5,    /* the caller's memory limit, or the machine's memory, does not suffice */
  PLAIT_OVERLOADED = 6,       /* the queue is full: try again later */
  PLAIT_CANCELLED = 7,
  PLAIT_TIMEOUT = 8,  /* not within the given time: waiting calls may be repeated */
  PLAIT_IO = 9,       /* reading or writing failed in the operating system */
  PLAIT_NUMERIC = 10, /* NaN where numbers were needed */
  PLAIT_CLOSED = 11,  /* the handle was released, or its object shut down */
  PLAIT_INTERNAL = 12 /* a bug in Plait */
} plait_status;

/* "0.1.0". Constant. */
PLAIT_API const char* plait_version(void);
/* "invalid_argument"; "unknown" for an invalid number. Constant. */
PLAIT_API const char* plait_status_name(plait_status status);
/* Message and hint of the last call that failed on this thread; "" if there is none. Valid until the next call that
 * fails on this thread. */
PLAIT_API const char* plait_last_error(void);
PLAIT_API const char* plait_last_hint(void);
/* For libraries on top of this one: sets this thread's message and hint (NULL: ""), and returns the status. */
PLAIT_API plait_status plait_fail(plait_status status, const char* message, const char* hint);

/* ---- Handles ------------------------------------------------------------------------------------------------- */

typedef struct plait_options plait_options;
typedef struct plait_tensor plait_tensor;
typedef struct plait_tokenizer plait_tokenizer;
typedef struct plait_model plait_model;
typedef struct plait_generator plait_generator;
typedef struct plait_request plait_request;
typedef struct plait_session plait_session;
typedef struct plait_world plait_world;
typedef struct plait_trainer plait_trainer;
typedef struct plait_mailbox plait_mailbox;

/* ---- Tensors -------------------------------------------------------------------------------------------------
 * Typed arrays, row-major, at most 8 dimensions. A tensor's dtype, dims and memory never change; the host may write
 * its elements while no call reads them. */

/* Numbers as in ONNX. */
typedef enum plait_dtype PLAIT_INT {
  PLAIT_NONE = 0,
  PLAIT_F32 = 1,
  PLAIT_U8 = 2,
  PLAIT_I8 = 3,
  PLAIT_U16 = 4,
  PLAIT_I16 = 5,
  PLAIT_I32 = 6,
  PLAIT_I64 = 7,
  PLAIT_STRING = 8, /* where the text of each ends, as u64, and then all texts, UTF-8 */
  PLAIT_BOOL = 9, /* one byte each, 0 or 1 */
  PLAIT_F16 = 10,
  PLAIT_F64 = 11,
  PLAIT_U32 = 12,
  PLAIT_U64 = 13,
  PLAIT_C64 = 14,
  PLAIT_C128 = 15,
  PLAIT_BF16 = 16,
  PLAIT_F8E4M3FN = 17,
  PLAIT_F8E4M3FNUZ = 18,
  PLAIT_F8E5M2 = 19,
  PLAIT_F8E5M2FNUZ = 20,
  PLAIT_U4 = 21, /* two per byte, element 0 in the low nibble */
  PLAIT_I4 = 22,
  PLAIT_F4E2M1 = 23,
  PLAIT_F8E8M0 = 24,
  PLAIT_U2 = 25, /* four per byte, element 0 in the lowest bits */
  PLAIT_I2 = 26
} plait_dtype;

/* A tensor of `rank` dims with a copy of `bytes` bytes from `data`; data NULL: zeros. `bytes` must fit dtype and
 * dims. Of strings these are, for each element, where its text ends, in bytes from the first text on, as u64, and then the texts of
 * all in that order; data NULL: empty ones. INVALID_ARGUMENT, OUT_OF_MEMORY. */
PLAIT_API plait_status plait_tensor_copy(plait_dtype dtype, const int64_t* dims, int64_t rank, const void* data,
                                         int64_t bytes, plait_tensor** out);
/* The same without a copy: the host owns `data`, and keeps it valid until the tensor and all that was created from
 * it (a model, its generators, their requests) are released. */
PLAIT_API plait_status plait_tensor_borrow(plait_dtype dtype, const int64_t* dims, int64_t rank, void* data,
                                           int64_t bytes, plait_tensor** out);

typedef struct plait_view {
  int64_t struct_size;
  plait_dtype dtype;
  int32_t rank;
  int64_t dims[8];
  int64_t elements;
  int64_t bytes;
  void* data; /* valid until the tensor is released */
} plait_view;

PLAIT_API plait_status plait_tensor_view(plait_tensor* tensor, plait_view* out);
/* A list of tensors of one dtype, whose elements have 8 to 64 bits, as one tensor [n] of that dtype: a sequence as an input or output
 * of a session, or an optional (of at most one part, which is a list itself for an optional of a sequence). The parts are copied.
 * INVALID_ARGUMENT. */
PLAIT_API plait_status plait_tensor_list(plait_dtype dtype, plait_tensor* const* parts, int64_t count, plait_tensor** out);
/* How many parts such a list has. INVALID_ARGUMENT if the tensor is no list. */
PLAIT_API plait_status plait_tensor_parts(plait_tensor* list, int64_t* count);
/* Part `index`; of numbers it shares the list's memory, which stays as long as one of them does. INVALID_ARGUMENT. */
PLAIT_API plait_status plait_tensor_part(plait_tensor* list, int64_t index, plait_tensor** out);
/* The bytes of a text result, NUL-terminated (use plait_view for its length if it may contain NULs). "" and a last
 * error for other tensors. Valid until the tensor is released. */
PLAIT_API const char* plait_tensor_text(plait_tensor* tensor);
/* An array from NumPy's .npy file, or FILE.npz/NAME from an archive of numpy.savez, in C order. `expected` may be NONE: NumPy has no bf16
 * and no 8-bit floats, so void or unsigned elements of that size are read as those; strings ("<U", "|S") as STRING. NOT_FOUND, IO,
 * BAD_MODEL (damaged), UNSUPPORTED (its elements are neither numbers nor strings). */
PLAIT_API plait_status plait_tensor_read(const char* path, plait_dtype expected, plait_tensor** out);
/* Writes such a file, replacing one of that name. IO; UNSUPPORTED for dtypes below a byte, and strings that are no UTF-8. */
PLAIT_API plait_status plait_tensor_write(plait_tensor* tensor, const char* path);
PLAIT_API plait_status plait_tensor_release(plait_tensor* tensor);
/* For libraries on top of this one: a text result, which plait_tensor_text reads. */
PLAIT_API plait_status plait_tensor_of_text(const char* text, int64_t length, plait_tensor** out);

/* ---- Options -------------------------------------------------------------------------------------------------
 * Keys and values for models, generators, requests, sessions. NULL means no options; they are read only during the
 * call, which rejects keys that are not for it; a generator also takes those of requests, as their defaults.
 * Thread-safe. */

PLAIT_API plait_status plait_options_create(plait_options** out);
/* `value` as text ("0.7", "true", "1,5,7"). Setting a key again replaces its value; repeatable keys ("stop") add
 * one. NOT_FOUND for an unknown key, INVALID_ARGUMENT for an invalid value. */
PLAIT_API plait_status plait_options_set(plait_options* options, const char* key, const char* value, int64_t length);
/* The same of an option that is a tensor ("inputs_embeds", "image_grid_thw"), which is copied. */
PLAIT_API plait_status plait_options_set_tensor(plait_options* options, const char* key, plait_tensor* tensor);
/* All options as JSON: [{"key", "for": ["model", ...], "type", "default", "repeats", "doc"}, ...]. */
PLAIT_API plait_status plait_options_describe(plait_tensor** json);
/* What an object of that kind ("generator", "server", ...) would be created with, as JSON {key: value}: a number, true or
 * false, a text, or a list of texts of a key that repeats; bytes as a number. Defaults where none is set, "" for a number
 * without one. INVALID_ARGUMENT if one of the options is not for it. */
PLAIT_API plait_status plait_options_values(plait_options* options, const char* kind, plait_tensor** json);
PLAIT_API plait_status plait_options_release(plait_options* options);

/* ---- Models --------------------------------------------------------------------------------------------------
 * A graph with the other files of its directory: tokenizer, configurations. Immutable and thread-safe. */

/* `path` is a directory, or an .onnx file, whose directory has the other files. In a directory the model is the
 * file that genai_config.json names, otherwise model.onnx, decoder_model_merged.onnx, the pair decoder_model.onnx
 * and decoder_with_past_model.onnx, decoder_model.onnx with encoder_model.onnx, or the only .onnx file; of these also in its
 * folder onnx. Opening reads the graph and maps the weights; a
 * generator or session loads them. A .gguf file opens as the ONNX model that its metadata describe (docs/convert.md): quantised
 * weights are laid out anew in memory, with their codes. The tokenizer loads in parallel on its own thread (option "tokenizer").
 * NOT_FOUND, BAD_MODEL, UNSUPPORTED, IO, INVALID_ARGUMENT (several candidates).
 * With the option "background" the call finds the files and returns: the rest is read on another thread. The model
 * can be used immediately, including generators created from it; calls wait for the parts they need, and fail with
 * the error that ended the opening. */
PLAIT_API plait_status plait_model_open(const char* path, plait_options* options, plait_model** out);
/* The same from memory: `count` files with their names in a directory, relative, with '/'. Contents are tensors of
 * one-byte elements; they are kept, not copied. */
PLAIT_API plait_status plait_model_open_memory(const char* const* names, plait_tensor* const* contents, int64_t count,
                                               plait_options* options, plait_model** out);
/* Waits until the graph is loaded, and the tokenizer, if it loads by itself. TIMEOUT: not yet; otherwise the error
 * that ended the opening. A tokenizer that cannot be loaded is a log line, and an error of calls that use it. */
PLAIT_API plait_status plait_model_wait(plait_model* model, int64_t timeout_ms);
/* Estimated progress of that, 0 to 1; 1 when nothing is left to wait for. Does not wait. */
PLAIT_API plait_status plait_model_progress(plait_model* model, double* fraction);
/* Pending loading ends with CANCELLED, and so do calls that wait for it, including generators that load, and exports
 * that are under way; loaded parts are not affected. */
PLAIT_API plait_status plait_model_cancel(plait_model* model);
/* The graph and what was recognised in it, as JSON: "file", "producer", "opsets", "inputs", "outputs", "nodes",
 * "ops", "parameters", "weight_bytes", "recognised", and if so "layers", "layer_kinds" (counts of "attention",
 * "linear attention", "convolution"), for attention "heads", "kv_heads", "head_size", "windows", then "hidden",
 * "vocabulary", "context", "norm", "activation", "features" (counts of patterns), "found" (each pattern with its
 * node in the file), "plain" (nodes that were not raised), "cache_bytes_per_token", "states",
 * "state_bytes_per_sequence" (of convolutions and recurrences: once per sequence, twice within a step); if not,
 * "why_not", and "obstacles": each place where matching stopped. */
PLAIT_API plait_status plait_model_info(plait_model* model, plait_tensor** json);
/* The graph's text form after the named pass; "import" is before all. NOT_FOUND lists the passes. */
PLAIT_API plait_status plait_model_dump(plait_model* model, const char* pass, plait_tensor** text);
/* The plan of a generator on a mesh: nothing is loaded or run. Uses a generator's options "mesh", "seeds", "stages", "rank_memory",
 * "dtype" and "activations". JSON: "mesh", "ranks", "seeds"; "totals": "weight_bytes" of the model, "cache_bytes_per_token"
 * and "state_bytes_per_sequence", each also with the prefixes "rank_" and "all_ranks_", "collectives" (kind to
 * count), "bytes_per_token" (sent by each rank), "estimate" (of a step that decodes a token: "reading_s",
 * "moving_s", "waiting_s"); "parts", one for the nodes before the layers, each layer, and the nodes after them:
 * "name", "kind" (a number, equal for parts that differ only in names), "weights" ("name", "node": its reader,
 * "type", "cut", "dims", "parts": number of shards of each dim, "bytes", "rank_bytes", "copy": a further copy with
 * another sharding, "shared": the same memory as an earlier one, "whole": why it is not sharded by the whole axis
 * tensor), "collectives" ("kind", "what", "for", "held", "axes", "bytes": sent by each rank per token, "after":
 * number of weights read before), "choices" ("node", "ways" with "cut", "bytes", "owed" and "chosen", "why");
 * "priced_at" (the step that "ways" are priced for: "tokens", "rows"); "unruled" (nodes with replicated operands
 * since their op has no rule); with pipeline ranks "stages" ("stage", "layers", and of a rank "rank_weight_bytes",
 * "rank_cache_bytes_per_token", "rank_state_bytes_per_sequence", "rank_gives_bytes_per_token": to the next stage), and the rest is of
 * all stages together; "islands" (with option "device": ops without a kernel there, which run on the host: {op: number of
 * nodes}). UNSUPPORTED for models that are not recognised decoders; INVALID_ARGUMENT for seeds
 * that are invalid, or shard nothing. */
PLAIT_API plait_status plait_model_plan(plait_model* model, plait_options* options, plait_tensor** json);
/* The plan of a trainer with these options, from its compiled programs: no weights are loaded, no data are read,
 * nothing is written. JSON: "mesh", "ranks", "row_tokens" (of a micro-batch, each rank along the axis data),
 * "recompute", "zero"; "totals": "trained_parameters", and for rank 0 "rank_frozen_bytes", "rank_trained_bytes",
 * "rank_gradient_bytes", "rank_optimizer_bytes", "rank_arena_bytes" (working memory of a micro-batch), "rank_bytes"
 * (their sum, without kernels' scratch, which depends on the number of threads); "programs": "name",
 * "instructions", "arena_bytes", "collectives" (kind to "calls", and "async": asynchronous ones); "trained":
 * "name", "type", "elements", "rank_bytes", "decays". Errors as in plait_trainer_create. */
PLAIT_API plait_status plait_model_plan_training(plait_model* model, plait_options* options, plait_tensor** json);
/* Writes the model as ONNX into `directory`, which is created if absent: its file, under its own name, with the
 * weights in one file NAME.data, and the model's tokenizer and configurations. Everything but weights is unchanged,
 * byte for byte. `options` may be NULL. With a generator's "mesh" of several ranks the file is annotated with its
 * sharding, as the standard's multi-device annotations (ONNX IR version 11), under the mesh's name, at the nodes
 * that read the weights; "seeds", "dtype" and "activations" apply too. A generator with that mesh then uses these
 * shardings by default. With pipeline ranks every node also gets its stage, cut by a trainer's "stages", "pipeline" and
 * "seats": "stages" file then cuts so. With "checkpoint" or "adapter" the weights are the trained ones, under the file's names;
 * use the "activations" of the training. With "bits" the file's float weights of products are rounded to so many bits in
 * blocks, and those of the head and the embedding to "head_bits" and "embedding_bits": nodes MatMul, Gemm and Gather become
 * com.microsoft's MatMulNBits and GatherBlockQuantized, which ONNX Runtime has, too. Each weight is rounded to nearest, or
 * with "calibration" by GPTQ for what it multiplies when it reads these texts. The log has its progress, and what stays as it is.
 * CANCELLED by plait_model_cancel, then what was written is removed; INVALID_ARGUMENT if the directory has a file of the
 * model's name already; IO; UNSUPPORTED for a mesh if the model is not a recognised decoder, and for "bits" if it has no
 * such weights. */
PLAIT_API plait_status plait_model_export(plait_model* model, const char* directory, plait_options* options);

typedef enum plait_log_level PLAIT_INT {
  PLAIT_LOG_DEBUG = 0,
  PLAIT_LOG_INFO = 1,
  PLAIT_LOG_WARNING = 2
} plait_log_level;

/* The next log line of the model, its generators and sessions; *text is NULL if there is none. At most 1024 lines
 * are queued; the oldest are dropped, which is logged. The option "log_dir" also writes them to files. */
PLAIT_API plait_status plait_log_next(plait_model* model, plait_log_level* level, plait_tensor** text);
PLAIT_API plait_status plait_model_release(plait_model* model);

/* The supported ops, as JSON: [{"op", "since", "inputs", "outputs", "attributes", "oldest", "types", "written_as",
 * "dims", "gradient", "doc", "kernels": [{"isa", "dtypes"}, ...]}, ...]. ONNX's ops are supported in the forms of
 * the opsets from "oldest" on, with operands of "types" (docs/ops.md). An op without kernels is executed by the
 * program itself, like If, Loop and Scan, or replaced by others when a file is read. "gradient": "yes", "zero"
 * (piecewise constant results, as of comparisons), or null: unknown, so weights before it cannot be trained.
 * Options: "isa". */
PLAIT_API plait_status plait_ops(plait_options* options, plait_tensor** json);

/* What this machine has, as JSON: {"version", "processor": {"name", "usable": processors, "instruction_sets": [...], "used": the
 * one of the fastest kernels}, "memory": {"bytes", "free_bytes" or null}, "mpi": {"available", "reason", "hint"}, "cuda":
 * {"available", "reason", "hint", "driver", "nccl", "devices": [{"device", "name", "compute", "bytes"}, ...]}}; reason and hint if it
 * is not available. Loads the plug-ins and drivers that there are, which stay loaded; starts neither MPI nor a device.
 * Options: "isa", "mpi_plugin", "cuda_plugin". */
PLAIT_API plait_status plait_system(plait_options* options, plait_tensor** json);

/* A machine as plans see it, as JSON: {"name", "about": sources, "device": {"memory", "bandwidth", "launch", "peak": {"bf16": ...},
 * "efficiency": {"most", "knee"}, "score_passes", "fused_sums"}, "levels": [{"name", "ranks", "bandwidth", "latency", "use"}, ...]}, in
 * units; docs/planning.md describes the fields. Options: "machine", one that comes along, a file in this form, which is checked, or
 * "here": this machine, measured for about two seconds as "ranks" (1) ranks of "threads" each (0: its processors, shared out). */
PLAIT_API plait_status plait_machine(plait_options* options, plait_tensor** json);

/* The fastest plan of a training run that fits into the memory of each rank, by simulation, as JSON: {"options": what a trainer is
 * given, "step_seconds", "tokens_per_second", "mfu", "bubble" (both 0 to 1), "micro_batches", "exposed": seconds of a step in which the
 * busiest rank waits {"collectives", "messages", "reduction", "control": what ranks tell each other of the step}, "update_seconds",
 * "most_bytes", "memory": [bytes of a rank, by pipeline coordinate {"pipeline", "weights", "gradients", "optimizer", "section",
 * "slots", "messages", "total"}, ...], "neighbours": plans that differ in one respect [{"changed", "lost": why, "bytes",
 * "step_seconds" or null if it does not fit, "options"}, ...], "others": the other plans that were simulated and fit, by time,
 * "parameters", "machine", "ranks", "tried", "simulated", "limit_bytes": of a rank}.
 * With "drawings" also "picture": an SVG of the step's first "picture_seconds" of "pipeline_seconds", and "memory_over_time": bytes
 * of a rank in equal parts of them, by pipeline coordinate. Nothing is loaded.
 * With the option "generate": the mesh whose tokens are fastest: {"options", "sequences": of a replica, "groups": into which
 * pipeline stages divide them, "prompt_seconds", "token_seconds": from a token of a sequence to its next, "tokens_per_second",
 * "exposed_seconds": of a step, waiting for collectives and messages, "weight_bytes", "cache_bytes": of a rank, "others",
 * "parameters", "machine"}.
 * Options: "decoder", "machine", "ranks", "batch" (samples of the decoder's sequence); "optimizer", "dtype" (of products; default: the
 * machine's fastest), "memory_bytes" (of a rank; default: 0.95 of the device's), "drawings"; and of the plan what is not searched:
 * "mesh", "pipeline", "stages", "seats", "micro_batch", "micro_batches", "zero", "recompute", "seeds" (in "options" a list).
 * OUT_OF_MEMORY if no plan fits, with the least that one takes. */
PLAIT_API plait_status plait_plan(plait_options* options, plait_tensor** json);
/* The same of a model at hand, from its own graph: options as of plait_plan but "decoder", and those of a trainer about what is
 * trained and how ("lora", "seq", "optimizer", ...), or with "generate" a generator's. "dtype" is the run's: weights and products as
 * in the file by default. Nothing is loaded. CANCELLED by plait_model_cancel; UNSUPPORTED for models that are not recognised decoders. */
PLAIT_API plait_status plait_model_best_plan(plait_model* model, plait_options* options, plait_tensor** json);

/* ---- Tokenizers ----------------------------------------------------------------------------------------------
 * Immutable and thread-safe. tokenizer.json and the chat template are programs by the model's author: the options
 * "text_bytes" and "text_ms" of the model or tokenizer limit their memory and time per text. Calls beyond these
 * limits end with OUT_OF_MEMORY or TIMEOUT, also those that submit texts and chats to generators. */

/* The model's; waits while it loads. NOT_FOUND if the model has none. */
PLAIT_API plait_status plait_tokenizer_of_model(plait_model* model, plait_tokenizer** out);
/* From a directory with a tokenizer.json, a file next to one, or a .gguf file; the option "cache_dir" speeds up later loads. */
PLAIT_API plait_status plait_tokenizer_open(const char* path, plait_options* options, plait_tokenizer** out);
/* i32 [n]. add_special 1: with the special tokens of a plain prompt (BOS); 0: for the result of
 * plait_tokenizer_chat, which has them. INVALID_ARGUMENT for invalid UTF-8. */
PLAIT_API plait_status plait_tokenizer_encode(plait_tokenizer* tokenizer, const char* text, int64_t length,
                                              int32_t add_special, plait_tensor** ids);
/* Always valid UTF-8. skip_special 1: without BOS, end of turn and the like. */
PLAIT_API plait_status plait_tokenizer_decode(plait_tokenizer* tokenizer, const int32_t* ids, int64_t count,
                                              int32_t skip_special, plait_tensor** text);
/* The prompt for a conversation [{"role": "user", "content": "..."}, ...] by the model's chat template, with the
 * header of the answer. Uses the request options "tools" and "chat_variables". UNSUPPORTED without a template. */
PLAIT_API plait_status plait_tokenizer_chat(plait_tokenizer* tokenizer, const char* messages, int64_t length,
                                            plait_options* options, plait_tensor** text);
/* A token as in the vocabulary, and back. INVALID_ARGUMENT; NOT_FOUND if there is none. */
PLAIT_API plait_status plait_tokenizer_piece(plait_tokenizer* tokenizer, int32_t id, plait_tensor** text);
PLAIT_API plait_status plait_tokenizer_id(plait_tokenizer* tokenizer, const char* piece, int64_t length, int32_t* id);
/* u8 [n]: the bytes that a token adds within a text, which need not be whole characters; those of a special token are its name, none
 * of an id without a piece. INVALID_ARGUMENT for a negative id. */
PLAIT_API plait_status plait_tokenizer_bytes(plait_tokenizer* tokenizer, int32_t id, plait_tensor** bytes);

typedef struct plait_tokenizer_facts {
  int64_t struct_size;
  int64_t vocabulary; /* one past the largest id */
  int32_t bos, eos;   /* -1: unspecified */
  int32_t has_chat_template;
  int32_t reserved;
} plait_tokenizer_facts;

PLAIT_API plait_status plait_tokenizer_info(plait_tokenizer* tokenizer, plait_tokenizer_facts* out);
/* Pending calls of plait_tokenizer_encode, _decode and _chat of other threads end with CANCELLED, and so does
 * submitting texts and chats to generators of its model. Later calls work as before. */
PLAIT_API plait_status plait_tokenizer_cancel(plait_tokenizer* tokenizer);
PLAIT_API plait_status plait_tokenizer_release(plait_tokenizer* tokenizer);

/* ---- Worlds --------------------------------------------------------------------------------------------------
 * Ranks that are processes, started by mpirun or the like, on one machine or several. Not needed for ranks that are
 * threads of this process, for which the option "mesh" of a generator is sufficient. Every process opens the world;
 * rank 0 then creates generators and trainers on it (plait_generator_create_on, plait_trainer_create_on), and the
 * others serve it:
 *
 *   plait_world_open(NULL, &world);
 *   plait_world_rank(world, &rank, &size);
 *   if (rank != 0) return plait_world_serve(world);
 *   plait_generator_create_on(world, model, options_with_mesh, &generator); ...
 *
 * A rank that fails, dies, or exceeds the option "rank_timeout_ms" ends the world: all calls that need it fail with
 * CLOSED and the rank's number. The process can still create generators of threads. */

/* Once per process. Initialises MPI, by the plug-in plait_mpi.so, unless the host has; the host's is used and never
 * finalized. All processes pass the same options. NOT_FOUND without the plug-in, UNSUPPORTED for another version of
 * it, IO. */
PLAIT_API plait_status plait_world_open(plait_options* options, plait_world** out);
PLAIT_API plait_status plait_world_rank(plait_world* world, int32_t* rank, int32_t* size);
/* Ranks other than 0: serves rank 0's generators and trainers until rank 0 closes the world; CLOSED if it ended
 * otherwise. Sleeps while waiting. */
PLAIT_API plait_status plait_world_serve(plait_world* world);
/* Rank 0: no more can be created; the others' plait_world_serve return once the current one has ended. Releasing
 * the last handle does the same. */
PLAIT_API plait_status plait_world_close(plait_world* world);
PLAIT_API plait_status plait_world_release(plait_world* world);

/* ---- Generators ----------------------------------------------------------------------------------------------
 * A model with loaded weights, a cache of fixed size, a queue of requests and one thread that serves them, which
 * sleeps when idle. Thread-safe. Released with its last request. */

/* Starts loading and returns at once; the generator can be used immediately: calls wait until it is loaded, and
 * fail with the error that ended the loading. */
PLAIT_API plait_status plait_generator_create(plait_model* model, plait_options* options, plait_generator** out);
/* The same on the processes of a world, as its rank 0: the option "mesh" must have as many ranks. Each opens the
 * model by its path. The world serves one generator or trainer at a time: OVERLOADED while another exists. */
PLAIT_API plait_status plait_generator_create_on(plait_world* world, plait_model* model, plait_options* options,
                                                 plait_generator** out);
/* Waits until it is loaded. TIMEOUT: not yet; otherwise the error that ended the loading. */
PLAIT_API plait_status plait_generator_wait(plait_generator* generator, int64_t timeout_ms);
/* Estimated progress of that, 0 to 1: the rest of the model's opening, compiling, weights; 1 when it is ready. Does
 * not wait. */
PLAIT_API plait_status plait_generator_progress(plait_generator* generator, double* fraction);
/* Ends the loading of the generator, but not of its model, with CANCELLED; a loaded generator is not affected. */
PLAIT_API plait_status plait_generator_cancel(plait_generator* generator);

/* Submits a prompt. The request's defaults are the generator's options, then the model's generation_config.json.
 * `parent`, which may be NULL, is a request that ended with the option "keep": the new prompt continues its
 * conversation from the cache. Several may continue one parent: each is a fork, and the parent is unchanged.
 *   text: gets the tokenizer's BOS (not with a parent). Waits for the tokenizer, as do the option "stop" and chats.
 *   ids:  used unchanged; no tokenizer is needed. While it loads (option "tokenizer") tokens come before their text:
 *         a later event has the missing text, and the last of a sample waits for it. If the model's configurations
 *         have no end-of-text token, the tokenizer's is used (except with "ignore_eos").
 * With the option "inputs_embeds" embeddings of an image or a sound stand for tokens of the prompt ("image_features",
 * "audio_features": for those of images, of sounds): of decoders whose file takes embeddings, with the file of its embeddings next to it.
 * Decoders with positions of three dimensions need the images' grids ("image_grid_thw", "video_grid_thw").
 * Of an encoder-decoder (docs/inputs.md) the prompt is the encoder's text, and the decoder begins with the option "decoder_ids", by
 * default as config.json specifies. Where the encoder takes a sound or an image, that is an option ("input_features", "input_values",
 * "pixel_values"), and the prompt is what the decoder begins with: by default, if it is empty, as config.json specifies. With a parent the
 * prompt continues the decoder's tokens, and the encoder's input stays.
 *   chat: messages as JSON; pass the whole conversation each time, its cached part is found automatically.
 * INVALID_ARGUMENT (ids out of range, an empty prompt, a prompt longer than the context), OUT_OF_MEMORY (can never
 * fit the cache), OVERLOADED (the queue is full), UNSUPPORTED, NOT_FOUND (no tokenizer). */
PLAIT_API plait_status plait_generator_submit_text(plait_generator* generator, const char* text, int64_t length,
                                                   plait_options* options, plait_request* parent,
                                                   plait_request** out);
PLAIT_API plait_status plait_generator_submit_ids(plait_generator* generator, const int32_t* ids, int64_t count,
                                                  plait_options* options, plait_request* parent, plait_request** out);
PLAIT_API plait_status plait_generator_submit_chat(plait_generator* generator, const char* messages, int64_t length,
                                                   plait_options* options, plait_request** out);
/* Adds an adapter from a directory in PEFT's layout; requests may name it (option "adapter") once the call returns.
 * Requests with different adapters share steps, and those without skip them. A generator has "adapter_slots" slots
 * for adapters of rank at most "adapter_rank" of the Linears in "adapter_targets", in f32: slots * rank * (inputs +
 * outputs) * 4 bytes each; by default as needed for those it is created with ("adapters", "adapter"). Prefixes
 * (keys and values before the first token, "prefix" of trainers) need no slot: each is pages of the cache, once for
 * all requests, and its tokens count in the context.
 * INVALID_ARGUMENT: it fits none of these Linears, its rank is too large, its prefix is of another model or longer
 * than the context, the name exists. OVERLOADED: no slot is free. OUT_OF_MEMORY: the cache has no space for the
 * prefix. BAD_MODEL, NOT_FOUND, IO, UNSUPPORTED: the files; or a generator without slots, or whose graph is not
 * recognised.
 */
PLAIT_API plait_status plait_generator_add_adapter(plait_generator* generator, const char* name,
                                                   const char* directory);
/* Frees the name. Running requests continue, and kept conversations can be continued; its slot, or its pages, are
 * free when the last of them is released. NOT_FOUND. */
PLAIT_API plait_status plait_generator_remove_adapter(plait_generator* generator, const char* name);
/* Names of the adapters, as JSON: ["name", ...]. */
PLAIT_API plait_status plait_generator_adapters(plait_generator* generator, plait_tensor** json);
/* A request to continue from, from the bytes of plait_request_save: of the same model and dtype, and undamaged,
 * otherwise BAD_MODEL (also for versions without a checksum); its adapter must exist, otherwise NOT_FOUND. Only
 * usable as a parent. */
PLAIT_API plait_status plait_generator_restore(plait_generator* generator, const void* bytes, int64_t size,
                                               plait_request** out);

typedef struct plait_generator_stats {
  int64_t struct_size;
  int64_t running, waiting;    /* samples in the running batch, requests in the queue */
  int64_t finished, preempted; /* requests, since the start */
  int64_t steps;
  int64_t pages, pages_free, pages_shared;        /* of the cache; shared: used by several sequences */
  int64_t weight_bytes, cache_bytes, arena_bytes; /* includes slots of adapters in weights */
  int64_t native_bytes;                           /* all three */
  int64_t prefix_tokens;                          /* prompt tokens found in the cache */
  int64_t vocabulary, context;                    /* of the model; context 0: no limit but the cache */
  /* Slots for states of recurrent layers, one per sequence; both 0 without such layers. */
  int64_t states, states_free;
  /* Of requests with a grammar: states whose next tokens were computed, seconds that this took on a thread of its own, and the part
   * of them that a step did not hide. */
  int64_t masks;
  double mask_seconds, mask_wait_seconds;
  int64_t waiting_tokens;       /* of the prompts in the queue */
  double expected_wait_seconds; /* until its prompt is begun, of a request submitted now with priority 0 */
  double step_seconds;          /* of all steps, to their logits */
  double sampling_seconds;      /* choosing tokens from these on the host, after steps */
  int64_t failed_rank;          /* that ended the ranks of a mesh: every call fails since; -1: none. Without calls known after a
                                 * second or two, on another machine after the deadline of ranks. */
} plait_generator_stats;

PLAIT_API plait_status plait_generator_statistics(plait_generator* generator, plait_generator_stats* out);
/* Seconds and calls per op of rank 0, as JSON {"op": {"seconds", "calls", "waited"}}, where `waited` is the part of
 * the seconds spent waiting for other ranks; empty without the option "profile". */
PLAIT_API plait_status plait_generator_profile(plait_generator* generator, plait_tensor** json);
/* Histograms of what steps did and what requests were, since the start, as JSON: {"step_seconds": {"help", "bounds": [ascending],
 * "counts": [of values up to each bound and above the one before, then of those above all], "sum"}, "step_samples", "step_tokens",
 * "request_prompt_tokens", "request_cached_tokens",
 * "request_new_tokens"}. */
PLAIT_API plait_status plait_generator_histograms(plait_generator* generator, plait_tensor** json);
/* Memory of each rank, as JSON: [{"rank", "place": coordinates on the axes of the mesh, as {"tensor": 1}, "weight_bytes",
 * "cache_bytes", "arena_bytes", "adapter_bytes"}, ...]; one without a mesh. Memory shared by ranks of one process counts for each of
 * them here, and once in the statistics. Rank 0 of several with option "device" has "collectives": "peer memory", "NCCL" or "host
 * memory", and why not the ones before. */
PLAIT_API plait_status plait_generator_ranks(plait_generator* generator, plait_tensor** json);
/* With the option "trace": timelines of all ranks (computing, in collectives, waiting) as JSON for Chrome's trace
 * viewer. */
PLAIT_API plait_status plait_generator_trace(plait_generator* generator, plait_tensor** json);
PLAIT_API plait_status plait_generator_release(plait_generator* generator);

/* ---- Requests ------------------------------------------------------------------------------------------------
 * Thread-safe; threads that pull concurrently share the events. Releasing a request cancels it. */

typedef enum plait_event_kind PLAIT_INT {
  PLAIT_EVENT_END = 0,    /* all samples have ended: nothing more to pull */
  PLAIT_EVENT_TOKEN = 1,  /* a token, possibly the last of its sample (finish) */
  PLAIT_EVENT_FINISH = 2, /* the end of a sample without a token */
  PLAIT_EVENT_LOGITS = 3, /* option "host_sampling": push the next token */
  PLAIT_EVENT_PROMPT = 4  /* option "prompt_logprobs": a token of the prompt, with its log-probability; before all others */
} plait_event_kind;

typedef enum plait_finish PLAIT_INT {
  PLAIT_FINISH_NONE = 0,
  PLAIT_FINISH_EOS = 1,
  PLAIT_FINISH_STOP = 2, /* a stop string, before which the text ends; or the grammar lets nothing follow */
  PLAIT_FINISH_LENGTH = 3,
  PLAIT_FINISH_CANCELLED = 4,
  PLAIT_FINISH_ERROR = 5
} plait_finish;

/* Pointers are valid until this thread's next call of plait_request_next, whatever is released. */
typedef struct plait_event {
  int64_t struct_size;
  plait_event_kind kind;
  plait_finish finish; /* not NONE: the last event of this sample */
  int32_t sample;      /* 0 .. samples - 1 */
  int32_t token;       /* -1 if none */
  float logprob;       /* of the unmodified distribution; NaN without "logprobs", and of the first token of a prompt */
  int32_t top_count;   /* alternatives, most likely first */
  const int32_t* top_tokens;
  const float* top_logprobs;
  const char* text; /* new text of this event: whole UTF-8, often "", never NULL; NUL-terminated */
  int64_t text_length;
  const float* logits; /* [logits_count]: one per token of the vocabulary */
  int64_t logits_count;
  int32_t stop; /* which text of the option "stop", by its position from 0, ended the sample; -1: none */
  int32_t rank; /* of the token in the unmodified distribution, 1: the most likely; 0 where logprob is NaN */
} plait_event;

/* The next event. TIMEOUT if none came in time, which has no other effect; CANCELLED after the request's own
 * deadline ("deadline_ms"); otherwise the error that ended the request. Cancelling a request is not an error: its
 * samples finish. */
PLAIT_API plait_status plait_request_next(plait_request* request, int64_t timeout_ms, plait_event* out);
/* "host_sampling": the token for the last logits pulled. INVALID_ARGUMENT if none are pending. */
PLAIT_API plait_status plait_request_push(plait_request* request, int32_t token);
/* Ends it soon, even within its prompt, and within a step if that is only for cancelled requests (except on a mesh,
 * where steps are completed). Its samples finish with CANCELLED. */
PLAIT_API plait_status plait_request_cancel(plait_request* request);

typedef struct plait_usage {
  int64_t struct_size;
  int64_t prompt_tokens;                   /* all, including the parent's */
  int64_t cached_tokens;                   /* of these: found in the cache */
  int64_t new_tokens;                      /* of all samples */
  double queued_s, first_token_s, total_s; /* since submission; 0 until it happens */
  double prefill_s;                        /* in steps that process the prompt */
  uint64_t seed;                           /* the option's, or the drawn one */
} plait_usage;

PLAIT_API plait_status plait_request_usage(plait_request* request, plait_usage* out);
/* "kind" score: logits, f32 [s, v], row i from the tokens up to i. embed: hidden states, f32 [s, h], or [h] with
 * "pooling". Waits for the end; returns the same tensor each time. INVALID_ARGUMENT for other kinds. */
PLAIT_API plait_status plait_request_result(plait_request* request, plait_tensor** out);
/* The kept conversation as bytes, u8 [n], with a checksum. INVALID_ARGUMENT if it was not kept, or has not ended. */
PLAIT_API plait_status plait_request_save(plait_request* request, plait_tensor** bytes);
PLAIT_API plait_status plait_request_release(plait_request* request);

/* One wait for many requests: a thread that pulls from all of them waits for the next tag, takes that request's events
 * with plait_request_next and a timeout of 0 until TIMEOUT or the end, and waits again. Thread-safe. */
PLAIT_API plait_status plait_mailbox_create(plait_mailbox** out);
/* Posts `tag` to the mailbox whenever the request has something to return at once: events, its end, its error; at once
 * if it has already. It is posted again only after plait_request_next has timed out, so a mailbox holds at most one of
 * a request. mailbox NULL: no longer. The request keeps the mailbox. A tag may still be pulled after its request was
 * released. */
PLAIT_API plait_status plait_request_attach(plait_request* request, plait_mailbox* mailbox, int64_t tag);
/* The next tag, in the order they were posted. TIMEOUT if none came in time. */
PLAIT_API plait_status plait_mailbox_next(plait_mailbox* mailbox, int64_t timeout_ms, int64_t* tag);
/* A tag of the host's own: to wake the thread that waits. */
PLAIT_API plait_status plait_mailbox_post(plait_mailbox* mailbox, int64_t tag);
PLAIT_API plait_status plait_mailbox_release(plait_mailbox* mailbox);

/* ---- Trainers ------------------------------------------------------------------------------------------------
 * A recognised decoder with gradients, an optimizer, and its state. With the option "data" it processes that file on
 * a thread of its own; the host pulls a report of each step:
 *
 *   plait_options_set(options, "data", "texts.jsonl", -1);
 *   plait_options_set(options, "out", "run", -1);
 *   plait_trainer_create(model, options, &trainer);
 *   while (plait_trainer_next(trainer, -1, &step) == PLAIT_OK && step.ending == PLAIT_ENDING_NONE) ...
 *   plait_trainer_export(trainer, "model-tuned");
 *
 * Without data the host passes every step. Thread-safe: calls that need the weights wait for the current step. With
 * the option "out" a run keeps checkpoints, from which it can resume (option "resume"), a log, and a loss curve in
 * that directory. See docs/training.md. */

/* Starts loading and returns at once, like generators. Calls wait until it is loaded, and fail with the error that
 * ended the loading: UNSUPPORTED (the model is not recognised, or has no gradient), INVALID_ARGUMENT (options, or a
 * line of the data, by number), NOT_FOUND, IO, BAD_MODEL. */
PLAIT_API plait_status plait_trainer_create(plait_model* model, plait_options* options, plait_trainer** out);
/* The same on the processes of a world, as its rank 0, like plait_generator_create_on. Data are read here; all
 * processes see the directory "out". */
PLAIT_API plait_status plait_trainer_create_on(plait_world* world, plait_model* model, plait_options* options,
                                               plait_trainer** out);
PLAIT_API plait_status plait_trainer_wait(plait_trainer* trainer, int64_t timeout_ms);
PLAIT_API plait_status plait_trainer_progress(plait_trainer* trainer, double* fraction);
/* Ends the loading, or the run: its current step stops without an update, and finished steps are saved. Steps of
 * the host end with CANCELLED, from then on. */
PLAIT_API plait_status plait_trainer_cancel(plait_trainer* trainer);

typedef enum plait_ending PLAIT_INT {
  PLAIT_ENDING_NONE = 0,
  PLAIT_ENDING_STEPS = 1,    /* all steps are done */
  PLAIT_ENDING_PATIENCE = 2, /* the evaluation loss has not improved for long enough */
  PLAIT_ENDING_CANCELLED = 3
} plait_ending;

/* Unknown numbers are NaN, or 0. */
typedef struct plait_step {
  int64_t struct_size;
  plait_ending ending; /* not NONE: the run has ended; its last report, without a step */
  int32_t saved;       /* 1: a checkpoint is written after this step */
  int64_t step, steps; /* updates done, including this one; of the whole run */
  double epochs;       /* passes over the data */
  double loss;         /* nats per token, of the step's own tokens */
  double learning_rate;
  double gradient_norm; /* before clipping */
  int64_t tokens;       /* of the step */
  double tokens_per_second, seconds_left;
  double evaluation_loss; /* of "eval_data", if this step was followed by an evaluation */
  double best_loss;       /* of all evaluations */
  int64_t native_bytes;   /* weights, gradients, optimizer state, and working memory */
  double bubble;          /* share of the time of a pipeline's ranks in which they computed nothing; NaN without one */
} plait_step;

/* The next report of the run over "data". TIMEOUT if none came in time; otherwise the error that ended the run:
 * NUMERIC for a loss or gradients that are not finite, before they change the weights; IO for a checkpoint that
 * could not be written. At most 4096 reports are queued: the oldest are dropped. */
PLAIT_API plait_status plait_trainer_next(plait_trainer* trainer, int64_t timeout_ms, plait_step* out);

/* A step of the host, without "data": forward, backward, update. `ids`: i32 or i64 [documents, s]. `labels` alike:
 * the target of each position, -1 if not counted; NULL: the next ids. Pad shorter documents at their end with any
 * ids, and labels of -1. More tokens than "micro_batch" use gradient accumulation. */
PLAIT_API plait_status plait_trainer_step(plait_trainer* trainer, plait_tensor* ids, plait_tensor* labels,
                                          plait_step* out);

/* A step of a model with its own loss (option "loss"), which may be any graph: its inputs by name, each once. On a
 * mesh the ranks of "data" split the first dimension of inputs that have the batch there. `tokens` of the report is
 * the batch. Otherwise like plait_trainer_step; INVALID_ARGUMENT for inputs that are missing, unknown or of another
 * type or size. */
PLAIT_API plait_status plait_trainer_step_inputs(plait_trainer* trainer, const char* const* input_names,
                                                 plait_tensor* const* inputs, int64_t input_count, plait_step* out);

/* The same in parts, for the host's own loss: logits out, gradients of the logits in, any number of times, then the
 * update, which zeros the gradients.
 *   forward:  `logits` becomes f32 [documents, s, v]; "lora_dropout" applies, by the document's number.
 *   backward: `gradient`, of the loss with respect to these logits, f32 [documents, s, v], for the same ids;
 *             recomputes the forward pass.
 *   update:   the loss of `out` is NaN. */
PLAIT_API plait_status plait_trainer_forward(plait_trainer* trainer, plait_tensor* ids, plait_tensor** logits);
PLAIT_API plait_status plait_trainer_backward(plait_trainer* trainer, plait_tensor* ids, plait_tensor* gradient);
PLAIT_API plait_status plait_trainer_update(plait_trainer* trainer, plait_step* out);

typedef struct plait_evaluation {
  int64_t struct_size;
  double loss;       /* nats per label */
  double perplexity; /* its exponential */
  int64_t targets;   /* counted labels */
} plait_evaluation;

/* Evaluates the current weights, on a file like "data", or on documents like those of plait_trainer_step. */
PLAIT_API plait_status plait_trainer_evaluate(plait_trainer* trainer, const char* data, plait_evaluation* out);
PLAIT_API plait_status plait_trainer_evaluate_ids(plait_trainer* trainer, plait_tensor* ids, plait_tensor* labels,
                                                  plait_evaluation* out);
/* The loss of a model with its own loss. */
PLAIT_API plait_status plait_trainer_evaluate_inputs(plait_trainer* trainer, const char* const* input_names,
                                                     plait_tensor* const* inputs, int64_t input_count,
                                                     plait_evaluation* out);
/* Saves a checkpoint of the current step in "out"; returns when it is on disk. INVALID_ARGUMENT without "out". */
PLAIT_API plait_status plait_trainer_save(plait_trainer* trainer);
/* Writes the trained model as ONNX, like plait_model_export: the user's graph and names, with merged adapters.
 * UNSUPPORTED for adapters that cannot be merged (the weight is quantised, or has another reader), and for
 * prefixes. */
PLAIT_API plait_status plait_trainer_export(plait_trainer* trainer, const char* directory);
/* Writes the adapters in PEFT's layout. INVALID_ARGUMENT if there are none. */
PLAIT_API plait_status plait_trainer_save_adapter(plait_trainer* trainer, const char* directory);
/* Also cancels it. */
PLAIT_API plait_status plait_trainer_release(plait_trainer* trainer);

/* ---- Sessions ------------------------------------------------------------------------------------------------
 * Any ONNX model as written: tensors in, tensors out. Thread-safe; runs of one session are queued. */

PLAIT_API plait_status plait_session_create(plait_model* model, plait_options* options, plait_session** out);
PLAIT_API plait_status plait_session_count(plait_session* session, int64_t* inputs, int64_t* outputs);

typedef struct plait_operand {
  int64_t struct_size;
  const char* name;  /* valid until the session is released */
  plait_dtype dtype; /* NONE: known only at run time */
  int32_t rank;      /* -1: known only at run time */
  int64_t dims[8];   /* -1: any size */
  int32_t is_list;   /* 1: a sequence or an optional, as plait_tensor_list makes them and plait_tensor_part reads them;
                      * 2: an optional of a sequence, a list of at most one list */
} plait_operand;

/* Input or output number `index`. */
PLAIT_API plait_status plait_session_input(plait_session* session, int64_t index, plait_operand* out);
PLAIT_API plait_status plait_session_output(plait_session* session, int64_t index, plait_operand* out);
/* Runs it: `input_count` tensors by name, each input of the session once; `outputs[i]` becomes a new tensor, the
 * output output_names[i]. NOT_FOUND for an unknown name; INVALID_ARGUMENT for a missing input, a wrong dtype or
 * size; OUT_OF_MEMORY beyond option memory_bytes; TIMEOUT beyond option time_limit; CANCELLED. */
PLAIT_API plait_status plait_session_run(plait_session* session, const char* const* input_names,
                                         plait_tensor* const* inputs, int64_t input_count,
                                         const char* const* output_names, plait_tensor** outputs,
                                         int64_t output_count);
/* The current run ends with CANCELLED, between two nodes, or within one whose work several threads share; queued
 * runs continue. */
PLAIT_API plait_status plait_session_cancel(plait_session* session);
/* With the option "trace": like plait_generator_trace. */
PLAIT_API plait_status plait_session_trace(plait_session* session, plait_tensor** json);
PLAIT_API plait_status plait_session_release(plait_session* session);

#ifdef __cplusplus
}
#endif

#endif /* PLAIT_H */
