#pragma once
// Ops of com.microsoft that are read as others, one conversion each; opset_map.cpp calls them.
#include <span>
#include <string_view>

#include "importers/onnx/old_node.h"

namespace plait::onnx_import {

struct Conversion {
  std::string_view op;  ///< as Node::op
  void (*convert)(OldNode&);
};

std::span<const Conversion> attention_conversions();  ///< attention and embeddings (fused_ops.cpp)
std::span<const Conversion> layer_conversions();      ///< convolutions, products and norms with what follows them
std::span<const Conversion> quantized_conversions();  ///< ops on 8-bit integers and their scales
std::span<const Conversion> tensor_conversions();     ///< what moves, compares and counts elements

}  // namespace plait::onnx_import
