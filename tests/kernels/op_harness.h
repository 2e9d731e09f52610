#pragma once

// Runs one instruction of backend ref on tensors that the test owns.

#include <cstring>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backends/ref/ref_backend.h"
#include "proto/base/random.h"
#include "tests/kernels/stage_harness.h"

namespace runnel {

struct Tensor {
  DType dtype = DType::kFloat32;
  Shape shape;
  std::vector<std::byte> bytes;
  bool scaled = false;
  Storage storage = Storage::kStash;  // where RunOp puts it
  DType values_of = DType::kFloat32;  // Buffer::values_of

  template <typename T = float>
  T* data() {
    return reinterpret_cast<T*>(bytes.data());
  }
  template <typename T = float>
  std::vector<T> values() {
    return std::vector<T>(data<T>(), data<T>() + bytes.size() / sizeof(T));
  }
};

// All zero.
inline Tensor Zeros(const Shape& shape, DType dtype = DType::kFloat32) {
  return {dtype, shape, std::vector<std::byte>(shape.elements() * SizeOf(dtype))};
}

// All zero, with its tail.
inline Tensor ScaledTensor(const Shape& shape, DType dtype) {
  return {dtype, shape, std::vector<std::byte>(ScaledBytes(dtype, shape)), true};
}

template <typename T>
Tensor TensorOf(const Shape& shape, DType dtype, const std::vector<T>& values) {
  Tensor tensor = Zeros(shape, dtype);
  EXPECT_EQ(tensor.bytes.size(), values.size() * sizeof(T));
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

inline Tensor Floats(const Shape& shape, const std::vector<float>& values) {
  return TensorOf<float>(shape, DType::kFloat32, values);
}

// Standard normal; `stream` tells tensors of one test apart.
inline Tensor Normal(const Shape& shape, uint64_t seed, uint64_t stream) {
  const CounterRandom random(seed, RandomPurpose::kTest, 7, stream);
  Tensor tensor = Zeros(shape);
  for (int64_t i = 0; i < shape.elements(); ++i) {
    tensor.data()[i] = static_cast<float>(random.Normal(i));
  }
  return tensor;
}

// Runs `code` as the only instruction of a forward, on ref unless `on` says otherwise. Operands are
// copied in and out.
inline absl::Status RunOp(OpCode code, const OpSpec& spec, std::vector<Tensor*> inputs,
                          std::vector<Tensor*> outputs, const StepContext& context = {},
                          int layer = 0, int op = 0, Backend* on = nullptr,
                          const IntegerRule& rule = {}, const GridRule& grid = {},
                          const RescaleRule& rescale = {}, const BatchSplit& split = {}) {
  Program program;
  program.batch = inputs[0]->shape[0];
  Instruction instruction = {code, {}, {}, layer, op, spec, rule};
  instruction.grid = grid;
  instruction.rescale = rescale;
  instruction.split = split;
  instruction.optimizer = &StepOf(nullptr);
  int64_t ends[kStorageCount] = {};
  const auto add = [&](Tensor* tensor, std::vector<BufferIndex>* operands) {
    int64_t& end = ends[static_cast<int>(tensor->storage)];
    operands->push_back(static_cast<BufferIndex>(program.buffers.size()));
    program.buffers.push_back(
        {tensor->storage, tensor->dtype, tensor->shape, end, tensor->scaled, tensor->values_of});
    end += (program.buffers.back().bytes() + 63) / 64 * 64;
  };
  for (Tensor* tensor : inputs) add(tensor, &instruction.inputs);
  for (Tensor* tensor : outputs) add(tensor, &instruction.outputs);
  program.parts[0].push_back(instruction);
  program.stash_bytes = ends[static_cast<int>(Storage::kStash)];
  std::vector<AlignedBytes> memory;
  Bindings bindings;
  memory.reserve(kStorageCount);
  for (int i = 0; i < kStorageCount; ++i) {
    memory.emplace_back(ends[i]);
    if (ends[i] > 0) bindings.base[i] = memory.back().data();
  }
  const auto data = [&](size_t i) {
    return bindings[program.buffers[i].storage] + program.buffers[i].offset_bytes;
  };
  std::vector<Tensor*> all = inputs;
  all.insert(all.end(), outputs.begin(), outputs.end());
  for (size_t i = 0; i < all.size(); ++i) {
    std::memcpy(data(i), all[i]->bytes.data(), all[i]->bytes.size());
  }
  auto backend = MakeRefBackend(1);
  auto executable = (on != nullptr ? on : backend->get())->Prepare(program);
  if (!executable.ok()) return executable.status();
  const absl::Status status = (*executable)->Run(Part::kForward, context, bindings);
  for (size_t i = 0; i < all.size(); ++i) {
    std::memcpy(all[i]->bytes.data(), data(i), all[i]->bytes.size());
  }
  return status;
}

}  // namespace runnel
