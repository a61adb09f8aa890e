// Pass lower: compiles a graph into a flat program. Each value gets a buffer, each node an instruction with its
// kernel.
#include <algorithm>
#include <climits>
#include <map>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/graph/dims_rule.h"
#include "core/mesh/placement.h"
#include "core/passes/base/evaluate.h"
#include "core/passes/lower/lower.h"

namespace plait {
namespace {

class Lowering {
 public:
  Lowering(const Graph& graph, const CompileOptions& options, std::string_view label, const SlotValues* slots = nullptr)
      : graph_(graph),
        options_(options),
        label_(label),
        slots_(slots),
        program_(std::make_shared<Program>()),
        buffer_of_(static_cast<size_t>(graph.value_count()), -1) {
    program_->symbols = graph.symbols;
    if (slots) program_->slots = slots->slots;
  }

  std::shared_ptr<Program> run() {
    mark_bound_symbols();
    for (ValueId id : graph_.inputs) {
      if (slot_of(id) >= 0) {
        add_buffer(id, Buffer::Place::slot, slot_of(id));
        continue;
      }
      program_->inputs.push_back(add_input(id));
      program_->input_names.push_back(graph_.value(id).name);
      program_->input_lists.push_back(list_depth(graph_.value(id).kind));
    }
    for (const Node& node : graph_.nodes)
      if (depends_on_rank(node)) lower_node(at_rank(node, options_.mesh, options_.rank));
      else lower_node(node);
    for (ValueId id : graph_.outputs) {
      program_->outputs.push_back(buffer(id));
      program_->output_names.push_back(graph_.value(id).name);
      program_->output_lists.push_back(list_depth(graph_.value(id).kind));
    }
    drop_unread();
    join_sums(*program_);
    return program_;
  }

 private:
  /// A symbol that is an input's dim has a value before the run; all others depend on data.
  void mark_bound_symbols() {
    bound_.resize(static_cast<size_t>(graph_.symbols.size()));
    for (ValueId id : graph_.inputs)
      if (graph_.value(id).type.dims && slot_of(id) < 0)
        for (const Dim& dim : *graph_.value(id).type.dims)
          if (auto multiple = dim.single_multiple()) bound_[static_cast<size_t>(multiple->symbol)] = true;
  }
  bool known(const std::optional<Dims>& dims) const {
    if (!dims) return false;
    for (const Dim& dim : *dims)
      for (SymbolId id : dim.symbols())
        if (!bound_[static_cast<size_t>(id)]) return false;
    return true;
  }

  static bool among(const std::vector<ValueId>& ids, ValueId id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }
  bool is_input(ValueId id) const { return among(graph_.inputs, id); }
  bool is_output(ValueId id) const { return among(graph_.outputs, id); }

  void take_strings(ValueId id) {
    program_->has_strings = true;
    const auto refuse = [&](std::string_view where, const char* hint) {
      const std::string& name = graph_.value(id).name;
      return Error(Code::unsupported, cat("value ", name.empty() ? cat("%", id) : quote(name), " is of strings, which ", where), hint);
    };
    if (options_.mesh.ranks() > 1)
      throw refuse("ranks of a mesh do not share", "run the graph on one rank, or its part with strings by itself");
    if (options_.device != DeviceKind::host)
      throw refuse("a device does not hold", "run the graph on the processor (option device=cpu), or its part with strings by itself");
  }

  BufferId add_buffer(ValueId id, Buffer::Place place, int32_t index) {
    const Type& type = graph_.value(id).type;
    Buffer buffer;
    buffer.place = place;
    buffer.index = index;
    buffer.dtype = type.dtype;
    if (type.dtype == DType::string) take_strings(id);
    buffer.sized = known(type.dims);
    if (type.dims) buffer.dims = *type.dims;
    program_->buffers.push_back(std::move(buffer));
    return buffer_of_[static_cast<size_t>(id)] = static_cast<BufferId>(program_->buffers.size() - 1);
  }

  /// The number of the slot that the value is; -1 without one.
  int32_t slot_of(ValueId id) const {
    if (!slots_) return -1;
    const auto found = slots_->of_values.find(id);
    return found == slots_->of_values.end() ? -1 : found->second;
  }

  BufferId add_input(ValueId id) {
    return add_buffer(id, Buffer::Place::input, static_cast<int32_t>(program_->inputs.size()));
  }

  /// The rank's part of a constant.
  std::shared_ptr<const Constant> own(const std::shared_ptr<const Constant>& constant) const {
    return at_rank(constant, options_.mesh, options_.rank);
  }

  /// `layout`: the layout in which the kernel reads a constant. Each layout has an array of its own.
  BufferId buffer(ValueId id, const PackedLayout* layout = nullptr) {
    if (id == no_value) return -1;
    BufferId& at = layout ? packed_.try_emplace({id, layout->name}, -1).first->second : buffer_of_[static_cast<size_t>(id)];
    if (at >= 0) return at;
    const Value& value = graph_.value(id);
    PLAIT_ASSERT(value.constant);
    StoreEntry entry;
    entry.source = own(value.constant);
    const Constant& constant = *entry.source;
    std::string steps = text(constant.steps);
    entry.key = constant.initializer.empty() ? cat(label_, ":", id)
                : steps.empty()              ? constant.initializer
                                             : cat(constant.initializer, " | ", steps);
    entry.dtype = constant.dtype();
    Shape shape = constant.shape();
    entry.dims.assign(shape.begin(), shape.end());
    if (layout) entry.key += cat(" | layout ", layout->name);
    entry.layout = layout;
    program_->entries.push_back(std::move(entry));
    const BufferId plain = buffer_of_[static_cast<size_t>(id)];
    const BufferId made = add_buffer(id, Buffer::Place::store, static_cast<int32_t>(program_->entries.size() - 1));
    buffer_of_[static_cast<size_t>(id)] = plain;
    return at = made;
  }

  /// The layout in which the kernel of `node` reads operand `k`, which must be a constant.
  const PackedLayout* layout_of(const Node& node, const Kernel* kernel, size_t k) const {
    const ValueId id = node.inputs[k];
    if (!kernel || !kernel->pack || id == no_value || !graph_.value(id).constant) return nullptr;
    std::vector<OperandInfo> inputs, outputs;
    for (ValueId one : node.inputs) inputs.push_back(info(one));
    for (ValueId one : node.outputs) outputs.push_back(info(one));
    return kernel->pack({node.op, node.attributes, inputs, outputs}, k);
  }

  OperandInfo info(ValueId id) const {
    if (id == no_value) return {};
    const Value& value = graph_.value(id);
    return {value.type.dtype, value.type.dims ? static_cast<int>(value.type.dims->size()) : -1,
            value.constant != nullptr};
  }

  void lower_node(const Node& node) {
    if (is_state(node)) return lower_state(node);
    const OpSchema* schema = options_.ops.find(node.op);
    if (schema && schema->view && lower_view(node)) return;
    Instruction instruction;
    instruction.origin = describe(graph_, node);
    instruction.attributes = node.attributes;
    if (const auto kind = collective_kind(node.op)) {
      lower_collective(node, *kind, instruction);
    } else if (node.op == "plait.Sizes") {
      instruction.kind = Instruction::Kind::sizes;
      instruction.sizes = sizes_of(node, program_->symbols);
    } else if (node.op == "If" || node.op == "Loop") {
      lower_bodies(node, instruction);
    } else {
      choose_kernel(node, instruction);
    }
    for (size_t k = 0; k < node.inputs.size(); ++k)
      instruction.inputs.push_back(buffer(node.inputs[k], layout_of(node, instruction.kernel, k)));
    const size_t updates = schema ? static_cast<size_t>(schema->updates) : 0;
    bool all_sized = true;
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      ValueId id = node.outputs[k];
      if (id == no_value) {
        instruction.outputs.push_back(-1);
      } else if (k < updates) {
        instruction.outputs.push_back(buffer_of_[static_cast<size_t>(id)] = buffer(node.inputs[k]));
      } else {
        const int32_t slot = slot_of(id);
        instruction.outputs.push_back(slot < 0 ? add_buffer(id, Buffer::Place::arena, 0)
                                               : add_buffer(id, Buffer::Place::slot, slot));
        Buffer& made = program_->buffers.back();
        if (!node.bodies.empty()) made.sized = false;  // sizes of the bodies' results are known only at run time
        all_sized = all_sized && made.sized;
      }
    }
    if (node.attributes.integer("async", 0)) make_async(instruction);
    if (node.bodies.empty() && (!all_sized || takes_sizes_for_equal(node) || assumes_sizes(node)))
      set_infer(node, instruction);
    else if (instruction.kernel)
      for (size_t k = 0; k < std::min<size_t>(instruction.inputs.size(), 32); ++k)
        if (instruction.kernel->unread >> k & 1) instruction.inputs[k] = -1;
    program_->instructions.push_back(std::move(instruction));
  }

  std::vector<Type> types_of(const std::vector<ValueId>& ids) const {
    std::vector<Type> out;
    for (ValueId id : ids) out.push_back(id == no_value ? Type{} : graph_.value(id).type);
    return out;
  }

  bool assumes_sizes(const Node& node) const {
    const OpSchema* schema = options_.ops.find(node.op);
    return schema && schema->assumes && schema->assumes(node, types_of(node.inputs));
  }

  /// Ops without a rule that combine operands of open sizes, such as Concat, may assume that these are equal.
  bool takes_sizes_for_equal(const Node& node) const {
    const OpSchema* schema = options_.ops.find(node.op);
    if (!schema || schema->updates) return false;
    const std::vector<Type> inputs = types_of(node.inputs);
    const auto open = std::count_if(inputs.begin(), inputs.end(), [](const Type& type) {
      return type.dims &&
             std::any_of(type.dims->begin(), type.dims->end(), [](const Dim& dim) { return !dim.is_constant(); });
    });
    if (open == 0) return false;
    std::optional<DimsRule> rule = rule_of(*schema, node, inputs, types_of(node.outputs));
    if (!rule) return open > 1 && !node.op.starts_with("plait.");
    return takes_for_equal(*rule, dims_list(inputs), factor_sizes(*rule, dims_list(inputs), {}, schema));
  }

  void lower_state(const Node& node) {
    StoreEntry entry;
    entry.key = node.attributes.string("key", "");
    const Type& type = graph_.value(node.outputs[0]).type;
    entry.dtype = type.dtype;
    entry.dims = *type.dims;
    entry.written = true;
    if (!node.inputs.empty() && node.inputs[0] != no_value) entry.source = own(graph_.value(node.inputs[0]).constant);
    program_->entries.push_back(std::move(entry));
    add_buffer(node.outputs[0], Buffer::Place::store, static_cast<int32_t>(program_->entries.size() - 1));
  }

  bool lower_view(const Node& node) {
    BufferId from = buffer(node.inputs[0]);
    const Buffer& source = program_->buffers[static_cast<size_t>(from)];
    ValueId id = node.outputs[0];
    if (!known(graph_.value(id).type.dims) || !source.sized || assumes_sizes(node)) return false;
    add_buffer(id, Buffer::Place::view, source.place == Buffer::Place::view ? source.index : from);
    return true;
  }

  void choose_kernel(const Node& node, Instruction& instruction) {
    std::vector<OperandInfo> inputs, outputs;
    for (ValueId id : node.inputs) inputs.push_back(info(id));
    for (ValueId id : node.outputs) outputs.push_back(info(id));
    NodeInfo node_info{node.op, node.attributes, inputs, outputs};
    instruction.kernel = options_.kernels.find(node_info, options_.device);
    // What an accelerator has no kernel for runs on the host, on copies.
    if (!instruction.kernel) instruction.kernel = options_.kernels.find(node_info, DeviceKind::host);
    if (!instruction.kernel) {
      std::vector<std::string> dtypes;
      for (const OperandInfo& one : inputs) dtypes.emplace_back(dtype_name(one.dtype));
      throw Error(Code::unsupported, cat(describe(node), " has no kernel for inputs of dtype ", join(dtypes, ", ")),
                  "`plait ops` lists the kernels there are");
    }
    try {
      if (instruction.kernel->prepare) instruction.state = instruction.kernel->prepare(node_info);
    } catch (const Error& error) {
      throw error.at(describe(node));
    }
  }

  /// A branch that cannot run becomes a program that fails with the reason when it is taken.
  std::shared_ptr<Program> lower_body(const Graph& inner, const std::string& label) const {
    if (!inner.refusal.empty()) {
      auto refused = std::make_shared<Program>();
      refused->refusal = inner.refusal;
      return refused;
    }
    auto program = Lowering(inner, options_, label).run();
    plan(*program, options_.mesh.ranks() > 1);
    return program;
  }

  void lower_collective(const Node& node, CollectiveKind kind, Instruction& instruction) {
    const DType dtype = graph_.value(node.outputs[0]).type.dtype;
    if (dtype_bits(dtype) % 8)
      throw Error(Code::unsupported, cat(describe(node), " would move ", dtype_name(dtype), " between ranks, whose ",
                                         "elements share bytes"));
    const Attributes& attributes = node.attributes;
    const AxisList axes = options_.mesh.parse_axes(attributes.string("axes", ""));
    const std::string reduction = attributes.string("reduction", "sum");
    instruction.kind = Instruction::Kind::collective;
    CollectiveCall& call = instruction.call;
    call.kind = kind;
    call.reduction = reduction == "max" ? Reduction::max : reduction == "min" ? Reduction::min : Reduction::sum;
    call.dim = static_cast<int32_t>(attributes.integer("dim", 0));
    call.to_dim = static_cast<int32_t>(attributes.integer("to_dim", 0));
    call.parts = static_cast<int32_t>(attributes.integer("parts"));
    call.part = static_cast<int32_t>(options_.mesh.block(options_.rank, axes));
    if (kind == CollectiveKind::shard) return;
    const std::vector<int64_t> ranks = options_.mesh.group(options_.rank, axes);
    std::vector<std::vector<int32_t>>& groups = program_->groups;
    auto known = std::find(groups.begin(), groups.end(), std::vector<int32_t>(ranks.begin(), ranks.end()));
    call.group = static_cast<int32_t>(known - groups.begin());
    if (known == groups.end()) groups.emplace_back(ranks.begin(), ranks.end());
  }

  /// Marks a collective as asynchronous. Its workspace must then be a buffer of its own.
  void make_async(Instruction& instruction) {
    CollectiveCall& call = instruction.call;
    const Buffer &in = program_->buffers[static_cast<size_t>(instruction.inputs[0])],
                 &out = program_->buffers[static_cast<size_t>(instruction.outputs[0])];
    if (!in.sized || !out.sized) return;
    call.async = true;
    const CollectiveWorkspace needs = workspace_of(call.kind, leads(in.dims, call.dim));
    if (!needs.inputs && !needs.outputs) return;
    Buffer workspace;
    workspace.dtype = in.dtype;
    workspace.dims = needs.outputs ? out.dims : in.dims;
    workspace.dims.insert(workspace.dims.begin(), Dim(needs.outputs ? needs.outputs : needs.inputs));
    program_->buffers.push_back(std::move(workspace));
    instruction.workspace = static_cast<BufferId>(program_->buffers.size() - 1);
  }

  void lower_bodies(const Node& node, Instruction& instruction) {
    bool loop = node.op == "Loop";
    instruction.kind = loop ? Instruction::Kind::loop : Instruction::Kind::branch;
    // A loop has two inputs of its own, an If the condition; a loop's body also returns its condition.
    size_t own = loop ? 2 : 1, inputs = node.inputs.size() - (loop ? 0 : 1);
    size_t outputs = node.outputs.size() + (loop ? 1 : 0);
    int64_t rest = static_cast<int64_t>(node.inputs.size()) - static_cast<int64_t>(own);
    int64_t carried = loop ? node.attributes.integer("carried", rest) : 0;
    if (rest < 0 || carried < 0 || carried > rest || carried > static_cast<int64_t>(node.outputs.size()))
      throw Error(Code::bad_model, cat(describe(node), " carries ", carried, " of ", node.inputs.size(), " inputs"));
    instruction.carried = static_cast<int32_t>(carried);
    instruction.attributes = node.attributes;
    for (std::string_view name :
         loop ? std::vector<std::string_view>{"body"} : std::vector<std::string_view>{"then_branch", "else_branch"}) {
      auto body =
          std::find_if(node.bodies.begin(), node.bodies.end(), [&](const auto& row) { return row.first == name; });
      if (body == node.bodies.end()) throw Error(Code::bad_model, cat(describe(node), " has no ", name));
      const Graph& inner = *body->second;
      if (inner.inputs.size() != inputs || inner.outputs.size() != outputs)
        throw Error(Code::bad_model, cat(describe(node), ": ", name, " has ", inner.inputs.size(), " inputs and ",
                                         inner.outputs.size(), " outputs, expected ", inputs, " and ", outputs));
      auto program = lower_body(inner, cat(label_, "/", program_->instructions.size(), name));
      program_->has_strings |= program->has_strings;
      for (const StoreEntry& entry : program->entries)
        program_->entries.push_back(entry);  // the Store loads them with this program's
      instruction.bodies.push_back(std::move(program));
    }
  }

  void set_infer(const Node& node, Instruction& instruction) {
    // What shape rules read of an operand.
    static_assert(Instruction::inferred_bytes >= max_contents * int64_t{sizeof(int64_t)});
    const OpSchema* schema = options_.ops.find(node.op);
    auto output_shape = instruction.kernel ? instruction.kernel->output_shape : nullptr;
    auto kept = std::make_shared<Node>(node);
    std::vector<DType> dtypes;
    for (ValueId id : node.outputs) dtypes.push_back(id == no_value ? DType::none : graph_.value(id).type.dtype);
    auto state = instruction.state;
    instruction.infer = [schema, kept, output_shape, state, dtypes](std::span<const TensorView> inputs,
                                                                    std::vector<std::pair<DType, Shape>>& types,
                                                                    std::vector<bool>& read) {
      if (output_shape) {
        read.assign(inputs.size(), true);
        for (size_t k = 0; k < dtypes.size(); ++k)
          types.emplace_back(dtypes[k], output_shape(state.get(), inputs, static_cast<int>(k)));
        return;
      }
      infer_concrete(*schema, *kept, inputs, types, nullptr, &read);
    };
  }

  /// Removes instructions without readers: a Reshape that became a view does not read its shape operand.
  void drop_unread() {
    std::vector<bool> read(program_->buffers.size());
    auto mark = [&](BufferId id) {
      if (id < 0) return;
      read[static_cast<size_t>(id)] = true;
      const Buffer& buffer = program_->buffers[static_cast<size_t>(id)];
      if (buffer.place == Buffer::Place::view) read[static_cast<size_t>(buffer.index)] = true;
    };
    for (BufferId id : program_->outputs) mark(id);
    std::vector<Instruction> kept;
    for (size_t i = program_->instructions.size(); i-- > 0;) {
      Instruction& one = program_->instructions[i];
      bool needed = std::any_of(one.outputs.begin(), one.outputs.end(), [&](BufferId id) {
        return id >= 0 && (read[static_cast<size_t>(id)] ||
                           program_->buffers[static_cast<size_t>(id)].place == Buffer::Place::store);
      });
      if (!needed) continue;
      for (BufferId id : one.inputs) mark(id);
      kept.push_back(std::move(one));
    }
    program_->instructions.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
  }

  const Graph& graph_;
  const CompileOptions& options_;
  std::string label_;
  const SlotValues* slots_;
  std::shared_ptr<Program> program_;
  std::vector<BufferId> buffer_of_;
  std::map<std::pair<ValueId, std::string_view>, BufferId> packed_;  ///< constants in a kernel's layout
  std::vector<bool> bound_;
};

}  // namespace

std::shared_ptr<Program> lower(const Graph& graph, const CompileOptions& options, std::string_view label,
                               const SlotValues* slots) {
  if (options.progress) options.progress->check();
  auto program = Lowering(graph, options, label, slots).run();
  if (options.progress) options.progress->advance();
  return program;
}

}  // namespace plait
