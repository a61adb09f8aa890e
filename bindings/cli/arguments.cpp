// The commands and their options, as CLI11 parses them.
#include "bindings/cli/arguments.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "bindings/cli/common.h"
#include "bindings/cli/completion.h"

namespace plait::cli {
namespace {

std::string default_cache_dir() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache && *cache) return std::string(cache) + "/plait";
  const char* home = std::getenv("HOME");
  return home && *home ? std::string(home) + "/.cache/plait" : std::string();
}

constexpr const char *common_group = "Often used", *sampling_group = "Sampling", *other_group = "More";

void add_any_option(CLI::App& command, ModelArguments& arguments) {
  command.add_option("--option", arguments.options, "KEY=VALUE: any other option; `plait options` lists them")
      ->allow_extra_args(false)
      ->group(other_group);
}

void add_model_arguments(CLI::App& command, ModelArguments& arguments, bool computes = true) {
  command.add_option("-m,--model,MODEL", arguments.model, "A model directory, an .onnx or a .gguf file")->required();
  if (computes) {
    command.add_option("-t,--threads", arguments.threads, "Compute threads; 0: one per usable processor")
        ->group(common_group);
    command.add_option("--dtype", arguments.dtype, "Weights in file (as stored), f32 or bf16")->group(common_group);
  }
  arguments.cache_dir = default_cache_dir();
  command
      .add_option("--cache-dir", arguments.cache_dir, "Directory for files that speed up later loads; \"\" for none")
      ->group(other_group);
  if (!computes) return;
  command.add_option("--log-dir", arguments.log_dir, "Directory for the library's log, in small files")
      ->group(other_group);
  add_any_option(command, arguments);
}

void add_trace_argument(CLI::App& command, ModelArguments& arguments) {
  command
      .add_option("--trace", arguments.trace, "Write a timeline of each rank to this file, for Chrome's trace viewer")
      ->group(other_group);
}

/// Options that distribute a model over ranks.
void add_mesh_arguments(CLI::App& command, ModelArguments& arguments,
                        const std::string& what =
                            "Distribute the model over ranks: tensor=2 shards its weights, pipeline=2 its layers, "
                            "data=2 distributes requests. Ranks are threads, or processes under mpirun") {
  command.add_option("--mesh", arguments.mesh, what)->group(common_group);
  command.add_option("--seeds", arguments.seeds, "Sharding of the weights with --mesh; see `plait options`")
      ->allow_extra_args(false)
      ->group(other_group);
}

/// Adds an option of the library, "lora_alpha" as --lora-alpha; `given` gets its key and each value. `names`: instead of
/// that name.
CLI::Option* add_library_option(CLI::App& command, const nlohmann::json& row,
                                std::vector<std::pair<std::string, std::string>>& given, std::string names = {}) {
  const auto key = row.at("key").get<std::string>(), doc = row.at("doc").get<std::string>(),
             usual = row.at("default").get<std::string>();
  if (names.empty()) {
    names = "--" + key;
    std::replace(names.begin() + 2, names.end(), '_', '-');
  }
  const auto take = [&given, key](const std::string& value) { given.emplace_back(key, value); };
  if (row.at("type") == "true or false")
    return command.add_flag_callback(
        names, [take] { take("true"); }, doc);
  const std::string help = usual.empty() ? doc : doc + " (" + usual + ")";
  if (!row.at("repeats")) return command.add_option_function<std::string>(names, take, help)->take_last();
  const auto take_all = [take](const std::vector<std::string>& values) {
    std::for_each(values.begin(), values.end(), take);
  };
  return command.add_option_function<std::vector<std::string>>(names, take_all, help)->allow_extra_args(false);
}

/// How tokens are chosen, and when an answer ends; without those in `left_out`.
void add_request_options(CLI::App& command, std::vector<std::pair<std::string, std::string>>& request,
                         std::set<std::string> left_out) {
  // What the command line does not show, or has under another name.
  left_out.insert({"kind", "pooling", "keep", "host_sampling", "adapter", "tools", "chat_variables", "forced_tokens",
                   "special_text"});
  const std::set<std::string> common = {"max_tokens", "temperature", "top_k", "top_p", "seed", "stop"};
  for (const nlohmann::json& row : option_rows("request")) {
    const auto key = row.at("key").get<std::string>();
    if (left_out.count(key)) continue;
    if (key == "json_schema" || key == "grammar") {
      const std::string name = key == "grammar" ? "--grammar" : "--json-schema";
      const auto take = [&request, key](const std::string& path) { request.emplace_back(key, read_all(path)); };
      command.add_option_function<std::string>(name, take, "File with the " + row.at("doc").get<std::string>())
          ->take_last()
          ->group(sampling_group);
      continue;
    }
    add_library_option(command, row, request, key == "max_tokens" ? "-n,--max-tokens" : "")
        ->group(common.count(key) ? common_group : sampling_group);
  }
}

/// Options of pipeline stages, of those of `scope`.
void add_stage_arguments(CLI::App& command, ModelArguments& arguments, const char* scope,
                         std::initializer_list<std::pair<const char*, const char*>> keys) {
  for (const nlohmann::json& row : option_rows(scope))
    for (const auto& [key, name] : keys)
      if (row.at("key") == key)
        command
            .add_option_function<std::string>(
                name,
                [&arguments, key = key](const std::string& value) {
                  arguments.options.push_back(key + ("=" + value));
                },
                row.at("doc").get<std::string>())
            ->group(other_group);
}
void add_stage_arguments(CLI::App& command, ModelArguments& arguments) {
  add_stage_arguments(command, arguments, "generator", {{"stages", "--stages"}, {"rank_memory", "--rank-memory"}});
}

void add_generate(CLI::App& app, GenerateArguments& arguments) {
  CLI::App& command = *app.add_subcommand("generate", "Continue a prompt; the text streams to stdout");
  command.footer(
      "Sampling options default to the model's generation_config.json. With a model\n"
      "without a tokenizer --ids prints ids.\n\nExamples:\n"
      "  plait generate DIR --prompt \"The sea\" --max-tokens 40 --seed 7\n"
      "  plait generate -m DIR -p \"The sea\" -n 40\n"
      "  plait generate DIR --prompt \"The sea\" --mesh tensor=2\n"
      "  mpirun -n 4 plait generate DIR --prompt \"The sea\" --mesh tensor=4\n"
      "  plait generate DIR --ids 2,651,6 --temperature 0 --json\n"
      "  plait generate DIR --ids 2,60,60,60,60,5 --pixel-values image.npy");
  command.add_option("-p,--prompt", arguments.prompt, "The text to continue")->group(common_group);
  command.add_option("-f,--file", arguments.file, "Instead of --prompt: a file with the text; - for stdin")
      ->group(common_group);
  command.add_option("--ids", arguments.ids, "Instead of --prompt: its token ids, as in 1,5,7")->group(common_group);
  add_model_arguments(command, arguments);
  command.add_flag("--chat", arguments.chat, "The text is a user's message to a chat model")->group(common_group);
  command.add_option("--adapter", arguments.adapter, "Adapter directory in PEFT's layout")->group(common_group);
  command.add_flag("--json", arguments.json, "Print one object: ids, text, finish_reason, usage, timings")
      ->group(common_group);
  add_request_options(command, arguments.request, {});
  add_mesh_arguments(command, arguments);
  add_stage_arguments(command, arguments);
  add_trace_argument(command, arguments);
  command.add_option("--input", arguments.inputs, "NAME=FILE.npy, an input of an encoder of images or sounds next to the decoder")
      ->allow_extra_args(false)
      ->group(other_group);
  command.add_flag("--profile", arguments.profile, "Print seconds per op to stderr")->group(other_group);
  command.parse_complete_callback([&arguments, &command] {
    arguments.has_prompt = command.count("--prompt") > 0;
    arguments.has_ids = command.count("--ids") > 0;
    arguments.has_file = command.count("--file") > 0;
    const int prompts = arguments.has_prompt + arguments.has_ids + arguments.has_file;
    const bool has_input = command.count("--input-features") + command.count("--input-values") + command.count("--pixel-values") > 0;
    if (prompts > 1 || (prompts == 0 && !has_input))
      throw CLI::ValidationError(prompts > 1 ? "only one of --prompt, --file and --ids can be given"
                                             : "one of --prompt, --file and --ids is needed");
    if (prompts == 0) arguments.has_ids = true;  // none: the decoder begins by its configuration
  });
}

void add_chat(CLI::App& app, ChatArguments& arguments) {
  CLI::App& command = *app.add_subcommand("chat", "Talk with a chat model in the terminal");
  command.footer(
      "Text on stdin that is no terminal is one message, which is answered. /help in a chat explains its "
      "commands.\n\nExamples:\n"
      "  plait chat DIR\n"
      "  plait chat DIR --prompt \"Why is the sky blue?\" --temperature 0.7\n"
      "  plait chat DIR --system \"Summarise.\" < article.txt\n"
      "  plait chat DIR --mesh tensor=2");
  add_model_arguments(command, arguments);
  command.add_option("-p,--prompt", arguments.prompt, "One message: its answer ends the chat")->group(common_group);
  command.add_option("-s,--system", arguments.system, "The system message")->group(common_group);
  command.add_option("--load", arguments.load, "Continue a conversation that /save wrote")->group(common_group);
  command.add_option("--adapter", arguments.adapter, "Adapter directory in PEFT's layout")->group(common_group);
  command.add_flag("--lines", arguments.lines, "Each line of stdin is a message or a command")->group(other_group);
  add_request_options(command, arguments.request, {"samples", "logprobs"});
  add_mesh_arguments(command, arguments);
  add_stage_arguments(command, arguments);
  command.parse_complete_callback([&arguments, &command] { arguments.has_prompt = command.count("--prompt") > 0; });
}

void add_serve(CLI::App& app, ServeArguments& arguments) {
  CLI::App& command = *app.add_subcommand("serve", "Serve a model over HTTP to OpenAI's clients");
  command.footer(
      "Sampling options are the defaults of calls. Keys are better in a file than in arguments, which other users of "
      "the\nmachine see: --api-key @FILE reads one a line.\n\nExamples:\n"
      "  plait serve DIR\n"
      "  plait serve DIR --host 0.0.0.0 --port 8000 --api-key @keys.txt\n"
      "  plait serve DIR --adapter legal=adapters/legal --mesh tensor=2\n"
      "  mpirun -n 4 plait serve DIR --mesh data=2,tensor=2\n"
      "  curl http://127.0.0.1:8080/v1/models");
  add_model_arguments(command, arguments);
  command.add_option("--name", arguments.name, "The model's name in calls; default: its file's or directory's")
      ->group(common_group);
  command
      .add_option("--adapter", arguments.adapters,
                  "NAME=DIRECTORY of an adapter in PEFT's layout, which calls may name as model")
      ->allow_extra_args(false)
      ->group(common_group);
  command
      .add_option("--also", arguments.also,
                  "A further model to serve, as NAME=MODEL or MODEL, with the same options and a cache of its own; may be repeated")
      ->allow_extra_args(false)
      ->group(common_group);
  command
      .add_option("--queue", arguments.queue, "Requests that wait, beyond which calls are refused with 429 (1024)")
      ->check(CLI::Range(1, 1 << 20))
      ->group(common_group);
  command.add_option("--drain", arguments.drain_s, "Seconds for calls under way after SIGTERM or Ctrl-C (30)")
      ->check(CLI::Range(0, 86400))
      ->group(common_group);
  for (const nlohmann::json& row : option_rows("server"))
    add_library_option(command, row, arguments.server)
        ->group(row.at("key") == "address" ? common_group : other_group);
  for (CLI::Option* one :
       {command.add_option("--host", arguments.host, "The address's host (127.0.0.1)"),
        command.add_option("--port", arguments.port, "The address's port (8080)")->check(CLI::Range(0, 65535))})
    one->group(common_group)->excludes(command.get_option("--address"));
  add_request_options(command, arguments.request, {"samples", "logprobs", "max_tokens", "seed", "stop"});
  add_mesh_arguments(command, arguments);
  add_stage_arguments(command, arguments);
}

/// Adds all trainer options, except those shared with other commands.
void add_trainer_options(CLI::App& command, TrainArguments& arguments) {
  const std::set<std::string> shared = {"threads", "dtype", "mesh", "seeds", "out", "timeline"};
  const std::set<std::string> common = {"data",  "eval_data", "lora", "lr",    "epochs",
                                        "steps", "batch",     "seq",  "resume"};
  for (const nlohmann::json& row : option_rows("trainer")) {
    const auto key = row.at("key").get<std::string>();
    if (!shared.count(key))
      add_library_option(command, row, arguments.trainer)->group(common.count(key) ? common_group : other_group);
  }
}

void add_train(CLI::App& app, TrainArguments& arguments) {
  CLI::App& command = *app.add_subcommand("train", "Fine-tune a model, or adapters for it, on a file of texts");
  command.footer(
      "Data are JSON lines, each with \"text\", with \"prompt\" and \"completion\", or with \"messages\"; an .npy\n"
      "array of token ids; or plain text. OUT gets checkpoints, log.jsonl, TensorBoard's events, loss.svg, and with\n"
      "--lora or --prefix the adapter. Ctrl-C saves a checkpoint; --resume continues from it.\n\nExamples:\n"
      "  plait train DIR --data texts.jsonl --lora 16 --lr 2e-4 --epochs 2 --out run\n"
      "  plait train DIR --data texts.jsonl --eval-data held-out.jsonl --evaluate-every 50 --patience 3 --out run\n"
      "  plait train DIR --lora 16 --mesh data=2 --plan\n"
      "  plait export DIR --checkpoint run/checkpoints/best --out tuned");
  add_model_arguments(command, arguments);
  add_mesh_arguments(command, arguments, "Distribute the training over ranks: data=2 distributes the samples");
  command.add_option("--out", arguments.out, "The directory of the run, created if absent")->group(common_group);
  command.add_option(
      "--trace,--timeline", arguments.trace,
      "Draw each step's timeline of a pipeline's ranks into this file, replacing the last: FILE.svg, or "
      "text as in --plan");
  command.add_flag("--plan", arguments.plan,
                   "Print memory, programs, trained weights and pipeline stages of this run, without training");
  command.add_option("--html", arguments.html, "With --plan: also write the plan as an HTML page to this file")
      ->needs(command.get_option("--plan"));
  command.add_flag("--json", arguments.json, "Print one object at the end: losses, timings, memory, paths");
  add_trainer_options(command, arguments);
  command.parse_complete_callback([&command, &arguments] {
    for (const char* needed : {"--data", "--out"})
      if (!arguments.plan && command.count(needed) == 0) throw CLI::RequiredError(needed);
  });
}

/// Options for the results of a run.
template <class Arguments>
void add_trained_arguments(CLI::App& command, Arguments& arguments) {
  CLI::Option* checkpoint = command.add_option("--checkpoint", arguments.checkpoint,
                                               "Use the weights of this checkpoint, or of a run's newest");
  command.add_option("--adapter", arguments.adapter, "Adapter directory in PEFT's layout")->excludes(checkpoint);
}

void add_eval(CLI::App& app, EvalArguments& arguments) {
  CLI::App& command = *app.add_subcommand("eval", "Compute the loss of a model on a file of texts");
  command.footer("Example:\n  plait eval DIR --data held-out.jsonl --adapter run/adapter");
  add_model_arguments(command, arguments);
  command.add_option("--data", arguments.data, "The file, as for `plait train`")->required();
  add_mesh_arguments(command, arguments, "Distribute the evaluation over ranks: data=2 distributes the samples");
  command.add_option("--seq", arguments.seq, "Maximum tokens of a sample, to which streams are cut (1024)");
  add_trained_arguments(command, arguments);
  command.add_flag("--json", arguments.json, "Print one object: loss, perplexity, targets");
}

void add_quantize(CLI::App& app, QuantizeArguments& arguments) {
  CLI::App& command = *app.add_subcommand("quantize", "Round a model's weights to few bits, and write it as ONNX");
  command.footer(
      "Weights become com.microsoft.MatMulNBits and GatherBlockQuantized, which ONNX Runtime has, too: 3 bits take "
      "as much\n"
      "as 4, and 5 to 7 as much as 8. With --calibration they are rounded by GPTQ, otherwise each to "
      "nearest.\n\nExamples:\n"
      "  plait quantize DIR --bits 4 --out small\n"
      "  plait quantize DIR --bits 4 --calibration texts.jsonl --eval-data held-out.jsonl --out small");
  add_model_arguments(command, arguments, false);
  for (const char* key : {"bits", "block", "asymmetric", "head_bits", "embedding_bits", "calibration",
                          "calibration_tokens", "calibration_window"})
    for (nlohmann::json& row : option_rows("export"))
      if (row.at("key") == key) {
        if (row.at("key") == "bits") row["default"] = "4";
        add_library_option(command, row, arguments.rounding);
      }
  command.add_option("--eval-data", arguments.eval_data,
                     "Texts to compare the perplexity on, before and after; default: those of the calibration");
  command.add_option("--seq", arguments.seq, "Maximum tokens of a sample of these (1024)");
  command.add_flag("--json", arguments.json, "Print one object: files with their bytes, perplexities");
  add_any_option(command, arguments);
  command.add_option("--out", arguments.out, "The directory to write; it must not contain the model already")
      ->required();
}

void add_plan(CLI::App& app, PlanArguments& arguments) {
  CLI::App& command = *app.add_subcommand("plan", "Find how to train or run a model on many devices, by simulation");
  command.footer(
      "Looks for the fastest plan that fits: mesh, schedule, micro-batch, ZeRO, recomputation, sharded tokens and "
      "experts. What is given is kept. "
      "Nothing is\nloaded or run. The model is one at hand, or given by its sizes. See docs/planning.md.\n\nExamples:\n"
      "  plait plan DIR --machine h100 --ranks 8 --batch 64 --seq 2048 --train lora:16\n"
      "  plait plan DIR --machine h100 --ranks 8 --generate batch=32,prompt=512,context=2048\n"
      "  plait plan --machine h100 --ranks 64 --batch 128 --decoder "
      "family=llama,layers=80,hidden=8192,heads=64,kv_heads=8,"
      "feed_forward=28672,vocabulary=128256,sequence=4096");
  for (const char* key : {"decoder", "machine", "ranks", "batch", "generate", "mesh", "pipeline", "stages", "seats",
                          "micro_batch", "micro_batches", "zero", "recompute", "seeds", "optimizer", "dtype",
                          "memory_bytes"})
    for (const nlohmann::json& row : option_rows("plan"))
      if (row.at("key") == key) add_library_option(command, row, arguments.options)->group(common_group);
  command.add_option("-m,--model,MODEL", arguments.model,
                     "A model directory, an .onnx or a .gguf file; otherwise --decoder")
      ->excludes(command.get_option("--decoder"));
  command.add_option("--train", arguments.train, "What is trained: full (all weights), or lora:RANK (full)");
  for (const char* key : {"seq", "lora_targets", "activations"})
    for (const nlohmann::json& row : option_rows("trainer"))
      if (row.at("key") == key)
        add_library_option(command, row, arguments.run)->needs(command.get_option("--model"))->group(other_group);
  command
      .add_option("--annotate", arguments.annotate,
                  "Write the model into this directory with the plan as ONNX's multi-device annotations, as plait export "
                  "does")
      ->needs(command.get_option("--model"));
  command.add_option("--html", arguments.html,
                     "Also write an HTML page to this file: timeline, memory over time, all plans by time and memory");
  command.add_flag("--json", arguments.json, "Print one object");
}

}  // namespace

void add_commands(CLI::App& app, Arguments& arguments) {
  add_generate(app, arguments.generate);
  add_serve(app, arguments.serve);
  add_chat(app, arguments.chat);
  add_train(app, arguments.train);
  add_eval(app, arguments.eval);

  CLI::App& logits = *app.add_subcommand("logits", "Write the logits of every position of a prompt");
  add_model_arguments(logits, arguments.logits);
  add_trace_argument(logits, arguments.logits);
  add_mesh_arguments(logits, arguments.logits);
  add_stage_arguments(logits, arguments.logits);
  logits.add_option("--ids", arguments.logits.ids, "The prompt as token ids: 1,5,7")->required();
  logits.add_option("--out", arguments.logits.out, "The .npy file to write: f32 [tokens, vocabulary]")->required();

  CLI::App& run = *app.add_subcommand("run", "Run any ONNX graph as written, on .npy files");
  run.footer("NumPy has no bf16: files of '<V2' or uint16 are read as bf16, and '<V2' is written.");
  add_model_arguments(run, arguments.run);
  add_trace_argument(run, arguments.run);
  run.add_option("--input", arguments.run.inputs,
                 "NAME=FILE.npy, one per input of the graph; or NAME=FILE.npz, for the array NAME of an archive (FILE.npz/OTHER for "
                 "another); or JSON: 'ids=[[1, 2]]', 'texts=[\"a\", \"b\"]'; a sequence is a folder with its parts: 0.npy, "
                 "1.npy and so on; an optional one is a folder with such a folder, 0, or empty")
      ->allow_extra_args(false);
  run.add_option("--output", arguments.run.outputs, "NAME=FILE.npy, for each requested output")
      ->allow_extra_args(false)
      ->required();
  for (const nlohmann::json& row : option_rows("session"))
    if (row.at("key").get<std::string>() == "time_limit") add_library_option(run, row, arguments.run.session);
  run.add_option("--repeat", arguments.run.repeat, "Run N more times, and print the median time of a run")
      ->check(CLI::Range(1, 1'000'000));

  CLI::App& inspect = *app.add_subcommand("inspect", "Describe a model and what was recognised in it");
  inspect.footer(
      "Examples:\n  plait inspect DIR --json\n  plait inspect DIR --mesh tensor=4 --html plan.html\n"
      "  plait inspect DIR --mesh tensor=2 --seeds search --seeds \"*.o_proj.weight=[-, tensor]\"");
  add_model_arguments(inspect, arguments.inspect);
  inspect.add_flag("--json", arguments.inspect.json, "Print one object with all details");
  CLI::Option* dump = inspect.add_option("--dump", arguments.inspect.dump,
                                         "Print the graph after this pass: import, interface, fold, raise, fuse");
  inspect
      .add_option("--mesh", arguments.inspect.mesh,
                  "Describe instead the plan of a decoder on these ranks: tensor=4, data=2,tensor=2; with "
                  "pipeline=2 that of training (--option pipeline=SCHEDULE), or with --generate of generation")
      ->excludes(dump);
  inspect.add_flag("--generate", arguments.inspect.generates,
                   "With pipeline ranks: the stages of generation, instead of training");
  inspect
      .add_option("--seeds", arguments.inspect.seeds,
                  "Sharding of weights: tensor, expert, data, search, or PATTERN=SHARDING; may be repeated")
      ->allow_extra_args(false);
  inspect.add_option("--html", arguments.inspect.html, "Also write it as an HTML page to this file");

  CLI::App& write = *app.add_subcommand("export", "Write the model as ONNX, with tokenizer and configurations");
  add_model_arguments(write, arguments.write, false);
  add_any_option(write, arguments.write);
  add_mesh_arguments(write, arguments.write,
                     "Annotate the file with its sharding over these ranks, and their stages: tensor=4");
  add_stage_arguments(write, arguments.write, "export",
                      {{"stages", "--stages"}, {"pipeline", "--pipeline"}, {"seats", "--seats"}});
  write.add_option("--out", arguments.write.out, "The directory to write; it must not contain the model already")
      ->required();
  add_trained_arguments(write, arguments.write);
  write
      .add_flag("--apart", arguments.write.apart,
                "Write only the adapters of the checkpoint, in PEFT's layout, without merging")
      ->needs("--checkpoint")
      ->excludes("--mesh");

  CLI::App& convert =
      *app.add_subcommand("convert", "Write a GGUF file, or a directory of transformers, as an ONNX model directory");
  convert.footer(
      "Floats stay as they are; quantised weights keep their codes, in blocks as com.microsoft.MatMulNBits has them. "
      "The directory has\n"
      "model.onnx, its weights, tokenizer, chat template and configurations. `plait generate` and `plait chat` open "
      "GGUF files, too.\n\n"
      "Example:\n  plait convert SmolLM2-135M-Instruct.Q4_1.gguf --out smollm2");
  add_model_arguments(convert, arguments.convert, false);
  convert.add_option("--unpack", arguments.convert.unpack, "Write quantised weights as floats: f32, f16 or bf16");
  add_any_option(convert, arguments.convert);
  convert.add_option("--out", arguments.convert.out, "The directory to write; it must not contain the model already")
      ->required();

  add_quantize(app, arguments.quantize);

  CLI::App& tokenize = *app.add_subcommand("tokenize", "Convert stdin's text into token ids");
  add_model_arguments(tokenize, arguments.tokenize, false);
  tokenize.add_flag("--decode", arguments.tokenize.decode, "Convert ids on stdin into text");
  tokenize.add_flag("--plain", arguments.tokenize.plain,
                    "Add no special tokens (BOS) to a text, and keep them in ids");

  CLI::App& doctor = *app.add_subcommand("doctor", "Show what this machine has, and what of it is used and why");
  doctor.add_flag("--json", arguments.doctor.json, "Print one object");
  doctor.add_option("--option", arguments.doctor.options, "KEY=VALUE of isa, mpi_plugin or cuda_plugin")
      ->allow_extra_args(false);
  add_plan(app, arguments.plan);
  CLI::App& machine = *app.add_subcommand("machine", "Print a machine's file, which plans read");
  machine.footer(
      "Examples:\n  plait machine h100 > mine.json   # edit it, then: plait plan --machine mine.json ...\n"
      "  plait machine --measure --ranks 2 > here.json");
  machine.add_option("MACHINE", arguments.machine.machine, "a100, h100, h200, v100, or a file to check");
  machine.add_flag("--measure", arguments.machine.measure, "Measure this machine, for about two seconds")
      ->excludes(machine.get_option("MACHINE"));
  machine.add_option("--ranks", arguments.machine.ranks, "Ranks that it is shared by (1)")->check(CLI::Range(1, 64))
      ->needs(machine.get_option("--measure"));
  machine.add_option("-t,--threads", arguments.machine.threads, "Threads of a rank; 0: its share of the processors")
      ->check(CLI::Range(0, 4096))->needs(machine.get_option("--measure"));
  CLI::App& ops = *app.add_subcommand("ops", "List the ops, with dims rules, gradients and kernels");
  ops.add_flag("--json", arguments.json, "Print a list of objects");
  CLI::App& options = *app.add_subcommand("options", "List the options that --option takes");
  options.add_flag("--json", arguments.json, "Print a list of objects");

  CLI::App& completion =
      *app.add_subcommand("completion", "Print a script that completes commands and options in a shell");
  completion.footer("Example:\n  source <(plait completion bash)");
  completion.add_option("SHELL", arguments.shell, "bash, zsh or fish")->required();
}

int dispatch(const CLI::App& app, const Arguments& arguments) {
  std::string command = app.get_subcommands().at(0)->get_name();
  if (command == "generate") return generate(arguments.generate);
  if (command == "serve") return serve(arguments.serve);
  if (command == "chat") return chat(arguments.chat);
  if (command == "train") return train(arguments.train);
  if (command == "eval") return evaluate(arguments.eval);
  if (command == "logits") return logits(arguments.logits);
  if (command == "run") return run_graph(arguments.run);
  if (command == "inspect") return inspect(arguments.inspect);
  if (command == "convert") return export_model(arguments.convert);
  if (command == "export") return export_model(arguments.write);
  if (command == "quantize") return quantize(arguments.quantize);
  if (command == "tokenize") return tokenize(arguments.tokenize);
  if (command == "completion") return answer(completion(app, arguments.shell)), exit_ok;
  if (command == "doctor") return doctor(arguments.doctor);
  if (command == "plan") return plan(arguments.plan);
  if (command == "machine") return machine(arguments.machine);
  return command == "ops" ? ops(arguments.json) : options(arguments.json);
}

}  // namespace plait::cli
