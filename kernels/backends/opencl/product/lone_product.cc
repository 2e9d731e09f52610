#include "kernels/backends/opencl/product/lone_product.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "kernels/backends/measure/random_operands.h"
#include "proto/base/status_macros.h"

namespace runnel::opencl {
namespace {

constexpr int64_t kShownBytes = 64;

// Roles of a product's operands: its input, its weight and its output, or their gradients.
enum class Role : uint8_t { kImage, kWeight, kSums, kBias };

struct Roles {
  std::array<Role, 3> inputs;
  std::array<Role, 2> outputs;
};

Roles RolesOf(OpCode code) {
  switch (code) {
    case OpCode::kConvInputGradient:
    case OpCode::kLinearInputGradient:
    case OpCode::kInt8ConvInputGradient:
    case OpCode::kInt8LinearInputGradient:
      return {{Role::kSums, Role::kWeight}, {Role::kImage}};
    case OpCode::kConvWeightGradient:
    case OpCode::kLinearWeightGradient:
    case OpCode::kInt8ConvWeightGradient:
    case OpCode::kInt8LinearWeightGradient:
      return {{Role::kSums, Role::kImage}, {Role::kWeight, Role::kBias}};
    default:
      return {{Role::kImage, Role::kWeight, Role::kBias}, {Role::kSums}};
  }
}

// Sizes that leave edges of every tile, several groups of channels and a whole window.
class SmallSizes {
 public:
  SmallSizes(const Shape& image, const Shape& weight, OpSpec& op) : is_linear_(image.rank() == 2) {
    constexpr int64_t kBatch = 2, kGroups = 3, kIn = 21, kOut = 37, kSide = 13;
    constexpr int64_t kLinearBatch = 41, kLinearIn = 149;
    const int64_t groups = is_linear_ ? 1 : op.groups;
    op.groups = std::min(groups, kGroups);
    const int64_t in = std::min(weight[1], is_linear_ ? kLinearIn : kIn);
    const int64_t out = op.groups * std::min(weight[0] / groups, kOut);
    op.out_channels = out;
    weight_ = {out, in};
    image_ = {std::min(image[0], is_linear_ ? kLinearBatch : kBatch), in * op.groups};
    sums_ = {image_[0], out};
    for (int axis = 0; axis < image.rank() - 2; ++axis) {
      const auto a = static_cast<size_t>(axis);
      weight_.push_back(op.kernel[a]);
      image_.push_back(std::min(image[axis + 2], std::max(op.kernel[a], kSide)));
      const int64_t padded = image_.back() + 2 * op.padding[a];
      sums_.push_back((padded - op.kernel[a]) / op.stride[a] + 1);
    }
  }

  Shape Of(Role role) const {
    switch (role) {
      case Role::kImage:
        return *Shape::Create(image_);
      case Role::kWeight:
        return *Shape::Create(weight_);
      case Role::kSums:
        return *Shape::Create(sums_);
      case Role::kBias:
        break;
    }
    return {weight_[0]};
  }

 private:
  const bool is_linear_;
  std::vector<int64_t> image_, weight_, sums_;
};

// Operands that are FP16 in the program are FP32 here: neither the best tile nor a sum depends on
// it.
BufferIndex Place(Program& program, Buffer buffer) {
  if (buffer.dtype == DType::kFloat16) buffer.dtype = DType::kFloat32;
  buffer.values_of = DType::kFloat32;
  buffer.storage = Storage::kStash;
  buffer.offset_bytes = program.stash_bytes;
  program.stash_bytes += (buffer.bytes() + 63) / 64 * 64;
  program.buffers.push_back(buffer);
  return static_cast<BufferIndex>(program.buffers.size()) - 1;
}

void Finish(LoneProduct& product, Instruction instruction, int copies) {
  Program& program = product.program;
  product.output = instruction.outputs[0];
  std::vector<Instruction>& part = program.parts[static_cast<size_t>(Part::kForward)];
  part.assign(static_cast<size_t>(copies), instruction);
  const Shape shown = {1, kShownBytes};
  const int64_t at = program.buffers[static_cast<size_t>(product.output)].offset_bytes;
  program.stash_bytes += kShownBytes;
  program.buffers.push_back({Storage::kStash, DType::kUInt8, shown, at});
  program.buffers.push_back({Storage::kOutput, DType::kUInt8, shown});
  const auto last = static_cast<BufferIndex>(program.buffers.size()) - 1;
  part.push_back({OpCode::kCopy, {last - 1}, {last}});
}

absl::StatusOr<Mapping> MapAll(Memory& operands) {
  return Mapping::Of(operands, MapAccess::kReadWrite);
}

}  // namespace

LoneProduct TakeProduct(const Program& program, const Instruction& instruction, int copies) {
  LoneProduct product;
  product.program.batch = program.batch;
  Instruction alone = instruction;
  alone.keeps.clear();
  for (auto* operands : {&alone.inputs, &alone.outputs}) {
    for (BufferIndex& index : *operands)
      index = Place(product.program, program.buffers[static_cast<size_t>(index)]);
  }
  Finish(product, alone, copies);
  return product;
}

LoneProduct TakeSmallProduct(const Program& program, const Instruction& instruction) {
  const Roles roles = RolesOf(instruction.code);
  Instruction alone = instruction;
  alone.keeps.clear();
  const Shape* image = nullptr;
  const Shape* weight = nullptr;
  const auto note = [&](Role role, BufferIndex index) {
    const Shape& shape = program.buffers[static_cast<size_t>(index)].shape;
    if (role == Role::kImage) image = &shape;
    if (role == Role::kWeight) weight = &shape;
  };
  for (size_t i = 0; i < alone.inputs.size(); ++i) note(roles.inputs[i], alone.inputs[i]);
  for (size_t i = 0; i < alone.outputs.size(); ++i) note(roles.outputs[i], alone.outputs[i]);
  const SmallSizes sizes(*image, *weight, alone.attributes);
  LoneProduct product;
  const auto place = [&](Role role, BufferIndex index) {
    Buffer buffer = program.buffers[static_cast<size_t>(index)];
    buffer.shape = sizes.Of(role);
    return Place(product.program, buffer);
  };
  for (size_t i = 0; i < alone.inputs.size(); ++i)
    alone.inputs[i] = place(roles.inputs[i], alone.inputs[i]);
  for (size_t i = 0; i < alone.outputs.size(); ++i)
    alone.outputs[i] = place(roles.outputs[i], alone.outputs[i]);
  product.program.batch = product.program.buffers[0].shape[0];
  Finish(product, alone, 1);
  return product;
}

absl::StatusOr<std::unique_ptr<Memory>> MakeOperands(const LoneProduct& product, Backend& backend,
                                                     bool magnitudes) {
  RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<Memory> operands,
                          backend.Allocate(product.program.stash_bytes));
  RUNNEL_ASSIGN_OR_RETURN(const Mapping mapping, MapAll(*operands));
  const Instruction& instruction = product.program.part(Part::kForward)[0];
  for (const auto* indices : {&instruction.inputs, &instruction.outputs}) {
    for (BufferIndex index : *indices) {
      const Buffer& buffer = product.program.buffers[static_cast<size_t>(index)];
      std::byte* data = mapping.data() + buffer.offset_bytes;
      FillRandomly(buffer, data);
      if (!magnitudes || buffer.dtype != DType::kFloat32) continue;
      auto* values = reinterpret_cast<float*>(data);
      for (int64_t i = 0; i < buffer.shape.elements(); ++i) values[i] = std::fabs(values[i]);
    }
  }
  return operands;
}

absl::Status SpoilOutput(const LoneProduct& product, Memory& operands) {
  RUNNEL_ASSIGN_OR_RETURN(const Mapping mapping, MapAll(operands));
  const Buffer& output = product.program.buffers[static_cast<size_t>(product.output)];
  std::memset(mapping.data() + output.offset_bytes, 0x5a, static_cast<size_t>(output.bytes()));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::byte>> ReadOutput(const LoneProduct& product, Memory& operands) {
  RUNNEL_ASSIGN_OR_RETURN(const Mapping mapping, Mapping::Of(operands, MapAccess::kRead));
  const Buffer& output = product.program.buffers[static_cast<size_t>(product.output)];
  const std::byte* data = mapping.data() + output.offset_bytes;
  const auto elements =
      static_cast<size_t>(output.shape.elements()) * static_cast<size_t>(SizeOf(output.dtype));
  std::vector<std::byte> bytes(data, data + elements);
  if (!output.scaled) return bytes;
  const std::byte* end = data + output.bytes();
  bytes.insert(bytes.end(), end - sizeof(ScaleTail), end);
  return bytes;
}

absl::Status RunProduct(Executable& executable, Memory& operands) {
  alignas(64) std::array<std::byte, kShownBytes> shown;
  Bindings bindings;
  bindings[Storage::kStash] = operands.address();
  bindings[Storage::kOutput] = shown.data();
  return executable.Run(Part::kForward, StepContext(), bindings);
}

}  // namespace runnel::opencl
