#pragma once
// The commands of the command line, one file each. Their options are data that arguments.cpp fills from the arguments.
//
// stdout has only a command's result; errors are exceptions that main.cpp prints on one line.
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace plait::cli {

/// An error in the command line: exit status 2.
class UsageError : public std::runtime_error {
 public:
  explicit UsageError(const std::string& message, std::string hint = {})
      : std::runtime_error(message), hint_(std::move(hint)) {}
  const std::string& hint() const { return hint_; }

 private:
  std::string hint_;
};

constexpr int exit_ok = 0, exit_failure = 1, exit_usage = 2, exit_interrupted = 130;

/// Arguments of every command that opens a model.
struct ModelArguments {
  std::string model;
  std::string cache_dir;  ///< "": nothing is kept
  std::string log_dir;    ///< "": no log is kept
  int64_t threads = 0;    ///< 0: one per processor
  std::string dtype = "file";
  std::vector<std::string> options;  ///< KEY=VALUE of anything in plait_options_describe
  std::string mesh;                  ///< "": one rank
  std::string trace;                 ///< a file to write; "": none
  std::vector<std::string> seeds;    ///< sharding of weights; empty: the default
};

struct GenerateArguments : ModelArguments {
  std::string prompt, ids, file;  ///< one of them
  std::string adapter;            ///< "": none
  bool has_prompt = false, has_ids = false, has_file = false;
  bool chat = false, json = false, profile = false;
  std::vector<std::string> inputs;  ///< of encoders: NAME=FILE.npy
  /// The given request options: {"temperature", "0.7"}.
  std::vector<std::pair<std::string, std::string>> request;
};

struct ChatArguments : ModelArguments {
  std::string prompt, system, load, adapter;  ///< "": none
  bool has_prompt = false, lines = false;
  /// The given request options.
  std::vector<std::pair<std::string, std::string>> request;
};

struct ServeArguments : ModelArguments {
  std::string name;  ///< of the model in calls; "": its file's or directory's
  int64_t queue = 1024, drain_s = 30;
  std::string host;   ///< "": as in `server`, otherwise instead of its address
  int64_t port = -1;  ///< -1: likewise
  std::vector<std::string> adapters;                        ///< NAME=DIRECTORY
  std::vector<std::string> also;                            ///< further models: NAME=MODEL, or MODEL
  std::vector<std::pair<std::string, std::string>> request;  ///< defaults of calls
  std::vector<std::pair<std::string, std::string>> server;   ///< the given server options
};

struct DoctorArguments {
  std::vector<std::string> options;  ///< KEY=VALUE
  bool json = false;
};

struct PlanArguments {
  std::string model;                                         ///< "": a decoder by its sizes
  std::vector<std::pair<std::string, std::string>> options;  ///< of a plan: {"machine", "a100"}
  std::vector<std::pair<std::string, std::string>> run;      ///< of a trainer of a model at hand
  std::string train;                                         ///< "full" or "lora:RANK"; "": as in `run`
  std::string annotate;                                      ///< the directory to write; "": none
  std::string html;                                          ///< the file of the page; "": none
  bool json = false;
};

struct MachineArguments {
  std::string machine;
  bool measure = false;  ///< this machine
  int64_t ranks = 1, threads = 0;
};

struct TrainArguments : ModelArguments {
  std::string out;
  bool json = false;
  bool plan = false;  ///< print the plan instead of training
  std::string html;   ///< with it: the file of its page; "": none
  /// The given trainer options: {"data", "texts.jsonl"}.
  std::vector<std::pair<std::string, std::string>> trainer;
};

struct EvalArguments : ModelArguments {
  std::string data, checkpoint, adapter;
  int64_t seq = 0;  ///< 0: the default
  bool json = false;
};

struct QuantizeArguments : ModelArguments {
  std::string out;
  std::string eval_data;  ///< texts to compare perplexities on; "": those of the calibration, if there are any
  int64_t seq = 0;        ///< most tokens of a sample of these; 0: the default
  bool json = false;
  /// The given export options: {"bits", "4"}.
  std::vector<std::pair<std::string, std::string>> rounding;
};

struct LogitsArguments : ModelArguments {
  std::string ids, out;
};

struct RunArguments : ModelArguments {
  std::vector<std::string> inputs, outputs;  ///< NAME=FILE
  std::vector<std::pair<std::string, std::string>> session;  ///< options by key
  int repeat = 0;                            ///< timed runs after the first; 0: none
};

struct InspectArguments : ModelArguments {
  bool json = false;
  std::string dump;
  std::string html;  ///< the file of the page; "": none
  bool generates = false;  ///< of a mesh with pipeline ranks: the plan of generation
};

struct ExportArguments : ModelArguments {
  std::string out, checkpoint, adapter;
  std::string unpack;  ///< "": quantised weights of GGUF files stay so
  bool apart = false;  ///< only the checkpoint's adapters, without the model
};

struct TokenizeArguments : ModelArguments {
  bool decode = false, plain = false;
};

// Each returns the exit status.
int generate(const GenerateArguments& arguments);
int serve(const ServeArguments& arguments);
int chat(const ChatArguments& arguments);
int train(const TrainArguments& arguments);
int evaluate(const EvalArguments& arguments);
int logits(const LogitsArguments& arguments);
int run_graph(const RunArguments& arguments);
int inspect(const InspectArguments& arguments);
int export_model(const ExportArguments& arguments);
int quantize(const QuantizeArguments& arguments);
int tokenize(const TokenizeArguments& arguments);
int doctor(const DoctorArguments& arguments);
int plan(const PlanArguments& arguments);
int machine(const MachineArguments& arguments);
int ops(bool json);
int options(bool json);

}  // namespace plait::cli
