"""Writes the type variables of the ONNX standard's ops, which tests/unit/ops/types_test.cpp holds the schema rows against.

    pip install onnx==1.23.2
    python tests/unit/ops/standard_types.py > tests/unit/ops/goldens/standard_types.txt

A line an op, in the newest form up to opset 28: name, opset, the type of each input, "->", that of each output. A type variable
is its name; a fixed type is "="; "..." follows a last operand that is repeated with one type, "*" one whose types may differ.
"""

import onnx.defs


def word(operand):
    name = "=" if "(" in operand.type_str else operand.type_str
    variadic = operand.option == onnx.defs.OpSchema.FormalParameterOption.Variadic
    return name + ((("..." if operand.is_homogeneous else "*")) if variadic else "")


newest = {}
for schema in onnx.defs.get_all_schemas_with_history():
    if schema.domain or schema.since_version > 28:
        continue
    if schema.name not in newest or newest[schema.name].since_version < schema.since_version:
        newest[schema.name] = schema
for name, schema in sorted(newest.items()):
    inputs = [word(operand) for operand in schema.inputs]
    outputs = [word(operand) for operand in schema.outputs]
    print(name, schema.since_version, *inputs, "->", *outputs)
