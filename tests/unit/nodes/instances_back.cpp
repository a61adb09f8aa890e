// Nodes of Plait's gradient ops of images and signals.
#include "tests/unit/nodes/instances.h"

namespace plait::test {
namespace {
namespace back {

const std::vector<Instance> instances{
    {"LpPoolBack",
     "plait.LpPoolBack",
     {{"f32[2, 4, 5]"}, {"f32[2, 4, 6]"}},
     1,
     {{"kernel_shape", std::vector<int64_t>{2}}, {"p", int64_t{3}}},
     {"b", "c"}},
    {"GlobalLpPoolBack", "plait.LpPoolBack", {{"f32[2, 4, 1]"}, {"f32[2, 4, 6]"}}, 1, {}, {"b", "c"}},
    {"ResizeBack",
     "plait.ResizeBack",
     {{"f32[2, 4, 8, 3]"}, {"i64[4]", "2 4 5 4"}, {""}, {""}, {"i64[2]", "8 3"}},
     1,
     {{"axes", std::vector<int64_t>{2, 3}}, {"mode", std::string("linear")}},
     {"a", "b"}},
    {"GridSampleBack",
     "plait.GridSampleBack",
     {{"f32[2, 4, 4, 6]"}, {"f32[2, 4, 4, 5]"}, {"f32[2, 4, 6, 2]"}},
     2,
     {},
     {"b", "c", "y0", "y1"}},
    {"RoiAlignBack",
     "plait.RoiAlignBack",
     {{"f32[4, 4, 2, 3]"},
      {"f32[2, 4, 5, 6]"},
      {"f32[4, 4]", "0.3 0.7 3.1 2.9 1.2 0.1 4.3 3.6 0 0 2.2 2.3 1 1 3 5"},
      {"i64[4]", "1 0 1 0"}},
     1,
     {{"output_height", int64_t{2}}, {"output_width", int64_t{3}}},
     {"n", "c"}},
    {"MaxRoiPoolBack",
     "plait.MaxRoiPoolBack",
     {{"f32[4, 4, 2, 2]"}, {"f32[3, 4, 5, 6]"}, {"f32[4, 5]", "1 0.4 0.3 3.3 2.2 2 1.4 1.3 5.2 4.4 0 0 0 2 2"}},
     1,
     {{"pooled_shape", std::vector<int64_t>{2, 2}}},
     {"n", "c"}},
    {"DeformConvBack",
     "plait.DeformConvBack",
     {{"f32[4, 4, 3, 3]"}, {"f32[4, 4, 4, 4]"}, {"f32[4, 2, 2, 2]"}, {"f32[4, 16, 3, 3]"}, {"f32[4, 8, 3, 3]"}},
     4,
     {{"group", int64_t{2}}, {"offset_group", int64_t{2}}},
     {"b"}},
    {"LSTMBack",
     "plait.RecurrentBack",
     {{"f32[3, 4, 5]"},
      {"f32[2, 12, 5]"},
      {"f32[2, 12, 3]"},
      {"f32[2, 24]"},
      {"i32[4]", "3 2 0 1"},
      {"f32[2, 4, 3]"},
      {"f32[2, 4, 3]"},
      {"f32[2, 9]"},
      {"f32[3, 2, 4, 3]"},
      {"f32[2, 4, 3]"},
      {"f32[2, 4, 3]"}},
     7,
     {{"layer", std::string("LSTM")}, {"direction", std::string("bidirectional")}},
     {"b"}},
    {"GRUBack",
     "plait.RecurrentBack",
     {{"f32[4, 3, 5]"},
      {"f32[1, 9, 5]"},
      {"f32[1, 9, 3]"},
      {"f32[1, 18]"},
      {""},
      {"f32[4, 1, 3]"},
      {""},
      {""},
      {"f32[4, 3, 1, 3]"}},
     5,
     {{"layer", std::string("GRU")}, {"layout", int64_t{1}}},
     {"b"}},
    {"CumProdBack", "plait.CumProdBack", {{"f32[4, 3, 6]"}, {"f32[4, 3, 6]"}}, 1, {{"axis", int64_t{1}}}, {"a", "c"}},
    {"DetBack", "plait.DetBack", {{"f32[4, 3, 3]"}, {"f32[4]"}}, 1, {}, {}},
};

}  // namespace back
}  // namespace

const std::vector<Instance>& plait_instances() {
  static const std::vector<Instance> all = [] {
    std::vector<Instance> out = main_instances();
    out.insert(out.end(), back::instances.begin(), back::instances.end());
    return out;
  }();
  return all;
}

}  // namespace plait::test
