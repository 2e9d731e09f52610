#include "kernels/backends/cpu/codes/code_kernels.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <vector>

#include "kernels/backends/cpu/integer/integer_kernels.h"
#include "kernels/backends/cpu/integer/product_slices.h"

namespace runnel::cpu {
namespace {

const CodeRule& RuleAt(const std::byte* words) { return *reinterpret_cast<const CodeRule*>(words); }

absl::Span<const CodeChannel> ChannelsAt(const std::byte* words, const Shape& shape) {
  const auto* channels = reinterpret_cast<const CodeChannel*>(words + sizeof(CodeRule));
  return {channels, static_cast<size_t>((shape.elements() - kCodeRuleWords) / kCodeChannelWords)};
}

// Products read exponents, whatever they mean.
absl::Status WithoutScale(const Call& call) {
  if (call.outputs[0].buffer->scaled) TailOfOutput(call, 0) = {};
  return absl::OkStatus();
}

// Floats of a sample, channel by channel, to codes that lie channels-last. A block of positions
// waits for its places on the stack.
absl::Status RunEncode(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const CodeRule& rule = RuleAt(call.inputs[1].data);
  const auto inverse = std::bit_cast<float>(static_cast<uint32_t>(rule.factor_a));
  const Image image = ImageOf(call.out_shape(0));
  // Limits that lie symmetrically are the loop's own.
  const bool is_symmetric = rule.lowest == -rule.highest;
  const auto most = static_cast<int32_t>(is_symmetric ? rule.highest : 127);
  constexpr int64_t kBlock = 256;
  ParallelFor(call.machine, image.n, [&](int, int64_t first, int64_t last) {
    int8_t codes[kBlock];
    for (int64_t plane = first * image.c; plane < last * image.c; ++plane) {
      const int64_t n = plane / image.c, c = plane % image.c;
      const float* x = call.in(0) + plane * image.positions();
      int8_t* y = call.out<int8_t>(0) + n * image.positions() * image.c + c;
      for (int64_t p = 0; p < image.positions(); p += kBlock) {
        const int64_t count = std::min(kBlock, image.positions() - p);
        call.machine.codes->encode(x + p, count, inverse, static_cast<int32_t>(rule.zero), most,
                                   codes);
        for (int64_t i = 0; i < count && !is_symmetric; ++i) {
          codes[i] = static_cast<int8_t>(std::clamp<int64_t>(codes[i], rule.lowest, rule.highest));
        }
        for (int64_t i = 0; i < count; ++i) y[(p + i) * image.c] = codes[i];
      }
    }
  });
  return WithoutScale(call);
}

absl::Status RunRequantize(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const CodeRule& rule = RuleAt(call.inputs[1].data);
  const absl::Span<const CodeChannel> channels = ChannelsAt(call.inputs[1].data, call.in_shape(1));
  const bool takes_codes = call.inputs[0].buffer->dtype == DType::kInt8;
  const bool gives_sums = call.outputs[0].buffer->dtype == DType::kInt32;
  const Image y = ImageOf(call.out_shape(0));
  const int64_t groups = call.inputs.size() > 2 ? call.in_shape(2)[1] : 0;
  ParallelFor(call.machine, y.rows(), [&](int, int64_t first, int64_t last) {
    for (int64_t i = first * y.c; i < last * y.c; ++i) {
      const int64_t c = i % y.c;
      const CodeChannel& channel = channels[channels.size() == 1 ? 0 : c];
      int64_t sum = channel.offset + (takes_codes ? call.in<int8_t>(0)[i] : call.in<int32_t>(0)[i]);
      if (groups > 0) {
        const int64_t row = i / y.c * groups + c / (y.c / groups);
        sum -= channel.weight_zero * call.in<int32_t>(2)[row];
      }
      const auto saturated = static_cast<int32_t>(std::clamp<int64_t>(sum, -INT32_MAX, INT32_MAX));
      if (gives_sums) {
        call.out<int32_t>(0)[i] = saturated;
      } else {
        call.out<int8_t>(0)[i] = CodeOf(rule, channel, saturated);
      }
    }
  });
  return WithoutScale(call);
}

absl::Status RunAdd(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  AddCodes(call.machine, RuleAt(call.inputs[2].data), call.in<int8_t>(0), call.in<int8_t>(1),
           call.out_shape(0).elements(), call.out<int8_t>(0));
  return WithoutScale(call);
}

absl::Status RunPad(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const Image x = ImageOf(call.in_shape(0)), y = ImageOf(call.out_shape(0));
  const int64_t top = (y.h - x.h) / 2, left = (y.w - x.w) / 2;
  std::memset(call.out<int8_t>(0), static_cast<int>(RuleAt(call.inputs[1].data).zero_a),
              static_cast<size_t>(call.out_shape(0).elements()));
  for (int64_t row = 0; row < x.n * x.h; ++row) {
    const int64_t to = (row / x.h * y.h + row % x.h + top) * y.w + left;
    std::memcpy(call.out<int8_t>(0) + to * y.c, call.in<int8_t>(0) + row * x.w * x.c,
                static_cast<size_t>(x.w * x.c));
  }
  return WithoutScale(call);
}

// Both ends lie channels-last; what says so is the plan (LayoutRule).
absl::Status RunReorder(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  std::memcpy(call.outputs[0].data, call.inputs[0].data,
              static_cast<size_t>(call.out_shape(0).elements()));
  return WithoutScale(call);
}

ConvShape SampleShapeOf(const Call& call) {
  ConvShape shape = ProductShapeOf(call, call.in_shape(0), call.out_shape(0));
  shape.batch = 1;
  return shape;
}

// The operands that say what a product is.
ProductSpec SpecOf(const Call& call) {
  return {.shape = SampleShapeOf(call),
          .weights = {call.in<int8_t>(1), static_cast<size_t>(call.in_shape(1).elements())},
          .rule = &RuleAt(call.inputs[2].data),
          .channels = ChannelsAt(call.inputs[2].data, call.in_shape(2)),
          .addition = call.inputs.size() > 3 ? &RuleAt(call.inputs[4].data) : nullptr,
          .gives_sums = call.outputs[0].buffer->dtype == DType::kInt32,
          .winograd = call.instruction->winograd};
}

RealConv RealOf(const Call& call) {
  const auto floats = [&](size_t i) {
    return absl::MakeConstSpan(call.in(i), static_cast<size_t>(call.in_shape(i).elements()));
  };
  return {SampleShapeOf(call), floats(1), floats(2), RuleAt(call.inputs[3].data)};
}

absl::Status RunProduct(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  std::optional<CodeProduct> own;
  const CodeProduct* product = call.prepared == nullptr
                                   ? nullptr
                                   : call.prepared->Product(call.inputs[1].buffer->offset_bytes);
  if (product == nullptr) product = &own.emplace(call.machine, SpecOf(call));
  product->Run(call.machine, call.in_shape(0)[0], call.in<int8_t>(0),
               call.inputs.size() > 3 ? call.in<int8_t>(3) : nullptr, call.outputs[0].data);
  return WithoutScale(call);
}

absl::Status RunReal(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  std::optional<RealConv> own;
  const RealConv* real =
      call.prepared == nullptr ? nullptr : call.prepared->Real(call.inputs[1].buffer->offset_bytes);
  if (real == nullptr) real = &own.emplace(RealOf(call));
  real->Run(call.machine, call.in_shape(0)[0], call.inputs[0], call.outputs[0]);
  return WithoutScale(call);
}

}  // namespace

absl::Span<const KernelRow> CodeKernels() {
  static constexpr KernelRow kRows[] = {
      {OpCode::kEncodeCodes, LayoutRule::kToChannelsLast, RunEncode},
      {OpCode::kRequantizeCodes, LayoutRule::kChannelsLast, RunRequantize},
      {OpCode::kAddCodes, LayoutRule::kSame, RunAdd},
      {OpCode::kPadCodes, LayoutRule::kChannelsLast, RunPad},
      {OpCode::kCodesToChannelsFirst, LayoutRule::kToChannelsLast, RunReorder},
      {OpCode::kCodesToChannelsLast, LayoutRule::kFromChannelsLast, RunReorder},
      {OpCode::kInt8ProductToCodes, LayoutRule::kChannelsLast, RunProduct},
      {OpCode::kRealProductToCodes, LayoutRule::kChannelsLast, RunReal},
  };
  return kRows;
}

PreparedProducts::PreparedProducts(const Program& program, const Machine& machine) {
  CodeProduct* before = nullptr;
  for (const Instruction& instruction : program.part(Part::kForwardEval)) {
    const bool is_real = instruction.code == OpCode::kRealProductToCodes;
    if (!is_real && instruction.code != OpCode::kInt8ProductToCodes) continue;
    std::vector<Operand> inputs, outputs;
    const auto constant = [&](BufferIndex index) {
      const Buffer& buffer = program.buffers[index];
      const bool is_constant = buffer.storage == Storage::kParameters;
      // Only read.
      auto* data = const_cast<std::byte*>(program.constants) + buffer.offset_bytes;
      return Operand{is_constant ? data : nullptr, &buffer};
    };
    for (BufferIndex index : instruction.inputs) inputs.push_back(constant(index));
    for (BufferIndex index : instruction.outputs) outputs.push_back(constant(index));
    const Call call{.instruction = &instruction, .inputs = inputs, .outputs = outputs};
    const int64_t offset = inputs[1].buffer->offset_bytes;
    if (is_real) {
      reals_[offset] = std::make_unique<RealConv>(RealOf(call));
      continue;
    }
    products_[offset] = std::make_unique<CodeProduct>(machine, SpecOf(call));
    if (before != nullptr) before->SetNext(*products_[offset]);
    before = products_[offset].get();
  }
}

const CodeProduct* PreparedProducts::Product(int64_t weights_offset) const {
  const auto found = products_.find(weights_offset);
  return found == products_.end() ? nullptr : found->second.get();
}

const RealConv* PreparedProducts::Real(int64_t weights_offset) const {
  const auto found = reals_.find(weights_offset);
  return found == reals_.end() ? nullptr : found->second.get();
}

int64_t PreparedProducts::bytes() const {
  int64_t bytes = 0;
  for (const auto& [offset, product] : products_) bytes += product->bytes();
  for (const auto& [offset, conv] : reals_) bytes += conv->bytes();
  return bytes;
}

}  // namespace runnel::cpu
