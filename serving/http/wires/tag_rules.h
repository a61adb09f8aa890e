#pragma once
// Calls whose arguments are tags: what their values may be, and the grammar of those that follow a schema.
#include <string>

#include "serving/http/base/tag_reader.h"
#include "serving/http/wires/structure.h"

namespace plait::http {

/// Of each property that a function's parameters list, and of others, the types that its schema leaves open.
ArgumentTypes argument_types(const OrderedJson& parameters);

/// Rules in Lark's syntax. `rule`: the arguments of a call, from the end of its name's mark to the mark that ends it; other names begin
/// with it. Properties come in the order of the schema, and others after them if it has `additionalProperties`, or no list of properties.
/// Texts stand as they are, so that of their keywords enum, const, minLength, maxLength, pattern and some formats are followed; other
/// values are JSON, and followed as a JSON schema is. Throws HttpError(400) for a keyword that cannot be followed; `path`: of the schema.
std::string tag_rules(const std::string& rule, const OrderedJson& parameters, const std::string& path,
                      const ToolFormat& format, const plait_api::Tokenizer& tokenizer);

}  // namespace plait::http
