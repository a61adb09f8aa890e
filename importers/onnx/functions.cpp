#include "importers/onnx/functions.h"

#include <onnx-ml.pb.h>

#include <set>

#include "core/base/error.h"
#include "core/base/text.h"
#include "importers/onnx/attribute_reader.h"

namespace plait::onnx_import {
namespace {

constexpr int max_functions = 10'000;  // the limit of ONNX's own checker

template <class List>
OpsetImports imports_of(const List& list) {
  OpsetImports out;
  for (const auto& entry : list) {
    if (entry.version() < 1)
      throw Error(Code::bad_model, cat("opset import of domain ", quote(entry.domain()), " has version ",
                                       entry.version()));
    auto [found, added] = out.emplace(canonical_domain(entry.domain()), entry.version());
    if (!added && found->second != entry.version())
      throw Error(Code::bad_model, cat("domain ", quote(entry.domain()), " is imported in versions ", found->second,
                                       " and ", entry.version()));
  }
  return out;
}

Function read_function(const onnx::FunctionProto& proto, const OpsetImports& model_opsets) {
  Function out{&proto, imports_of(proto.opset_import()), {}, cat(proto.domain(), "::", proto.name())};
  out.opsets.insert(model_opsets.begin(), model_opsets.end());
  std::set<std::string> inputs(proto.input().begin(), proto.input().end());
  if (static_cast<int>(inputs.size()) != proto.input_size())
    throw Error(Code::bad_model, "two inputs have the same name");
  std::set<std::string> attributes(proto.attribute().begin(), proto.attribute().end());
  if (static_cast<int>(attributes.size()) != proto.attribute_size())
    throw Error(Code::bad_model, "two attributes have the same name");
  for (const auto& attribute : proto.attribute_proto()) {
    check_attribute(attribute);
    if (!attribute.ref_attr_name().empty())
      throw Error(Code::bad_model, cat("the default of attribute ", quote(attribute.name()), " refers to another"));
    if (attributes.count(attribute.name()) || !out.defaults.emplace(attribute.name(), &attribute).second)
      throw Error(Code::bad_model, cat("attribute ", quote(attribute.name()), " is declared twice"));
  }
  return out;
}

}  // namespace

std::string canonical_domain(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

OpsetImports read_opsets(const onnx::ModelProto& model) { return imports_of(model.opset_import()); }

FunctionTable::FunctionTable(const onnx::ModelProto& model, const OpsetImports& opsets) {
  if (model.functions_size() > max_functions)
    throw Error(Code::bad_model, cat("the model has ", model.functions_size(), " functions, at most ", max_functions,
                                     " are allowed"));
  for (const auto& proto : model.functions()) {
    std::string label = cat("function ", quote(cat(proto.domain(), "::", proto.name())));
    try {
      auto key = std::tuple(canonical_domain(proto.domain()), proto.name(), proto.overload());
      if (!functions_.emplace(key, read_function(proto, opsets)).second)
        throw Error(Code::bad_model, "is defined twice");
    } catch (const Error& error) {
      throw error.at(label);
    }
  }
}

const Function* FunctionTable::find(const std::string& domain, const std::string& name,
                                    const std::string& overload) const {
  if (functions_.empty()) return nullptr;
  auto found = functions_.find(std::tuple(domain, name, overload));
  return found == functions_.end() ? nullptr : &found->second;
}

}  // namespace plait::onnx_import
