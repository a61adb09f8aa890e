#include "core/model/model_source.h"

#include <algorithm>
#include <filesystem>

#include "core/base/error.h"
#include "core/base/mapped_file.h"
#include "core/base/paths.h"
#include "core/base/text.h"
#include "core/graph/graft.h"
#include "core/model/model_config.h"
#include "importers/gguf/gguf_model.h"
#include "importers/huggingface/huggingface_model.h"

namespace plait {
namespace {

namespace fs = std::filesystem;

/// Files with this ending.
std::vector<std::string> files_of(const FileSet& files, std::string_view ending) {
  std::vector<std::string> out;
  for (std::string& name : files.names())
    if (name.size() > ending.size() && name.ends_with(ending)) out.push_back(std::move(name));
  return out;
}
std::vector<std::string> onnx_files(const FileSet& files) { return files_of(files, ".onnx"); }

/// Whether a file begins as PyTorch's archives (zip) or safetensors (a length below 2^32, then JSON) do.
bool holds_weights(const Blob& file) {
  constexpr int64_t length = 9;
  const std::string_view bytes(reinterpret_cast<const char*>(file.data()), static_cast<size_t>(std::min(file.size(), length)));
  if (bytes.size() < length) return false;
  return bytes.starts_with("PK\x03\x04") ||
         (bytes.substr(4, 4) == std::string_view("\0\0\0\0", 4) && bytes[8] == '{');
}

/// By its name, whether a file has weights in a format without a graph.
bool is_weights(const std::string& name) {
  const std::string kind = fs::path(name).extension().string();
  return kind == ".safetensors" || kind == ".gguf" || kind == ".bin" || kind == ".pt" || kind == ".pth" ||
         kind == ".ckpt";
}

constexpr const char* how_to_export =
    "export it to ONNX first: `optimum-cli export onnx --model MODEL OUT`, or `python -m "
    "onnxruntime_genai.models.builder "
    "-m MODEL -o OUT -p fp32 -e cpu`";

/// Of NAME-00002-of-00003.gguf the names of all parts; otherwise only this name.
std::vector<std::string> parts_of(const std::string& name) {
  // "-00002-of-00003.gguf"
  constexpr size_t digits = 5;  // of each number
  constexpr size_t ending = 20;
  const auto number = [&](size_t at) {
    int64_t out = 0;
    return parse_int(name.substr(name.size() - at, digits), out) ? out : 0;
  };
  if (name.size() <= ending || !name.ends_with(".gguf") || name[name.size() - ending] != '-' ||
      name.substr(name.size() - 14, 4) != "-of-")
    return {name};
  const int64_t count = number(10), own = number(19);
  if (own < 1 || own > count) return {name};
  const auto padded = [&](int64_t part) {
    const std::string text = cat(part);
    return std::string(digits - std::min(digits, text.size()), '0') + text;
  };
  std::vector<std::string> out;
  for (int64_t part = 1; part <= count; ++part)
    out.push_back(cat(name.substr(0, name.size() - ending), "-", padded(part), "-of-", padded(count), ".gguf"));
  return out;
}

/// The bytes of the file, and of the other parts if it was split; empty: it is no GGUF file. `begins`: its bytes.
gguf::Parts gguf_file(const Blob& begins, const std::string& path, bool copied) {
  gguf::Parts out;
  if (!gguf::is_gguf(begins)) return out;
  for (const std::string& part : parts_of(path)) out.push_back(copied ? read_file(part) : map_file(part));
  return out;
}

/// Names of GGUF files, of which one stands for all parts of a split one.
std::vector<std::string> gguf_files(std::vector<std::string> names) {
  std::erase_if(names, [](const std::string& name) { return parts_of(name).front() != name; });
  return names;
}

/// What `read` returns; its errors name the file.
template <class Read>
auto named(const std::string& path, Read read) {
  try {
    return read();
  } catch (const Error& error) {
    throw error.at(quote(path));
  }
}

ModelSource to_complete(const std::string& path, std::vector<NamedBlob> text,
                        decltype(ModelSource::lay_out) lay_out) {
  return {.files = memory_files(std::move(text)), .file = path, .path = path, .lay_out = std::move(lay_out)};
}

std::string_view text_of_blob(const std::shared_ptr<const Blob>& blob) {
  if (!blob) return {};
  return {reinterpret_cast<const char*>(blob->data()), static_cast<size_t>(blob->size())};
}

}  // namespace

std::string choose_model_file(const FileSet& files) {
  if (files.has("genai_config.json")) {
    std::string named = read_model_config(files).genai_file;
    if (!named.empty()) {
      if (files.has(named)) return named;
      throw Error(Code::not_found,
                  cat(files.path_of("genai_config.json"), " names the file ", quote(named), ", which is not there"));
    }
  }
  std::vector<std::string> candidates = onnx_files(files);
  // transformers.js keeps files of a model in a folder of their own.
  const std::string folder = candidates.empty() ? "onnx/" : "";
  const auto has = [&](const char* name) { return files.has(folder + name); };
  for (const char* name : {"model.onnx", "decoder_model_merged.onnx"}) {
    if (has(name)) return folder + name;
  }
  if (has("decoder_model.onnx") && has("decoder_with_past_model.onnx"))
    return folder + "decoder_with_past_model.onnx";
  if (has("decoder_model.onnx") && has("encoder_model.onnx")) return folder + "decoder_model.onnx";
  if (candidates.size() == 1) return candidates[0];
  if (candidates.empty()) {
    const std::vector<std::string> names = files.names();
    if (const auto several = gguf_files(files_of(files, ".gguf")); several.size() > 1)
      throw Error(Code::invalid_argument, cat(quote(files.place()), " has several GGUF files: ", join(several, ", ")),
                  "pass the path of one of them");
    if (const auto weights = std::find_if(names.begin(), names.end(), is_weights); weights != names.end())
      throw Error(Code::not_found,
                  cat("there is no .onnx file in ", quote(files.place()), ", only weights such as ", *weights),
                  how_to_export);
    throw Error(Code::not_found, cat("there is no .onnx file in ", quote(files.place())),
                "pass the directory that holds model.onnx, or the .onnx file itself");
  }
  throw Error(Code::invalid_argument, cat(quote(files.place()), " has several candidates: ", join(candidates, ", ")),
              "pass the path of one of them");
}

ModelSource find_model(const std::string& path, bool copied, DType unpack) {
  const std::optional<PathKind> kind = look(path);
  if (kind == PathKind::directory) {
    ModelSource out{directory_files(path), {}, path, copied};
    if (onnx_files(*out.files).empty() && !out.files->has("onnx/encoder_model.onnx") && huggingface::has_model(path))
      return to_complete(path, huggingface::text_files(path),
                         [path](LoadProgress* progress, std::vector<std::string>& warnings) {
                           return huggingface::model_files(path, progress, &warnings);
                         });
    // As hubs have them: one GGUF file, and what describes it.
    if (const auto gguf = gguf_files(files_of(*out.files, ".gguf"));
        gguf.size() == 1 && onnx_files(*out.files).empty())
      return find_model((fs::path(path) / gguf.front()).string(), copied, unpack);
    out.file = choose_model_file(*out.files);
    out.path = out.files->path_of(out.file);
    return out;
  }
  if (!kind) {
    throw Error(Code::not_found, cat("there is no file or directory ", quote(path)),
                "pass a model directory or an .onnx file");
  }
  fs::path file(path);
  const std::shared_ptr<const Blob> begins = map_file(path);
  if (const gguf::Parts parts = gguf_file(*begins, path, copied); !parts.empty())
    return to_complete(path, named(path, [&] { return gguf::text_files(parts); }),
                       [parts, unpack](LoadProgress* progress, std::vector<std::string>& warnings) {
                         return gguf::model_files(parts, unpack, progress, &warnings);
                       });
  if (holds_weights(*begins))
    throw Error(Code::unsupported, cat(quote(path), " holds weights and no ONNX graph"), how_to_export);
  std::string directory = file.has_parent_path() ? file.parent_path().string() : ".";
  return {directory_files(directory), file.filename().string(), directory, copied, path};
}

ModelSource find_model(std::vector<NamedBlob> blobs) {
  ModelSource out{memory_files(std::move(blobs)), {}, {}};
  out.file = choose_model_file(*out.files);
  return out;
}

ModelSource complete(const ModelSource& source, LoadProgress* progress) {
  if (!source.lay_out) return source;
  std::vector<std::string> warnings;
  ModelSource out = named(source.path, [&] { return find_model(source.lay_out(progress, warnings)); });
  out.path = source.path;
  for (const std::string& one : warnings) out.warnings.push_back(cat(quote(source.path), ": ", one));
  return out;
}

ExternalResolver data_of(const ModelSource& source) {
  if (!source.directory.empty()) {
    return [path = source.files->path_of(source.file),
            copied = source.copied](const std::string& location) -> std::shared_ptr<const Blob> {
      return copied ? read_beside(path, location) : map_beside(path, location);
    };
  }
  fs::path beside = fs::path(source.file).parent_path();
  return [files = source.files, beside](const std::string& location) {
    return files->read((beside / location).lexically_normal().generic_string());
  };
}

std::shared_ptr<const Blob> model_bytes_of(const ModelSource& source) {
  if (source.directory.empty()) return source.files->read(source.file);
  const std::string path = source.files->path_of(source.file);
  return source.copied ? read_file(path) : map_file(path);
}

ImportedModel import_model(const ModelSource& source, const OpSet& ops, LoadProgress* progress) {
  if (source.lay_out) return import_model(complete(source, progress), ops, progress);
  try {
    ImportedModel out = import_bytes(model_bytes_of(source), data_of(source), ops, progress);
    out.warnings.insert(out.warnings.end(), source.warnings.begin(), source.warnings.end());
    return out;
  } catch (const Error& error) {
    if (source.directory.empty()) throw;
    throw error.at(quote(source.files->path_of(source.file)));
  }
}

std::optional<ModelSource> other_file(const ModelSource& source, std::span<const std::string> names) {
  ModelSource out = source;
  for (const std::string& name : names)
    if (!name.empty() && name != source.file && source.files->has(name)) {
      out.file = name;
      return out;
    }
  return std::nullopt;
}

/// Next to a decoder's file: "embed_tokens_q4.onnx" of decoder_model_merged_q4.onnx, if there is such a one, otherwise "embed_tokens.onnx".
static std::vector<std::string> beside_decoder(const ModelSource& source, std::string_view stem) {
  constexpr std::string_view merged = "decoder_model_merged", end = ".onnx";
  const fs::path folder = fs::path(source.file).parent_path();
  const std::string decoder = fs::path(source.file).filename().string();
  std::vector<std::string> out;
  if (decoder.starts_with(merged) && decoder.ends_with(end))
    out.push_back((folder / cat(stem, decoder.substr(merged.size()))).generic_string());
  out.push_back((folder / cat(stem, end)).generic_string());
  return out;
}

std::optional<ModelSource> embeddings_of(const ModelSource& source) {
  std::vector<std::string> names{read_model_config(*source.files).embeddings_file};
  for (const char* stem : {"embed_tokens", "embedding"})
    for (std::string& name : beside_decoder(source, stem)) names.push_back(std::move(name));
  return other_file(source, names);
}

std::vector<std::string> input_encoders_of(const ModelSource& source) {
  std::vector<std::string> out;
  if (source.directory.empty()) return out;
  const auto add = [&](std::span<const std::string> names) {
    const auto file = other_file(source, names);
    const std::string path = file ? source.files->path_of(file->file) : "";
    if (file && std::find(out.begin(), out.end(), path) == out.end()) out.push_back(path);
  };
  for (const std::string& name : read_model_config(*source.files).encoder_files) add({&name, 1});
  for (const char* stem : {"vision_encoder", "audio_encoder"}) add(beside_decoder(source, stem));
  return out;
}

std::optional<Graph> with_embeddings(const ModelSource& source, const Graph& graph, const OpSet& ops,
                                     const IdsOnly& ids_only, LoadProgress* progress) {
  const ValueId input = graph.find(embeddings_input);
  const auto is_ids = [&](ValueId id) { return graph.value(id).name == "input_ids"; };
  if (std::find(graph.inputs.begin(), graph.inputs.end(), input) == graph.inputs.end() ||
      std::any_of(graph.inputs.begin(), graph.inputs.end(), is_ids))
    return std::nullopt;
  const auto beside = embeddings_of(source);
  if (!beside) return std::nullopt;
  Graph made = import_model(*beside, ops, progress).graph;
  try {
    if (made.inputs.size() > 1) made = ids_only(made);
    const auto output = std::find_if(made.outputs.begin(), made.outputs.end(),
                                     [&](ValueId id) { return made.value(id).name == embeddings_input; });
    if (made.inputs.size() != 1 || (output == made.outputs.end() && made.outputs.size() != 1))
      throw Error(Code::unsupported,
                  cat("it has ", made.inputs.size(), " inputs and ", made.outputs.size(),
                      " outputs, expected token ids and their embeddings"),
                  "export one that only looks up the table; embeddings of images are an option of requests");
    Graph out = graph;
    graft(out, input, made, output == made.outputs.end() ? 0 : static_cast<size_t>(output - made.outputs.begin()));
    return out;
  } catch (const Error& error) {
    throw error.at(quote(source.files->path_of(beside->file)));
  }
}

bool has_tokenizer(const ModelSource& source) { return source.files->has("tokenizer.json"); }

Tokenizer load_tokenizer(const ModelSource& source, const std::string& cache_directory, const TextLimits& limits) {
  if (!source.directory.empty()) {
    return Tokenizer::load(source.directory, cache_directory, limits);
  }
  auto read = [&](const char* name) { return source.files->has(name) ? source.files->read(name) : nullptr; };
  auto tokenizer = read("tokenizer.json"), config = read("tokenizer_config.json");
  auto chat = read("chat_template.jinja"), chat_json = read("chat_template.json");
  auto special = read("special_tokens_map.json"), tool_use = read("additional_chat_templates/tool_use.jinja");
  return Tokenizer::from_bytes({text_of_blob(tokenizer), text_of_blob(config), text_of_blob(chat),
                                text_of_blob(chat_json), text_of_blob(special), text_of_blob(tool_use)},
                               limits);
}

Tokenizer open_tokenizer(const std::string& path, const std::string& cache_directory, const TextLimits& limits) {
  if (!is_file(path)) return Tokenizer::load(path, cache_directory, limits);
  if (const gguf::Parts parts = gguf_file(*map_file(path), path, false); !parts.empty())
    return named(path, [&] {
      return load_tokenizer({memory_files(gguf::text_files(parts)), {}, {}}, cache_directory, limits);
    });
  const fs::path parent = fs::path(path).parent_path();
  return Tokenizer::load(parent.empty() ? "." : parent.string(), cache_directory, limits);
}

}  // namespace plait
