#pragma once
// A graph in text form that has every part of the grammar once.
namespace plait::test {

inline constexpr const char* sample_text =
    R"(graph "demo"
input %0 "ids" : i64[b, "past + new"]
const %1 "w" = file "layer.w" : f32[2, 3] = 1 -2.5 3 4 5 1e-3 ; transpose 1 0; cast bf16
const %2 = inline : i64[2] = 7 -1
const %3 = inline : bool[] = 1
const %7 = stack (file "a" : f32[2] = 1 2 ; reshape 2 1), (file "b" : f32[2, 1] = 3 4) ; transpose 0 2 1; cast bf16
const %8 "eps" = literal "eps" : f32[1] = 1e-05
node "a" : %4 : f32[b, 2*s + 1] , _ , %5 "named" : ?[...] = Op.Some(%0, _, %1) alpha=0.5 axis=-1 list=ints[1, 2])"
    R"( names=strings["x", "y \"q\""] reals=floats[1.0, 2.5] value=tensor(i64[2] = 1 2)
node "if" stage 2 : %6 : ?[...] = If(%3, %4)
body "then_branch" {
  input %0 "in" : f32[n]
  node "" : %1 : f32[n] = Neg(%0)
  output %1
}
body "else_branch" {
  input %0 "in" : f32[n]
  output %0
}
output %6
output %5
)";

}  // namespace plait::test
