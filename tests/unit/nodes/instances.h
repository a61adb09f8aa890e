#pragma once
// One node of each op that is not of the standard, with sizes that divide in many ways: what the tests of shardings run, and
// those of gradients.
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/graph/graph.h"

namespace plait::test {

/// What an operand is filled with.
struct Operand {
  std::string type;       ///< as the text form of graphs writes it: "f32[1, 12, 8]"; "" for an absent one
  std::string fill = {};  ///< numbers: "0 1 2"; "below 12": random indices; "": normal, or random codes
};

struct Instance {
  std::string name;  ///< of the test
  std::string op;
  std::vector<Operand> operands;
  int outputs = 1;
  std::vector<std::pair<std::string, Attribute>> attributes = {};
  std::set<std::string> cut = {};  ///< the factors that must be cut in some placement

  friend std::ostream& operator<<(std::ostream& out, const Instance& one) { return out << one.name; }
};

struct Made {
  Node node;
  std::vector<Tensor> operands;
};
/// The same numbers each time.
Made make(const Instance& instance);

const std::vector<Instance>& plait_instances();      ///< of Plait's own ops
const std::vector<Instance>& main_instances();       ///< those of them that are no gradients of images and signals
const std::vector<Instance>& microsoft_instances();  ///< of com.microsoft

}  // namespace plait::test
