#pragma once
// Opens models: the one place that knows how model directories are laid out.
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/load_progress.h"
#include "core/model/file_set.h"
#include "core/text/tokenizer.h"
#include "importers/onnx/import.h"

namespace plait {

/// A model's files, and which of them is the model.
struct ModelSource {
  std::shared_ptr<FileSet> files;
  std::string file;
  std::string directory;  ///< "": they are in memory
  bool copied = false;    ///< the model's file and its external data are read into memory, not mapped
  std::string path = {};  ///< finds it again; "": it was in memory
  /// Of files without a graph, which is written, and their weights laid out, when it is loaded: all files. Until then `files` are those
  /// of text and configuration. Null: `files` are complete.
  std::function<std::vector<NamedBlob>(LoadProgress*, std::vector<std::string>& warnings)> lay_out = {};
  std::vector<std::string> warnings = {};  ///< of `lay_out`
};

/// A model directory, or an .onnx file with what is next to it; a GGUF file, whose quantised weights become floats with `unpack`; or a
/// directory of transformers: these two are to be completed. Throws Error(not_found), what choose_model_file throws, and what the
/// importers throw.
ModelSource find_model(const std::string& path, bool copied, DType unpack = DType::none);
/// The same of files in memory; throws what memory_files throws, too.
ModelSource find_model(std::vector<NamedBlob> blobs);

/// The model's file among `files`: the one that genai_config.json names, model.onnx, decoder_model_merged.onnx, the
/// second of the pair decoder_model.onnx and decoder_with_past_model.onnx (given a past of no tokens it does the work
/// of both), decoder_model.onnx next to encoder_model.onnx, or the only .onnx file; these too in a folder onnx, if there are no others.
/// Throws Error(not_found) when there is none, Error(invalid_argument) that lists
/// them when several are left, Error(bad_model) when genai_config.json is damaged.
std::string choose_model_file(const FileSet& files);

/// The bytes of the model's file.
std::shared_ptr<const Blob> model_bytes_of(const ModelSource& source);
/// Finds the external data of the model's file.
ExternalResolver data_of(const ModelSource& source);
/// The same with all files. Throws what the importers throw, naming the file; Error(cancelled).
ModelSource complete(const ModelSource& source, LoadProgress* progress = nullptr);
/// Reads the graph; of a source that is not complete, after completing it. Throws what import_bytes throws, naming the file.
ImportedModel import_model(const ModelSource& source, const OpSet& ops, LoadProgress* progress = nullptr);
/// The source with the first of these files that is there and is another; "" counts as none. nullopt: there is no such file.
std::optional<ModelSource> other_file(const ModelSource& source, std::span<const std::string> names);

/// The file next to a decoder's that an exporter wrote to make embeddings of ids: the one that genai_config.json names,
/// embed_tokens.onnx (embed_tokens_q4.onnx of decoder_model_merged_q4.onnx), or embedding.onnx. nullopt: there is none.
std::optional<ModelSource> embeddings_of(const ModelSource& source);
/// Makes of an embedding graph with several inputs one that takes token ids only.
using IdsOnly = std::function<Graph(const Graph&)>;
/// Of a decoder that takes embeddings and no ids: a graph that computes them of ids, by that file. nullopt: `graph` is another, or
/// there is no such file. Throws what import_model and `ids_only` throw, naming the file; Error(bad_model) if the two do not fit.
std::optional<Graph> with_embeddings(const ModelSource& source, const Graph& graph, const OpSet& ops,
                                     const IdsOnly& ids_only, LoadProgress* progress = nullptr);

/// The files next to a decoder's that have its encoders of images and sounds, as paths: those that genai_config.json names,
/// vision_encoder.onnx and audio_encoder.onnx (vision_encoder_q4.onnx of decoder_model_merged_q4.onnx). Empty: they are in memory, or
/// there are none.
std::vector<std::string> input_encoders_of(const ModelSource& source);

/// Whether there are files of a tokenizer.
bool has_tokenizer(const ModelSource& source);
/// `cache_directory`: of Tokenizer::load. Throws what Tokenizer throws.
Tokenizer load_tokenizer(const ModelSource& source, const std::string& cache_directory, const TextLimits& limits);
/// The same of a path: a directory, a GGUF file, or another file with the tokenizer next to it. Does not read a graph or weights.
Tokenizer open_tokenizer(const std::string& path, const std::string& cache_directory, const TextLimits& limits);

}  // namespace plait
