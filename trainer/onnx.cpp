#include "trainer/onnx.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <vector>

#include "trainer/protobuf.h"

namespace tutti::trainer {
namespace {

// Of onnx.proto3.
enum ElementType : std::uint64_t { kFloat = 1, kInt64 = 7 };
enum AttributeType : std::uint64_t { kIntAttribute = 2, kTensorAttribute = 4, kFloatAttribute = 1, kIntsAttribute = 7 };
constexpr std::uint64_t kFormatVersion = 8, kOperatorSet = 17;
constexpr std::size_t kLargest = 0x7fffffff;

template <class T>
Message tensor(const std::string& name, const std::vector<std::size_t>& shape, const T* data, std::size_t count) {
  Message t;
  for (const std::size_t side : shape) t.number(1, side);
  t.number(2, sizeof(T) == 8 ? kInt64 : kFloat);
  if (!name.empty()) t.text(8, name);
  t.text(9, {reinterpret_cast<const char*>(data), count * sizeof(T)});
  return t;
}

// Attributes of a node.
Message integer(const std::string& name, std::int64_t value) {
  Message a;
  a.text(1, name), a.number(3, std::uint64_t(value)), a.number(20, kIntAttribute);
  return a;
}
Message integers(const std::string& name, const std::vector<std::int64_t>& values) {
  Message a;
  a.text(1, name);
  for (const std::int64_t value : values) a.number(8, std::uint64_t(value));
  a.number(20, kIntsAttribute);
  return a;
}

Message value_info(const std::string& name, ElementType type, const std::vector<std::string>& sides) {
  Message shape;
  for (const std::string& side : sides) {
    Message dimension;
    if (side[0] >= '0' && side[0] <= '9') dimension.number(1, std::stoull(side));
    else dimension.text(2, side);
    shape.message(1, dimension);
  }
  Message tensor_type, kind, info;
  tensor_type.number(1, type), tensor_type.message(2, shape);
  kind.message(1, tensor_type);
  info.text(1, name), info.message(2, kind);
  return info;
}

using Names = std::vector<std::string>;

// The graph being written. Each call adds a node and gives the name of its output.
class Graph {
 public:
  explicit Graph(const ModelConfig& config) : c_(config) {}

  std::string node(const std::string& operation, const Names& inputs, const std::vector<Message>& attributes = {}) {
    return nodes(operation, inputs, attributes, 1).front();
  }
  Names nodes(const std::string& operation, const Names& inputs, const std::vector<Message>& attributes, std::size_t outputs) {
    Message n;
    Names names;
    for (const std::string& input : inputs) n.text(1, input);
    for (std::size_t i = 0; i < outputs; ++i) names.push_back(fmt::format("{}_{}", operation, count_++));
    for (const std::string& name : names) n.text(2, name);
    n.text(4, operation);
    for (const Message& attribute : attributes) n.message(5, attribute);
    graph_.message(1, n);
    return names;
  }
  void weight(const std::string& name, const std::vector<std::size_t>& shape, const float* data, std::size_t count) {
    graph_.message(5, tensor(name, shape, data, count));
  }
  std::string numbers(const std::vector<std::int64_t>& values) {
    const std::string name = fmt::format("numbers_{}", count_++);
    graph_.message(5, tensor(name, {values.size()}, values.data(), values.size()));
    return name;
  }
  std::string scalar(float value) {
    const std::string name = fmt::format("scalar_{}", count_++);
    weight(name, {}, &value, 1);
    return name;
  }
  std::string slice(const std::string& x, const std::string& begin, const std::string& end, std::int64_t axis) {
    return node("Slice", {x, begin, end, numbers({axis})});
  }
  Names split(const std::string& x, const std::vector<std::int64_t>& lengths) {
    return nodes("Split", {x, numbers(lengths)}, {integer("axis", -1)}, lengths.size());
  }

  std::string write();

 private:
  std::string norm(const std::string& name, const std::string& x);
  std::string linear(const std::string& name, const std::string& x);
  std::string heads(const std::string& x, std::size_t count);
  std::string turned(const std::string& x);
  std::string attention(const std::string& name, const std::string& x);
  std::string mlp(const std::string& name, const std::string& x);
  void add_tables();

  const ModelConfig& c_;
  Message graph_;
  std::size_t count_ = 0;
  std::string length_, mask_, cosines_, sines_;      // [1]: tokens of a sample; what is added to scores; RoPE's tables
};

std::string Graph::norm(const std::string& name, const std::string& x) {
  const std::string weight = name + ".weight";
  if (c_.norm == NormKind::layer) {
    Message epsilon;
    epsilon.text(1, "epsilon");
    epsilon.fixed32(2, float(kNormEpsilon)), epsilon.number(20, kFloatAttribute);
    return node("LayerNormalization", c_.norm_bias() ? Names{x, weight, name + ".bias"} : Names{x, weight}, {integer("axis", -1), epsilon});
  }
  const std::string square = node("ReduceMean", {node("Mul", {x, x})}, {integers("axes", {-1}), integer("keepdims", 1)});
  return node("Mul", {node("Div", {x, node("Sqrt", {node("Add", {square, scalar(float(kNormEpsilon))})})}), weight});
}

std::string Graph::linear(const std::string& name, const std::string& x) {
  const std::string y = node("MatMul", {x, name + ".weight"});
  return c_.bias ? node("Add", {y, name + ".bias"}) : y;
}

// [batch, context, count * size] to [batch, count, context, size].
std::string Graph::heads(const std::string& x, std::size_t count) {
  const std::string apart = node("Reshape", {x, numbers({0, 0, std::int64_t(count), std::int64_t(c_.head_size())})});
  return node("Transpose", {apart}, {integers("perm", {0, 2, 1, 3})});
}

std::string Graph::turned(const std::string& x) {
  const auto half = std::int64_t(c_.head_size() / 2);
  const Names parts = split(x, {half, half});
  const std::string low = node("Sub", {node("Mul", {parts[0], cosines_}), node("Mul", {parts[1], sines_})});
  const std::string high = node("Add", {node("Mul", {parts[1], cosines_}), node("Mul", {parts[0], sines_})});
  return node("Concat", {low, high}, {integer("axis", -1)});
}

std::string Graph::attention(const std::string& name, const std::string& x) {
  const auto size = std::int64_t(c_.head_size());
  const Names parts = split(linear(name + "attn.c_attn", x), {std::int64_t(c_.heads) * size, std::int64_t(c_.kv_heads) * size, std::int64_t(c_.kv_heads) * size});
  std::string q = heads(parts[0], c_.heads), k = heads(parts[1], c_.kv_heads), v = heads(parts[2], c_.kv_heads);
  if (c_.position == PositionKind::rope) q = turned(q), k = turned(k);
  if (c_.kv_heads < c_.heads) {      // which key head each query head shares
    std::vector<std::int64_t> shared;
    for (std::size_t head = 0; head < c_.heads; ++head) shared.push_back(std::int64_t(head / (c_.heads / c_.kv_heads)));
    const std::string which = numbers(shared);
    k = node("Gather", {k, which}, {integer("axis", 1)});
    v = node("Gather", {v, which}, {integer("axis", 1)});
  }
  std::string scores = node("MatMul", {q, node("Transpose", {k}, {integers("perm", {0, 1, 3, 2})})});
  scores = node("Add", {node("Mul", {scores, scalar(1 / std::sqrt(float(size)))}), mask_});
  const std::string out = node("Transpose", {node("MatMul", {node("Softmax", {scores}, {integer("axis", -1)}), v})}, {integers("perm", {0, 2, 1, 3})});
  return linear(name + "attn.c_proj", node("Reshape", {out, numbers({0, 0, std::int64_t(c_.width)})}));
}

std::string Graph::mlp(const std::string& name, const std::string& x) {
  std::string y = linear(name + "mlp.c_fc", x);
  if (c_.activation == ActivationKind::swiglu) {
    const Names parts = split(y, {std::int64_t(c_.hidden), std::int64_t(c_.hidden)});
    y = node("Mul", {node("Mul", {parts[0], node("Sigmoid", {parts[0]})}), parts[1]});
  } else {      // GELU by tanh
    const std::string cube = node("Mul", {node("Mul", {y, y}), y});
    const std::string inner = node("Mul", {node("Add", {y, node("Mul", {cube, scalar(0.044715f)})}), scalar(0.7978845608f)});
    y = node("Mul", {node("Mul", {y, scalar(0.5f)}), node("Add", {node("Tanh", {inner}), scalar(1)})});
  }
  return linear(name + "mlp.c_proj", y);
}

// What depends on the number of tokens: above the diagonal the lowest number, else 0; and of RoPE's tables the first rows.
void Graph::add_tables() {
  length_ = slice(node("Shape", {"tokens"}), numbers({1}), numbers({2}), 0);
  Message lowest;
  const float value = std::numeric_limits<float>::lowest();
  lowest.text(1, "value"), lowest.message(5, tensor("", {1}, &value, 1)), lowest.number(20, kTensorAttribute);
  const std::string square = node("ConstantOfShape", {node("Concat", {length_, length_}, {integer("axis", 0)})}, {lowest});
  const std::int64_t one = 1;
  graph_.message(5, tensor("first_diagonal", {}, &one, 1));
  mask_ = node("Trilu", {square, "first_diagonal"}, {integer("upper", 1)});
  if (c_.position != PositionKind::rope) return;
  const std::size_t half = c_.head_size() / 2;
  std::vector<float> cosines, sines;
  for (std::size_t at = 0; at < c_.context * half; ++at) {
    const double angle = double(at / half) * std::pow(10000.0, -double(at % half) / double(half));
    cosines.push_back(float(std::cos(angle))), sines.push_back(float(std::sin(angle)));
  }
  weight("rope.cosines", {c_.context, half}, cosines.data(), cosines.size());
  weight("rope.sines", {c_.context, half}, sines.data(), sines.size());
  cosines_ = slice("rope.cosines", numbers({0}), length_, 0);
  sines_ = slice("rope.sines", numbers({0}), length_, 0);
}

std::string Graph::write() {
  add_tables();
  std::string x = node("Gather", {"wte.weight", "tokens"});
  if (c_.position == PositionKind::learned) x = node("Add", {x, slice("wpe.weight", numbers({0}), length_, 0)});
  for (std::size_t layer = 0; layer < c_.layers; ++layer) {
    const std::string h = fmt::format("h.{}.", layer);
    x = node("Add", {x, attention(h, norm(h + "ln_1", x))});
    x = node("Add", {x, mlp(h, norm(h + "ln_2", x))});
  }
  const std::string head = node("Transpose", {"wte.weight"}, {integers("perm", {1, 0})});
  Message last;
  last.text(1, norm("ln_f", x)), last.text(1, head), last.text(2, "logits"), last.text(4, "MatMul");
  graph_.message(1, last);
  graph_.text(2, "transformer");
  graph_.message(11, value_info("tokens", kInt64, {"batch", "context"}));
  graph_.message(12, value_info("logits", kFloat, {"batch", "context", fmt::format("{}", c_.vocabulary)}));
  Message operators, model;
  operators.text(1, ""), operators.number(2, kOperatorSet);
  model.number(1, kFormatVersion), model.text(2, "tutti"), model.message(7, graph_), model.message(8, operators);
  return model.bytes();
}

}  // namespace

Result<std::string> onnx_file(const ModelConfig& config, const Layout& layout, WholeWeights<float>& weights) {
  if (layout.parameters() * sizeof(float) + (1 << 20) > kLargest) {
    return Status(Code::invalid_argument, fmt::format("an ONNX file holds 2 GB; these weights are {:.1f} GB: take --safetensors", double(layout.parameters()) * 4e-9));
  }
  Graph graph(config);
  for (const Tensor& tensor : layout.tensors()) graph.weight(tensor.name, tensor.shape, weights.at(tensor.unit) + tensor.offset, tensor.count());
  return graph.write();
}

}  // namespace tutti::trainer
