#include "kernels/models/graph_program.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/ir/arithmetic/code_rule.h"
#include "kernels/ir/memory_plan.h"
#include "kernels/ir/passes/fuse_codes.h"
#include "proto/base/status_macros.h"

namespace runnel::inference {
namespace {

// Averages over larger windows are products with ones.
constexpr int64_t kMaxPoolTaps = 256;

int64_t AlignUp(int64_t bytes) {
  return (bytes + AreaPlan::kAlignment - 1) / AreaPlan::kAlignment * AreaPlan::kAlignment;
}

std::vector<int64_t> WordsOf(const CodeRule& rule, absl::Span<const CodeChannel> channels) {
  std::vector<int64_t> words(kCodeRuleWords + channels.size() * kCodeChannelWords);
  std::memcpy(words.data(), &rule, sizeof rule);
  if (!channels.empty()) {
    std::memcpy(&words[kCodeRuleWords], channels.data(), channels.size() * sizeof(CodeChannel));
  }
  return words;
}

CodeRule OutputRule(const Int8Node& n) {
  const CodeLimits limits = LimitsOf(n);
  CodeRule rule;
  rule.zero = n.coding.zero;
  rule.lowest = limits.lowest;
  rule.highest = limits.highest;
  return rule;
}

// What of a sum does not depend on the samples, by output channel: bias - z_x sum(w) + K z_x z_w.
std::vector<int64_t> SumOffsets(const Int8Node& n, const Coding& in) {
  std::vector<int64_t> offsets(n.bias.begin(), n.bias.end());
  const int64_t row = n.node.shape.taps() * n.node.shape.group_in();
  for (size_t o = 0; o < offsets.size() && in.zero != 0; ++o) {
    int64_t sum = 0;
    for (int64_t i = 0; i < row; ++i) sum += n.weights[o * row + i];
    const int64_t zero = n.weight_zeros.empty() ? 0 : n.weight_zeros[o];
    offsets[o] += in.zero * (row * zero - sum);
  }
  return offsets;
}

class Compiler {
 public:
  Compiler(const Int8Graph& graph, int64_t batch, const GraphOptions& options, GraphProgram& made)
      : graph_(graph),
        batch_(batch),
        options_(options),
        made_(made),
        values_(graph.nodes.size(), -1) {}

  absl::Status Run(absl::Span<const size_t> given, size_t output) {
    std::vector<bool> needed(graph_.nodes.size(), false);
    const auto is_given = [&](size_t i) {
      return std::find(given.begin(), given.end(), i) != given.end();
    };
    needed[output] = true;
    for (size_t i = output + 1; i-- > 0;) {
      if (!needed[i] || is_given(i)) continue;
      const Node& node = graph_.nodes[i].node;
      for (int k = 0; k < node.input_count(); ++k) needed[node.inputs[k]] = true;
    }
    for (size_t i = 0; i <= output; ++i) {
      if (!needed[i]) continue;
      at_ = i;
      if (is_given(i)) {
        TakeGiven();
      } else {
        RUNNEL_RETURN_IF_ERROR(Compute());
      }
    }
    if (made_.output == DType::kInt8) {
      at_ = output;
      const BufferIndex y = Output(DType::kInt8);
      Emit(OpCode::kCodesToChannelsLast, {values_[output]}, y);
    }
    Finish();
    return absl::OkStatus();
  }

 private:
  const Int8Node& n() const { return graph_.nodes[at_]; }
  const ConvShape& s() const { return n().node.shape; }
  const Int8Node& input() const { return graph_.input(n()); }
  BufferIndex value(int k = 0) const { return values_[n().node.inputs[k]]; }
  Shape OutputShape() const { return {batch_, s().out_c, s().out_h, s().out_w}; }

  BufferIndex Add(Buffer buffer, bool placed) {
    made_.program.buffers.push_back(std::move(buffer));
    placed_.push_back(placed);
    return static_cast<BufferIndex>(placed_.size() - 1);
  }
  // With a tail, which products write.
  BufferIndex Value(DType dtype, const Shape& shape) {
    return Add({.dtype = dtype, .shape = shape, .scaled = true}, false);
  }
  BufferIndex Output(DType dtype) {
    made_.program.output = OutputShape();
    const Buffer buffer{.storage = Storage::kOutput, .dtype = dtype, .shape = OutputShape()};
    made_.program.output_bytes = buffer.bytes();
    return Add(buffer, true);
  }
  BufferIndex Logits(DType dtype) {
    made_.output = dtype;
    return Output(dtype);
  }
  template <typename T>
  BufferIndex Parameter(DType dtype, const Shape& shape, const std::vector<T>& values) {
    Buffer buffer{.storage = Storage::kParameters, .dtype = dtype, .shape = shape};
    buffer.scaled = dtype == DType::kInt8;
    buffer.offset_bytes = static_cast<int64_t>(made_.parameters.size());
    made_.parameters.resize(AlignUp(buffer.offset_bytes + buffer.bytes()));
    std::memcpy(&made_.parameters[buffer.offset_bytes], values.data(), values.size() * sizeof(T));
    return Add(buffer, true);
  }
  BufferIndex Rule(const CodeRule& rule, absl::Span<const CodeChannel> channels = {}) {
    const std::vector<int64_t> words = WordsOf(rule, channels);
    return Parameter(DType::kInt64, {static_cast<int64_t>(words.size())}, words);
  }

  Instruction& Emit(OpCode code, std::vector<BufferIndex> inputs, BufferIndex output) {
    Instruction& made = made_.program.parts[static_cast<int>(Part::kForwardEval)].emplace_back();
    made.code = code;
    made.inputs = std::move(inputs);
    made.outputs = {output};
    made.layer = n().node.layer;
    made.op = n().node.op;
    return made;
  }
  OpSpec Window(OpKind kind) const {
    OpSpec op;
    op.kind = kind;
    op.kernel = {s().kernel_h, s().kernel_w};
    op.stride = {s().stride_h, s().stride_w};
    op.padding = {s().pad_h, s().pad_w};
    op.out_channels = s().out_c;
    op.groups = s().groups;
    return op;
  }

  bool IsSamples(size_t node) const { return node == 0 && !graph_.takes_codes; }

  void TakeGiven() {
    const bool is_samples = IsSamples(at_);
    Buffer buffer{.storage = Storage::kInput,
                  .dtype = is_samples ? DType::kFloat32 : DType::kInt8,
                  .shape = OutputShape()};
    buffer.offset_bytes = made_.program.input_bytes;
    made_.program.input_bytes = AlignUp(buffer.offset_bytes + buffer.bytes());
    made_.given.push_back({at_, buffer.offset_bytes});
    const BufferIndex x = Add(buffer, true);
    if (is_samples) samples_ = x;
    values_[at_] = Value(DType::kInt8, OutputShape());
    if (!is_samples) {
      Emit(OpCode::kCodesToChannelsFirst, {x}, values_[at_]);
      return;
    }
    CodeRule rule = OutputRule(n());
    rule.factor_a = std::bit_cast<uint32_t>(static_cast<float>(1 / n().coding.scale));
    Emit(OpCode::kEncodeCodes, {x, Rule(rule)}, values_[at_]);
  }

  absl::Status Compute() {
    switch (n().node.kind) {
      case NodeKind::kConv:
        return Convolve();
      case NodeKind::kMaxPool:
        values_[at_] = Value(DType::kInt8, OutputShape());
        Emit(OpCode::kInt8MaxPoolForward, {value()}, values_[at_]).attributes =
            Window(OpKind::kMaxPool);
        return absl::OkStatus();
      case NodeKind::kAvgPool:
        return Average();
      case NodeKind::kAdd:
        return AddValues();
      case NodeKind::kClamp: {
        const CodeChannel channel{.offset = -input().coding.zero,
                                  .multiplier = n().factors[0].multiplier,
                                  .shift = n().factors[0].shift};
        return Requantize(value(), {&channel, 1}, -1);
      }
      case NodeKind::kFlatten:
        values_[at_] = Value(DType::kInt8, OutputShape());
        Emit(OpCode::kCopy, {value()}, values_[at_]);
        return absl::OkStatus();
      case NodeKind::kInput:
        break;
    }
    return absl::InternalError("a graph whose samples are not given");
  }

  // Sums to the node's value, or to its logits' sums. row_sums: -1: none.
  absl::Status Requantize(BufferIndex sums, absl::Span<const CodeChannel> channels,
                          BufferIndex row_sums) {
    CodeRule rule = OutputRule(n());
    rule.zero_a = input().coding.zero;
    rule.factor_a = input().coding.max_code;
    std::vector<BufferIndex> inputs = {sums, Rule(rule, channels)};
    if (row_sums >= 0) inputs.push_back(row_sums);
    values_[at_] = n().gives_logits() ? Logits(DType::kInt32) : Value(DType::kInt8, OutputShape());
    std::vector<BufferIndex> kept = ProductInput(sums);
    Emit(OpCode::kRequantizeCodes, std::move(inputs), values_[at_]).keeps = std::move(kept);
    return absl::OkStatus();
  }

  // Of the product that gives the sums, if it is to be kept for them.
  std::vector<BufferIndex> ProductInput(BufferIndex sums) const {
    if (!options_.keeps_inputs) return {};
    for (const Instruction& made : made_.program.part(Part::kForwardEval)) {
      if (made.outputs[0] == sums && made.inputs.size() > 1) return {made.inputs[0]};
    }
    return {};
  }

  // The sums of x with weights (out, kernel..., in) into `out_c` channels.
  BufferIndex Sums(BufferIndex x, const OpSpec& window, int64_t out_c,
                   const std::vector<int8_t>& weights) {
    const int64_t ins = s().in_c / window.groups;
    const Shape shape = {out_c, ins, window.kernel[0], window.kernel[1]};
    OpSpec op = window;
    op.out_channels = out_c;
    const bool is_linear = s().in_h * s().in_w == 1 && window.kernel[0] * window.kernel[1] == 1 &&
                           window.groups == 1 && s().out_h * s().out_w == 1;
    if (!is_linear) {
      const BufferIndex sums = Value(DType::kInt32, {batch_, out_c, s().out_h, s().out_w});
      Instruction& product =
          Emit(OpCode::kInt8ConvForward, {x, Parameter(DType::kInt8, shape, weights)}, sums);
      product.attributes = op;
      product.winograd = n().winograd;
      return sums;
    }
    const BufferIndex row = Value(DType::kInt8, {batch_, s().in_c});
    Emit(OpCode::kCopy, {x}, row);
    const BufferIndex sums = Value(DType::kInt32, {batch_, out_c});
    op.kind = OpKind::kLinear;
    Emit(OpCode::kInt8LinearForward, {row, Parameter(DType::kInt8, {out_c, ins}, weights)}, sums)
        .attributes = op;
    return sums;
  }

  absl::Status Convolve() {
    if (n().is_real()) return ConvolveReal();
    OpSpec window = Window(OpKind::kConv);
    BufferIndex x = value();
    const Coding& in = input().coding;
    if (in.zero != 0 && s().pad_h + s().pad_w > 0) {
      CodeRule border;
      border.zero_a = in.zero;
      x = Value(DType::kInt8,
                {batch_, s().in_c, s().in_h + 2 * s().pad_h, s().in_w + 2 * s().pad_w});
      Emit(OpCode::kPadCodes, {value(), Rule(border)}, x);
      window.padding = {0, 0};
    }
    const BufferIndex sums = Sums(x, window, s().out_c, n().weights);
    BufferIndex row_sums = -1;
    if (!n().weight_zeros.empty()) {
      const int64_t row = s().taps() * s().group_in();
      row_sums = Sums(x, window, s().groups, std::vector<int8_t>(s().groups * row, 1));
    }
    const std::vector<int64_t> offsets = SumOffsets(n(), in);
    std::vector<CodeChannel> channels(s().out_c);
    for (size_t o = 0; o < channels.size(); ++o) {
      channels[o].offset = offsets[o];
      if (!n().weight_zeros.empty()) channels[o].weight_zero = n().weight_zeros[o];
      if (n().gives_logits()) continue;
      channels[o].multiplier = n().factors[o].multiplier;
      channels[o].shift = n().factors[o].shift;
    }
    return Requantize(sums, channels, row_sums);
  }

  absl::Status ConvolveReal() {
    if (!options_.codes_in_products) {
      return absl::UnimplementedError(absl::StrCat("node ", at_, " stays in FP32"));
    }
    const bool reads_samples = IsSamples(n().node.inputs[0]);
    CodeRule rule = OutputRule(n());
    rule.zero_a = input().coding.zero;
    rule.factor_a = std::bit_cast<uint32_t>(static_cast<float>(1 / n().coding.scale));
    rule.factor_b = std::bit_cast<int64_t>(input().coding.scale);
    const Shape shape = {s().out_c, s().group_in(), s().kernel_h, s().kernel_w};
    std::vector<BufferIndex> inputs = {
        reads_samples ? samples_ : value(), Parameter(DType::kFloat32, shape, n().real_weights),
        Parameter(DType::kFloat32, {s().out_c}, n().real_bias), Rule(rule)};
    values_[at_] =
        n().gives_logits() ? Logits(DType::kFloat32) : Value(DType::kInt8, OutputShape());
    Emit(OpCode::kRealProductToCodes, std::move(inputs), values_[at_]).attributes =
        Window(OpKind::kConv);
    return absl::OkStatus();
  }

  absl::Status Average() {
    if (s().taps() > kMaxInt32Products) {
      return absl::UnimplementedError(
          absl::StrCat("node ", at_, " averages over ", s().taps(), " positions"));
    }
    BufferIndex sums = -1;
    OpSpec window = Window(OpKind::kAvgPool);
    const bool is_global = s().kernel_h == s().in_h && s().kernel_w == s().in_w;
    if (is_global || s().taps() <= kMaxPoolTaps) {
      sums = Value(DType::kInt32, OutputShape());
      if (is_global) window.kind = OpKind::kGlobalAvgPool;
      Emit(is_global ? OpCode::kInt8GlobalAvgPoolForward : OpCode::kInt8AvgPoolForward, {value()},
           sums)
          .attributes = window;
    } else {
      window.kind = OpKind::kConv;
      window.groups = s().in_c;
      sums = Sums(value(), window, s().in_c, std::vector<int8_t>(s().in_c * s().taps(), 1));
    }
    const CodeChannel channel{.offset = -s().taps() * input().coding.zero,
                              .multiplier = n().factors[0].multiplier,
                              .shift = n().factors[0].shift};
    return Requantize(sums, {&channel, 1}, -1);
  }

  // The value that is made later stands first: it may be added where it is made (FuseCodes).
  absl::Status AddValues() {
    const int a = n().node.inputs[1] > n().node.inputs[0] ? 1 : 0, b = 1 - a;
    CodeRule rule = OutputRule(n());
    rule.zero_a = graph_.input(n(), a).coding.zero;
    rule.zero_b = graph_.input(n(), b).coding.zero;
    rule.factor_a = n().factors[a].multiplier;
    rule.factor_b = n().factors[b].multiplier;
    rule.shift = n().factors[0].shift;
    values_[at_] = Value(DType::kInt8, OutputShape());
    Emit(OpCode::kAddCodes, {value(a), value(b), Rule(rule)}, values_[at_]);
    return absl::OkStatus();
  }

  void Finish() {
    Program& program = made_.program;
    program.batch = batch_;
    program.first_layer = graph_.nodes.front().node.layer;
    program.last_layer = n().node.layer;
    if (!made_.given.empty()) {
      const ConvShape& first = graph_.nodes[made_.given.front().node].node.shape;
      program.input = {batch_, first.out_c, first.out_h, first.out_w};
    }
    program.state.parameter_bytes = static_cast<int64_t>(made_.parameters.size());
    if (options_.codes_in_products) FuseCodes(program);
    PlanMemory(placed_, /*one_in_flight=*/false, program);
  }

  const Int8Graph& graph_;
  const int64_t batch_;
  const GraphOptions options_;
  GraphProgram& made_;
  std::vector<bool> placed_;         // by buffer
  std::vector<BufferIndex> values_;  // by node
  BufferIndex samples_ = -1;         // where they are given
  size_t at_ = 0;                    // the node that is compiled
};

}  // namespace

absl::StatusOr<GraphProgram> CompileGraph(const Int8Graph& graph, int64_t batch,
                                          absl::Span<const size_t> given, size_t output,
                                          const GraphOptions& options) {
  GraphProgram made;
  RUNNEL_RETURN_IF_ERROR(Compiler(graph, batch, options, made).Run(given, output));
  return made;
}

}  // namespace runnel::inference
