#pragma once
// The zoo, one export a family.
#include <map>

#include "tests/unit/support/zoo.h"

namespace plait::test {

/// The first of each that is recognised, and has a cache in the file: of f32 weights, or of quantised ones.
inline std::vector<ZooModel> families(bool exact = true) {
  std::map<std::string, ZooModel> out;
  for (const ZooModel& model : zoo())
    if (model.plain.empty() && model.exact == exact && model.name.find("nocache") == std::string::npos)
      out.try_emplace(model.family, model);
  std::vector<ZooModel> list;
  for (auto& [family, model] : out) list.push_back(model);
  return list;
}

inline ZooModel family(const std::string& name) {
  for (const ZooModel& model : families())
    if (model.family == name) return model;
  throw Error(Code::not_found, "the zoo has no family " + name);
}

}  // namespace plait::test
