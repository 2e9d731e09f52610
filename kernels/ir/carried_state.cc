#include "kernels/ir/carried_state.h"

#include <algorithm>

namespace runnel {

NumberFormat WithCarriedState(NumberFormat numbers, const ModelSpec& model) {
  const auto is_cost = [](const SideValue& row) { return row.name == kGateCost.name; };
  const bool has_target = std::any_of(numbers.beside.begin(), numbers.beside.end(), is_cost);
  numbers.beside = SideValuesOf(has_target, CarriesState(model));
  return numbers;
}

CarriedState PlaceCarriedState(const ModelSpec& model, const NumberFormat& numbers,
                               Program& program, std::vector<bool>& placed) {
  const auto add = [&](Storage storage, const SideValue& row, Direction direction,
                       const Shape& tensor) {
    for (const SidePlace& place : SidePlaces(numbers, tensor, direction)) {
      if (place.value->name != row.name) continue;
      program.buffers.push_back({storage, row.type, Shape({program.batch, kLstmState}),
                                 static_cast<int64_t>(place.memory_offset)});
      placed.push_back(true);
      return static_cast<BufferIndex>(program.buffers.size()) - 1;
    }
    return kNoBuffer;
  };
  CarriedState state;
  if (StateEnters(model, program.first_layer)) {
    state.input = add(Storage::kInput, kCarriedStates, Direction::kForward, program.input);
    if (program.needs_input_gradient) {
      state.input_gradient =
          add(Storage::kInputGradient, kCarriedGradients, Direction::kBackward, program.input);
    }
  }
  if (StateEnters(model, program.last_layer + 1)) {
    state.output = add(Storage::kOutput, kCarriedStates, Direction::kForward, program.output);
    state.output_gradient =
        add(Storage::kOutputGradient, kCarriedGradients, Direction::kBackward, program.output);
  }
  return state;
}

}  // namespace runnel
