#include <utility>

#include "kernels/ir/memory_plan.h"
#include "kernels/ir/stage/stage_builder.h"

namespace runnel {
namespace {

int64_t AlignUp(int64_t bytes) {
  return (bytes + AreaPlan::kAlignment - 1) / AreaPlan::kAlignment * AreaPlan::kAlignment;
}

// An int8 weight's exponent lies in its tail.
StateTensor ExponentOf(const StateTensor& weight, const StateTensorSpec& spec) {
  const int64_t tail =
      ScaledBytes(weight.spec.dtype, weight.spec.shape) - static_cast<int64_t>(sizeof(ScaleTail));
  return {weight.layer, spec, weight.storage, weight.offset_bytes + tail};
}

void AddFrozen(int layer, const StateTensorSpec& spec, StateLayout& layout) {
  StateTensor tensor = {layer, spec, Storage::kStatistics, layout.statistic_bytes};
  tensor.channels_last = IsScaled(spec.dtype) && spec.shape.rank() > 2;
  layout.statistic_bytes += AlignUp(ValueBytes(spec.dtype, spec.shape));
  layout.tensors.push_back(tensor);
}

void AddTrainable(const LayerInfo& info, int layer, const StateTensorSpec& spec,
                  const CompileOptions& options, StateLayout& layout) {
  StateTensor tensor = {layer, spec, Storage::kParameters, layout.parameter_bytes,
                        layout.gradient_bytes};
  if (IsScaled(spec.dtype)) {
    tensor.channels_last = spec.shape.rank() > 2;
    tensor.gradient_dtype =
        options.accumulates_gradients
            ? DType::kInt64
            : GradientTypeOf(info.op_outputs[spec.op], spec.shape, options.max_batch);
  }
  layout.parameter_bytes += AlignUp(ValueBytes(spec.dtype, spec.shape));
  layout.gradient_bytes += AlignUp(ValueBytes(tensor.gradient_dtype, spec.shape));
  layout.tensors.push_back(tensor);
}

// Needs all parameters.
void AddSlots(const NumberFormat& numbers, StateLayout& layout) {
  for (const StateTensor& parameter : layout.tensors) {
    size_t k = 0;
    for (StateTensorSpec& spec : SlotsOf({parameter.spec}, numbers)) {
      layout.slots.push_back(
          {parameter.layer, std::move(spec), Storage::kSlots, layout.SlotOffset(parameter, k++)});
    }
  }
  if (!layout.slots.empty())
    layout.slot_bytes = static_cast<int64_t>(numbers.slots.size()) * layout.parameter_bytes;
}

}  // namespace

DType GradientTypeOf(const Shape& op_output, const Shape& weight, int64_t batch) {
  const int64_t positions = op_output.elements() / op_output[0] / weight[0];
  return batch * positions > kMaxInt32Products ? DType::kInt64 : DType::kInt32;
}

StateLayout LayOutState(const std::vector<LayerInfo>& infos, int first_layer, int last_layer,
                        const Recipe& recipe, const CompileOptions& options) {
  StateLayout layout;
  NumberFormat numbers = recipe.numbers;
  numbers.keeps_scales = numbers.integer_parameters() && options.rescale.keeps();
  const Optimizer& optimizer = *StepOf(options.optimizer).optimizer;
  numbers.slots = options.averages_weights ? optimizer.slots_with_average() : optimizer.slots();
  for (int layer = first_layer; layer <= last_layer; ++layer) {
    for (const StateTensorSpec& spec : StateOf(infos[layer], numbers)) {
      if (spec.role == TensorRole::kExponent) {
        layout.tensors.push_back(ExponentOf(layout.tensors.back(), spec));
      } else if (IsTrainable(spec.role) && spec.frozen) {
        AddFrozen(layer, spec, layout);
      } else if (IsTrainable(spec.role)) {
        AddTrainable(infos[layer], layer, spec, options, layout);
      } else {
        layout.tensors.push_back({layer, spec, Storage::kStatistics, layout.statistic_bytes});
        layout.statistic_bytes +=
            AlignUp(spec.shape.elements() * static_cast<int64_t>(SizeOf(spec.dtype)));
      }
    }
  }
  AddSlots(numbers, layout);
  if (options.steps_in_backward) layout.gradient_bytes = 0;
  return layout;
}

}  // namespace runnel
