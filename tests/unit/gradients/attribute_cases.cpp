#include "tests/unit/gradients/attribute_cases.h"

#include "core/base/text.h"

namespace plait::test {
namespace {

using Given = std::vector<std::pair<std::string, Attribute>>;
using Names = std::vector<std::string>;

constexpr int64_t steps = 4, batch = 2, inputs = 3, hidden = 2;

/// A layer in every direction and layout, with these attributes, and with lengths and peepholes if so.
void add_layers(std::vector<Instance>& out, const std::string& op, const Given& given, bool lengths, bool peepholes,
                int results = 0) {
  const int64_t gates = op == "LSTM" ? 4 : op == "GRU" ? 3 : 1;
  for (const std::string direction : {"forward", "reverse", "bidirectional"})
    for (const int64_t layout : {0, 1}) {
      const int64_t d = direction == "bidirectional" ? 2 : 1;
      auto floats = [](std::initializer_list<int64_t> sizes) {
        std::string list;
        for (int64_t size : sizes) list += cat(list.empty() ? "" : ", ", size);
        return Operand{cat("f32[", list, "]")};
      };
      const Operand state = layout ? floats({batch, d, hidden}) : floats({d, batch, hidden}),
                    x = layout ? floats({batch, steps, inputs}) : floats({steps, batch, inputs});
      Instance one{cat(op, "_", out.size()),
                   op,
                   {x, floats({d, gates * hidden, inputs}), floats({d, gates * hidden, hidden})}};
      one.operands.push_back(floats({d, 2 * gates * hidden}));
      one.operands.push_back(lengths ? Operand{cat("i32[", batch, "]"), "2 4"} : Operand{""});
      one.operands.push_back(state);
      if (op == "LSTM") {
        one.operands.push_back(state);
        one.operands.push_back(peepholes ? floats({d, 3 * hidden}) : Operand{""});
      }
      one.outputs = results ? results : op == "LSTM" ? 3 : 2;
      one.attributes = given;
      one.attributes.emplace_back("direction", direction);
      one.attributes.emplace_back("hidden_size", hidden);
      one.attributes.emplace_back("layout", layout);
      for (auto& [name, value] : one.attributes)
        if (auto* names = std::get_if<Names>(&value); names && d == 2) {  // those of the second direction follow
          const Names first = *names;
          names->insert(names->end(), first.begin(), first.end());
        }
      out.push_back(std::move(one));
    }
}

void add_recurrent(std::vector<Instance>& out) {
  add_layers(out, "LSTM", {}, false, false);
  add_layers(out, "LSTM", {}, true, true);
  add_layers(out, "LSTM", {}, false, true, 1);
  add_layers(out, "LSTM", {{"input_forget", int64_t{1}}, {"clip", 0.8}}, true, true);
  add_layers(out, "LSTM",
             {{"activations", Names{"HardSigmoid", "Softsign", "ScaledTanh"}},
              {"activation_alpha", std::vector<double>{0.3, 1.5, 0.3, 1.5}},
              {"activation_beta", std::vector<double>{0.4, 0.7, 0.4, 0.7}}},
             false, true);
  for (const int64_t linear : {0, 1}) {
    add_layers(out, "GRU", {{"linear_before_reset", linear}}, false, false);
    add_layers(out, "GRU", {{"linear_before_reset", linear}, {"clip", 0.9}}, true, false);
    add_layers(out, "GRU", {{"linear_before_reset", linear}, {"activations", Names{"Softplus", "Elu"}}}, false, false,
               1);
  }
  for (const char* name : {"Tanh", "Sigmoid", "Relu", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh",
                           "HardSigmoid", "Elu", "Softsign", "Softplus"})
    add_layers(out, "RNN",
               {{"activations", Names{name}},
                {"activation_alpha", std::vector<double>{0.4, 0.4}},
                {"activation_beta", std::vector<double>{0.6, 0.6}}},
               std::string_view(name) == "Tanh", false);
}

/// Of one image of 5 x 4 made larger along one axis and smaller along the other.
void add_resizes(std::vector<Instance>& out) {
  const Operand x{"f32[1, 2, 5, 4]"}, absent{""}, sizes{"i64[2]", "8 3"};
  int count = 0;
  auto add = [&](Given given) {
    given.emplace_back("axes", std::vector<int64_t>{2, 3});
    out.push_back({cat("Resize_", count++), "Resize", {x, absent, absent, sizes}, 1, std::move(given)});
  };
  for (const std::string mode : {"nearest", "linear", "cubic"})
    for (const std::string place :
         {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"}) {
      add({{"mode", mode}, {"coordinate_transformation_mode", place}});
      if (mode == "nearest") continue;
      add({{"mode", mode}, {"coordinate_transformation_mode", place}, {"antialias", int64_t{1}}});
      add({{"mode", mode},
           {"coordinate_transformation_mode", place},
           {"exclude_outside", int64_t{1}},
           {"cubic_coeff_a", -0.5}});
    }
  for (const std::string policy : {"not_larger", "not_smaller"})
    add({{"mode", "linear"}, {"keep_aspect_ratio_policy", policy}});
}

void add_samples(std::vector<Instance>& out) {
  for (const std::string mode : {"linear", "nearest", "cubic"})
    for (const std::string padding : {"zeros", "border", "reflection"})
      for (const int64_t aligned : {0, 1})
        out.push_back({cat("GridSample_", mode, "_", padding, aligned),
                       "GridSample",
                       {{"f32[2, 2, 4, 5]"}, {"f32[2, 3, 2, 2]"}},
                       1,
                       {{"mode", mode}, {"padding_mode", padding}, {"align_corners", aligned}}});
  const Operand boxes{"f32[3, 4]", "0.3 0.7 3.1 2.9 1.2 0.1 4.3 3.6 0 0 2.2 2.3"}, images{"i64[3]", "1 0 1"};
  for (const std::string mode : {"avg", "max"})
    for (const std::string place : {"half_pixel", "output_half_pixel"})
      out.push_back({cat("RoiAlign_", mode, "_", place),
                     "RoiAlign",
                     {{"f32[2, 2, 5, 6]"}, boxes, images},
                     1,
                     {{"mode", mode},
                      {"coordinate_transformation_mode", place},
                      {"output_height", int64_t{2}},
                      {"output_width", int64_t{3}},
                      {"sampling_ratio", int64_t{2}},
                      {"spatial_scale", 0.9}}});
  out.push_back({"MaxRoiPool",
                 "MaxRoiPool",
                 {{"f32[3, 2, 5, 6]"}, {"f32[2, 5]", "1 0.4 0.3 3.3 2.2 1 1.4 1.3 5.2 4.4"}},
                 1,
                 {{"pooled_shape", std::vector<int64_t>{2, 2}}}});
  for (const int64_t p : {1, 2, 3}) {
    out.push_back({cat("GlobalLpPool", p), "GlobalLpPool", {{"f32[2, 3, 4, 2]"}}, 1, {{"p", p}}});
    out.push_back({cat("LpPool", p),
                   "LpPool",
                   {{"f32[2, 3, 5, 4]"}},
                   1,
                   {{"p", p},
                    {"kernel_shape", std::vector<int64_t>{3, 2}},
                    {"pads", std::vector<int64_t>{1, 0, 1, 1}},
                    {"strides", std::vector<int64_t>{2, 1}},
                    {"dilations", std::vector<int64_t>{1, 2}}}});
  }
  out.push_back(
      {"DeformConvOfGroups",
       "DeformConv",
       {{"f32[2, 4, 4, 4]"}, {"f32[2, 2, 2, 2]"}, {"f32[2, 16, 3, 3]"}, {"f32[2]"}, {"f32[2, 8, 3, 3]"}},
       1,
       {{"group", int64_t{2}}, {"offset_group", int64_t{2}}, {"kernel_shape", std::vector<int64_t>{2, 2}}}});
}

void add_signals(std::vector<Instance>& out) {
  for (const int64_t inverse : {0, 1})
    for (const int64_t half : {0, 1})
      for (const int64_t length : {4, 5, 8})
        out.push_back({cat("DFT_", inverse, half, length),
                       "DFT",
                       {inverse && half ? Operand{"f32[2, 4, 3, 2]"} : Operand{"f32[2, 5, 3, 1]"},
                        {"i64[]", cat(length)},
                        {"i64[]", "1"}},
                       1,
                       {{"inverse", inverse}, {"onesided", half}}});
  out.push_back({"DFTOfComplexNumbers", "DFT", {{"f32[2, 5, 2]"}}});
  out.push_back({"STFTOfComplexNumbers",
                 "STFT",
                 {{"f32[2, 11, 2]"}, {"i64[]", "3"}, {"f32[5]"}},
                 1,
                 {{"onesided", int64_t{0}}}});
  out.push_back({"STFTWithoutAWindow", "STFT", {{"f32[2, 11, 1]"}, {"i64[]", "2"}, {""}, {"i64[]", "4"}}, 1});
  for (const std::string mode : {"reflect", "edge", "wrap"})
    out.push_back({cat("Pad_", mode), "Pad", {{"f32[3, 4, 5]"}, {"i64[6]", "1 0 2 0 3 1"}}, 1, {{"mode", mode}}});
  for (const int64_t training : {0, 1})
    out.push_back({cat("BatchNormalization_", training),
                   "BatchNormalization",
                   {{"f32[2, 3, 4]"}, {"f32[3]"}, {"f32[3]"}, {"f32[3]"}, {"f32[3]", "0.5 1.5 2.5"}},
                   1,
                   {{"training_mode", training}}});
}

void add_moves(std::vector<Instance>& out) {
  out.push_back({"CompressRows", "Compress", {{"f32[4, 3]"}, {"bool[3]", "1 0 1"}}, 1, {{"axis", int64_t{0}}}});
  out.push_back({"CompressColumns", "Compress", {{"f32[2, 3]"}, {"bool[3]", "0 1 1"}}, 1, {{"axis", int64_t{-1}}}});
  out.push_back({"CompressAll", "Compress", {{"f32[2, 3]"}, {"bool[5]", "0 1 1 0 1"}}});
  for (const std::string reduction : {"mul", "max", "min"}) {
    const Given given{{"reduction", reduction}};
    out.push_back(
        {"ScatterND_" + reduction, "ScatterND", {{"f32[4, 2]"}, {"i64[3, 1]", "0 2 0"}, {"f32[3, 2]"}}, 1, given});
    out.push_back({"ScatterElements_" + reduction,
                   "ScatterElements",
                   {{"f32[3, 3]"}, {"i64[2, 3]", "0 2 1 0 1 1"}, {"f32[2, 3]"}},
                   1,
                   given});
  }
  for (const int64_t shared : {1, 2})
    out.push_back({cat("GatherND_", shared),
                   "GatherND",
                   {{"f32[2, 2, 3]"}, {"i64[2, 2, 1]", shared == 1 ? "0 1 1 1" : "0 2 1 1"}},
                   1,
                   {{"batch_dims", shared}}});
  out.push_back({"GatherND_places",
                 "GatherND",
                 {{"f32[2, 3, 4]"}, {"i64[2, 3, 2]", "0 1 2 2 1 1 2 3 0 0 0 0"}},
                 1,
                 {{"batch_dims", int64_t{1}}}});
  for (const std::string equation : {"ii->i", "ii->", "iij->ij", "iji->j", "ii,i->i"}) {
    Instance one{"Einsum_" + equation,
                 "Einsum",
                 {{equation[2] == '-' || equation[2] == ',' ? "f32[3, 3]"
                   : equation[1] == 'i'                     ? "f32[3, 3, 2]"
                                                            : "f32[3, 2, 3]"}}};
    if (equation.find(',') != std::string::npos) one.operands.push_back({"f32[3]"});
    one.attributes = {{"equation", equation}};
    out.push_back(std::move(one));
  }
  out.push_back({"MaxUnpoolInMore",
                 "MaxUnpool",
                 {{"f32[1, 1, 2, 2]"}, {"i64[1, 1, 2, 2]", "1 6 8 15"}, {"i64[4]", "1 1 5 6"}},
                 1,
                 {{"kernel_shape", std::vector<int64_t>{2, 2}}, {"strides", std::vector<int64_t>{2, 2}}}});
  for (const std::string mode : {"linear", "circular"})
    out.push_back({"TensorScatter_" + mode,
                   "TensorScatter",
                   {{"f32[2, 2, 4, 3]"}, {"f32[2, 2, 2, 3]"}, {"i64[2]", mode == "linear" ? "1 2" : "3 0"}},
                   1,
                   {{"mode", mode}}});
  out.push_back({"TensorScatterFromTheFirst",
                 "TensorScatter",
                 {{"f32[2, 4, 3]"}, {"f32[2, 2, 3]"}},
                 1,
                 {{"axis", int64_t{1}}}});
  for (const int64_t mode : {0, 1, 2, 3})
    out.push_back({cat("AttentionScores_", mode),
                   "Attention",
                   {{"f32[2, 4, 2, 3]"}, {"f32[2, 2, 2, 3]"}, {"f32[2, 2, 2, 3]"}, {"f32[2, 2]"}},
                   4,
                   {{"qk_matmul_output_mode", mode}, {"softcap", 2.0}}});
  out.push_back({"AttentionWithAShortMask",
                 "Attention",
                 {{"f32[2, 4, 2, 3]"}, {"f32[2, 2, 4, 3]"}, {"f32[2, 2, 4, 3]"}, {"f32[2, 1, 2, 3]"}}});
  out.push_back({"AttentionWithAShortMaskOfBools",
                 "Attention",
                 {{"f32[2, 4, 2, 3]"}, {"f32[2, 2, 4, 3]"}, {"f32[2, 2, 4, 3]"}, {"bool[2, 3]", "1 0 1 0 1 1"}}});
  for (const std::string rule : {"linear", "gated", "delta", "gated_delta"})
    for (const int64_t heads : {1, 2, 4}) {
      const bool gated = rule.starts_with("gated"), delta = rule.ends_with("delta");
      out.push_back({cat("LinearAttention_", rule, heads),
                     "LinearAttention",
                     {{cat("f32[2, 3, ", 3 * heads, "]")},
                      {"f32[2, 3, 6]"},
                      {"f32[2, 3, 4]"},
                      {"f32[2, 2, 3, 2]"},
                      gated ? Operand{"f32[2, 3, 6]"} : Operand{""},
                      delta ? Operand{"f32[2, 3, 2]"} : Operand{""}},
                     2,
                     {{"q_num_heads", heads}, {"kv_num_heads", int64_t{2}}, {"update_rule", rule}}});
    }
  for (const int64_t causal : {0, 1})
    for (const int64_t window : {-1, 1}) {
      Instance one{cat("AttentionAfterAPast_", causal, window),
                   "Attention",
                   {{"f32[2, 4, 2, 3]"},
                    {"f32[2, 2, 2, 3]"},
                    {"f32[2, 2, 2, 3]"},
                    {""},
                    {"f32[2, 2, 3, 3]"},
                    {"f32[2, 2, 3, 3]"}},
                   3,
                   {{"is_causal", causal}}};
      if (window >= 0) one.attributes.emplace_back("left_window_size", window);
      out.push_back(one);
      one.name = cat("AttentionOfAPaddedCache_", causal, window);
      one.operands = {{"f32[2, 4, 2, 3]"}, {"f32[2, 2, 5, 3]"}, {"f32[2, 2, 5, 3]"}, {""}, {""}, {""},
                      {"i64[2]", "3 5"}};
      one.outputs = 1;
      out.push_back(std::move(one));
    }
}

}  // namespace

std::vector<Instance> attribute_cases() {
  std::vector<Instance> out;
  add_recurrent(out);
  add_resizes(out);
  add_samples(out);
  add_signals(out);
  add_moves(out);
  return out;
}

}  // namespace plait::test
