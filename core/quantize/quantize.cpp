#include "core/quantize/quantize.h"

#include <algorithm>
#include <optional>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/base/thread_pool.h"
#include "core/generate/plain_inputs.h"
#include "core/passes/normalize/normalize.h"
#include "core/quantize/replay.h"
#include "core/quantize/weights.h"

namespace plait {
namespace {

using Kind = QuantizedNode::Kind;

/// The calibration's windows as inputs of the graph.
std::vector<std::vector<Tensor>> samples_of(const Graph& graph, const DecoderInterface& interface,
                                            const QuantizeOptions& options) {
  if (!interface.complete)
    throw Error(Code::unsupported, cat("calibration needs a language model: ", interface.why),
                "leave the calibration out: weights are then rounded to nearest");
  const PlainInputs inputs(graph, interface, options.window);
  const std::vector<Tensor> none(inputs.carried_count());
  const std::span<const int32_t> ids(options.calibration);
  const auto window = std::min(static_cast<size_t>(options.window), ids.size());
  std::vector<std::vector<Tensor>> out;
  for (size_t begin = 0; begin + window <= ids.size(); begin += window)
    out.push_back(inputs.of(ids.subspan(begin, window), 0, 0, none, {}, {}));
  return out;
}

class Quantization {
 public:
  Quantization(const ImportedModel& model, const CompileOptions& compile, const QuantizeOptions& options,
               ThreadPool& pool, LoadProgress& progress, const std::function<void(const std::string&)>& note)
      : graph_(model.graph), compile_(compile), options_(options), pool_(pool), progress_(progress), note_(note) {}

  QuantizedWeights run(const std::set<std::string>& places) {
    interface_ = find_interface(graph_, compile_.ops);
    find(places);
    progress_.stage(1, static_cast<int64_t>(nodes_.size()));
    if (options_.calibration.empty()) {
      for (const QuantizedNode& node : nodes_) quantize_node(node, nullptr);
    } else {
      calibrate();
    }
    return std::move(out_);
  }

 private:
  int64_t bits_of(const QuantizedNode& node) const {
    return node.kind == Kind::head        ? options_.head_bits
           : node.kind == Kind::embedding ? options_.embedding_bits
                                          : options_.format.bits;
  }

  void find(const std::set<std::string>& places) {
    WeightsFound found = find_weights(graph_, interface_);
    out_.kept = std::move(found.kept);
    bool outside = false;
    for (QuantizedNode& node : found.nodes) {
      const Shape shape = node.weight.shape();
      std::string why;
      if (bits_of(node) == 0) why = node.kind == Kind::head ? "head" : "embedding";
      else if (!places.contains(node.output)) why = "it is part of a function or a body", outside = true;
      else if (shape.back(1) < 16) why = cat("its weight is ", shape.text());
      else if (node.kind == Kind::embedding && shape.back(1) % options_.format.block)
        why = cat("rows of ", shape.back(1), " are no whole blocks of ", options_.format.block);
      if (why.empty()) nodes_.push_back(std::move(node));
      else out_.kept.push_back(cat(describe(graph_, graph_.nodes[static_cast<size_t>(node.node)]), ": ", why));
    }
    if (nodes_.empty() && outside)
      throw Error(Code::unsupported,
                  "the model's weights cannot be rounded: its products are within functions or bodies",
                  "export it without local functions, or with onnx's inliner");
    if (nodes_.empty())
      throw Error(Code::unsupported, "the model has no float weights of products that could be rounded",
                  out_.kept.empty() ? "its weights may be quantised already" : cat("kept: ", out_.kept.front()));
  }

  /// The codes of a tensor are made once for all its readers of the same kind of storage.
  std::string key_of(const QuantizedNode& node) const {
    return cat(node.weight.initializer, "|", text(node.weight.steps), "|", bits_of(node), "|",
               static_cast<int>(node.dtype));
  }

  BlockFormat format_of(const QuantizedNode& node) const {
    BlockFormat out = options_.format;
    out.bits = bits_of(node);
    out.scales = node.dtype;
    return out;
  }

  /// Rounds a node's weight, for the inputs in `hessian` or each to nearest; what it stands for then, if anybody asks.
  void quantize_node(const QuantizedNode& node, const Tensor* hessian, Replay* replay = nullptr) {
    const std::string key = key_of(node);
    std::shared_ptr<const BlockWeight>& made = made_[key];
    Constant weight = node.weight;
    const int64_t before = weight.source_bytes();
    const BlockFormat format = format_of(node);
    if (!made || replay) {
      add_step(weight, {RecipeStep::Kind::cast, {}, DType::f32});
      const Tensor floats = materialize(weight, &pool_);
      const Shape shape = floats.shape();
      const std::span<const float> values(floats.as<float>(), static_cast<size_t>(floats.elements()));
      try {
        const BlockQuantizer quantizer(format, values, shape[0], shape[1], pool_);
        const bool shared = shared_.contains(key);
        const std::vector<uint8_t> codes =
            hessian && !shared
                ? gptq(quantizer, {hessian->as<float>(), static_cast<size_t>(hessian->elements())}, pool_, &progress_)
                : quantizer.round_to_nearest(pool_);
        if (!made) {
          made = std::make_shared<const BlockWeight>(quantizer.packed(codes));
          out_.bytes_before += before;
          out_.bytes_after += made->codes.bytes() + made->scales.bytes() + (made->zeros ? made->zeros->bytes() : 0);
        }
        if (replay) replay->replace(node.node, rounded(quantizer, codes), node.dtype);
      } catch (const Error& error) {
        throw error.at(describe(graph_, graph_.nodes[static_cast<size_t>(node.node)]));
      }
      weight.drop_source();
    }
    out_.weights[node.output] = made;
    progress_.advance();
    note_(cat("rounded ", out_.weights.size(), " of ", nodes_.size(), " weights"));
  }

  Tensor rounded(const BlockQuantizer& quantizer, const std::vector<uint8_t>& codes) {
    const int64_t n = quantizer.n(), k = quantizer.k();
    Tensor out(DType::f32, {n, k});
    pool_.for_each(n, [&](int64_t row, int) {
      for (int64_t i = 0; i < k; ++i)
        out.as<float>()[row * k + i] = quantizer.value(row, i, codes[static_cast<size_t>(row * k + i)]);
    });
    return out;
  }

  /// By node: the most rounded products on a way to its inputs. Nodes of one depth do not feed each other.
  std::vector<int> depths() const {
    std::vector<int> of_value(static_cast<size_t>(graph_.value_count()), 0), out;
    std::set<int32_t> rounded_nodes;
    for (const QuantizedNode& node : nodes_) rounded_nodes.insert(node.node);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      int depth = 0;
      for (const ValueId id : node.inputs)
        if (id != no_value) depth = std::max(depth, of_value[static_cast<size_t>(id)]);
      out.push_back(depth);
      for (const ValueId id : node.outputs)
        if (id != no_value)
          of_value[static_cast<size_t>(id)] = depth + rounded_nodes.contains(static_cast<int32_t>(i));
    }
    return out;
  }

  void calibrate() {
    std::vector<std::vector<Tensor>> samples = samples_of(graph_, interface_, options_);
    Knowledge knowledge;
    Graph typed = graph_;
    infer_graph(compile_.ops, typed, knowledge);
    std::map<std::string, int> readers;
    std::vector<ValueId> ends;
    for (const QuantizedNode& node : nodes_) {
      if (++readers[key_of(node)] > 1) shared_.insert(key_of(node));
      if (node.kind != Kind::embedding) ends.push_back(node.x);
    }
    Replay replay(typed, compile_, std::move(samples), ends, pool_);
    const std::vector<int> depth = depths();
    std::map<int, std::vector<const QuantizedNode*>> levels;
    for (const QuantizedNode& node : nodes_) {
      if (node.kind == Kind::embedding) quantize_node(node, nullptr, &replay);
      else levels[depth[static_cast<size_t>(node.node)]].push_back(&node);
    }
    for (const auto& [level, nodes] : levels) {
      std::vector<ValueId> xs;
      for (const QuantizedNode* node : nodes)
        if (std::find(xs.begin(), xs.end(), node->x) == xs.end()) xs.push_back(node->x);
      const std::vector<Tensor> hessians = replay.advance(xs, &progress_);
      for (const QuantizedNode* node : nodes) {
        const auto at = static_cast<size_t>(std::find(xs.begin(), xs.end(), node->x) - xs.begin());
        quantize_node(*node, &hessians[at], &replay);
      }
    }
  }

  const Graph& graph_;
  const CompileOptions& compile_;
  const QuantizeOptions& options_;
  ThreadPool& pool_;
  LoadProgress& progress_;
  const std::function<void(const std::string&)>& note_;
  DecoderInterface interface_;
  std::vector<QuantizedNode> nodes_;
  std::set<std::string> shared_;  ///< keys of tensors with several readers
  std::map<std::string, std::shared_ptr<const BlockWeight>> made_;
  QuantizedWeights out_;
};

}  // namespace

QuantizedWeights quantize(const ImportedModel& model, const std::set<std::string>& places,
                          const CompileOptions& compile, const QuantizeOptions& options, ThreadPool& pool,
                          LoadProgress& progress, const std::function<void(const std::string&)>& note) {
  return Quantization(model, compile, options, pool, progress, note).run(places);
}

}  // namespace plait
