// The table of options.
#include "bindings/c/options.h"

#include "core/base/text.h"
#include "core/schedule/schedules.h"

namespace plait::c_api {
namespace {

using Type = OptionRow::Type;
constexpr double below_one = 0.999999;  // upper limit of decays

/// The schedules by name, each with what it is.
std::string schedule_names() {
  std::vector<std::string> out;
  for (const ScheduleRow& row : schedule_rows())
    out.push_back(cat(row.name, row.number.empty() ? "" : cat(":N (N ", row.number, ", ", row.usual, " if left out)"),
                      ": ", row.about));
  return join(out, "; ");
}

constexpr OptionRow rows[] = {
    {"isa", Type::text, for_model, "",
     "most advanced instruction set to use: reference, avx2, avx512, avx512_bf16, amx; default: environment "
     "variable PLAIT_ISA, otherwise the best that the processor has"},
    {"cache_dir", Type::text, for_model | for_tokenizer, "",
     "directory for files that speed up later loads, created if absent; default: nothing is written"},
    {"background", Type::boolean, for_model, "false",
     "open returns at once: see plait_model_wait, _progress and _cancel"},
    {"log_dir", Type::text, for_model, "",
     "directory for a copy of the lines of plait_log_next, created if absent: plait-PID.log, of limited size; "
     "default: nothing is written"},
    {"tokenizer", Type::choice, for_model, "beside",
     "beside: loads on its own thread in parallel to the model, and events have text once it is loaded; late: loads "
     "on first use, and events have no text; none: is not loaded",
     0, 0, "beside late none"},
    {"weights", Type::choice, for_model, "mapped",
     "mapped: the model's files are memory-mapped, and pages are read on first use; copied: files are read into "
     "memory when the model is opened, so later changes of them have no effect",
     0, 0, "mapped copied"},
    {"unpack", Type::choice, for_model, "none",
     "quantised weights of GGUF files: none: stay in blocks; f32, f16, bf16: become floats, which can be trained and "
     "take in adapters",
     0, 0, "none f32 f16 bf16"},
    {"text_bytes", Type::bytes, for_model | for_tokenizer, "64M",
     "maximum memory of tokenizing or decoding one text, or rendering one conversation by the chat template, in "
     "addition to 1 KiB per byte of text or 64 bytes per byte of the conversation; beyond it: OUT_OF_MEMORY",
     1, huge},
    {"text_ms", Type::integer, for_model | for_tokenizer, "10000",
     "maximum milliseconds of the same, in addition to one per 64 bytes; beyond it: TIMEOUT", 1, huge},
    {"threads", Type::integer, for_generator | for_session | for_trainer | for_plan, "0",
     "compute threads, on a mesh of each rank; 0: one per usable processor, or this rank's share of them", 0, 4096},
    {"device", Type::text, for_generator | for_session | for_trainer, "auto",
     "what computes: cpu, or auto: the processor; cuda: NVIDIA GPUs, one for each rank of a machine from the first, "
     "cuda:N: from number N, cuda:0,2: of the first rank, the second and so on, which may share one; emulated: the "
     "CUDA path on the processor, for tests"},
    {"cuda_plugin", Type::text, for_generator | for_session | for_trainer, "",
     "path of plait_cuda.so, or of plait_cuda_emulated.so; \"\": next to this library"},
    {"dtype", Type::choice, for_generator | for_session | for_trainer | for_export | for_plan, "file",
     "file, f32: weights as stored, arithmetic and cache in f32; bf16: weights and cache in bf16", 0, 0,
     "file f32 bf16"},
    {"activations", Type::choice, for_generator | for_trainer | for_export, "file",
     "for decoders whose file rounds activations to 8 bits: file: rounded, op by op as in the file; exact: not "
     "rounded, which is more precise, recognised and faster",
     0, 0, "file exact"},
    {"cache_bytes", Type::bytes, for_generator, "0",
     "hard limit of the key-value cache's bytes, of all ranks together; 0: 512M, and on GPUs what "
     "gpu_memory_utilization leaves, or what `running` sequences of the longest length use if that is less",
     0, huge},
    {"gpu_memory_utilization", Type::real, for_generator, "0.9",
     "share of a GPU's free memory that weights, workspace and a cache of cache_bytes=0 take at most", 0.01, 1},
    {"memory_bytes", Type::bytes, for_generator | for_session | for_plan, "0",
     "maximum bytes of a run in addition to weights and cache, of all ranks together; 0: three quarters of the "
     "machine's memory",
     0, huge},
    {"time_limit", Type::real, for_session, "0",
     "maximum seconds of a run, which otherwise ends with TIMEOUT; 0: no limit", 0, 1e8},
    {"page_tokens", Type::integer, for_generator, "32", "tokens per page of the cache", 1, 4096},
    {"step_tokens", Type::integer, for_generator, "1024",
     "maximum tokens of a step, over all requests; a graph that is not recognised takes each prompt whole", 1,
     1 << 20},
    {"running", Type::integer, for_generator, "64", "maximum samples that run at once", 1, 65536},
    {"queue", Type::integer, for_generator, "256",
     "maximum requests that wait; further ones are refused as OVERLOADED", 1, 1 << 20},
    {"queue_tokens", Type::integer, for_generator, "0",
     "maximum tokens of the prompts that wait; further requests are refused as OVERLOADED; 0: no limit", 0, huge},
    {"queue_wait_ms", Type::integer, for_generator, "0",
     "longest expected wait, by what requests before it still need, and time of the prompt; requests that must wait and would take longer "
     "are refused as OVERLOADED; 0: no limit", 0, huge},
    {"overtakes", Type::integer, for_generator, "32",
     "later requests that may start before a waiting one, by their priority or because it does not fit yet; then it is next", 0, 1 << 20},
    {"step_ms", Type::integer, for_generator, "0",
     "goal of a step's milliseconds while samples decode, which prompts are cut into chunks for; 0: chunks of step_tokens", 0, 1000000},
    {"context", Type::integer, for_generator, "0",
     "maximum tokens of a sequence; 0: what the graph and config.json allow", 0, huge},
    {"mesh", Type::text, for_generator | for_trainer | for_export | for_plan, "",
     "ranks of a decoder: \"tensor=2\" shards its weights (tensor parallel), \"data=2,tensor=2\" also distributes "
     "requests (data parallel), \"pipeline=2\" gives ranks stages of its layers; file: as many as the "
     "file is annotated for; auto: planned for this machine's ranks and memory, which are measured for some seconds; \"\": one "
     "rank"},
    {"pipeline", Type::text, for_trainer | for_export | for_plan, "1f1b",
     "schedule of the mesh's axis pipeline: the path of a file of lists, in Plait's text form or as PyTorch writes "
     "them "
     "(CSV), or one of ",
     0, 0, "", false, schedule_names},
    {"stages", Type::text, for_generator | for_trainer | for_export | for_plan, "auto",
     "where layers are cut into pipeline stages: auto: balanced by work, then by memory; file: as the file is "
     "annotated; "
     "or the layers of each stage, as in 9,9: embeddings belong to the first stage, the head to the last, which may "
     "have "
     "no layer"},
    {"rank_memory", Type::text, for_generator, "",
     "the most bytes of weights, cache and workspace of each pipeline rank, as in 3G,1.5G, or once for all: stages "
     "are cut so that they fit; \"\": no limit"},
    {"seats", Type::text, for_trainer | for_export | for_plan, "",
     "pipeline ranks of each stage, as in 15:1, which take its micro-batches in turn; \"\": the schedule's own"},
    {"micro_batches", Type::integer, for_trainer | for_plan, "0",
     "micro-batches into which a step is cut for a pipeline, at least, if it has so many samples; 0: four for each "
     "pipeline rank",
     0, 1 << 20},
    {"flush_every", Type::integer, for_trainer, "0",
     "steps of a window of an asynchronous schedule, between which weights are evaluated and saved; 0: up to the "
     "next "
     "evaluation or checkpoint, at most 16",
     0, 1 << 16},
    {"timeline", Type::text, for_trainer, "",
     "file that each step's timeline of the pipeline's ranks is drawn into, replacing the last: FILE.svg, or text as "
     "in "
     "the plan; \"\": none"},
    {"seeds", Type::text, for_generator | for_trainer | for_export | for_plan, "",
     "sharding of weights over the mesh's axis tensor: a recipe, tensor or expert; data: none; search: the "
     "cheapest; file: the file's annotations; PATTERN=SHARDING: for weights with matching names, as in "
     "\"*.q_proj.weight=[tensor, -]\"; sequence: additionally shards tokens between products (sequence parallel); "
     "expert_data: additionally, in training, shards experts over the axis data; default: file if it has "
     "annotations for the mesh, otherwise tensor",
     0, 0, "", true},
    {"rank_timeout_ms", Type::integer, for_generator | for_world, "60000",
     "milliseconds that a rank waits for another in a step before it counts as failed; for processes the world's "
     "option applies",
     1, huge},
    {"share_memory", Type::boolean, for_world, "true",
     "processes of one machine exchange through shared memory; false: through MPI messages, as between machines"},
    {"mpi_plugin", Type::text, for_world, "", "path of plait_mpi.so; \"\": next to this library"},
    {"off", Type::text, for_generator, "",
     "name of a pass to skip, for debugging: \"raise\" runs a decoder's graph as written; \"fuse\"", 0, 0, "", true},
    {"grammars", Type::boolean, for_generator, "false",
     "make what grammars need of the tokenizer while the generator loads; otherwise the first request with one does, which takes "
     "0.3 s for 262,144 tokens"},
    {"profile", Type::boolean, for_generator, "false", "measure seconds per op"},
    {"trace", Type::boolean, for_generator | for_session, "false",
     "record the timeline of each rank, up to a million events per rank"},
    {"data", Type::text, for_trainer, "",
     "training data: JSON lines (text; prompt and completion; messages), an .npy array of token ids, or plain text; "
     "\"\": the host passes each step's data"},
    {"eval_data", Type::text, for_trainer, "", "evaluation data, like data; \"\": none"},
    {"out", Type::text, for_trainer, "",
     "directory for checkpoints, the log and the loss curve, created if absent; \"\": nothing is written"},
    {"resume", Type::boolean, for_trainer, "false", "continue from the newest checkpoint in out, if any"},
    {"steps", Type::integer, for_trainer, "0", "updates of the whole run; 0: from epochs", 0, huge},
    {"epochs", Type::real, for_trainer, "1", "passes over the data, without steps", 0, 1e9},
    {"batch", Type::integer, for_trainer | for_plan, "8", "samples per step", 1, 1 << 24},
    {"seq", Type::integer, for_trainer, "0",
     "maximum tokens of a sample, to which streams are cut; 0: 1024, or the model's context if that is shorter", 0,
     1 << 24},
    {"cut_long", Type::boolean, for_trainer, "false",
     "documents longer than seq are cut; otherwise they are an error"},
    {"micro_batch", Type::integer, for_trainer | for_plan, "0",
     "maximum tokens computed at once; the rest of a step follows, with gradient accumulation; 0: batch samples of "
     "seq tokens, at most 2048 (512 with adapters), and at least seq",
     0, 1 << 24},
    {"lora", Type::integer, for_trainer | for_plan, "0", "rank of the LoRA adapters to train; 0: the weights are trained", 0,
     65536},
    {"lora_alpha", Type::real, for_trainer, "16", "adapters are scaled by alpha / rank", 0, 1e9},
    {"lora_dropout", Type::real, for_trainer, "0",
     "dropout of adapters' inputs, different for each token, step and adapter; reproducible by seed on any mesh; "
     "evaluations have none",
     0, 0.99},
    {"lora_targets", Type::text, for_trainer, "",
     "weights that get adapters: a role query, key, value, attention_output, attention, feed_forward, head, "
     "embedding or experts; or a pattern of names of weights, nodes or modules, as \"*.q_proj.weight\"; default: "
     "all Linears but the head",
     0, 0, "", true},
    {"loss", Type::text, for_trainer, "",
     "name of a model output that is its own loss, one float: any model is then trained as written, and the host "
     "passes each step's inputs by name; \"\": the next-token loss of a recognised decoder"},
    {"prefix", Type::integer, for_trainer, "0",
     "tokens of a prefix to train instead: keys and values before each document in every attention layer; not with "
     "lora; 0: none",
     0, 65536},
    {"train", Type::text, for_trainer, "", "pattern of names of weights to train, without adapters; default: all", 0,
     0, "", true},
    {"checkpoint", Type::text, for_trainer | for_export, "",
     "directory of a checkpoint of the model, or of a run, then its newest: for an export, the weights to write, "
     "with merged adapters; for a trainer, the initial weights, with merged adapters, or adapters next to frozen "
     "weights if nothing is trained (frozen)"},
    {"adapter", Type::text, for_generator | for_request | for_trainer | for_export, "",
     "adapter directory in PEFT's layout: for a generator, the adapter of requests that name none, next to "
     "unchanged weights; for an export, to be merged; for a trainer, its initial value. For a request, the name of "
     "one of the generator's adapters, \"\": none; a continued conversation keeps its adapter"},
    {"bits", Type::integer, for_export, "0",
     "round the weights of products to so many bits, in blocks (com.microsoft.MatMulNBits): 2 to 8; 0: floats stay",
     0, 8},
    {"block", Type::integer, for_export, "32", "inputs of a weight that share a scale: 16, 32, 64, 128 or 256", 16,
     256},
    {"asymmetric", Type::boolean, for_export, "false",
     "give each block a zero of its own, which fits weights better that are not centred, and takes a code more a "
     "block"},
    {"head_bits", Type::integer, for_export, "8", "bits of the product that gives the logits; 0: stays as it is", 0,
     8},
    {"embedding_bits", Type::integer, for_export, "8",
     "bits of the table that tokens are looked up in; 0: stays as it is. A head with the same table shares it if its "
     "bits are the same",
     0, 8},
    {"calibration", Type::text, for_export, "",
     "file of texts, as for training: weights are rounded for what they multiply there (GPTQ); \"\": each to "
     "nearest"},
    {"calibration_tokens", Type::integer, for_export, "65536", "most tokens of these texts that are read", 16,
     1 << 26},
    {"calibration_window", Type::integer, for_export, "512", "tokens that are run at once", 16, 1 << 20},
    {"adapters", Type::text, for_generator, "",
     "NAME=DIRECTORY of an adapter in PEFT's layout that requests may name; plait_generator_add_adapter adds more", 0,
     0, "", true},
    {"adapter_slots", Type::integer, for_generator, "0",
     "maximum low-rank adapters at once, including removed ones that are still in use; 0: as many as the generator "
     "is created with",
     0, 4096},
    {"adapter_rank", Type::integer, for_generator, "0",
     "rank of the largest adapter; 0: of the largest that the generator is created with, 16 without any", 0, 65536},
    {"adapter_targets", Type::text, for_generator, "",
     "Linears that later adapters may change: roles or patterns of names, as in lora_targets; default: those of the "
     "adapters that the generator is created with, and all but the head if adapter_slots is larger",
     0, 0, "", true},
    {"zero", Type::integer, for_trainer | for_plan, "0",
     "what is sharded over the mesh's axis data (ZeRO): 0: nothing; 1: optimizer state; 2: also summed gradients; "
     "3: also weights (FSDP)",
     0, 3},
    {"bundle_bytes", Type::bytes, for_trainer, "256K",
     "maximum bytes of a bucket, which joins collectives of small arrays (gradients, weights of zero 3); 0: no "
     "buckets"},
    {"overlap_bytes", Type::bytes, for_trainer, "64M",
     "maximum bytes per rank of asynchronous collectives, which overlap with computation (gradients of later "
     "layers, weights of zero 3); 0: none. Results are the same to the bit"},
    {"recompute", Type::choice, for_trainer | for_plan, "auto",
     "activation checkpointing: off: activations are kept for the backward pass; selective: norms, activation "
     "functions and the like are recomputed; rounded: also, results of products that dtype bf16 rounds are kept as "
     "bf16; full: all but the residual stream is recomputed; auto: rounded with dtype bf16, otherwise off. All but "
     "rounded have the same bits",
     0, 0, "auto off selective rounded full"},
    {"decoder", Type::text, for_plan, "",
     "the decoder to plan for, by its sizes: family=llama|gpt,layers=80,hidden=8192,heads=64,kv_heads=8,feed_forward=28672,"
     "vocabulary=128256,experts=8,experts_used=2,experts_every=1,sequence=4096 (tokens of a sample)"},
    {"machine", Type::text, for_plan, "",
     "the machine to plan for: a100, h100, h200 or v100, which come along; the path of a file (docs/planning.md); or here: this one, "
     "which is measured for two seconds"},
    {"generate", Type::text, for_plan, "",
     "plan generation instead of training: batch=1,prompt=512,context=4096: sequences at once, tokens of a prompt, and tokens in the "
     "cache when one is generated"},
    {"drawings", Type::boolean, for_plan, "false", "also give the timeline of a step, and memory while it runs"},
    {"ranks", Type::integer, for_plan, "1", "devices to plan for; without it those of mesh", 1, 1 << 20},
    {"frozen", Type::boolean, for_trainer, "false",
     "nothing is trained, and no gradients are kept: only evaluations and plait_trainer_forward"},
    {"optimizer", Type::choice, for_trainer | for_plan, "adamw",
     "adamw; sgd with momentum; or adafactor, which keeps a row and a column per matrix", 0, 0,
     "adamw sgd adafactor"},
    {"beta1", Type::real, for_trainer, "0.9", "of adamw: decay of the mean gradient", 0, below_one},
    {"beta2", Type::real, for_trainer, "0.999", "of adamw: decay of the mean square", 0, below_one},
    {"epsilon", Type::real, for_trainer, "1e-8", "of adamw: added to the root of the mean square", 1e-30, 1},
    {"beta2_decay", Type::real, for_trainer, "-0.8",
     "of adafactor: the squares of step t have the weight t^beta2_decay in their mean", -10, 0},
    {"momentum", Type::real, for_trainer, "0", "of sgd", 0, 1},
    {"weight_decay", Type::real, for_trainer, "0.01",
     "decoupled weight decay: each step subtracts this times the learning rate times the weight; not for biases and "
     "norms",
     0, 1e6},
    {"lr", Type::real, for_trainer, "1e-4", "maximum learning rate", 0, 1e6},
    {"schedule", Type::choice, for_trainer, "cosine",
     "learning rate after the warm-up: cosine and linear decay to lr_floor over steps; constant is the default if "
     "the host passes every step and sets no steps",
     0, 0, "constant linear cosine"},
    {"warmup", Type::integer, for_trainer, "0", "steps of linear warm-up", 0, huge},
    {"lr_floor", Type::real, for_trainer, "0", "final learning rate, as a fraction of lr", 0, 1},
    {"clip", Type::real, for_trainer, "1", "maximum gradient norm; 0: no clipping", 0, 1e30},
    {"evaluate_every", Type::integer, for_trainer, "0", "steps between evaluations; 0: only at the end", 0, huge},
    {"patience", Type::integer, for_trainer, "0",
     "end after so many evaluations in a row without a new best; 0: never", 0, huge},
    {"save_every", Type::integer, for_trainer, "0", "steps between checkpoints; 0: only at the end", 0, huge},
    {"keep_checkpoints", Type::integer, for_trainer, "3", "newest checkpoints that are kept, in addition to the best",
     1, huge},
    {"kind", Type::choice, for_request, "generate",
     "generate; score: logits of every position of the prompt; embed: hidden states of the prompt", 0, 0,
     "generate score embed"},
    {"pooling", Type::choice, for_request, "none", "of embed: none (each token's), mean, last", 0, 0,
     "none mean last"},
    {"inputs_embeds", Type::tensor, for_request, "",
     "f32, f16 or bf16 [n, h] or [images, n, h]: embeddings of an image or a sound, as its encoder gives them, that stand for the "
     "prompt's tokens \"inputs_token\", in order; on the command line an .npy file"},
    {"image_features", Type::tensor, for_request, "",
     "the same for the tokens of images, next to \"audio_features\": as embedding.onnx of onnxruntime-genai takes them"},
    {"audio_features", Type::tensor, for_request, "", "the same for the tokens of sounds"},
    {"inputs_token", Type::ids, for_request, "",
     "token ids that the rows of \"inputs_embeds\" stand for; default: image_token_id, audio_token_id and the like of config.json or "
     "genai_config.json, and those that the file of embeddings compares with"},
    {"image_grid_thw", Type::tensor, for_request, "",
     "i64 [images, 3]: patches of each image over time, height and width, as its processor counts them; of decoders whose "
     "position_ids are [3, b, s] (Qwen-VL)"},
    {"video_grid_thw", Type::tensor, for_request, "", "the same of videos"},
    {"second_per_grid_ts", Type::tensor, for_request, "",
     "f32 [videos]: seconds from one time of \"video_grid_thw\" to the next (Qwen2.5-VL); default: 1"},
    {"input_features", Type::tensor, for_request, "",
     "f32, f16 or bf16, as the encoder takes it, with or without a batch of 1: the sound to which an encoder-decoder such as Whisper "
     "attends; the prompt is what its decoder begins with; on the command line an .npy file"},
    {"input_values", Type::tensor, for_request, "", "the same of an encoder with that input, which takes samples of sound"},
    {"pixel_values", Type::tensor, for_request, "", "the same of an encoder with that input, which takes images"},
    {"decoder_ids", Type::ids, for_request, "",
     "token ids with which the decoder of an encoder-decoder begins, where the prompt is the encoder's text or empty; default: "
     "decoder_start_token_id and the tokens that config.json or generation_config.json forces after it"},
    {"max_tokens", Type::integer, for_request, "256",
     "maximum new tokens of a sample; 0: none, the prompt is only processed", 0, huge},
    {"min_tokens", Type::integer, for_request, "0", "minimum new tokens of a sample", 0, huge},
    {"temperature", Type::real, for_request, "0", "0: greedy; higher: more random", 0, 1e6},
    {"top_k", Type::integer, for_request, "0", "only the k most likely tokens; 0: all", 0, 2147483647},
    {"top_p", Type::real, for_request, "1", "only the most likely tokens whose probabilities reach this sum", 0, 1},
    {"min_p", Type::real, for_request, "0",
     "only tokens with at least this fraction of the most likely one's probability", 0, 1},
    {"repetition_penalty", Type::real, for_request, "1",
     "logits of tokens that occurred: positive ones are divided, negative ones multiplied by it", 1e-6, 1e6},
    {"presence_penalty", Type::real, for_request, "0", "subtracted once from the logits of tokens in the output",
     -1e6, 1e6},
    {"frequency_penalty", Type::real, for_request, "0", "subtracted for each occurrence of a token in the output",
     -1e6, 1e6},
    {"logit_bias", Type::biases, for_request, "", "added to logits: 5:-1.5,7:100"},
    {"seed", Type::integer, for_request | for_trainer, "",
     "of the sampling; the same seed gives the same tokens; default: random. Of a trainer: of the samples' order "
     "and of adapters' initial values; default: 0",
     -9.3e18, 9.3e18},
    {"stop", Type::text, for_request, "", "a text that ends the output, which excludes it", 0, 0, {}, true},
    {"stop_tokens", Type::ids, for_request, "", "tokens that end the output, in addition to the model's: 2,106"},
    {"suppress_tokens", Type::ids, for_request, "", "tokens that are never chosen, as Whisper's files name some: 2,106"},
    {"begin_suppress_tokens", Type::ids, for_request, "", "tokens that are not chosen as the first of an output"},
    {"ignore_eos", Type::boolean, for_request, "false", "do not stop at the model's end-of-text tokens"},
    {"logprobs", Type::integer, for_request, "-1",
     "log-probabilities with so many alternatives per token; 0: only of the token; -1: none", -1, 1024},
    {"prompt_logprobs", Type::integer, for_request, "-1",
     "events of the prompt's tokens come first, with log-probabilities and so many alternatives; -1: none", -1, 1024},
    {"samples", Type::integer, for_request, "1", "outputs from one prompt; they share its cache", 1, 1024},
    {"deadline_ms", Type::integer, for_request, "0", "milliseconds after which a request ends; 0: never", 0, huge},
    {"queue_deadline_ms", Type::integer, for_request, "0",
     "milliseconds after which a request that still waits ends as OVERLOADED; 0: never", 0, huge},
    {"priority", Type::integer, for_request, "0", "requests with lower numbers start before those with higher ones", -1000000, 1000000},
    {"keep", Type::boolean, for_request, "false", "keep the conversation (of sample 0) to continue, fork or save it"},
    {"host_sampling", Type::boolean, for_request, "false", "the host gets logits and passes the tokens"},
    {"json_schema", Type::text, for_request, "",
     "JSON schema that the output follows, with the keywords that docs/serving.md lists; of json_schema, json_object, regex, "
     "grammar and choices at most one is given"},
    {"json_object", Type::boolean, for_request, "false", "the output is a JSON object"},
    {"regex", Type::text, for_request, "", "regular expression that the whole output matches"},
    {"grammar", Type::text, for_request, "", "grammar that the output follows, in Lark's syntax; its first rule is start"},
    {"choices", Type::text, for_request, "", "JSON list of texts, one of which is the output"},
    {"forced_tokens", Type::boolean, for_request, "true",
     "tokens that only the grammar determines are fed together, without logits; the output is the same either way"},
    {"special_text", Type::boolean, for_request, "false", "the text has special tokens too"},
    {"address", Type::text, for_server, "127.0.0.1:8080",
     "HOST:PORT that is listened on, port 0: any free one; or unix:PATH of a socket"},
    {"tls_certificate", Type::text, for_server, "",
     "file of PEM with the server's certificate, and then those that vouch for it, for TLS; \"\": none"},
    {"tls_key", Type::text, for_server, "", "file of PEM with the certificate's private key, without a password"},
    {"api_key", Type::text, for_server, "", "a key that callers must have; none: everyone may call", 0, 0, {}, true},
    {"cors_origin", Type::text, for_server, "", "origin of web pages that may call, or *; \"\": none"},
    {"adapter_dir", Type::text, for_server, "",
     "directory below which /v1/load_lora_adapter finds adapters; \"\": they are not loaded at run time"},
    {"no_page", Type::boolean, for_server, "false", "no page at /, which is a chat and shows what the server does"},
    {"calls", Type::integer, for_server, "1024", "maximum calls that wait to be read; more are refused with 429", 1,
     1 << 20},
    {"max_connections", Type::integer, for_server, "4096", "maximum connections; more are closed at once", 1,
     1 << 20},
    {"max_body", Type::bytes, for_server, "8M", "largest body of a call", 1024, 1 << 30},
    {"max_bodies", Type::bytes, for_server, "256M", "largest sum of the bodies of all calls; more get 429", 1024, 1e15},
    {"max_head", Type::bytes, for_server, "64K", "largest head of a call", 8192, 1 << 20},
    {"idle_ms", Type::integer, for_server, "75000", "milliseconds until a connection without a call is closed", 100,
     huge},
    {"body_ms", Type::integer, for_server, "30000", "milliseconds in which a body has to come", 100, huge},
    {"write_ms", Type::integer, for_server, "60000",
     "milliseconds until a connection is closed whose client takes nothing", 1000, huge},
    {"tools", Type::text, for_request, "", "of chat: a JSON list of functions, for the chat template"},
    {"chat_variables", Type::text, for_request, "", "of chat: a JSON object of further variables of the template"},
};

}  // namespace

std::span<const OptionRow> option_rows() { return rows; }

}  // namespace plait::c_api
