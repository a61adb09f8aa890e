/* Plait: reads ONNX language models, generates from them and fine-tunes them, inside your own process.
 *
 *   plait_model_open("model-directory", NULL, &model);
 *   plait_generator_create(model, NULL, &generator);
 *   plait_generator_submit_text(generator, "Once upon a time", -1, NULL, NULL, &request);
 *   while (plait_request_next(request, -1, &event) == PLAIT_OK && event.kind != PLAIT_EVENT_END) ...
 *
 * This header is the whole interface, C11 and C++. It only ever grows: numbers, names and layouts stay.
 *
 * Status. Every call returns a plait_status, but for the few that return a constant or a text. A call that fails
 *   leaves its outputs NULL or 0 and says why in plait_last_error(). No call aborts, exits, prints or throws.
 * Handles. A handle is one reference to an object. Objects keep alive what they were made from: handles may be
 *   released in any order. Releasing NULL does nothing; a handle that was released is recognised wherever it is
 *   passed (PLAIT_CLOSED), also to its release function, and no harm is done. Handles are numbers in disguise: do not
 *   dereference them.
 * Threads. Any function may be called from any thread at any time, with any handle. What that means for each kind of
 *   object stands at its functions. No callbacks: the host pulls.
 * Text is UTF-8. Texts that the host passes have a length in bytes; -1 means up to the first NUL.
 * Results of variable size (texts, token ids, logits, saved bytes) are tensors that the caller releases.
 * Structs that the library fills start with struct_size, which the caller sets to sizeof the struct: fields that
 *   later versions add are filled for those who know them.
 * Times are in milliseconds as parameters (negative: wait for ever) and in seconds in results. Sizes are int64_t,
 *   token ids int32_t.
 */
#ifndef PLAIT_H
#define PLAIT_H

#include <stdint.h>

#if defined(__GNUC__)
#define PLAIT_API __attribute__((visibility("default")))
#else
#define PLAIT_API
#endif

/* Enums may hold any int, in C++ as in C: what a host passes is checked, whatever it is. */
#ifdef __cplusplus
#define PLAIT_INT : int
extern "C" {
#else
#define PLAIT_INT
#endif

/* ---- Status ------------------------------------------------------------------------------------------------- */

typedef enum plait_status PLAIT_INT {
  PLAIT_OK = 0,
  PLAIT_INVALID_ARGUMENT = 1, /* the call can never work like this */
  PLAIT_NOT_FOUND = 2,        /* a file, tensor or option of that name does not exist */
  PLAIT_BAD_MODEL = 3,        /* a model's file breaks its format's rules */
  PLAIT_UNSUPPORTED = 4,      /* legal, but Plait cannot do it */
  PLAIT_OUT_OF_MEMORY = 5,    /* a budget that the caller gave, or the machine's memory, does not suffice */
  PLAIT_OVERLOADED = 6,       /* the queue is full: try again later */
  PLAIT_CANCELLED = 7,
  PLAIT_TIMEOUT = 8,  /* it did not happen in the time given: calls that wait may be repeated */
  PLAIT_IO = 9,       /* the operating system refused to read or write */
  PLAIT_NUMERIC = 10, /* NaN where numbers were needed */
  PLAIT_CLOSED = 11,  /* the handle was released, or its object shut down */
  PLAIT_INTERNAL = 12 /* a fault of Plait itself */
} plait_status;

/* "0.1.0". Constant. */
PLAIT_API const char* plait_version(void);
/* "invalid_argument"; "unknown" for a number that is no status. Constant. */
PLAIT_API const char* plait_status_name(plait_status status);
/* What went wrong in the last call that failed in this thread, and what to change; "" if there is nothing to say.
 * Valid until the next call that fails in this thread. */
PLAIT_API const char* plait_last_error(void);
PLAIT_API const char* plait_last_hint(void);

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

/* ---- Tensors -------------------------------------------------------------------------------------------------
 * Typed arrays, row-major, last dimension fastest, at most 8 dimensions. A tensor's dtype, dims and memory never
 * change; its elements are the host's to write as long as no call that reads them is under way. */

/* The numbers are those of ONNX. */
typedef enum plait_dtype PLAIT_INT {
  PLAIT_NONE = 0,
  PLAIT_F32 = 1,
  PLAIT_U8 = 2,
  PLAIT_I8 = 3,
  PLAIT_U16 = 4,
  PLAIT_I16 = 5,
  PLAIT_I32 = 6,
  PLAIT_I64 = 7,
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
  PLAIT_U4 = 21, /* two a byte, element 0 in the low nibble */
  PLAIT_I4 = 22,
  PLAIT_F4E2M1 = 23,
  PLAIT_F8E8M0 = 24,
  PLAIT_U2 = 25, /* four a byte, element 0 in the lowest bits */
  PLAIT_I2 = 26
} plait_dtype;

/* A tensor of `rank` dims with a copy of `bytes` bytes from `data`; data NULL: zeros. `bytes` must be what dtype and
 * dims make. INVALID_ARGUMENT, OUT_OF_MEMORY. */
PLAIT_API plait_status plait_tensor_copy(plait_dtype dtype, const int64_t* dims, int64_t rank, const void* data,
                                         int64_t bytes, plait_tensor** out);
/* The same without the copy: `data` belongs to the host, which keeps it valid until the tensor and all that was made
 * from it (a model, its generators, their requests) are released. */
PLAIT_API plait_status plait_tensor_borrow(plait_dtype dtype, const int64_t* dims, int64_t rank, void* data,
                                           int64_t bytes, plait_tensor** out);

typedef struct plait_view {
  int64_t struct_size;
  plait_dtype dtype;
  int32_t rank;
  int64_t dims[8];
  int64_t elements;
  int64_t bytes;
  void* data; /* valid while the tensor's handle is not released */
} plait_view;

PLAIT_API plait_status plait_tensor_view(plait_tensor* tensor, plait_view* out);
/* The bytes of a text result, NUL-terminated (plait_view says how many, should it hold NULs). "" and a last error for
 * tensors that are no text. Valid while the tensor's handle is not released. */
PLAIT_API const char* plait_tensor_text(plait_tensor* tensor);
PLAIT_API plait_status plait_tensor_release(plait_tensor* tensor);

/* ---- Options -------------------------------------------------------------------------------------------------
 * Keys and values for models, generators, requests, sessions. Wherever options are taken NULL means none, and they
 * are read during the call alone. A call refuses keys that are not for it; a generator also takes those of requests,
 * as defaults for its own. Threads: setting is exclusive, reading is not; the library sees to it. */

PLAIT_API plait_status plait_options_create(plait_options** out);
/* `value` as text ("0.7", "true", "1,5,7"). Setting a key again replaces its value, but for those that repeat
 * ("stop"), where it adds one. NOT_FOUND for an unknown key, INVALID_ARGUMENT for a value that does not fit. */
PLAIT_API plait_status plait_options_set(plait_options* options, const char* key, const char* value, int64_t length);
/* All there are, as JSON: [{"key", "for": ["model", ...], "type", "default", "repeats", "doc"}, ...]. */
PLAIT_API plait_status plait_options_describe(plait_tensor** json);
PLAIT_API plait_status plait_options_release(plait_options* options);

/* ---- Models --------------------------------------------------------------------------------------------------
 * A graph as its file says, with what lies beside it: tokenizer, configurations. Immutable: all calls at once. */

/* `path` is a directory or an .onnx file, whose directory then gives the rest. In a directory the model is the file
 * that genai_config.json names, else model.onnx, else decoder_model_merged.onnx, else the pair decoder_model.onnx and
 * decoder_with_past_model.onnx, else the only .onnx file. Opening reads the graph and maps the weights; a generator
 * or session loads them. The tokenizer loads beside, on a thread of its own (option "tokenizer"). NOT_FOUND,
 * BAD_MODEL, UNSUPPORTED, IO, INVALID_ARGUMENT (several candidates).
 * With the option "background" the call finds the files and returns: the rest is read on another thread. The model can
 * be used immediately, generators made from it included; calls wait for as much of it as they need, and fail with what
 * ended the opening. */
PLAIT_API plait_status plait_model_open(const char* path, plait_options* options, plait_model** out);
/* The same from memory: `count` files with the names they would have in a directory, relative, with '/'. Contents are
 * tensors of one-byte elements; they are kept, not copied. */
PLAIT_API plait_status plait_model_open_memory(const char* const* names, plait_tensor* const* contents, int64_t count,
                                               plait_options* options, plait_model** out);
/* Waits until the graph is there, and the tokenizer, where it loads by itself. TIMEOUT: not yet; else what ended the
 * opening. A tokenizer that cannot be loaded is a line in the log, and an error for whoever asks for it. */
PLAIT_API plait_status plait_model_wait(plait_model* model, int64_t timeout_ms);
/* How much of that is done, 0 to 1, by estimate; 1 when nothing is left to wait for. Does not wait. */
PLAIT_API plait_status plait_model_progress(plait_model* model, double* fraction);
/* What still loads ends with CANCELLED, and so do calls that wait for it, generators that load included; what is there
 * already is left alone. */
PLAIT_API plait_status plait_model_cancel(plait_model* model);
/* What the graph is and what was recognised in it, as JSON: "file", "producer", "opsets", "inputs", "outputs",
 * "nodes", "ops", "parameters", "weight_bytes", "recognised", and if so "layers", "layer_kinds" (how many of
 * them are "attention", "linear attention", "convolution"), of those of attention "heads", "kv_heads", "head_size",
 * "windows", then "hidden", "vocabulary", "context", "norm", "activation", "features" (patterns with counts), "found" (each
 * pattern with the node of the file where it was found), "plain" (the nodes that stayed as they are),
 * "cache_bytes_per_token", "states", "state_bytes_per_sequence" (of convolutions and recurrences: a sequence has them once,
 * and twice in a step); if not, "why_not", and "obstacles": each place where matching stopped. */
PLAIT_API plait_status plait_model_info(plait_model* model, plait_tensor** json);
/* The graph's text form after the pass of that name; "import" is before all. NOT_FOUND lists the passes. */
PLAIT_API plait_status plait_model_dump(plait_model* model, const char* pass, plait_tensor** text);
/* What every rank would do, were a generator spread over a mesh: nothing is loaded or run. Of a generator's options
 * "mesh", "seeds", "dtype" and "activations" count. JSON: "mesh", "ranks", "seeds"; "totals": "weight_bytes" of the
 * model, "cache_bytes_per_token" and "state_bytes_per_sequence", each also with "rank_" and "all_ranks_" in front,
 * "collectives" (kind to count), "bytes_per_token" (sent by each rank), "estimate" (of a step that decodes a token:
 * "reading_s", "moving_s", "waiting_s"); "parts", one for what stands before the layers, each layer, and what stands
 * behind them: "name", "kind" (a number: those of one kind are alike but for names), "weights" ("name", "node": the
 * reader, "type", "cut", "dims", "parts": into how many each dim is cut, "bytes", "rank_bytes", "copy": held once
 * more, in another way, "shared": the same memory as an earlier one, "whole": why it is not cut by all of the axis
 * tensor), "collectives" ("kind", "what", "for", "held", "axes", "bytes": sent by each rank for a token, "after": so
 * many of the weights are read before), "choices" ("node", "ways" with "cut", "bytes", "owed" and "chosen", "why");
 * "priced_at" (the step of which the bytes of "ways" are: "tokens", "rows"); "unruled" (nodes that get whole operands
 * since their op has no rule). UNSUPPORTED for what is no recognised decoder; INVALID_ARGUMENT for seeds that say
 * nothing clear, or cut nothing. */
PLAIT_API plait_status plait_model_plan(plait_model* model, plait_options* options, plait_tensor** json);
/* What a trainer with these options would hold and do, by its compiled programs: no weights are loaded, no data are read,
 * nothing is written. JSON: "mesh", "ranks", "row_tokens" (of a micro-batch, each rank along the axis data), "recompute",
 * "zero"; "totals": "trained_parameters", and of the rank 0 "rank_frozen_bytes", "rank_trained_bytes",
 * "rank_gradient_bytes", "rank_optimizer_bytes", "rank_arena_bytes" (what computing a micro-batch takes beside), "rank_bytes"
 * (their sum; what kernels need for themselves, by the number of threads, comes on top); "programs": "name",
 * "instructions", "arena_bytes", "collectives" (kind to "calls", and "async": of these run while the rank computes);
 * "trained": "name", "type", "elements", "rank_bytes", "decays". Errors as of plait_trainer_create. */
PLAIT_API plait_status plait_model_plan_training(plait_model* model, plait_options* options, plait_tensor** json);
/* Writes the model as ONNX into `directory`, which is made if it is not there: its file, under its own name, with the
 * weights in one file NAME.data beside it, and the tokenizer and configurations that the model came with. All that is no
 * weight is as it was, byte for byte. `options` may be NULL. With a generator's "mesh" of several ranks the file says how
 * such a generator cuts its weights: by the standard's multi-device annotations (ONNX IR version 11), under the mesh's
 * name, at the nodes that read the weights; "seeds", "dtype" and "activations" count, too. Opened again with that mesh it is
 * cut so by itself. With "checkpoint" or "adapter" the weights are those that were trained, under the file's own names, with
 * the "activations" that they were trained with.
 * INVALID_ARGUMENT when the directory holds a file of the model's name already; IO; UNSUPPORTED for a
 * mesh and what is no recognised decoder. */
PLAIT_API plait_status plait_model_export(plait_model* model, const char* directory, plait_options* options);

typedef enum plait_log_level PLAIT_INT {
  PLAIT_LOG_DEBUG = 0,
  PLAIT_LOG_INFO = 1,
  PLAIT_LOG_WARNING = 2
} plait_log_level;

/* The next line that the model, its generators and sessions had to say; *text NULL when there is none. At most 1024
 * lines wait; the oldest are dropped, and that is said. The option "log_dir" keeps them in files, too. */
PLAIT_API plait_status plait_log_next(plait_model* model, plait_log_level* level, plait_tensor** text);
PLAIT_API plait_status plait_model_release(plait_model* model);

/* The ops that Plait knows, as JSON: [{"op", "since", "inputs", "outputs", "attributes", "oldest", "types",
 * "written_as", "dims", "gradient", "doc", "kernels": [{"isa", "dtypes"}, ...]}, ...]. Of ONNX's own ops the forms of
 * the opsets from "oldest" on are read, with operands of "types" (docs/ops.md). An op without kernels is done by the
 * program itself, as If, Loop and Scan are, or written as another when a file is read. "gradient" says what passes back
 * through an op in training: "yes", "zero" (its results do not vary smoothly, as comparisons'), or null: not known, so that
 * nothing in front of it can be trained. Options: "isa". */
PLAIT_API plait_status plait_ops(plait_options* options, plait_tensor** json);

/* ---- Tokenizers ----------------------------------------------------------------------------------------------
 * Immutable: all calls at once. tokenizer.json and the chat template are programs of whoever wrote the model: what
 * they may take for one text is bounded by the options "text_bytes" and "text_ms" of the model or tokenizer. Calls
 * that need more end with OUT_OF_MEMORY or TIMEOUT, also those that submit texts and chats to generators. */

/* The model's own; waits while it loads. NOT_FOUND when the model has none. */
PLAIT_API plait_status plait_tokenizer_of_model(plait_model* model, plait_tokenizer** out);
/* From a directory with a tokenizer.json; the option "cache_dir" makes it load faster the next time. */
PLAIT_API plait_status plait_tokenizer_open(const char* directory, plait_options* options, plait_tokenizer** out);
/* i32 [n]. add_special 1: with what the tokenizer adds to a plain prompt (BOS); 0: for the result of
 * plait_tokenizer_chat, which has it. INVALID_ARGUMENT for what is not UTF-8. */
PLAIT_API plait_status plait_tokenizer_encode(plait_tokenizer* tokenizer, const char* text, int64_t length,
                                              int32_t add_special, plait_tensor** ids);
/* Always valid UTF-8. skip_special 1: without BOS, end of turn and the like. */
PLAIT_API plait_status plait_tokenizer_decode(plait_tokenizer* tokenizer, const int32_t* ids, int64_t count,
                                              int32_t skip_special, plait_tensor** text);
/* The prompt for a conversation [{"role": "user", "content": "..."}, ...] by the model's chat template, with the
 * header of the answer. Options of requests "tools" and "chat_variables" count. UNSUPPORTED without a template. */
PLAIT_API plait_status plait_tokenizer_chat(plait_tokenizer* tokenizer, const char* messages, int64_t length,
                                            plait_options* options, plait_tensor** text);
/* A token as the vocabulary spells it, and the way back. INVALID_ARGUMENT, NOT_FOUND when there is none. */
PLAIT_API plait_status plait_tokenizer_piece(plait_tokenizer* tokenizer, int32_t id, plait_tensor** text);
PLAIT_API plait_status plait_tokenizer_id(plait_tokenizer* tokenizer, const char* piece, int64_t length, int32_t* id);

typedef struct plait_tokenizer_facts {
  int64_t struct_size;
  int64_t vocabulary; /* one past the largest id */
  int32_t bos, eos;   /* -1: none is named */
  int32_t has_chat_template;
  int32_t reserved;
} plait_tokenizer_facts;

PLAIT_API plait_status plait_tokenizer_info(plait_tokenizer* tokenizer, plait_tokenizer_facts* out);
/* Calls of plait_tokenizer_encode, _decode and _chat that other threads have under way end with CANCELLED, and so does
 * the submission of texts and chats to generators of its model. Later calls work as before. */
PLAIT_API plait_status plait_tokenizer_cancel(plait_tokenizer* tokenizer);
PLAIT_API plait_status plait_tokenizer_release(plait_tokenizer* tokenizer);

/* ---- Worlds --------------------------------------------------------------------------------------------------
 * Ranks that are processes, started by mpirun or the like, on one machine or several. Not needed for ranks that are
 * threads of this process: the option "mesh" of a generator alone makes these. Every process opens the world; rank 0 then
 * makes generators and trainers on it (plait_generator_create_on, plait_trainer_create_on), and the others serve it:
 *
 *   plait_world_open(NULL, &world);
 *   plait_world_rank(world, &rank, &size);
 *   if (rank != 0) return plait_world_serve(world);
 *   plait_generator_create_on(world, model, options_with_mesh, &generator); ...
 *
 * A rank that fails, dies, or keeps the others waiting longer than the option "rank_timeout_ms" ends the world: all calls
 * that need it fail with CLOSED and the rank's number. The process lives on, and can make generators of threads. */

/* Once a process. Starts MPI, by the plug-in plait_mpi.so, unless the host has; the host's is used as it is and never
 * ended. All processes give the same options. NOT_FOUND without the plug-in, UNSUPPORTED for one of another version, IO. */
PLAIT_API plait_status plait_world_open(plait_options* options, plait_world** out);
PLAIT_API plait_status plait_world_rank(plait_world* world, int32_t* rank, int32_t* size);
/* Ranks other than 0: computes for rank 0's generators and trainers until rank 0 closes the world; CLOSED when it ended
 * otherwise. Waits asleep. */
PLAIT_API plait_status plait_world_serve(plait_world* world);
/* Rank 0: nothing more is made; the others' plait_world_serve return once the one that lives has ended. Releasing the last
 * handle does the same. */
PLAIT_API plait_status plait_world_close(plait_world* world);
PLAIT_API plait_status plait_world_release(plait_world* world);

/* ---- Generators ----------------------------------------------------------------------------------------------
 * A model with its weights loaded, a cache of fixed size, a queue of requests and the one thread that serves them;
 * the thread sleeps when there is nothing to do. All calls at once. Released with its last request. */

/* Starts loading and returns at once; the generator can be used immediately, calls then wait until it is loaded and
 * fail with what ended the loading. */
PLAIT_API plait_status plait_generator_create(plait_model* model, plait_options* options, plait_generator** out);
/* The same on the processes of a world, of which this is rank 0: the option "mesh" must have as many ranks. The model is
 * opened by its path on each of them. The world serves one generator or trainer at a time: OVERLOADED while another lives. */
PLAIT_API plait_status plait_generator_create_on(plait_world* world, plait_model* model, plait_options* options,
                                                 plait_generator** out);
/* Waits until it is loaded. TIMEOUT: not yet; else what ended the loading. */
PLAIT_API plait_status plait_generator_wait(plait_generator* generator, int64_t timeout_ms);
/* How much of that is done, 0 to 1, by estimate: what is left of the model's opening, compiling, weights; 1 when it is
 * ready. Does not wait. */
PLAIT_API plait_status plait_generator_progress(plait_generator* generator, double* fraction);
/* Ends the loading with CANCELLED, at whatever point it is, but not that of the model; a generator that is loaded is
 * left alone. */
PLAIT_API plait_status plait_generator_cancel(plait_generator* generator);

/* Submits a prompt. The request's defaults are the generator's options, then the model's generation_config.json.
 * `parent`, which may be NULL, is a request that ended with the option "keep": the new prompt continues its
 * conversation from the cache. Several may continue one parent: it forks, and stays as it is.
 *   text: gets the tokenizer's BOS (not with a parent). Waits for the tokenizer, as do the option "stop" and chats.
 *   ids:  taken as they are; no tokenizer is needed. Where it is still loading (option "tokenizer") tokens come before
 *         their text: an event brings what was missing, and the last of a sample waits for it. When the model's
 *         configurations name no token that ends a text, it is asked of the tokenizer (but for "ignore_eos").
 *   chat: messages as JSON; send the whole conversation each time, what the cache has of it is found by itself.
 * INVALID_ARGUMENT (ids out of range, an empty prompt, a prompt longer than the context), OUT_OF_MEMORY (can never
 * fit the cache), OVERLOADED (the queue is full), UNSUPPORTED, NOT_FOUND (no tokenizer). */
PLAIT_API plait_status plait_generator_submit_text(plait_generator* generator, const char* text, int64_t length,
                                                   plait_options* options, plait_request* parent,
                                                   plait_request** out);
PLAIT_API plait_status plait_generator_submit_ids(plait_generator* generator, const int32_t* ids, int64_t count,
                                                  plait_options* options, plait_request* parent, plait_request** out);
PLAIT_API plait_status plait_generator_submit_chat(plait_generator* generator, const char* messages, int64_t length,
                                                   plait_options* options, plait_request** out);
/* Requests that name different adapters (option "adapter") share steps, and those without skip them. A generator has room
 * for "adapter_slots" adapters of rank "adapter_rank" at most beside the products of "adapter_targets", in f32: slots * rank
 * * (inputs + outputs) * 4 bytes for each. By default that is what those need that it is made with ("adapters", "adapter").
 * Prefixes (keys and values before the first token, "prefix" of trainers) need no slot: the first pages of the cache hold
 * each, once for all requests, and its tokens count in the context.
 * This adds one from a directory in the layout of the library PEFT; requests may name it when it returns.
 * INVALID_ARGUMENT: it fits no such product, its rank is too large, its prefix is of another model or longer than the context,
 * there is one of that name. OVERLOADED: no slot is free. OUT_OF_MEMORY: the cache has no room for the prefix.
 * BAD_MODEL, NOT_FOUND, IO, UNSUPPORTED: the files; or a generator without room, or of a graph that is not recognised. */
PLAIT_API plait_status plait_generator_add_adapter(plait_generator* generator, const char* name,
                                                   const char* directory);
/* Requests can name it no more. Those that did run to their ends, and kept conversations can be continued; its slot, or its
 * pages, are free when the last of them is released. NOT_FOUND. */
PLAIT_API plait_status plait_generator_remove_adapter(plait_generator* generator, const char* name);
/* The names that requests may use, as JSON: ["name", ...]. */
PLAIT_API plait_status plait_generator_adapters(plait_generator* generator, plait_tensor** json);
/* A request to continue from, out of the bytes of plait_request_save: of the same model and dtype, and undamaged, else
 * BAD_MODEL (bytes of versions that saved no checksum are refused, too); with the
 * adapter that it was computed with, else NOT_FOUND. Good as a parent alone. */
PLAIT_API plait_status plait_generator_restore(plait_generator* generator, const void* bytes, int64_t size,
                                               plait_request** out);

typedef struct plait_generator_stats {
  int64_t struct_size;
  int64_t running, waiting;    /* samples in the running batch, requests in the queue */
  int64_t finished, preempted; /* requests, since the start */
  int64_t steps;
  int64_t pages, pages_free, pages_shared;        /* of the cache; shared: in use by more than one sequence */
  int64_t weight_bytes, cache_bytes, arena_bytes; /* slots of adapters count among weights */
  int64_t native_bytes;                           /* all three */
  int64_t prefix_tokens;                          /* prompt tokens that were found in the cache instead of computed */
  int64_t vocabulary, context;                    /* of the model; context 0: no limit but the cache */
  /* Slots for what recurrent layers carry along, one a sequence; both 0 where there are no such layers. */
  int64_t states, states_free;
} plait_generator_stats;

PLAIT_API plait_status plait_generator_statistics(plait_generator* generator, plait_generator_stats* out);
/* Seconds and calls per op as JSON {"op": {"seconds", "calls", "waited"}}, `waited` being the part of the seconds that went by
 * until other ranks came; of rank 0; empty without the option "profile". */
PLAIT_API plait_status plait_generator_profile(plait_generator* generator, plait_tensor** json);
/* What each rank holds, as JSON: [{"rank", "weight_bytes", "cache_bytes", "arena_bytes", "adapter_bytes"}, ...]; one without
 * a mesh. What ranks of one process share counts for each of them here, and once in the statistics. */
PLAIT_API plait_status plait_generator_ranks(plait_generator* generator, plait_tensor** json);
/* With the option "trace": what each rank did when, computing, in collectives and waiting in them, as JSON for Chrome's
 * trace viewer. */
PLAIT_API plait_status plait_generator_trace(plait_generator* generator, plait_tensor** json);
PLAIT_API plait_status plait_generator_release(plait_generator* generator);

/* ---- Requests ------------------------------------------------------------------------------------------------
 * All calls at once; threads that pull at once share the events out among them. Releasing a request cancels it. */

typedef enum plait_event_kind PLAIT_INT {
  PLAIT_EVENT_END = 0,    /* every sample has ended: there is nothing more to pull */
  PLAIT_EVENT_TOKEN = 1,  /* a token, and perhaps the end of its sample (finish) */
  PLAIT_EVENT_FINISH = 2, /* the end of a sample without a token */
  PLAIT_EVENT_LOGITS = 3  /* option "host_sampling": push the token that follows */
} plait_event_kind;

typedef enum plait_finish PLAIT_INT {
  PLAIT_FINISH_NONE = 0,
  PLAIT_FINISH_EOS = 1,
  PLAIT_FINISH_STOP = 2, /* a stop string; the text ends before it */
  PLAIT_FINISH_LENGTH = 3,
  PLAIT_FINISH_CANCELLED = 4,
  PLAIT_FINISH_ERROR = 5
} plait_finish;

/* Pointers are valid until this thread's next call of plait_request_next, whatever is released meanwhile. */
typedef struct plait_event {
  int64_t struct_size;
  plait_event_kind kind;
  plait_finish finish; /* not NONE: the last event of this sample */
  int32_t sample;      /* 0 .. samples - 1 */
  int32_t token;       /* -1 when there is none */
  float logprob;       /* of the model's own distribution; NaN unless "logprobs" asks for it */
  int32_t top_count;   /* alternatives, the likeliest first */
  const int32_t* top_tokens;
  const float* top_logprobs;
  const char* text; /* what this event adds: whole UTF-8, often "", never NULL; NUL-terminated */
  int64_t text_length;
  const float* logits; /* [logits_count]: one for each token of the vocabulary */
  int64_t logits_count;
} plait_event;

/* The next event. TIMEOUT when none came in time, which ends nothing; CANCELLED when the request's own deadline
 * ("deadline_ms") is over; else what ended the request. A request that was cancelled is no error: its samples finish.
 */
PLAIT_API plait_status plait_request_next(plait_request* request, int64_t timeout_ms, plait_event* out);
/* "host_sampling": the token that follows the logits pulled last. INVALID_ARGUMENT when none wait for it. */
PLAIT_API plait_status plait_request_push(plait_request* request, int32_t token);
/* Ends it soon, also in the middle of its prompt, and of a step if that is for cancelled requests alone (but on a mesh, whose
 * ranks compute a step to its end). Its samples finish with CANCELLED. */
PLAIT_API plait_status plait_request_cancel(plait_request* request);

typedef struct plait_usage {
  int64_t struct_size;
  int64_t prompt_tokens;                   /* all of them, those of a parent included */
  int64_t cached_tokens;                   /* of these: not computed again */
  int64_t new_tokens;                      /* of all samples */
  double queued_s, first_token_s, total_s; /* since it was submitted; 0 until it happens */
  double prefill_s;                        /* spent in steps that read the prompt */
  uint64_t seed;                           /* that was used: the option's, or a drawn one */
} plait_usage;

PLAIT_API plait_status plait_request_usage(plait_request* request, plait_usage* out);
/* "kind" score: logits, f32 [s, v], row i from the tokens up to i. embed: hidden states, f32 [s, h], or [h] with
 * "pooling". Waits for the end; the tensor is the same each time. INVALID_ARGUMENT for other kinds. */
PLAIT_API plait_status plait_request_result(plait_request* request, plait_tensor** out);
/* The kept conversation as bytes, u8 [n], with a checksum. INVALID_ARGUMENT when it was not kept, or has not ended. */
PLAIT_API plait_status plait_request_save(plait_request* request, plait_tensor** bytes);
PLAIT_API plait_status plait_request_release(plait_request* request);

/* ---- Trainers ------------------------------------------------------------------------------------------------
 * A recognised decoder with the gradients of what is trained, an optimizer, and what it keeps. With the option "data" it
 * goes through that file by itself, on a thread of its own; the host pulls what becomes of each step:
 *
 *   plait_options_set(options, "data", "texts.jsonl", -1);
 *   plait_options_set(options, "out", "run", -1);
 *   plait_trainer_create(model, options, &trainer);
 *   while (plait_trainer_next(trainer, -1, &step) == PLAIT_OK && step.ending == PLAIT_ENDING_NONE) ...
 *   plait_trainer_export(trainer, "model-tuned");
 *
 * Without data the host gives every step. All calls at once: what needs the weights waits for the step under way. With the
 * option "out" a run keeps checkpoints, which go on where they stopped (option "resume"), a log, and a picture of the loss
 * in that directory. docs/training.md says more. */

/* Starts loading and returns at once, as generators do. Calls wait until it is loaded, and fail with what ended the
 * loading: UNSUPPORTED (the model is not recognised, or something has no gradient), INVALID_ARGUMENT (options, or a line of
 * the data, by number), NOT_FOUND, IO, BAD_MODEL. */
PLAIT_API plait_status plait_trainer_create(plait_model* model, plait_options* options, plait_trainer** out);
/* The same on the processes of a world, of which this is rank 0, as plait_generator_create_on. Data are read here; all processes
 * see the directory "out". */
PLAIT_API plait_status plait_trainer_create_on(plait_world* world, plait_model* model, plait_options* options,
                                               plait_trainer** out);
PLAIT_API plait_status plait_trainer_wait(plait_trainer* trainer, int64_t timeout_ms);
PLAIT_API plait_status plait_trainer_progress(plait_trainer* trainer, double* fraction);
/* Ends the loading, or the run: its step under way stops without an update, and what is done is saved. Steps of the host
 * end with CANCELLED, then and later. */
PLAIT_API plait_status plait_trainer_cancel(plait_trainer* trainer);

typedef enum plait_ending PLAIT_INT {
  PLAIT_ENDING_NONE = 0,
  PLAIT_ENDING_STEPS = 1,    /* all steps are done */
  PLAIT_ENDING_PATIENCE = 2, /* the evaluation loss has not fallen for long enough */
  PLAIT_ENDING_CANCELLED = 3
} plait_ending;

/* What is not known is NaN, or 0. */
typedef struct plait_step {
  int64_t struct_size;
  plait_ending ending; /* not NONE: the run has ended; this is its last report, and no step */
  int32_t saved;       /* 1: a checkpoint is written behind this step */
  int64_t step, steps; /* updates done, this one included; of the whole run */
  double epochs;       /* how often the data were gone through */
  double loss;         /* nats a token, of the step's own tokens */
  double learning_rate;
  double gradient_norm; /* before clipping */
  int64_t tokens;       /* of the step */
  double tokens_per_second, seconds_left;
  double evaluation_loss; /* of "eval_data", where this step was followed by an evaluation */
  double best_loss;       /* of all evaluations */
  int64_t native_bytes;   /* weights, gradients, what the optimizer keeps, and what a step needs */
} plait_step;

/* The next report of the run through "data". TIMEOUT when none came in time; else what ended the run: NUMERIC for a loss or
 * gradients that are not finite, before they touch the weights; IO for a checkpoint that could not be written. At most 4096
 * reports wait: the oldest are dropped. */
PLAIT_API plait_status plait_trainer_next(plait_trainer* trainer, int64_t timeout_ms, plait_step* out);

/* A step of the host's own, without "data": forward, backward, update. `ids`: i32 or i64 [documents, s]. `labels` alike:
 * what each position is to predict, -1 where nothing counts; NULL: the id behind it. Documents that are shorter are filled
 * up at their end with any ids, and labels of -1. More tokens than "micro_batch" are taken in parts. */
PLAIT_API plait_status plait_trainer_step(plait_trainer* trainer, plait_tensor* ids, plait_tensor* labels,
                                          plait_step* out);

/* A step of a model with a loss of its own (option "loss"), which may be any graph: its inputs by name, each once. On a mesh the ranks of
 * "data" share the first dimension of those that have the batch there. `tokens` of the report are the batch. The rest as
 * plait_trainer_step; INVALID_ARGUMENT for inputs that are missing, unknown or of another type or size. */
PLAIT_API plait_status plait_trainer_step_inputs(plait_trainer* trainer, const char* const* input_names,
                                                 plait_tensor* const* inputs, int64_t input_count, plait_step* out);

/* The same by parts, for a loss of the host's own: logits out, gradients of the logits in, as often as it likes, then the
 * update, which empties the sums.
 *   forward:  `logits` becomes f32 [documents, s, v]; with "lora_dropout" what the step drops, by a document's number.
 *   backward: `gradient`, of the loss by these logits, f32 [documents, s, v], for the same ids; computes them once more.
 *   update:   the loss of `out` is NaN. */
PLAIT_API plait_status plait_trainer_forward(plait_trainer* trainer, plait_tensor* ids, plait_tensor** logits);
PLAIT_API plait_status plait_trainer_backward(plait_trainer* trainer, plait_tensor* ids, plait_tensor* gradient);
PLAIT_API plait_status plait_trainer_update(plait_trainer* trainer, plait_step* out);

typedef struct plait_evaluation {
  int64_t struct_size;
  double loss;       /* nats a target */
  double perplexity; /* its exponential */
  int64_t targets;   /* labels that count */
} plait_evaluation;

/* Of the present weights, over a file like "data", or over documents like those of plait_trainer_step. */
PLAIT_API plait_status plait_trainer_evaluate(plait_trainer* trainer, const char* data, plait_evaluation* out);
PLAIT_API plait_status plait_trainer_evaluate_ids(plait_trainer* trainer, plait_tensor* ids, plait_tensor* labels,
                                                  plait_evaluation* out);
/* The loss of a model with one of its own. */
PLAIT_API plait_status plait_trainer_evaluate_inputs(plait_trainer* trainer, const char* const* input_names,
                                                     plait_tensor* const* inputs, int64_t input_count,
                                                     plait_evaluation* out);
/* A checkpoint of the present step in "out", on the disk when it returns. INVALID_ARGUMENT without "out". */
PLAIT_API plait_status plait_trainer_save(plait_trainer* trainer);
/* The model with what was trained, as ONNX, like plait_model_export: the user's own graph and names, adapters merged.
 * UNSUPPORTED for adapters of a weight that cannot take them in: it is quantised, or something else reads it, too; and for
 * prefixes, which no weight takes in. */
PLAIT_API plait_status plait_trainer_export(plait_trainer* trainer, const char* directory);
/* The adapters alone, in the layout of the library PEFT. INVALID_ARGUMENT when there are none. */
PLAIT_API plait_status plait_trainer_save_adapter(plait_trainer* trainer, const char* directory);
/* Cancels it. */
PLAIT_API plait_status plait_trainer_release(plait_trainer* trainer);

/* ---- Sessions ------------------------------------------------------------------------------------------------
 * Any ONNX model: tensors in, tensors out, as the file says. All calls at once; runs of one session queue up. */

PLAIT_API plait_status plait_session_create(plait_model* model, plait_options* options, plait_session** out);
PLAIT_API plait_status plait_session_count(plait_session* session, int64_t* inputs, int64_t* outputs);

typedef struct plait_operand {
  int64_t struct_size;
  const char* name;  /* valid while the session's handle is not released */
  plait_dtype dtype; /* NONE: known only when it runs */
  int32_t rank;      /* -1: known only when it runs */
  int64_t dims[8];   /* -1: any size */
} plait_operand;

/* Operand number `index` of the inputs, or of the outputs. */
PLAIT_API plait_status plait_session_input(plait_session* session, int64_t index, plait_operand* out);
PLAIT_API plait_status plait_session_output(plait_session* session, int64_t index, plait_operand* out);
/* Runs it: `input_count` tensors by name, each input of the session once; then `outputs[i]` is a new tensor, the
 * output named output_names[i]. NOT_FOUND for an unknown name; INVALID_ARGUMENT for a missing input, a wrong dtype or
 * size; OUT_OF_MEMORY when it asks for more than option memory_bytes; CANCELLED. */
PLAIT_API plait_status plait_session_run(plait_session* session, const char* const* input_names,
                                         plait_tensor* const* inputs, int64_t input_count,
                                         const char* const* output_names, plait_tensor** outputs,
                                         int64_t output_count);
/* The run under way ends with CANCELLED, between two of its nodes, or within one whose work several threads share; those
 * that wait for it go on. */
PLAIT_API plait_status plait_session_cancel(plait_session* session);
/* With the option "trace": as of generators. */
PLAIT_API plait_status plait_session_trace(plait_session* session, plait_tensor** json);
PLAIT_API plait_status plait_session_release(plait_session* session);

#ifdef __cplusplus
}
#endif

#endif /* PLAIT_H */
