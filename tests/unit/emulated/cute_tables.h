#pragma once
// Where elements of tensor cores' operands lie, by CUTLASS's own tables (CuTe).

namespace plait::test {

/// Whether CUTLASS's headers were there when this was compiled.
bool has_cute_tables();

struct Place {
  int row, column;
};
/// Of m16n8k16: value i (in order of registers, low half first) of the lane, of a (16 x 16), b (8 x 16) and the sums (16 x 8).
Place cute_a(int lane, int i);
Place cute_b(int lane, int i);
Place cute_sums(int lane, int i);
/// Of ldmatrix .x4: which element of the 32 rows of 8 the value i of the lane is.
Place cute_matrices(int lane, int i, bool transposed);

}  // namespace plait::test
